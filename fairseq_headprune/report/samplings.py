"""The table of a study of random pruning, sampling by sampling, whether it is finished or not."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from fairseq_headprune.evaluation.holm import holm
from fairseq_headprune.report.study_tables import BLEU
from fairseq_headprune.report.tables import Table
from fairseq_headprune.studies.folder import StudyFolder
from fairseq_headprune.studies.results import UNPRUNED
from fairseq_headprune.studies.samplings import AT_LEAST_ONE, CONTROL, Item


def read_samplings(folder: StudyFolder) -> tuple[dict[str, Any] | None, dict[str, list[dict[str, Any]]]]:
    """Return the unpruned model's cell, if it is done, and item -> the samplings that are done, in the study's order.

    ``p_holm`` of a sampling is corrected over just those that are done; items without one are left out.
    """
    done = folder.cells()
    unpruned = done.pop(UNPRUNED, None)
    corrected = holm([cell["p"] for cell in done.values()])
    cells = [{**cell, "p_holm": p} for cell, p in zip(done.values(), corrected, strict=True)]
    cells.sort(key=lambda cell: cell["seed"])
    names = [Item(**item).name for item in folder.settings["items"]]
    items = {name: [cell for cell in cells if cell["item"] == name] for name in names}
    return unpruned, {name: found for name, found in items.items() if found}


def samplings_table(
    unpruned: dict[str, Any], items: Sequence[Sequence[dict[str, Any]]], alpha: float, measure: str = BLEU
) -> Table:
    """Return a row for the unpruned model and one for each item: its mean, and how many samplings differ.

    Args:
        unpruned: the cell of the unpruned model.
        items: the samplings of each item, cells with ``p_holm``; at least one.
    """
    header = ["pruned", "heads kept", measure, "difference", "sd", "samplings", "worse / better"]
    rows: list[list[Any]] = [["0%", "all (unpruned)", f"{unpruned['score']:.2f}", None, None, None, None]]
    for cells in items:
        scores = [cell["score"] for cell in cells]
        mean, spread = statistics.mean(scores), f"{statistics.stdev(scores):.2f}" if len(scores) > 1 else None
        worse, better = differing(unpruned, cells, alpha)
        row = [f"{cells[0]['percent']:.0f}%", kept_heads(cells[0]), f"{mean:.2f}", f"{mean - unpruned['score']:+.2f}"]
        rows.append([*row, spread, len(scores), f"{worse} / {better}"])
    return Table(header, rows, "llrrrrr")


def differing(unpruned: dict[str, Any], cells: Sequence[dict[str, Any]], alpha: float) -> tuple[int, int]:
    """Count the samplings that are significantly worse, and better, than the unpruned model (``p_holm`` < alpha)."""
    better = [cell["score"] > unpruned["score"] for cell in cells if cell["p_holm"] < alpha]
    return better.count(False), better.count(True)


def differing_caption(settings: Mapping[str, Any], count: int) -> str:
    """Say what "worse / better" means in a study with these settings, of which ``count`` samplings are tested."""
    return (
        f"worse / better: how many samplings differ from the unpruned model at p < {settings['alpha']:g} after Holm's "
        f"correction over all {count} (paired bootstrap, {settings['resamples']} resamples, seed {settings['seed']})"
    )


def kept_heads(item: dict[str, Any]) -> str:
    """Say which heads an item keeps, in the words of Budhraja et al. 2020.

    Args:
        item: an entry or a cell of the study: ``kind``, ``text``, ``mirror``, and ``config`` of a configuration.
    """
    if item["kind"] == "config":
        return " ".join(item["config"].values()) + (" (mirror)" if item["mirror"] else "")
    words = {
        CONTROL: "all, fine-tuned",
        "triple": f"({item['text']})",
        "layers": f"no layers {item['text'].replace(':', ' ')}",
    }
    return words.get(item["kind"], "random, one a layer at least" if item["text"].endswith(AT_LEAST_ONE) else "random")
