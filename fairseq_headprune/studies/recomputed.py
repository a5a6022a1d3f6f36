"""Computing the p values of a result file again, from the sentence statistics that it holds."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fairseq_headprune.evaluation.recorded import recomputed
from fairseq_headprune.evaluation.statistics import score_of
from fairseq_headprune.glue.metrics import label_score


def recomputed_p(value: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return ``score``, ``base`` (the score it is compared with) and ``p`` of every system or cell, by name.

    p is that of the paired bootstrap, before Holm's correction (:func:`~fairseq_headprune.evaluation.p_values.holm`).

    Args:
        value: a result that a verb printed with ``--json`` or wrote.

    Raises:
        KeyError: it holds no statistics; it is of an older version, or of a study whose folder has them.
        ValueError: they are damaged.
    """
    if not value.get("statistics"):
        raise KeyError("there are no sentence statistics in this result; make it again with this version (--json)")
    return {name: found for record in value["statistics"] for name, found in recomputed(record, _score).items()}


def _score(recipe: Mapping[str, Any]) -> Callable[[np.ndarray], np.ndarray]:
    return (label_score if "task" in recipe else score_of)(recipe)
