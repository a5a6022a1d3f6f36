"""What the report page shows of a study of ``headprune random-study``."""

import statistics
from typing import Any

from fairseq_headprune.report import study_tables as tables
from fairseq_headprune.report.page.curves import line
from fairseq_headprune.report.samplings import differing, differing_caption, read_samplings, samplings_table
from fairseq_headprune.studies.folder import StudyFolder

_UNTRAINED = (
    "All is compared with the checkpoint the study starts from, which need not have been trained for the task: see the "
    "row of all heads, fine-tuned (--control), and headprune random-study --baseline control."
)


def random_study(folder: StudyFolder) -> dict[str, Any]:
    """Collect a study, finished or not; each sampling is compared with the unpruned model."""
    settings = folder.settings
    split, alpha, measure = settings["data"]["split"], settings["alpha"], tables.measure_of(settings)
    unpruned, by_item = read_samplings(folder)
    items, missing = list(by_item.values()), []
    comparisons = sum(map(len, items))
    planned, done = 1 + len(settings["items"]) * len(settings["seeds"]), comparisons + bool(unpruned)
    if done < planned:
        missing = [f"{done} of {planned} cells are done: run headprune random-study again with its settings"]
    random = sorted((found for found in items if found[0]["kind"] == "random"), key=lambda found: found[0]["percent"])
    # An encoder that is pruned before it is fine-tuned on a task guesses: to be better than that is no finding.
    untrained = "task" in settings["data"]
    shown, parts = unpruned is not None and bool(items), []
    if shown:
        parts = [f"{measure}: mean of the samplings of each row, each fine-tuned; sd: their standard deviation"]
        parts += [samplings_table(unpruned, items, alpha, measure), differing_caption(settings, comparisons)]
        parts += [_UNTRAINED] if untrained else []
    return {
        "heading": f"Random heads, fine-tuned ({' '.join(settings['fine_tuning']['limit'])}), on {split}",
        "baseline": unpruned,
        "done": done,
        "planned": planned,
        "comparisons": comparisons,
        "missing": missing,
        "found": [_found(unpruned, random, alpha)] if random and not missing and not untrained else [],
        "maps": [],
        "charts": [
            {
                "kind": "pruning",
                "caption": f"{measure} on {split} by share of heads pruned at random",
                "baseline": unpruned["score"],
                "curves": [line("Random", [{**unpruned, "p_holm": 1.0}, *map(_mean, random)])],
            }
        ]
        if shown and random
        else [],
        "parts": parts,
    }


def _mean(cells: list[dict[str, Any]]) -> dict[str, Any]:
    """A point of the curve: the mean with its standard deviation, or the one sampling there is."""
    if len(cells) == 1:
        return cells[0]
    scores = [cell["score"] for cell in cells]
    mean, spread = statistics.mean(scores), statistics.stdev(scores)
    same = {name: cells[0][name] for name in ("percent", "pruned")}
    seeds = [cell["seed"] for cell in cells]
    return {**same, "score": mean, "sd": spread, "ci": [mean - spread, mean + spread], "seeds": seeds}


def _found(unpruned: dict[str, Any], random: list[list[dict[str, Any]]], alpha: float) -> str:
    """Say how far random pruning goes before a sampling is significantly worse."""
    reached = None
    for cells in random:
        if differing(unpruned, cells, alpha)[0]:
            break
        reached = cells[0]["percent"]
    if reached is None:
        return f"Random heads: at {random[0][0]['percent']:.0f}% pruned a sampling is significantly worse already."
    return f"Random heads: up to {reached:.0f}% pruned no sampling is significantly worse than the unpruned model."
