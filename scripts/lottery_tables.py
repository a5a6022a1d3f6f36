"""The manual's tables of lottery tickets (Prasanna et al. 2020), from what examples/lottery/gather.py collected."""

from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from bench_tables import Value, values

from fairseq_headprune.files import read_json
from fairseq_headprune.report.marks import TrainingTests
from fairseq_headprune.report.tables import Marked, Table
from fairseq_headprune.studies.lottery_retrain import HOW

_TICKETS = ("full", "good", "random", "random-by-component", "bad", "super-survivors")
#: rows of the paper's Table 2: its name, the kind of tickets, ticket, setting (None: the most frequent label)
_TABLE_2 = {
    "most frequent label": ("both", None),
    "bad, trained again": ("both", ("bad", "retrained")),
    "bad (weights), trained again": ("magnitude", ("bad", "retrained")),
    "random, from random weights": ("both", ("random", "fresh")),
}
#: weights in the layers' matrices: of the encoder of six layers of width 384, and of six and six of width 512
_WEIGHTS = {"glue": 6 * (4 * 384**2 + 2 * 384 * 1536), "translation": 6 * (12 * 512**2 + 4 * 512 * 1024)}


def paper(results: Path) -> Table:
    """Tickets beside the rows of the paper's Table 2, in percent."""
    tasks, theirs = _tasks(results), read_json(results.parent / "paper-table2.json")
    rows: list[list[Any]] = []
    for name, (kind, place) in _TABLE_2.items():
        rows.append([name, "ours", *(_score(value["tables"].get(kind), place) for value in tasks.values())])
        rows.append([name, "paper", *(f"{theirs['items'][name][task]:.0f}" for task in tasks)])
    measures = [f"{task} ({value['tables']['both']['measure']})" for task, value in tasks.items()]
    return Table(["", "", *measures], rows, "ll" + "r" * len(tasks), notes=[f"Mean over the seeds. {theirs['source']}"])


def glue(results: Path) -> Table:
    """The score of every ticket in every setting, for each task of GLUE."""
    return _tickets(_tasks(results))


def translation(results: Path) -> Table:
    """BLEU of every ticket of the translation models in every setting."""
    return _tickets({"": read_json(results / "multi30k.json")})


def selection(results: Path) -> Table:
    """What the searches keep, and what is left of the score on the split that selected, and on the one that reports."""
    rows = []
    for task, value in _all(results).items():
        for name in ("dev-both", "holdout-both", "dev-magnitude", "holdout-magnitude", "valid-both", "valid-magnitude"):
            found = list(value["searches"].get(name, {}).values())
            if found:
                on, mode = name.split("-")
                kind = "weights" if mode == "magnitude" else "heads and blocks"
                rows.append([task, kind, on, _kept(found, mode, task), *_left(found)])
    header = ["task", "tickets of", "selected on", "kept", "score there", "score on dev or test", "optimism"]
    note = (
        "Mean (least to most) over the models; weights are those of the layers' matrices. Scores: the full model's and "
        "its ticket's, where it was selected and on dev (translation: test2016). Optimism: percent of the full model's "
        "score left where the ticket was selected, minus percent left where it is reported (mean ± standard deviation "
        "over the models, not tested)."
    )
    return Table(header, rows, "lll" + "r" * 4, notes=[note])


def agreement(results: Path) -> Table:
    """How many heads and blocks survive, searched apart and together, and whether the seeds agree (§4.1, §5.1)."""
    rows = []
    for task, value in _all(results).items():
        for name in ("dev-heads", "dev-blocks", "dev-both", "valid-both"):
            found = value["tickets"].get(name)
            if found:
                searches, mode = value["searches"][name].values(), name.split("-")[1]
                kept = list(zip(*(_of_parts(search["ticket"]["kept"]) for search in searches), strict=True))
                always = _of_parts({part: sum(map(sum, mask)) for part, mask in found["super-survivors"].items()})
                row: list[Any] = [task, mode]
                for counts, common, part in zip(kept, always, ("heads", "blocks"), strict=True):
                    searched = mode in (part, "both")
                    row += [_range(counts), common, _agreed(found["stability"].get(part))] if searched else [None] * 3
                rows.append(row)
    header = ["task", "searched", "heads kept", "in all", "kappa (Q)", "blocks kept", "in all", "kappa (Q)"]
    note = (
        "Selected on dev (translation: valid). Kept: mean (least to most) over the seeds; how many survive in all of "
        "them; Fleiss' kappa, and p of Cochran's Q, which tests only whether all seeds keep equally many (no kappa "
        "where all searches keep all, or nothing)."
    )
    return Table(header, rows, "ll" + "r" * 6, notes=[note])


