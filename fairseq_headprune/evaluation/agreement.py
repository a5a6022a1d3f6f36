"""Do several searches choose the same parts? Fleiss' kappa, Cochran's Q, and the overlap of pairs."""

import importlib.util
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from fairseq_headprune.evaluation.p_values import positive


@dataclass(frozen=True)
class Agreement:
    """How far several binary judgements of the same subjects agree.

    Attributes:
        kappa: Fleiss' kappa; None where all judgements are the same, so that no agreement can be expected by chance.
        q, p: Cochran's Q and its p: the hypothesis is that all judges say yes equally often; None where they always
            agree.
        overlaps: of each pair of judges, see :func:`overlaps`.
    """

    kappa: float | None
    q: float | None
    p: float | None
    overlaps: list[dict[str, Any]]


def require_statsmodels() -> None:
    """Check before anything is written that agreement can be computed.

    Raises:
        ValueError: statsmodels is not installed.
    """
    if importlib.util.find_spec("statsmodels") is None:
        raise ValueError("Fleiss' kappa and Cochran's Q need statsmodels: pip install \"fairseq_headprune[lottery]\"")


def agreement(judgements: Sequence[Sequence[int]] | np.ndarray) -> Agreement:
    """Return the agreement of judges on subjects.

    Args:
        judgements: 0 or 1; one row per subject, one column per judge.

    Raises:
        ValueError: statsmodels is not installed.
    """
    require_statsmodels()
    from statsmodels.stats.contingency_tables import cochrans_q
    from statsmodels.stats.inter_rater import fleiss_kappa

    table = np.asarray(judgements)
    yes = table.sum(axis=1)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        kappa = fleiss_kappa(np.stack([table.shape[1] - yes, yes], axis=1))
        test = cochrans_q(table)
    k, q, p = (float(value) if np.isfinite(value) else None for value in (kappa, test.statistic, test.pvalue))
    return Agreement(k, q, None if p is None else positive(p), overlaps(table))


def overlaps(judgements: Sequence[Sequence[int]] | np.ndarray) -> list[dict[str, Any]]:
    """Return for each pair of judges, from 1, how many subjects both chose, how many by chance, and Jaccard's index.

    ``searches``, ``both``, ``expected``, ``jaccard``. By chance: two independently drawn sets of sizes a and b share
    a x b / subjects on average.
    """
    table = np.asarray(judgements, dtype=bool)
    found = []
    for a, b in combinations(range(table.shape[1]), 2):
        both, either = int((table[:, a] & table[:, b]).sum()), int((table[:, a] | table[:, b]).sum())
        expected = float(table[:, a].sum() * table[:, b].sum() / len(table))
        jaccard = both / either if either else 1.0
        found.append({"searches": [a + 1, b + 1], "both": both, "expected": expected, "jaccard": jaccard})
    return found
