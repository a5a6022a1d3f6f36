"""The tickets of several seeds, tasks and modes in one table (Prasanna et al. 2020, Table 2 and Figure 2)."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import mean
from typing import Any

from fairseq_headprune.evaluation.p_values import corrected
from fairseq_headprune.evaluation.trainings import Difference, Spread, paired, spread
from fairseq_headprune.files import PathLike
from fairseq_headprune.report.described import Column, Described, Row
from fairseq_headprune.report.document import Document
from fairseq_headprune.report.marks import TrainingTests, difference_text
from fairseq_headprune.report.pictures import TicketScores
from fairseq_headprune.report.tables import Marked, Table, mean_and_sd
from fairseq_headprune.studies.lottery_retrain import FULL, HOW, LotteryRetrain
from fairseq_headprune.studies.study import UNPRUNED

#: settings that may differ between seeds
_OF_A_SEED = ("checkpoint", "tickets", "training_seed", "begin", "fresh")

#: the order of tickets in a table
ORDER = (FULL, "good", "random", "random-by-component", "bad", "super-survivors")

#: where a score stands: ticket, and the setting in which it is scored
Place = tuple[str, str]


@dataclass
class Group:
    """The studies of one task and one kind of tickets, which differ only in the seed.

    Attributes:
        task, kind: the task's name; ``weights`` for tickets of single weights, else empty.
        spreads: place -> the scores of the seeds.
        tests: place -> its difference from the full model trained again.
    """

    task: str
    kind: str
    studies: list[LotteryRetrain]
    scores: dict[Place, dict[str, float]]
    spreads: dict[Place, Spread]
    tests: dict[Place, Difference]

    @property
    def name(self) -> str:
        """The task, and the kind of tickets."""
        return _label(self.task, self.kind)

    @property
    def line(self) -> float:
        """Mean of the full model trained again minus one standard deviation (Figure 2)."""
        whole = self.spreads[FULL, "retrained"]
        return whole.mean - (whole.sd or 0.0)

    @property
    def majority(self) -> dict[str, Any] | None:
        """The most frequent label and its score; None for translation."""
        return self.studies[0].settings["majority"]

    def numbers(self) -> dict[str, Any]:
        """Return all numbers as JSON values."""
        tickets = [
            {
                "ticket": place[0],
                "how": place[1],
                "scores": list(self.scores[place].values()),
                **{name: value for name, value in asdict(found).items() if name != "ci"},
                "p": self.tests[place].p if place in self.tests else None,
                "p_holm": self.tests[place].p_holm if place in self.tests else None,
                "difference": asdict(self.tests[place]) if place in self.tests else None,
            }
            for place, found in self.spreads.items()
        ]
        studied = [{"path": str(s.folder.path), "checkpoint": s.settings["checkpoint"]} for s in self.studies]
        about = {"task": self.task, "kind": self.kind, "measure": self.studies[0].measure}
        return {**about, "tickets": tickets, "line": self.line, "majority": self.majority, "studies": studied}


def seeds_table(paths: Sequence[PathLike]) -> Document:
    """Return mean and standard deviation over finished studies of ``headprune lottery retrain``, one per seed.

    The studies may be of several tasks, and of tickets of parts and of weights. Each mean is compared with that of the
    retrained full model by a paired t-test over the seeds, with Holm's correction over all tests of the document.

    Raises:
        ValueError, FileNotFoundError: fewer than two studies of a task, unfinished ones, or ones that differ in more
            than seed, task and kind of tickets.
    """
    by_key: dict[tuple[str, str], list[LotteryRetrain]] = {}
    for path in paths:
        study = _read(path)
        weights = any("weights" in ticket for ticket in study.settings["tickets"].values())
        task = study.settings["data"].get("task") or f"{study.measure} on {study.split}"
        by_key.setdefault((task, "weights" if weights else ""), []).append(study)
    groups = [_group(*key, studies) for key, studies in by_key.items()]
    places = [(group, place) for group in groups for place in group.tests]
    for (group, place), test in zip(places, corrected([group.tests[place] for group, place in places]), strict=True):
        group.tests[place] = test
    return _document(groups)


def _read(path: PathLike) -> LotteryRetrain:
    study = LotteryRetrain.read(path)
    if len(study.cells()) < study.planned():
        raise ValueError(f"{path} is not finished: {study.again}")
    return study


def _group(task: str, kind: str, studies: list[LotteryRetrain]) -> Group:
    first = studies[0]
    if len(studies) < 2:
        raise ValueError(f"{first.folder.path}: give the studies of two seeds or more: a deviation needs them")
    for study in studies[1:]:
        first.check_only_differs(study, _OF_A_SEED)
        if list(first.tickets) != list(study.tickets) or study.settings_of != first.settings_of:
            raise ValueError(f"{first.folder.path} and {study.folder.path} have other tickets, or score them otherwise")
    cells = {study.settings["checkpoint"]: study.cells() for study in studies}
    if len(cells) < len(studies):
        raise ValueError("two studies are of the same checkpoint; give one for each seed")
    ids = {(FULL, "pruned"): UNPRUNED} | {(c.facts["ticket"], c.facts["how"]): c.id for c in first.plan()[1:]}
    scores = {place: {seed: of[name]["score"] for seed, of in cells.items()} for place, name in ids.items()}
    whole = FULL, "retrained"
    tests = {place: paired(scores[whole], mine) for place, mine in scores.items() if place != whole}
    return Group(task, kind, studies, scores, {p: spread(list(of.values())) for p, of in scores.items()}, tests)


def _document(groups: Sequence[Group]) -> Document:
    first = groups[0].studies[0]
    alpha, tasks = first.alpha, list(dict.fromkeys(group.task for group in groups))
    document = Document(f"Lottery tickets: {', '.join(tasks)}")
    document.tables = [_one_task(groups, alpha)] if len(tasks) == 1 else _by_task(groups, tasks, alpha)
    values = {f"{group.task} {group.kind}": {**group.numbers(), "alpha": alpha} for group in groups}
    document.tables.append(replace(DIFFERENCES.table(values), caption=DIFFERENCE))
    tests = sum(test.p is not None for group in groups for test in group.tests.values())
    document.notes = [
        *(
            f"{group.name}: the full model trained again, minus one standard deviation: {group.line:.2f}"
            for group in groups
        ),
        f"mean ± standard deviation (number of trainings); {{holm}} differs from the full model trained again at p < "
        f"{alpha:g} after Holm's correction over {tests} tests, {{raw}} before it only (paired t-test over seeds)",
    ]
    document.findings = [
        f"{group.name}, {place[0]}, trained again: {found.mean:.2f} over {found.n} seeds, "
        f"{'below' if found.mean < group.line else 'at or above'} the full model's mean minus one standard deviation."
        for group in groups
        for place, found in group.spreads.items()
        if place[1] == "retrained" and place[0] != FULL
    ]
    document.panels = [
        TicketScores("tickets", "Tickets, pruned and trained again", [_panel(groups, task) for task in tasks])
    ]
    numbers = [group.numbers() for group in groups]
    document.data = {"alpha": alpha, "tests": tests, "tasks": numbers, **(numbers[0] if len(groups) == 1 else {})}
    checkpoints = [study.settings["checkpoint"] for group in groups for study in group.studies]
    settings = {"study": "lottery table", "data": {"split": first.split}, "checkpoint": checkpoints, "alpha": alpha}
    document.provenance = {"settings": settings}
    document.state["measure"] = first.measure
    return document


def _text(found: Mapping[str, Any], alpha: float) -> Any:
    """A cell: mean, deviation and number of trainings, and the mark of its test."""
    text = f"{mean_and_sd(found['mean'], found['sd'])} ({found['n']})"
    return text if found["p"] is None else Marked(text, TrainingTests(alpha, 0).mark(found))


def _label(name: str, kind: str) -> str:
    return f"{name} ({kind})" if kind else name


def _place(row: Row) -> tuple[Any, ...]:
    """Files and kinds of tickets apart, then the tickets from the whole model on, then the settings."""
    ticket = row["ticket"]
    return (
        row["@file"],
        row["kind"],
        ORDER.index(ticket) if ticket in ORDER else len(ORDER),
        list(HOW).index(row["how"]),
    )


#: one row per ticket, one column per setting, from documents with ``alpha`` and the numbers of one group
TICKETS = Described(
    [
        Column("Ticket", form=lambda row: _label(row["ticket"], row["kind"])),
        Column("", form=lambda rows: _text(rows[0], rows[0]["alpha"]), over=True),
    ],
    rows="tickets",
    across=Column("", "how", HOW.__getitem__),
    titles=list(HOW.values()),
    order=_place,
)

DIFFERENCE = (
    "Difference from the full model trained again: mean, 95% interval over seeds (Student's t), number of pairs in "
    "brackets"
)


def _difference(rows: Sequence[Row]) -> str | None:
    found = rows[0]["difference"]
    return found and f"{difference_text(found['mean'], found['ci'])} ({found['n']})"


#: the same with differences from the full model trained again
DIFFERENCES = replace(
    TICKETS,
    columns=[Column("Task", "task"), TICKETS.columns[0], Column("", form=_difference, over=True)],
    only=lambda row: row["difference"] is not None,
    align="ll",
)


def _one_task(groups: Sequence[Group], alpha: float) -> Table:
    table = TICKETS.table({group.kind: {**group.numbers(), "alpha": alpha} for group in groups})
    first, majority = groups[0].studies[0], groups[0].majority
    last = [["most frequent label", f"{majority['score']:.2f}", *[None] * (len(table.header) - 2)]] if majority else []
    return replace(table, rows=[*table.rows, *last], caption=f"{first.measure} on {first.split}")


def _by_task(groups: Sequence[Group], tasks: Sequence[str], alpha: float) -> list[Table]:
    """One table per setting: one row per ticket, one column per task, and the mean of the tasks' means (Table 2)."""
    found = []
    by_place = {(group.kind, group.task): group for group in groups}
    kinds = list(dict.fromkeys(group.kind for group in groups))
    measures = {group.task: group.studies[0].measure for group in groups}
    texts = {
        (group.task, group.kind, entry["ticket"], entry["how"]): _text(entry, alpha)
        for group in groups
        for entry in group.numbers()["tickets"]
    }
    for how in HOW:
        rows: list[list[Any]] = []
        for kind in kinds:
            mine = {task: by_place[kind, task] for task in tasks if (kind, task) in by_place}
            for name in dict.fromkeys(
                place[0] for group in mine.values() for place in group.spreads if place[1] == how
            ):
                cells = [texts.get((task, kind, name, how)) for task in tasks]
                means = [group.spreads[name, how].mean for group in mine.values() if (name, how) in group.spreads]
                label = _label(name, kind)
                rows.append([label, *cells, f"{mean(means):.2f}" if len(means) == len(tasks) else None])
        if rows:
            rows.append(_baselines(groups, tasks))
            header = ["Ticket", *(f"{task} ({measures[task]})" for task in tasks), "Average"]
            found.append(Table(header, [row for row in rows if row], caption=f"Tickets: {HOW[how].lower()}"))
    return found


def _baselines(groups: Sequence[Group], tasks: Sequence[str]) -> list[Any]:
    scores = {group.task: group.majority["score"] for group in groups if group.majority}
    if not scores:
        return []
    average = f"{mean(scores.values()):.2f}" if len(scores) == len(tasks) else None
    return ["most frequent label", *(f"{scores[t]:.2f}" if t in scores else None for t in tasks), average]


def _panel(groups: Sequence[Group], task: str) -> Mapping[str, Any]:
    """The points of Figure 2 for one task."""
    mine = [group for group in groups if group.task == task]
    points = [
        {"ticket": _label(ticket, group.kind), "how": HOW[how], "mean": found.mean, "sd": found.sd or 0.0, "n": found.n}
        for group in mine
        for (ticket, how), found in group.spreads.items()
    ]
    majority = mine[0].majority
    baseline = None if majority is None else majority["score"]
    measure = mine[0].studies[0].measure
    return {"task": task, "measure": measure, "points": points, "line": mine[0].line, "baseline": baseline}