def survival(results: Path) -> Table:
    """What survives over the seeds, and in all of them, by task and mode of the search (Figure 1, §4.1, §4.2)."""
    rows: list[list[Any]] = []
    for task, value in _survivors(results).items():
        always = value["survival"]["super_survivors"]
        for folder, shares in value["survival"]["survival"].items():
            mode = folder.rsplit("-", 1)[1].replace("magnitude", "weights")
            # Parts that were not searched all survive: they say nothing.
            row = [task, mode, *(_share(shares.get(part)) for part in ("heads", "blocks", "weights"))]
            row += [always[folder][part] if part in shares else None for part in ("heads", "blocks")]
            rows.append([*row, f"{always[folder]['weights']:.0f}"])
    header = ["task", "searched", "% of heads", "% of blocks", "% of weights", "heads in all", "blocks in all"]
    note = (
        "Selected on dev. Percent that survives: mean ± standard deviation over the seeds. In all: super-survivors, "
        "of all seeds. Weights are those of the layers' matrices, with those of parts that were not searched."
    )
    return Table([*header, "% of weights in all"], rows, "ll" + "r" * 6, notes=[note])


def patterns(results: Path) -> Table:
    """Attention patterns of super-survivors, survivors and the rest of one model a task (Figure 4)."""
    rows: list[list[Any]] = []
    tasks = {task: value for task, value in _survivors(results).items() if task != "multi30k"}
    first = {task: min(value["patterns"].items())[1] for task, value in tasks.items()}
    for task, document in first.items():
        raw, normed = document["shares"]["raw"], document["shares"]["normed"]
        for name, of_raw in raw.items():
            group = name.removeprefix("Enc-Enc, ")
            heads = len(document["groups"][group])
            if group == "the rest" and heads == len(document["heads"]):
                continue
            pairs = zip(of_raw, normed[name], strict=True)
            cells = [" / ".join(f"{100 * share:.0f}" for share in pair) for pair in pairs]
            rows.append([task, group, heads, *cells])
    document = next(iter(first.values()))
    scores = {kind: [found["classifier"][kind]["enc_self"]["weighted_f1"] for found in first.values()]
              for kind in ("raw", "normed")}  # fmt: skip
    f1 = ", ".join(f"{mean(found):.2f} ({kind})" for kind, found in scores.items())
    note = (
        f"Percent of the maps, raw / norm-weighted: {document['sentences']} sentences of dev, the first model of each "
        "task before pruning, so that nothing is tested. Survivors: of this model's search for heads and blocks, "
        f"without super-survivors. Weighted F1 of the classifier on held-out made-up maps: {f1}."
    )
    header = ["task", "heads", "n", *document["patterns"]]
    return Table(header, rows, "ll" + "r" * (len(header) - 2), notes=[note])


TABLES: dict[str, Callable[[Path], Table]] = {
    "lottery-paper": paper,
    "lottery-glue": glue,
    "lottery-translation": translation,
    "lottery-selection": selection,
    "lottery-agreement": agreement,
    "lottery-survival": survival,
    "lottery-patterns": patterns,
}


def _all(results: Path) -> dict[str, Value]:
    """Read each task's results; there may be none, or other files beside them."""
    found = {name: value for name, value in values(results, "*.json").items() if "tickets" in value}
    if not found:
        raise FileNotFoundError(f"{results}: no results of gather.py")
    return found


def _tasks(results: Path) -> dict[str, Value]:
    """Read the results of GLUE's tasks."""
    return {name: value for name, value in _all(results).items() if name != "multi30k"}


def _survivors(results: Path) -> dict[str, Value]:
    """Read what survivors.sh left of each task."""
    return {name.removesuffix("-survivors"): value for name, value in values(results, "*-survivors.json").items()}


def _share(found: Value | None) -> str | None:
    """Return mean and deviation of a percentage; none if the part was not searched."""
    return found and f"{found['mean']:.0f} ± {found['sd']:.0f}"


