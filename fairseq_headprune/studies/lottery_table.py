"""The tickets of several seeds in one table (Prasanna et al. 2020, Table 2 and the numbers of Figure 2)."""

from collections.abc import Sequence
from statistics import mean, stdev
from typing import Any

from scipy import stats

from fairseq_headprune.files import PathLike
from fairseq_headprune.report.document import Document
from fairseq_headprune.report.tables import Table
from fairseq_headprune.studies.folder import StudyFolder
from fairseq_headprune.studies.lottery_retrain import FULL, HOW, LotteryRetrain
from fairseq_headprune.studies.study import UNPRUNED
from fairseq_headprune.values import first_difference

#: settings that may differ between seeds
_OF_A_SEED = {"checkpoint": None, "tickets": None, "training_seed": None, "begin": None, "fresh": None}


def seeds_table(paths: Sequence[PathLike]) -> Document:
    """Return mean and standard deviation over finished studies of ``headprune lottery retrain``, one per seed.

    Each mean is compared with that of the retrained full model by a paired t-test over the seeds.

    Raises:
        ValueError, FileNotFoundError: fewer than two studies, unfinished ones, or ones that differ in more than a seed.
    """
    if len(paths) < 2:
        raise ValueError("give the studies of two seeds or more: a deviation needs them")
    studies = [_read(path) for path in paths]
    first = studies[0]
    for study in studies[1:]:
        if difference := first_difference(first.settings | _OF_A_SEED, study.settings | _OF_A_SEED):
            name, before, now = difference
            raise ValueError(
                f"{first.folder.path} and {study.folder.path} differ in more than a seed: {name} is {before} there "
                f"and {now} here"
            )
        if list(first.tickets) != list(study.tickets) or study.settings_of != first.settings_of:
            raise ValueError(f"{first.folder.path} and {study.folder.path} have other tickets, or score them otherwise")
    checkpoints = {study.settings["checkpoint"] for study in studies}
    if len(checkpoints) < len(studies):
        raise ValueError("two studies are of the same checkpoint; give one for each seed")
    return _document(studies)


def _read(path: PathLike) -> LotteryRetrain:
    folder = StudyFolder(path)
    if folder.settings.get("study") != LotteryRetrain.name:
        raise ValueError(f"{path} is a study of headprune {folder.settings.get('study')}, not lottery retrain")
    study = LotteryRetrain(folder.settings, folder=folder)
    if len(study.cells()) < study.planned():
        raise ValueError(f"{path} is not finished: run headprune lottery retrain again with its settings")
    return study


def _document(studies: Sequence[LotteryRetrain]) -> Document:
    first, cells = studies[0], [study.cells() for study in studies]
    scores: dict[tuple[str, str], list[float]] = {(FULL, "pruned"): [found[UNPRUNED]["score"] for found in cells]}
    for cell in first.plan()[1:]:
        scores[cell.facts["ticket"], cell.facts["how"]] = [found[cell.id]["score"] for found in cells]
    whole = scores[FULL, "retrained"]
    found: list[dict[str, Any]] = [
        {
            "ticket": ticket,
            "how": how,
            "scores": values,
            "mean": mean(values),
            "sd": stdev(values),
            "p": None if values == whole else _p(values, whole),
        }
        for (ticket, how), values in scores.items()
    ]
    by_place = {(entry["ticket"], entry["how"]): _text(entry) for entry in found}
    rows: list[list[Any]] = [[name, *(by_place[name, how] for how in first.settings_of)] for name in _names(scores)]
    if first.settings["majority"]:
        rows.append(["most frequent label", f"{first.settings['majority']['score']:.2f}", *[None] * (len(rows[0]) - 2)])
    document = Document(f"Lottery tickets of {len(studies)} seeds, on {first.split}")
    caption = f"{first.measure} on {first.split}: mean and standard deviation of {len(studies)} seeds"
    document.tables = [Table(["Ticket", *(HOW[how] for how in first.settings_of)], rows, caption=caption)]
    line = mean(whole) - stdev(whole)
    document.notes = [
        f"the whole model trained again, minus one standard deviation: {line:.2f}",
        "p: paired t-test over the seeds against the whole model trained again, not corrected",
    ]
    good = [e for e in found if e["ticket"] != FULL and e["how"] == "retrained"]
    document.findings = [
        f"{e['ticket']}, trained again: {e['mean']:.2f}, {'below' if e['mean'] < line else 'at or above'} that line."
        for e in good
    ]
    studied = [{"path": str(s.folder.path), "checkpoint": s.settings["checkpoint"]} for s in studies]
    document.data = {"tickets": found, "line": line, "majority": first.settings["majority"], "studies": studied}
    return document


def _names(scores: dict[tuple[str, str], list[float]]) -> list[str]:
    return list(dict.fromkeys(ticket for ticket, _ in scores))


def _p(values: Sequence[float], whole: Sequence[float]) -> float | None:
    """Return p of the paired t-test; None if all differences are equal."""
    if len({round(a - b, 9) for a, b in zip(values, whole, strict=True)}) == 1:
        return None
    return float(stats.ttest_rel(values, whole).pvalue)


def _text(entry: dict[str, Any]) -> str:
    p = "" if entry["p"] is None else f", p = {entry['p']:.3f}"
    return f"{entry['mean']:.2f} (sd {entry['sd']:.2f}{p})"
