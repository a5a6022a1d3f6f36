"""What survives over seeds, modes and tasks (Prasanna et al. 2020, §4.1, §5.1, Figures 1, 3, 15)."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import product
from statistics import mean
from typing import Any

import numpy as np

from fairseq_headprune.choosing.lottery import GROUPS, parts_kept, super_survivors
from fairseq_headprune.evaluation.agreement import agreement
from fairseq_headprune.evaluation.p_values import corrected, holm
from fairseq_headprune.evaluation.trainings import Difference, Spread, paired, spread
from fairseq_headprune.files import PathLike
from fairseq_headprune.parts import COMPONENTS, FFN, Mask, Part, all_heads
from fairseq_headprune.report.described import Column, Described, Row
from fairseq_headprune.report.document import Document, HeadMap, map_components
from fairseq_headprune.report.marks import p_said, small
from fairseq_headprune.report.pictures import Distribution
from fairseq_headprune.report.tables import Table, fixed, mean_and_sd
from fairseq_headprune.studies.ticket_folders import TicketFolder, judgements, read_folders, shares


def survival(paths: Sequence[PathLike]) -> Document:
    """Compare the tickets of several folders of ``headprune lottery tickets``: tasks, modes, or both.

    Raises:
        ValueError, FileNotFoundError: see :func:`~fairseq_headprune.studies.ticket_folders.read_folders`.
    """
    folders = read_folders(paths)
    rows = {folder.name: _shares(folder) for folder in folders}
    together = _apart_and_together(folders)
    document = Document(f"What survives in {', '.join(folder.name for folder in folders)}")
    agreed = {folder.name: _agreement(folder) for folder in folders}
    document.data = {
        "survival": {name: {what: asdict(found) for what, found in row.items()} for name, row in rows.items()},
        "super_survivors": {folder.name: _always(folder) for folder in folders},
        "modes": {folder.name: folder.mode for folder in folders},
    }
    caption = "What survives: mean ± standard deviation over searches, and what survives in all of them"
    document.tables = [replace(SURVIVAL.table({"": document.data}), caption=caption), _agreement_table(agreed)]
    document.tables += [_together_table(together)] if together else []
    document.maps = [_over_seeds(folder, n) for n, folder in enumerate(folders, 1)] + _over_tasks(folders)
    importance = {folder.name: _importance(folder) for folder in folders if folder.goods}
    _add_importance(document, importance)
    document.findings = [
        f"{about['what'].capitalize()}: {about['alone_mean']:.1f}% survive pruned alone ({about['alone']}), "
        f"{about['together_mean']:.1f}% with the other ({about['together']}), over {test.n} models"
        + ("." if test.p_holm is None else f" ({p_said(small(test.p_holm))} after Holm's correction).")
        for about, test in together
    ]
    document.notes = _notes(folders, importance)
    document.data |= {
        "agreement": agreed,
        "apart_and_together": [{**about, **asdict(found)} for about, found in together],
        "importance": importance,
        "maps": [{"caption": found.caption, "components": found.components} for found in document.maps],
    }
    settings = {"study": "lottery survival", "data": {"split": folders[0].content["settings"]["select_data"]["split"]}}
    checkpoints = {folder.name: folder.checkpoints for folder in folders}
    document.provenance = {"settings": {**settings, "checkpoint": checkpoints}}
    return document


def _shares(folder: TicketFolder) -> dict[str, Spread]:
    """Percentages of heads, blocks and weights that survive, over the seeds."""
    if folder.kept:
        return {"weights": spread([100 * _kept(kept) for kept in folder.kept])}
    found = {}
    for what, group in GROUPS.items():
        total = len(folder.start.kept(group))
        if total and (what == folder.mode or folder.mode == "both"):
            found[what] = spread([100 * len(good.kept(group)) / total for good in folder.goods])
    weights = [kept for good in folder.goods if (kept := folder.weights_kept(good)) is not None]
    return {**found, "weights": spread(weights)} if weights else found


def _kept(kept: Mapping[str, Any]) -> float:
    return sum(int(mask.sum()) for mask in kept.values()) / sum(mask.numel() for mask in kept.values())


def _always(folder: TicketFolder) -> dict[str, Any]:
    """Numbers of heads and blocks, and percentage of weights, that survive in all searches."""
    if folder.kept:
        always = judgements(folder.kept).all(axis=1)
        return {"weights": 100 * float(always.mean())}
    mask = super_survivors(folder.goods)
    counts, weights = parts_kept(mask), folder.weights_kept(mask)
    return counts if weights is None else {**counts, "weights": weights}


def _always_of(what: str, form: str = "") -> Column:
    def shown(row: Row) -> str | None:
        found = row["super_survivors"][row["@survival"]].get(what)
        return None if found is None else format(found, form)

    return Column(f"Always: {what}{' (%)' if form else ''}", form=shown)


def _percent(found: Mapping[str, Any]) -> str:
    return mean_and_sd(found["mean"], found["sd"], 1)


#: What survives in each folder of tickets, from documents with ``survival``, ``super_survivors`` and ``modes``.
SURVIVAL = Described(
    [
        Column("Tickets", "@survival"),
        Column("Mode", form=lambda row: row.get("modes", {}).get(row["@survival"])),
        Column("Searches", "*", lambda shares: next(iter(shares.values()))["n"] if shares else None),
        *(Column(f"{what.capitalize()} (%)", f"*.{what}", _percent) for what in (*GROUPS, "weights")),
        *map(_always_of, GROUPS),
        _always_of("weights", ".1f"),
    ],
    rows="survival",
    align="ll",
)


def _agreement(folder: TicketFolder) -> dict[str, Any]:
    """Fleiss' kappa and Cochran's Q of the searches, for heads and blocks or for weights."""
    if not folder.kept:
        return folder.content.get("stability") or {}
    table = judgements(folder.kept)
    return {"weights": {"of": len(table), **asdict(agreement(table))}}


def _agreement_table(agreed: Mapping[str, Mapping[str, Any]]) -> Table:
    tests = [(f"{name}, {what}", found) for name, of in agreed.items() for what, found in of.items()]
    adjusted = iter(holm([found["p"] for _, found in tests if found["p"] is not None]))
    rows = [
        [
            label,
            *(fixed(found[key], 3) for key in ("kappa", "q")),
            small(found["p"]),
            small(None if found["p"] is None else next(adjusted)),
        ]
        for label, found in tests
    ]
    note = "kappa: 1 if all searches agree, 0 as by chance; Q tests only whether all searches keep equally many"
    header = ["Searches of", "Fleiss' kappa", "Cochran's Q", "p", "p (Holm)"]
    return Table(header, rows, caption="Do the searches of a folder agree on what survives?", notes=[note])


def _apart_and_together(folders: Sequence[TicketFolder]) -> list[tuple[dict[str, Any], Difference]]:
    """Compare what survives when heads, or blocks, are pruned alone and when both are, over the same models (§4.1)."""
    found = []
    for alone, both in product(folders, folders):
        if both.mode == "both" and alone.mode in GROUPS and set(alone.checkpoints) & set(both.checkpoints):
            group = GROUPS[alone.mode]
            total = len(both.start.kept(group))
            mine, its = (
                {name: 100 * len(good.kept(group)) / total for name, good in zip(of.checkpoints, of.goods, strict=True)}
                for of in (alone, both)
            )
            about: dict[str, Any] = {"what": alone.mode, "alone": alone.name, "together": both.name}
            about |= {"alone_mean": mean(mine.values()), "together_mean": mean(its.values())}
            found.append((about, paired(mine, its)))
    tests = corrected([test for _, test in found])
    return [(about, test) for (about, _), test in zip(found, tests, strict=True)]


def _together_table(found: Sequence[tuple[dict[str, Any], Difference]]) -> Table:
    rows = [
        [
            f"{about['what']}: {about['alone']}, {about['together']}",
            f"{about['alone_mean']:.1f}",
            f"{about['together_mean']:.1f}",
            f"{test.mean:+.1f}",
            test.n,
            small(test.p),
            small(test.p_holm),
        ]
        for about, test in found
    ]
    header = ["Survive (%)", "Pruned alone", "With the other", "Difference", "Models", "p", "p (Holm)"]
    return Table(header, rows, caption="Heads and blocks pruned apart and together (paired t-test over models)")


def _over_seeds(folder: TicketFolder, number: int) -> HeadMap:
    """The share of the searches in which each part survives, or of its weights that do (Figure 1)."""
    seeds = len(folder.checkpoints)
    if folder.goods:
        parts = all_heads(folder.start.shape, COMPONENTS)
        cells = {part: _cell([good[part] for good in folder.goods]) for part in parts if folder.start[part]}
        caption, label = f"{folder.name}: share of {seeds} searches in which each part survives", "share of searches"
    else:
        shape = {**folder.start.shape, **{component: [1] * layers for component, layers in _blocks(folder).items()}}
        found = [shares(kept, shape) for kept in folder.kept]
        cells = {part: _cell([of[part] for of in found]) for part in found[0]}
        caption, label = f"{folder.name}: share of the weights that survive in {seeds} searches", "share of weights"
    return HeadMap(caption, "importance", _components(cells, folder.start), label, f"seeds-{number}")


def _blocks(folder: TicketFolder) -> dict[str, int]:
    """Number of feed-forward blocks of each component, from the names of the matrices."""
    names = [name for name in folder.kept[0] if name.endswith("fc2.weight")]
    counts = {c: sum(("decoder" in name.split(".")) == (c == "dec_ffn") for name in names) for c in FFN}
    return {component: count for component, count in counts.items() if count}


def _over_tasks(folders: Sequence[TicketFolder]) -> list[HeadMap]:
    """The number of tasks in which each part survives, mean and deviation over seeds (Figure 15)."""
    by_kind: dict[tuple[str, str], list[TicketFolder]] = {}
    for folder in folders:
        if folder.goods:
            by_kind.setdefault((folder.mode, str(folder.start.shape)), []).append(folder)
    maps = []
    for (mode, _), mine in by_kind.items():
        seeds = min(len(folder.goods) for folder in mine)
        if len({folder.task for folder in mine}) < 2 or len(mine) > len({folder.task for folder in mine}):
            continue  # one task, or several folders of one
        parts = all_heads(mine[0].start.shape, COMPONENTS)
        counts = {part: [sum(folder.goods[seed][part] for folder in mine) for seed in range(seeds)] for part in parts}
        cells = {part: _cell(values) for part, values in counts.items()}
        tasks = ", ".join(folder.task for folder in mine)
        caption = f"Number of the tasks {tasks} in which each part survives ({mode}, {seeds} seeds)"
        maps.append(HeadMap(caption, "importance", _components(cells, mine[0].start), "tasks", f"tasks-{mode}"))
    return maps


def _cell(values: Sequence[float]) -> dict[str, Any]:
    found = spread([float(value) for value in values])
    return {"importance": found.mean, **({} if found.sd is None else {"sd": found.sd})}


def _components(cells: Mapping[Part, dict[str, Any]], start: Mask) -> list[dict[str, Any]]:
    """The components of a map of parts; parts that were pruned before the searches are marked."""
    shape = {}
    for component in (c for c in COMPONENTS if any(part.component == c for part in cells)):
        blocks = [1] * (1 + max(part.layer for part in cells if part.component == component))
        shape[component] = start.shape.get(component) or blocks
    return map_components(shape, lambda part: cells.get(part, {"state": "pruned"}))


def _importance(folder: TicketFolder) -> dict[str, list[float]]:
    """The importance of heads and of blocks in the first step of all searches."""
    found: dict[str, list[float]] = {}
    for scores in folder.importance():
        for what, group in GROUPS.items():
            rows = [row for component, layers in scores.rows.items() if component in group for row in layers]
            found.setdefault(what, []).extend(value for row in rows for value in row if value is not None)
    return {what: values for what, values in found.items() if values}


def _add_importance(document: Document, importance: Mapping[str, Mapping[str, list[float]]]) -> None:
    """Add the distribution of importance in the first step (Figure 3)."""
    rows = []
    for number, (name, of) in enumerate(importance.items(), 1):
        for what, values in of.items():
            low, *inner, high = np.quantile(values, [0, 0.25, 0.5, 0.75, 1])
            rows.append([f"{name}, {what}", len(values), *(f"{value:.3g}" for value in (low, *inner, high))])
        if of:
            caption = f"{name}: importance in the first step of all searches"
            document.panels.append(Distribution(f"importance-{number}", caption, "Importance", dict(of)))
    if rows:
        header = ["Importance of", "Number", "Least", "First quarter", "Median", "Third quarter", "Most"]
        document.tables.append(
            Table(header, rows, caption="Importance before anything is pruned, all searches together")
        )


def _notes(folders: Sequence[TicketFolder], importance: Mapping[str, Any]) -> list[str]:
    notes = ["weights: of the matrices of the layers' heads and blocks, without biases and embeddings"]
    lacking = [folder.name for folder in folders if folder.goods and folder.sizes is None]
    if lacking:
        notes.append(f"{', '.join(lacking)}: the models are not there any more, so weights are not counted")
    lacking = [name for name, of in importance.items() if not of]
    if lacking:
        notes.append(f"{', '.join(lacking)}: the searches are not there any more, so importance is not shown")
    return notes
