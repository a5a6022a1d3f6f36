"""The README's tables of removed heads: equality with the mask, size, speed."""

from pathlib import Path
from typing import Any

from benchmarks import shown

from fairseq_headprune.files import read_json
from fairseq_headprune.report.tables import Table

Tabulated = tuple[Table, str]


def removal(results: Path) -> Tabulated:
    """Slim models beside masked ones: size, BLEU, equal translations."""
    rows: list[list[Any]] = []
    machines: list[str] = []
    for path in sorted(results.glob("slim*.json"), key=lambda path: path.stem):
        value = read_json(path)
        machines.append(_machine(value))
        precision = "fp16" if "--fp16" in value["commands"]["unpruned"] else "fp32"
        rows.append([precision, "0%", None, None, None, f"{value['bleu_unpruned']:.2f}", None, None])
        rows += [[precision, *_removed(row)] for row in value["rows"]]
    if not rows:
        raise FileNotFoundError(f"{results}/slim*.json")
    header = ["", "removed", "heads kept", "parameters", "file", "BLEU masked", "BLEU slim", "equal translations"]
    return Table(header, rows, "lllrrrrr"), f"BLEU, {value['signature']}; {'; '.join(dict.fromkeys(machines))}."


def _removed(row: dict[str, Any]) -> list[str]:
    before, after = row["parameters"]["before"], row["parameters"]["after"]
    return [
        f"{row['percent']}%",
        " ".join(f"{name}={counts}" for name, counts in row["config"].items()),
        f"{after / 1e6:.1f} M ({after / before - 1:+.0%})",
        f"{row['bytes']['after'] / 2**20:.0f} MiB",
        f"{row['bleu_masked']:.2f}",
        f"{row['bleu_slim']:.2f}",
        f"{row['identical']} of {row['sentences']}",
    ]


def speed(results: Path) -> Tabulated:
    """Decoding speed of slim models against the unpruned one, and the speed that multiply-adds would allow."""
    rows, value, counted = [], {}, ""
    for path in sorted(results.glob("bench-speed-*.json")):
        value = read_json(path)
        counted = _counted(value) or counted
        where = value["environment"]["gpu"] if value["device"] == "cuda" else f"{value['threads']} CPU threads"
        models = list(value["models"])
        by_place = {(row["beam"], row["batch_size"], row["model"]): row["speed"] for row in value["rows"]}
        for beam, size in dict.fromkeys((row["beam"], row["batch_size"]) for row in value["rows"]):
            speeds = [shown(by_place[beam, size, model]) for model in models[1:]]
            rows.append([f"{where}, {value['precision']}", beam, size or "max-tokens", *speeds])
    if not rows:
        raise FileNotFoundError(f"{results}/bench-speed-*.json")
    rows.sort(key=lambda row: (row[0], row[1], str(row[2]).zfill(9)))
    floors = ", ".join(f"{name} {value['models'][name]['floor_speed']:.2f}" for name in models[1:])
    how = "median (min-max) of interleaved rounds"
    note = f"Speed against the unpruned model: {how}. By multiply-adds: {floors}.{counted}"
    return Table(["device", "beam", "batch", *models[1:]], rows, "lrr" + "r" * (len(models) - 1)), note


def _counted(value: dict[str, Any]) -> str:
    """Say how many operations a batch takes, with the largest beam; nothing where they were not counted."""
    last = value["rows"][-1]
    rows = [row for row in value["rows"] if (row["beam"], row["batch_size"]) == (last["beam"], last["batch_size"])]
    if "operations" not in last:
        return ""
    beam, counts = last["beam"], ", ".join(f"{row['operations']:,}" for row in rows)
    return f" Operations of a batch with beam {beam}, unpruned and then as in the columns: {counts}."


def ablation_speed(results: Path) -> Tabulated:
    """All masks of a grid in one batch against one mask at a time."""
    rows, value = [], {}
    for path in sorted(results.glob("bench-ablation-*.json")):
        value = read_json(path)
        where = value["environment"]["gpu"] if value["device"] == "cuda" else "CPU"
        seconds = value["seconds"]
        rows.append(
            [
                f"{where}, {value['precision']}",
                f"{value['masks']} x {value['sentences']}",
                shown(seconds["many"], 1),
                shown(seconds["loop"], 1),
                shown(value["speedup"], 1),
                f"{value['floor_seconds']:.1f}",
                f"{value['identical_hypotheses']:.3%}",
                *_control(value),
            ]
        )
    if not rows:
        raise FileNotFoundError(f"{results}/bench-ablation-*.json")
    header = ["device", "masks x sentences", "in one batch, s", "one by one, s", "faster", "floor, s", "equal"]
    header += ["equal on control masks", "one by one twice", "BLEU differs by"]
    return Table(header, rows, "lrrrrrrrrr"), (
        f"Beam {value['beam']}; median (min-max) of {value['rounds']} rounds; floor: its arithmetic at the speed of "
        "one large matrix product; equal: translations that are the same on both sides; one by one twice: the same for "
        "the loop at two batch sizes, on the control masks; BLEU differs by: at most, over the masks."
    )


def _control(value: dict[str, Any]) -> list[str | None]:
    """How far the loop agrees with itself, and the largest difference in BLEU; older results have neither."""
    shares: list[str | None] = [None, None]
    if value.get("control_masks"):
        shares = [f"{value[f'control_{side}identical_hypotheses']:.3%}" for side in ("many_", "")]
    difference = value.get("largest_bleu_difference")
    return [*shares, None if difference is None else f"{difference:.3f}"]


def _machine(value: dict[str, Any]) -> str:
    environment = value["environment"]
    return f"{environment['gpu'] or 'CPU'}, torch {environment['torch']}"
