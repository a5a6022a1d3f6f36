"""How lottery tickets are shown (Prasanna et al. 2020): the verbs' own tables task by task, and what gather.py adds.

Documents are those of gather.py, by task.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from statistics import mean, stdev
from typing import Any

from fairseq_headprune.evaluation.p_values import p_number
from fairseq_headprune.evaluation.trainings import paired
from fairseq_headprune.report.described import Column, Described, Row
from fairseq_headprune.report.marks import TrainingTests
from fairseq_headprune.report.tables import Table
from fairseq_headprune.studies.attention_patterns import SHARES
from fairseq_headprune.studies.lottery_retrain import FULL
from fairseq_headprune.studies.lottery_survival import SURVIVAL
from fairseq_headprune.studies.lottery_table import DIFFERENCE, TICKETS
from fairseq_headprune.studies.lottery_table import DIFFERENCES as LOTTERY_DIFFERENCES

Values = Mapping[str, Mapping[str, Any]]

#: rows of the paper's Table 2: its name, the kind of tickets, ticket, setting (None: the most frequent label)
_TABLE_2 = {
    "most frequent label": ("both", None),
    "bad, trained again": ("both", ("bad", "retrained")),
    "bad (weights), trained again": ("magnitude", ("bad", "retrained")),
    "random, from random weights": ("both", ("random", "fresh")),
}
#: weights in the layers' matrices: of six layers of width 384 (BERT), and of six and six of width 512 (translation)
_WEIGHTS = {False: 6 * (4 * 384**2 + 2 * 384 * 1536), True: 6 * (12 * 512**2 + 4 * 512 * 1024)}


def _task(name: str) -> str:
    return name.removesuffix("-survivors")


def _words(name: str) -> str:
    """Return what was searched, from the name of a search or a folder: ``dev-both``, ``tickets-dev-magnitude``."""
    return name.rpartition("-")[2].replace("magnitude", "weights")


def _range(counts: Sequence[float], digits: int = 1) -> str:
    """The mean and the extremes; a number alone if all are the same."""
    if min(counts) == max(counts):
        return f"{counts[0]:.0f}"
    return f"{mean(counts):.{digits}f} ({min(counts):.0f} to {max(counts):.0f})"


def _counts(kept: Mapping[str, int]) -> tuple[int, int]:
    """Count the heads and the blocks that are kept, over all components."""
    blocks = sum(count for name, count in kept.items() if name.endswith("_ffn"))
    return sum(kept.values()) - blocks, blocks


def _kept(rows: list[Row]) -> str:
    """Say how much of the model the tickets of several searches keep."""
    tickets = [row["ticket"] for row in rows]
    if rows[0]["@searches"].endswith("magnitude"):
        whole = _WEIGHTS[rows[0]["measure"] == "BLEU"]
        return f"{_range([100 * (1 - ticket['weights'] / whole) for ticket in tickets], 0)} percent"
    heads, blocks = zip(*(_counts(ticket["kept"]) for ticket in tickets), strict=True)
    return f"{_range(heads)} heads, {_range(blocks)} blocks"


def _scores(rows: list[Row], on: str) -> str | None:
    """The mean score of the full models, and of their tickets."""
    pairs = [[row[f"{on}{name}"]["score"] for name in ("baseline", "ticket")] for row in rows if f"{on}ticket" in row]
    return " → ".join(f"{mean(scores):.1f}" for scores in zip(*pairs, strict=True)) if pairs else None


def _optimism(rows: list[Row]) -> str | None:
    left = [
        [100 * row[f"{on}ticket"]["score"] / row[f"{on}baseline"]["score"] for on in ("", "reported_")]
        for row in rows
        if "reported_ticket" in row
    ]
    gaps = [there - reported for there, reported in left]
    return f"{mean(gaps):+.1f} ± {stdev(gaps):.1f}" if gaps else None


#: What the searches keep, and what is left of the score on the split that selected, and on the one that reports.
SELECTION = Described(
    [
        Column("task", "@file"),
        Column("tickets of", "@searches", lambda name: "weights" if _words(name) == "weights" else "heads and blocks"),
        Column("selected on", "@searches", lambda name: name.partition("-")[0]),
        Column("models", form=len, over=True),
        Column("kept", form=_kept, over=True),
        Column("score there", form=lambda rows: _scores(rows, "") if "reported_ticket" in rows[0] else None, over=True),
        Column(
            "score on dev or test",
            form=lambda rows: _scores(rows, "reported_" if "reported_ticket" in rows[0] else ""),
            over=True,
        ),
        Column("optimism", form=_optimism, over=True),
    ],
    rows="searches/*",
    only=lambda row: row["@searches"].endswith(("both", "magnitude")),
    order=lambda row: (row["@file"], row["@searches"].split("-")[::-1]),
    align="lll",
    note="Mean (least to most) over the models; weights are those of the layers' matrices. Scores: the full model's "
    "and its ticket's, where it was selected and on dev (translation: test2016). Optimism: percent of the full model's "
    "score left where the ticket was selected, minus percent left where it is reported (mean ± standard deviation "
    "over the models, not tested).",
)


def _agreement_of(place: int, what: str) -> list[Column]:
    """Heads or blocks: how many are kept, how many in all searches, and whether the searches agree."""

    def searched(row: Row) -> bool:
        return _words(row["@tickets"]) in (what, "both")

    def kept(row: Row) -> str | None:
        searches = row["searches"][row["@tickets"]].values()
        return _range([_counts(search["ticket"]["kept"])[place] for search in searches]) if searched(row) else None

    def always(row: Row) -> int | None:
        counts = _counts({part: sum(map(sum, mask)) for part, mask in row["super-survivors"].items()})
        return counts[place] if searched(row) else None

    def agreed(found: Mapping[str, Any]) -> str | None:
        return None if found["kappa"] is None else f"{round(found['kappa'], 2) + 0.0:.2f} ({p_number(found['p'])})"

    titles = f"{what} kept", "in all", "kappa (Q)"
    return [
        Column(titles[0], form=kept),
        Column(titles[1], form=always),
        Column(titles[2], f"stability.{what}", agreed),
    ]


#: How many heads and blocks survive, searched apart and together, and whether the seeds agree (§4.1, §5.1).
AGREEMENT = Described(
    [
        Column("task", "@file"),
        Column("searched", "@tickets", _words),
        Column("models", form=lambda row: len(row["searches"][row["@tickets"]])),
        *_agreement_of(0, "heads"),
        *_agreement_of(1, "blocks"),
    ],
    rows="tickets",
    only=lambda row: not row["@tickets"].startswith("holdout") and "super-survivors" in row,
    order=lambda row: (row["@file"], ("heads", "blocks", "both").index(_words(row["@tickets"]))),
    align="ll",
    note="Selected on dev (translation: valid). Kept: mean (least to most) over the seeds; how many survive in all of "
    "them; Fleiss' kappa, and p of Cochran's Q, which tests only whether all seeds keep equally many (no kappa where "
    "all searches keep all, or nothing).",
)


def tickets(values: Values) -> Table:
    """The table of ``headprune lottery table`` for each task; the full model is the same for both kinds of tickets."""
    columns = [Column("Task", "@file"), *TICKETS.columns] if len(values) > 1 else TICKETS.columns
    tables = [found for value in values.values() for found in value["tables"].values()]
    tests = {found["kind"]: found["tests"] for found in tables}
    legend = TrainingTests(tables[0]["alpha"], tests[""]).legend("the full model trained again")
    note = f"Mean ± standard deviation (number of trainings); {legend}; tickets of weights: {tests['weights']} tests."

    def only(row: Row) -> bool:
        return not row["kind"] or row["ticket"] != "full"

    described = replace(TICKETS, columns=columns, rows="tables/tickets", only=only, align="ll"[: len(columns) - 1])
    return replace(described.table(values), notes=[note])


def differences(values: Values) -> Table:
    """The differences of the tickets of each task from the full model trained again, from the scores of the seeds."""
    found = {}
    for name, value in values.items():
        for kind, table in value["tables"].items():
            scores = {(of["ticket"], of["how"]): dict(enumerate(of["scores"])) for of in table["tickets"]}
            whole = FULL, "retrained"
            tested = [
                {**of, "difference": asdict(paired(scores[whole], scores[place]))}
                for of, place in zip(table["tickets"], scores, strict=True)
                if place != whole and not (kind == "magnitude" and place[0] == FULL)
            ]
            found[f"{name} {kind}"] = {**table, "task": name, "tickets": tested}
    return replace(LOTTERY_DIFFERENCES.table(found), notes=[f"{DIFFERENCE}."])


def paper(values: Values, theirs: Mapping[str, Any]) -> Table:
    """Tickets beside the rows of the paper's Table 2, in percent."""
    rows: list[list[Any]] = []
    for name, (kind, place) in _TABLE_2.items():
        rows.append([name, "ours", *(_mean(value["tables"].get(kind), place) for value in values.values())])
        rows.append([name, "paper", *(f"{theirs['items'][name][task]:.0f}" for task in values)])
    measures = [f"{task} ({value['tables']['both']['measure']})" for task, value in values.items()]
    note = f"Mean over the seeds. {theirs['source']}"
    return Table(["", "", *measures], rows, "ll" + "r" * len(values), notes=[note])


