"""The README's tables of trained models, of removed heads and of speed."""

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import shown

from fairseq_headprune.evaluation.trainings import welch
from fairseq_headprune.files import read_json
from fairseq_headprune.report.marks import difference_text, p_said, small
from fairseq_headprune.report.speed import levels_note, levels_table
from fairseq_headprune.report.tables import Table

Value = dict[str, Any]


def values(results: Path, *patterns: str) -> dict[str, Value]:
    """Read the results that match the patterns, keyed by file name without ``.json``.

    Raises:
        FileNotFoundError: there are none.
    """
    found = {path.stem: read_json(path) for pattern in patterns for path in sorted(results.glob(pattern))}
    if not found:
        raise FileNotFoundError(f"{results}/{patterns[0]}")
    return found


def machine(value: Value) -> str:
    """Return the name of the GPU or CPU, and torch's version."""
    return f"{value['environment']['gpu'] or 'CPU'}, torch {value['environment']['torch']}"


def training(results: Path) -> Table:
    """BLEU of every trained model, and the mean of each architecture."""
    value = read_json(results / "train.json")
    runs = value["runs"]
    sets = [name for name in ("test2016", "test2017", "mscoco2017") if name in runs[0]]
    rows: list[list[Any]] = []
    by_arch: dict[str, list[Value]] = {}
    for run in runs:
        by_arch.setdefault(run["arch"], []).append(run)
        scores = [f"{run[name]['bleu']:.2f}" for name in sets]
        rows.append([run["arch"], run["seed"], *scores, run["best_epoch"], f"{run['valid_loss']:.3f}"])
    for arch, of_arch in by_arch.items():
        means = [f"{statistics.mean(run[name]['bleu'] for run in of_arch):.2f}" for name in sets]
        rows.append([arch, "mean", *means, "", f"{statistics.mean(run['valid_loss'] for run in of_arch):.3f}"])
    where = f"{machine(value)}, Python {value['environment']['python']}"
    apart = "; ".join(f"{name} {_welch(runs, name)}" for name in sets)
    notes = [
        f"BLEU, {runs[0][sets[0]]['signature']}; {where}. Gated minus stock, means with 95% "
        f"intervals, Welch's t-test over seeds: {apart}."
    ]
    return Table(["architecture", "seed", *sets, "best epoch", "valid loss"], rows, notes=notes)


def _welch(runs: list[Value], name: str) -> str:
    sides = [[run[name]["bleu"] for run in runs if ("gated" in run["arch"]) is gated] for gated in (False, True)]
    found = welch(*sides)
    assert found.mean is not None
    return f"{difference_text(found.mean, found.ci)}, {p_said(small(found.p))}"


def train(results: Path) -> Table:
    """Training speed of every side, by device."""
    rows, found = [], values(results, "bench-train-*.json").values()
    for value in found:
        for side, timed in value["sides"].items():
            times = shown(timed["ms_per_update"], 1), shown(timed["words_per_second"], 0)
            rows.append([_device(value), side, *times, shown(timed["speed_to_stock"])])
    header = ["device", "model", "ms/update", "words/s", "speed (stock = 1)"]
    return Table(header, rows, "llrrr", notes=[f"Median (min-max) of {value['rounds']} interleaved rounds."])


def score(results: Path) -> Table:
    """Cost of scoring against a plain forward and backward pass, by device."""
    rows = []
    for value in values(results, "bench-score-*.json").values():
        peaks, gates = value["peak_bytes"], value["gates"]
        memory = f"{(peaks['score'] - peaks['plain']) / 2**20:+,.1f}" if peaks["score"] else None
        times = shown(value["seconds"]["score"], 2), shown(value["time_to_plain"]), shown(value["time_to_stock"])
        rows.append([_device(value), *times, memory, f"{gates['layers']} x {gates['bytes_per_layer'] / 1024:.1f} KiB"])
    header = ["device", "seconds", "time / plain", "time / stock", "extra peak MiB", "gates"]
    return Table(header, rows, notes=[f"Median (min-max) of {value['rounds']} interleaved rounds."])


