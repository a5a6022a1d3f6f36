"""The README's tables of the studies of Michel et al. 2019, from results/studies/*.json."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq_headprune.files import read_json
from fairseq_headprune.parts import HEADS, PAPER_NAMES
from fairseq_headprune.report.tables import Marked, Table, mark_of

Tabulated = tuple[Table, str]

#: Steps of a curve that the table of epochs shows, in percent.
_SHOWN = (20, 40, 60, 80)


def single_heads(results: Path) -> Tabulated:
    """Every head alone: how many matter, by test set and component (the summary of Table 1 and Figure 1)."""
    rows, value = [], {}
    for path in _found(results, "studies/ablate-*.json", "ablate-*.json"):
        value = read_json(path)
        for component in HEADS:
            cells = [cell for cell in value["cells"] if cell["component"] == component]
            sure = [cell for cell in cells if cell["p_holm"] < value["alpha"]]
            worst = min(cells, key=lambda cell: cell["delta"])
            place = f"layer {worst['layer'] + 1}, head {worst['head'] + 1}"
            rows.append(
                [
                    path.stem.removeprefix("ablate-"),
                    PAPER_NAMES[component],
                    len(cells),
                    sum(cell["delta"] < 0 for cell in sure),
                    sum(cell["delta"] > 0 for cell in sure),
                    Marked(f"{worst['delta']:+.2f}", mark_of(worst["p"], worst["p_holm"], value["alpha"])),
                    place,
                ]
            )
    header = ["test set", "component", "heads", "lose BLEU", "gain BLEU", "largest loss", "where (from 1)"]
    return Table(header, rows, "llrrrrl"), _tested(value)


def one_head(results: Path) -> Tabulated:
    """One head kept in a layer: the difference for the best one (Tables 2 and 5)."""
    value = read_json(results / "studies" / "keep-one.json")
    layers = sorted({cell["layer"] for cell in value["cells"]})
    cells = {(cell["component"], cell["layer"]): cell for cell in value["cells"]}
    rows = [[layer + 1, *(_difference(cells.get((c, layer)), value["alpha"]) for c in HEADS)] for layer in layers]
    chosen, shown = value["select_data"]["split"], value["data"]["split"]
    note = f"Difference in BLEU; the head is chosen on {chosen}, the difference is that on {shown}. {_tested(value)}"
    return Table(["layer", *(PAPER_NAMES[c] for c in HEADS)], rows), note


def orders(results: Path) -> Tabulated:
    """BLEU by share of heads pruned in the order of importance, of an oracle, and of chance (Figure 3)."""
    columns: dict[str, Sequence[dict]] = {}
    value: dict[str, Any] = {}
    for path in _found(results, "studies/order-*.json"):
        value = read_json(path)
        columns[path.stem.removeprefix("order-")] = value.get("means", value["curves"])["all"]
    rows = []
    for points in zip(*columns.values(), strict=True):
        rows.append([f"{points[0]['percent']:.0f}%", *(_score(point, value["alpha"]) for point in points)])
    return Table(["pruned", *columns], rows), _tested(value)


def epochs(results: Path) -> Tabulated:
    """BLEU of each epoch and what is left of it after pruning (Figure 5)."""
    value = read_json(next(iter(_found(results, "studies/sweep.json", "sweep.json"))))
    rows = []
    for row in value["epochs"]:
        left = {round(point["percent"]): point["relative"] for point in row["curves"]["all"]}
        kept = value["kept_within"]["all"][str(row["epoch"])]
        rows.append(
            [
                row["epoch"],
                f"{row['baseline']['score']:.2f}",
                *(None if left[share] is None else f"{left[share]:.0%}" for share in _SHOWN),
                None if kept is None else f"{kept:.0f}%",
            ]
        )
    header = ["epoch", "unpruned BLEU", *(f"{share}% pruned" for share in _SHOWN), "90% kept up to"]
    note = f"Share of each epoch's unpruned BLEU; {value['epochs'][0]['baseline']['signature']}."
    return Table(header, rows, "r" * len(header)), note


def _found(results: Path, *patterns: str) -> list[Path]:
    paths = [path for pattern in patterns for path in sorted(results.glob(pattern))]
    if not paths:
        raise FileNotFoundError(f"{results}/{patterns[0]}")
    return paths


def _tested(value: dict[str, Any]) -> str:
    return (
        f"{value['signature']}; ** p < {value['alpha']:g} after Holm's correction, * only before it (paired bootstrap)."
    )


def _difference(cell: dict | None, alpha: float) -> Marked | None:
    return None if cell is None else Marked(f"{cell['delta']:+.2f}", mark_of(cell["p"], cell["p_holm"], alpha))


def _score(point: dict, alpha: float) -> Any:
    if "sd" in point:
        return f"{point['score']:.2f} (sd {point['sd']:.2f})"
    return Marked(f"{point['score']:.2f}", mark_of(point["p"], point["p_holm"], alpha))
