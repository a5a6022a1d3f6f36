"""Run compare-mt's own bootstrap (Neubig et al. 2019) on our tokens, for comparison with ours.

The two can differ where version 0.2.10 is wrong:

- it draws from numpy's global generator without a seed (here it is seeded for the call, and its state restored);
- a resample has half the sentences by default, which makes intervals too wide and p-values too large;
- a win of the left system is counted as a tie too, so that the shares sum to more than 1 (``ties_corrected`` excludes
  these wins);
- an n-gram order without any match counts as a precision of 1 instead of 0;
- a sentence shorter than n tokens adds 1 to the number of n-grams of order n.
"""

import dataclasses
import logging
import random
from collections.abc import Callable, Sequence

import numpy as np

#: compare-mt's own share of the test set in one resample.
SAMPLE_FRACTION = 0.5


@dataclasses.dataclass(frozen=True)
class CompareMtResult:
    """compare-mt's result for one system against the baseline.

    Attributes:
        score: compare-mt's BLEU of the system, 0 to 100.
        ci: its 95% interval.
        wins, losses: shares of the resamples where the system is better or worse than the baseline.
        ties: as reported by compare-mt: ties and losses of the system together.
        ties_corrected: the ties alone.
        p: its one-sided p-value, 1 - max(wins, losses).
    """

    score: float
    ci: tuple[float, float]
    wins: float
    losses: float
    ties: float
    ties_corrected: float
    p: float


def compare_mt_bootstrap(
    references: Sequence[Sequence],
    baseline: Sequence[Sequence],
    system: Sequence[Sequence],
    resamples: int = 1000,
    seed: int = 12345,
    sample_fraction: float = SAMPLE_FRACTION,
) -> CompareMtResult:
    """Run compare-mt's paired bootstrap with its BLEU on tokenised sentences; the baseline is its left system.

    Raises:
        ValueError: compare-mt is not installed, or a resample would be empty.
    """
    bleu_scorer, bootstrap = _load()
    if int(len(references) * sample_fraction) < 1:
        raise ValueError(f"a resample of {sample_fraction} of {len(references)} sentences is empty")
    scorer = bleu_scorer()
    outputs = [baseline, system]
    cached = [scorer.cache_stats(references, output) for output in outputs]
    state, numpy_state = random.getstate(), np.random.get_state()
    try:
        random.seed(seed)
        np.random.seed(np.random.SeedSequence(seed).generate_state(4))
        shares, intervals = bootstrap(references, outputs, None, scorer, [(0, 1)], resamples, sample_fraction, cached)
    finally:
        random.setstate(state)
        np.random.set_state(numpy_state)
    losses, wins, ties = shares[0]
    score, _ = scorer.score_cached_corpus(range(len(references)), cached[1])
    interval = (float(intervals[1]["lower_bound"]), float(intervals[1]["upper_bound"]))
    return CompareMtResult(float(score), interval, wins, losses, ties, ties - losses, 1 - max(wins, losses))


def _load() -> tuple[Callable, Callable]:
    # Importing compare-mt turns on all logging of the process; restore the previous settings.
    root = logging.getLogger()
    level, handlers, disabled = root.level, root.handlers[:], root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        from compare_mt.scorers import BleuScorer
        from compare_mt.sign_utils import eval_with_paired_bootstrap
    except ImportError as error:
        raise ValueError(f"compare-mt cannot be loaded ({error}); pip install compare-mt six") from error
    finally:
        root.setLevel(level)
        root.handlers[:] = handlers
        logging.disable(disabled)
    return BleuScorer, eval_with_paired_bootstrap
