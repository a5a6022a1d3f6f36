"""The document of a comparison's results, and what is printed of it."""

from collections.abc import Mapping, Sequence
from typing import Any

from fairseq_headprune.comparison.kind import Kind
from fairseq_headprune.comparison.results import costs, evaluate
from fairseq_headprune.comparison.tables import COST_NOTE, cost_table, score_note, score_table
from fairseq_headprune.studies.folder import StudyFolder
from fairseq_headprune.studies.masked import Comparison


def document(study: StudyFolder, split: str, references: Sequence[str], how: Comparison, kind: Kind) -> dict[str, Any]:
    """Return all results of a split with what they were computed from and how.

    Raises:
        ValueError: nothing is translated yet, or other references.
    """
    found = evaluate(study, split, references, how, kind)
    return {
        "split": split,
        "measure": kind.measure,
        "sentences": len(references),
        "signature": found["signature"],
        "resamples": how.resamples,
        "bootstrap_seed": how.seed,
        "alpha": how.alpha,
        "settings": study.settings,
        "environments": study.runs,
        "points": found["points"],
        "costs": costs(found["rows"], study.settings["updates"]),
        "rows": found["rows"],
    }


def parts(value: Mapping[str, Any], form: str) -> list[Any]:
    """Return the tables of a document, each with its note below, to be rendered in this form."""
    scores = [score_table(value["points"], value["alpha"]), score_note(value, form)]
    return [*scores, "", cost_table(value["costs"], value["measure"]), COST_NOTE] if value["costs"] else scores