def _mean(found: Mapping[str, Any] | None, place: tuple[str, str] | None) -> str | None:
    if found is None or place is None:
        return found and f"{found['majority']['score']:.1f}"
    (mine,) = (entry for entry in found["tickets"] if (entry["ticket"], entry["how"]) == place)
    return f"{mine['mean']:.1f}"


def survival(values: Values) -> Table:
    """The table of ``headprune lottery survival`` for each task (Figure 1, §4.1, §4.2)."""
    columns = [Column("Task", "@file", _task), Column("Searched", "@survival", _words), *SURVIVAL.columns[2:]]
    note = (
        "Selected on dev. Mean ± standard deviation over the seeds. Always: super-survivors, of all seeds. Weights are "
        "those of the layers' matrices, with those of parts that were not searched."
    )
    described = replace(SURVIVAL, columns=columns, note=note)
    return described.table({name: value["survival"] for name, value in values.items()})


def patterns(values: Values) -> Table:
    """The table of ``headprune lottery patterns`` for one model of each task (Figure 4)."""
    first = {name: min(value["patterns"].items())[1] for name, value in values.items()}
    found = next(iter(first.values()))
    scores = {kind: [value["classifier"][kind]["enc_self"]["weighted_f1"] for value in first.values()]
              for kind in found["shares"]}  # fmt: skip
    f1 = ", ".join(f"{mean(of):.2f} ({kind})" for kind, of in scores.items())
    note = (
        f"Percent of the maps, raw / norm-weighted: {found['sentences']} sentences of dev, the first model of each "
        "task before pruning, so that nothing is tested. Survivors: of this model's search for heads and blocks, "
        f"without super-survivors. Weighted F1 of the classifier on held-out made-up maps: {f1}."
    )
    columns = [Column("Task", "@file", _task), *SHARES.columns]
    return replace(SHARES, columns=columns, align="ll", note=note).table(first)
