"""The tables and sentences that studies of masks are told in: what their verbs print, and what a report page shows."""

from collections.abc import Mapping
from itertools import zip_longest
from typing import Any

from fairseq_headprune.parts import HEADS, PAPER_NAMES
from fairseq_headprune.report.tables import Marked, Table, mark_of, paper_head_table

#: what translations are scored by
BLEU = "BLEU"


def measure_of(settings: Mapping[str, Any]) -> str:
    """Return the name of the score of a study with these settings."""
    return settings.get("metric", BLEU)


def curve_name(label: str) -> str:
    """Return the name of a pruning curve: a component as the papers write it, ``all`` as "All"."""
    return "All" if label == "all" else PAPER_NAMES.get(label, label)


def by_head(cells: list[dict], shape: dict[str, list[int]], alpha: float) -> dict[str, tuple[list, list]]:
    """Arrange differences and marks of significance as component -> (one list a layer, one list a layer)."""
    maps = {}
    for component in dict.fromkeys(cell["component"] for cell in cells):
        deltas: list[list] = [[None] * heads for heads in shape[component]]
        marks: list[list] = [[""] * heads for heads in shape[component]]
        for cell in cells:
            if cell["component"] == component:
                deltas[cell["layer"]][cell["head"]] = cell["delta"]
                marks[cell["layer"]][cell["head"]] = mark(cell, alpha)
        maps[component] = (deltas, marks)
    return maps


def mark(cell: dict, alpha: float) -> str:
    """Return the mark of a cell; while a study is not finished (``p_holm`` is None) nothing survives correction."""
    return mark_of(cell["p"], 1.0 if cell["p_holm"] is None else cell["p_holm"], alpha)


def ablation_tables(maps: dict[str, tuple[list, list]], measure: str = BLEU) -> list[str | Table]:
    """Table 1 of Michel et al. (2019) for each component of :func:`by_head`, each after a line that says what it is."""
    parts: list[str | Table] = []
    for component, (deltas, marks) in maps.items():
        what = f"difference in {measure} without each head, counted from 1"
        parts.append(f"{PAPER_NAMES[component]} ({component}): {what}")
        parts.append(paper_head_table(deltas, marks))
    return parts


def ablation_found(count: dict[str, int], measure: str = BLEU) -> str:
    """Say in a sentence what :func:`~fairseq_headprune.studies.results.found` counted."""
    improve = f"{count['improve']} {'improves' if count['improve'] == 1 else 'improve'} it"
    return (
        f"{count['significant']} of {count['heads']} heads change {measure} significantly; {improve} "
        f"(without Holm's correction: {count['significant_raw']}; {count['improve_raw']})"
    )


def keep_one_table(cells: list[dict], skipped: list[dict], alpha: float) -> Table:
    """Tabulate differences as Michel et al. (2019), Tables 2 and 5: layers down, components across, heads in brackets.

    Layers and heads count from 1. A layer that has one head anyway shows +0.00, one without heads ``-``.
    """
    shown: dict[tuple[str, int], Any] = {}
    for cell in cells:
        text = f"{cell['delta']:+.2f} ({cell['head'] + 1})"
        shown[cell["component"], cell["layer"]] = Marked(text, mark(cell, alpha))
    for layer in skipped:
        heads = layer["heads"]
        shown[layer["component"], layer["layer"]] = f"{0:+.2f} ({heads[0] + 1})" if heads else None
    components = [c for c in HEADS if any(component == c for component, _ in shown)]
    layers = range(1 + max(layer for _, layer in shown))
    rows = [[str(layer + 1), *(shown.get((c, layer), "") for c in components)] for layer in layers]
    return Table(["Layer", *(PAPER_NAMES[c] for c in components)], rows)


def keep_one_caption(selected: str, reported: str, measure: str = BLEU) -> str:
    """Say what :func:`keep_one_table` shows, by the names of the splits."""
    what = f"Difference in {measure} on {reported} when a layer keeps one head only"
    return f"{what} (in brackets; the best on {selected}); layers and heads from 1"


def keep_one_found(cells: list[dict], alpha: float, measure: str = BLEU) -> str:
    """Say in how many layers one head is enough."""
    worse = [cell for cell in cells if cell["delta"] < 0]
    count = {name: sum(cell[name] < alpha for cell in worse) for name in ("p", "p_holm")}
    return (
        f"one head is enough in {len(cells) - count['p_holm']} of {len(cells)} layers; {count['p_holm']} lose "
        f"{measure} significantly (without Holm's correction: {count['p']})"
    )


def optimistic(tried: int) -> str:
    """Warn of heads that are chosen on the split they are reported on."""
    return (
        "Heads are chosen on the split they are reported on, so the differences are optimistic; Holm's correction "
        f"is over all {tried} heads that were tried"
    )


def passed_text(layer: dict) -> str:
    """Say why a layer of :func:`~fairseq_headprune.single_heads.passed_over` has no result."""
    where = f"{PAPER_NAMES[layer['component']]} layer {layer['layer'] + 1}"
    return f"{where} was passed over: it has {'one head' if layer['heads'] else 'no head'} anyway (difference 0)"