def _score(document: Value | None, place: tuple[str, str] | None) -> str | None:
    """Return a mean of one document, or the most frequent label's score."""
    if document is None:
        return None
    if place is None:
        return f"{document['majority']['score']:.1f}"
    return f"{_of(document, *place)['mean']:.1f}"


def _of(document: Value, ticket: str, how: str) -> Value:
    """Return one ticket's numbers in one setting; none if it has no such setting."""
    return next((cell for cell in document["tickets"] if (cell["ticket"], cell["how"]) == (ticket, how)), {})


def _tickets(tasks: dict[str, Value]) -> Table:
    """One row per task, kind and ticket, one column per setting."""
    documents = [document for value in tasks.values() for document in value["tables"].values()]
    hows = [how for how in HOW if any(cell["how"] == how for doc in documents for cell in doc["tickets"])]
    rows: list[list[Any]] = []
    for task, value in tasks.items():
        for document in value["tables"].values():
            # The full model is the same for both kinds of tickets.
            for ticket in _TICKETS[1:] if document["kind"] else _TICKETS:
                cells = [_cell(_of(document, ticket, how), document["alpha"]) for how in hows]
                if any(cells):
                    rows.append([task, f"{ticket} (weights)" if document["kind"] else ticket, *cells])
    tests = {document["kind"]: document["tests"] for document in documents}
    legend = TrainingTests(documents[0]["alpha"], tests[""]).legend("the full model trained again")
    note = f"Mean ± standard deviation (number of trainings); {legend}; tickets of weights: {tests['weights']} tests."
    table = Table(["task", "ticket", *(HOW[how].lower() for how in hows)], rows, "ll" + "r" * len(hows), notes=[note])
    return table if any(tasks) else Table(table.header[1:], [row[1:] for row in rows], table.align[1:], notes=[note])


def _cell(cell: Value, alpha: float) -> Any:
    if not cell:
        return None
    text = f"{cell['mean']:.2f} ± {cell['sd']:.2f} ({cell['n']})"
    return Marked(text, TrainingTests(alpha, 1).mark(cell))


def _of_parts(kept: Value) -> tuple[int, int]:
    """Count the heads and the blocks that are kept, over all components."""
    blocks = sum(count for name, count in kept.items() if name.endswith("_ffn"))
    return sum(kept.values()) - blocks, blocks


def _range(counts: Iterable[float], digits: int = 1) -> str:
    """The mean and the extremes; a number alone if all are the same."""
    found = list(counts)
    if min(found) == max(found):
        return f"{found[0]:.0f}"
    return f"{mean(found):.{digits}f} ({min(found):.0f} to {max(found):.0f})"


def _kept(found: list[Value], mode: str, task: str) -> str:
    """Say how much of the model the tickets keep."""
    if mode == "magnitude":
        whole = _WEIGHTS["translation" if task == "multi30k" else "glue"]
        return f"{_range((100 * (1 - search['ticket']['weights'] / whole) for search in found), 0)} percent"
    heads, blocks = zip(*(_of_parts(search["ticket"]["kept"]) for search in found), strict=True)
    return f"{_range(heads)} heads, {_range(blocks)} blocks"


def _left(found: list[Value]) -> list[str | None]:
    """Return the scores on both splits, and the mean difference of the shares that are left."""
    pairs = [[(search[f"{on}baseline"]["score"], search[f"{on}ticket"]["score"]) for search in found]
             for on in ("", "reported_") if f"{on}ticket" in found[0]]  # fmt: skip
    shown = [" → ".join(f"{mean(scores):.1f}" for scores in zip(*pair, strict=True)) for pair in pairs]
    if len(pairs) == 1:
        return [None, *shown, None]
    shares = [[100 * ticket / full for full, ticket in pair] for pair in pairs]
    gaps = [there - reported for there, reported in zip(*shares, strict=True)]
    return [*shown, f"{mean(gaps):+.1f} ± {stdev(gaps):.1f}"]


def _agreed(found: Value | None) -> str | None:
    """Kappa, and p of Q in brackets; none if the searches keep all or nothing."""
    return None if not found or found["kappa"] is None else f"{round(found['kappa'], 2) + 0.0:.2f} ({found['p']:.1g})"