def bootstrap(results: Path) -> Table:
    """Bootstrap time for many systems, ours and compare-mt's."""
    value = read_json(results / "bench-bootstrap.json")
    rows = [
        ["headprune compare, all systems", shown(value["ours_seconds_all_systems"])],
        ["compare-mt, one pair", shown(value["compare_mt_seconds_per_pair"])],
        ["compare-mt, all pairs (extrapolated)", f"{value['compare_mt_seconds_all_pairs_extrapolated']:,.0f}"],
        ["times faster (extrapolated)", f"{value['times_faster_extrapolated']:,.0f}"],
    ]
    what = f"{value['systems']} systems, {value['sentences']} sentences, {value['resamples']} resamples"
    notes = [f"{what}, {value['environment']['cpus']} CPUs; median (min-max) of {value['repeats']} repeats."]
    return Table(["", "seconds"], rows, notes=notes)


def removal(results: Path) -> Table:
    """Slim models compared with masked ones: size, BLEU, identical translations."""
    rows: list[list[Any]] = []
    found = [value for _, value in sorted(values(results, "slim*.json").items())]
    for value in found:
        precision = "fp16" if "--fp16" in value["commands"]["unpruned"] else "fp32"
        rows.append([precision, "0%", None, None, None, f"{value['bleu_unpruned']:.2f}", None, None])
        for row in value["rows"]:
            before, after = row["parameters"]["before"], row["parameters"]["after"]
            kept = " ".join(f"{name}={counts}" for name, counts in row["config"].items())
            size = [f"{after / 1e6:.1f} M ({after / before - 1:+.0%})", f"{row['bytes']['after'] / 2**20:.0f} MiB"]
            scores = [f"{row['bleu_masked']:.2f}", f"{row['bleu_slim']:.2f}"]
            same = f"{row['identical']} of {row['sentences']}"
            rows.append([precision, f"{row['percent']}%", kept, *size, *scores, same])
    header = ["", "removed", "heads kept", "parameters", "file", "BLEU masked", "BLEU slim", "equal translations"]
    machines = "; ".join(dict.fromkeys(map(machine, found)))
    return Table(header, rows, "lllrrrrr", notes=[f"BLEU, {value['signature']}; {machines}."])


def speed(results: Path) -> Table:
    """Decoding speed of slim models relative to the unpruned one, and the speed-up expected from multiply-adds."""
    rows, counted = [], ""
    for value in values(results, "bench-speed-*.json").values():
        counted = _counted(value) or counted
        models = list(value["models"])
        by_place = {(row["beam"], row["batch_size"], row["model"]): row["speed"] for row in value["rows"]}
        for beam, size in dict.fromkeys(place[:2] for place in by_place):
            speeds = [shown(by_place[beam, size, model]) for model in models[1:]]
            rows.append([_device(value), beam, size or "max-tokens", *speeds])
    rows.sort(key=lambda row: (row[0], row[1], str(row[2]).zfill(9)))
    floors = ", ".join(f"{name} {value['models'][name]['floor_speed']:.2f}" for name in models[1:])
    note = f"Speed against the unpruned model: median (min-max) of interleaved rounds. By multiply-adds: {floors}."
    header = ["device", "beam", "batch", *models[1:]]
    return Table(header, rows, "lrr" + "r" * (len(models) - 1), notes=[note + counted])


def _counted(value: Value) -> str:
    """Return the number of operations per batch in the last rows of a benchmark, if they were counted."""
    last = value["rows"][-1]
    if "operations" not in last:
        return ""
    rows = [row for row in value["rows"] if (row["beam"], row["batch_size"]) == (last["beam"], last["batch_size"])]
    counts = ", ".join(f"{row['operations']:,}" for row in rows)
    return f" Operations of a batch with beam {last['beam']}, unpruned and then as in the columns: {counts}."


def speed_by_heads(results: Path) -> Table:
    """Speed and size by heads kept, for all devices; not every device was measured at every batch size."""
    found = values(results, "speed-by-heads-*.json").values()
    by_size = sorted(found, key=lambda value: value["unpruned"]["parameters"])
    tables = [levels_table(value, _device(value)) for value in by_size]
    header = list(max((table.header for table in tables), key=len))
    cells = [dict(zip(table.header, row, strict=True)) for table in tables for row in table.rows]
    rows = [[row.get(name) for name in header] for row in cells]
    return Table(header, rows, "ll" + "r" * (len(header) - 2), notes=[levels_note(*found)])