def curve_caption(measure: str = BLEU) -> str:
    """Say what :func:`curve_table` shows."""
    return f"{measure} by share of heads pruned; each column prunes its own heads and leaves the others"


def curve_table(curves: dict[str, list[dict]], alpha: float) -> Table:
    """Tabulate pruning curves: a row a step, a column a curve; steps that are not done yet show as ``-``."""
    rows: list[list[Any]] = []
    for points in zip_longest(*curves.values()):
        percent = next(point["percent"] for point in points if point)
        rows.append([f"{percent:.0f}%", *(_point(point, alpha) for point in points)])
    return Table(["Pruned", *map(curve_name, curves)], rows)


def _point(point: dict | None, alpha: float) -> Any:
    if point is None:
        return None
    text = f"{point['score']:.2f}"
    return f"{text} (sd {point['sd']:.2f})" if "sd" in point else Marked(text, mark(point, alpha))


def pruned_points(curves: Mapping[str, list[dict]]) -> list[dict]:
    """Return the points of all curves but their first, the unpruned model: those that Holm's correction is over."""
    return [point for points in curves.values() for point in points[1:]]


def curve_found(label: str, points: list[dict], alpha: float, measure: str = BLEU) -> str:
    """Say how many heads can go before the score falls significantly (after Holm's correction)."""
    worse = [point for point in points if point["p_holm"] < alpha and point["score"] < points[0]["score"]]
    last = [point for point in points if not worse or point["step"] < worse[0]["step"]][-1]
    better = (
        f" (step {worse[0]['step']}, {worse[0]['percent']:.0f}%, is the first that loses {measure})" if worse else ""
    )
    name = PAPER_NAMES.get(label, label)
    can = f"{last['pruned']} of {points[-1]['pruned']} heads can go"
    return f"{name}: {can} without a significant loss of {measure}{better}"


def epoch_table(epochs: list[dict], label: str, alpha: float) -> Table:
    """Tabulate the pruning curves of several epochs: a row an epoch, the share of its unpruned score in brackets."""
    first = epochs[0]["curves"][label]
    rows = []
    for row in epochs:
        points = row["curves"][label]
        texts = [f"{p['score']:.2f}" + ("" if p["relative"] is None else f" ({p['relative']:.0%})") for p in points]
        marks = [mark(p, alpha) for p in points]
        rows.append([str(row["epoch"]), texts[0].split()[0], *map(Marked, texts[1:], marks[1:])])
    return Table(["Epoch", *(f"{point['percent']:.0f}%" for point in first)], rows)


def epoch_parts(value: dict, label: str, alpha: float, measure: str = BLEU) -> list[str | Table]:
    """Return the tables of one curve of a sweep, each after a line that says what it is, and when its sets settled.

    Args:
        value: as :func:`~fairseq_headprune.studies.curves.read_sweep` returns it.
    """
    ranking = value["ranking"][label]
    return [
        f"{measure} by epoch and share of heads pruned ({PAPER_NAMES.get(label, label)})",
        epoch_table(value["epochs"], label, alpha),
        "Spearman's correlation of the ranking with the last epoch's, and heads shared with its best K",
        ranking_table(ranking),
        *map(reached, ranking["sets"]),
    ]


def ranking_table(ranking: dict) -> Table:
    """Tabulate how a ranking evolves (see :func:`~fairseq_headprune.studies.rankings.evolution`)."""
    rows = []
    for place, epoch in enumerate(ranking["epochs"]):
        rho = ranking["spearman"][place][-1]
        shared = [str(found["shared"][place]) for found in ranking["sets"]]
        rows.append([str(epoch), "not defined" if rho is None else f"{rho:.3f}", *shared])
    return Table(["Epoch", "Spearman", *(f"K = {found['keep']}" for found in ranking["sets"])], rows)


def reached(found: dict) -> str:
    """Say when the final set of a size is first reached."""
    return (
        f"the final {found['keep']} heads are first reached at epoch {found['first']} and stay from epoch "
        f"{found['stays_from']} on"
    )


def epoch_found(epochs: list[dict], kept_within: dict[str, dict[str, float | None]]) -> list[str]:
    """Say for each curve what share of the heads can go within 90% of the unpruned score, at the first and last epoch.

    Args:
        kept_within: curve -> epoch -> that share in percent, None where the epoch's unpruned score is 0.
    """
    lines = []
    for label, shares in kept_within.items():
        first, last = (epochs[place]["epoch"] for place in (0, -1))
        texts = {epoch: _share(shares[str(epoch)]) for epoch in (first, last)}
        lines.append(
            f"{PAPER_NAMES.get(label, label)}: within 90% of the unpruned score, {texts[last]} can go at epoch {last}"
            + (f", {texts[first]} at epoch {first}" if first != last else "")
        )
    return lines


def _share(percent: float | None) -> str:
    return "no known share (its score is 0)" if percent is None else f"{percent:.0f}% of the heads"