def ablation(results: Path) -> Table:
    """All masks of a grid in one batch, compared with one mask at a time."""
    rows = []
    for value in values(results, "bench-ablation-*.json").values():
        times = [value["seconds"]["many"], value["seconds"]["loop"], value["speedup"]]
        # Older results have no control.
        control = [value.get(f"control_{side}identical_hypotheses") for side in ("many_", "")]
        differs = value.get("largest_bleu_difference")
        rows.append(
            [
                _device(value | {"threads": None}),
                f"{value['masks']} x {value['sentences']}",
                *(shown(time, 1) for time in times),
                f"{value['floor_seconds']:.1f}",
                f"{value['identical_hypotheses']:.3%}",
                *(None if share is None else f"{share:.3%}" for share in control),
                None if differs is None else f"{differs:.3f}",
            ]
        )
    header = ["device", "masks x sentences", "in one batch, s", "one by one, s", "faster", "floor, s", "equal"]
    header += ["equal on control masks", "one by one twice", "BLEU differs by"]
    note = (
        f"Beam {value['beam']}; median (min-max) of {value['rounds']} rounds; floor: its arithmetic at the speed of "
        "one large matrix product; equal: translations that are the same on both sides; one by one twice: the same for "
        "the loop at two batch sizes, on the control masks; BLEU differs by: at most, over the masks."
    )
    return Table(header, rows, "lrrrrrrrrr", notes=[note])


def fine_tuning(results: Path) -> Table:
    """Throughput of fine-tuning, compared with a plain loop over transformers."""
    rows: list[list[Any]] = []
    for value in values(results, "bench-finetune-*.json").values():
        for side, found in value["sides"].items():
            speeds = [shown(found["examples_per_second"], 0), shown(found["speed_to_huggingface"])]
            rows.append([_device(value), value["task"], side, *speeds])
    note = f"The same batches; median (min-max) of {value['rounds']} interleaved rounds."
    return Table(["device", "task", "loop", "examples/s", "speed"], rows, "lllrr", notes=[note])


def fine_tuned(results: Path) -> Table:
    """Development scores of fine-tuned models, compared with the same recipe in a plain loop over transformers."""
    rows: list[list[Any]] = []
    found = values(results, "tuned-*.json", "reference-*.json")
    for task in ("SST-2", "MRPC", "CoLA", "RTE", "STS-B"):
        mine = [value for name, value in found.items() if name.startswith(f"tuned-{task}-")]
        theirs = [value["best"]["score"] for name, value in found.items() if name.startswith(f"reference-{task}-")]
        if mine:
            scores = [value["results"][0]["scores"]["score"] for value in mine]
            rows.append([task, mine[0]["metric"], len(scores), _mean(scores), _mean(theirs) if theirs else None])
    note = "Best epoch of three on the development set; mean, and in brackets the standard deviation over seeds."
    return Table(["task", "metric", "seeds", "bert_gated", "transformers"], rows, "llrrr", notes=[note])


def _mean(scores: list[float]) -> str:
    spread = f" ({statistics.stdev(scores):.2f})" if len(scores) > 1 else ""
    return f"{statistics.mean(scores):.2f}{spread}"


def _device(value: Value) -> str:
    """Return the GPU, or the number of CPU threads if known, and the precision."""
    threads = value.get("threads", value["environment"].get("threads"))
    where = value["environment"]["gpu"] if value.get("device") != "cpu" else None
    return f"{where or (f'{threads} CPU threads' if threads else 'CPU')}, {value['precision']}"


TABLES: dict[str, Callable[[Path], Table]] = {
    "training": training,
    "fine-tuned": fine_tuned,
    "bench-train": train,
    "bench-score": score,
    "bench-bootstrap": bootstrap,
    "removal": removal,
    "speed": speed,
    "speed-by-heads": speed_by_heads,
    "bench-ablation": ablation,
    "bench-finetune": fine_tuning,
}
