"""Simulate how often each test finds something where there is nothing:  type_1_errors.py [--trials N] [-o OUT.json]

The share of trials that a test rejects, with its exact 95% interval (Clopper and Pearson 1934). What differs between
trainings, sentences and seeds are normal draws; of TOST the difference is the margin, where "equivalent" is an error.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import script_flags
from shown import TYPE_1_ERRORS, tell

from fairseq_headprune.evaluation.significance import bootstrap_statistics
from fairseq_headprune.evaluation.trainings import against_value, hierarchical_bootstrap, mixed_model, paired, welch
from fairseq_headprune.files import write_json
from fairseq_headprune.provenance import script_environment

_SEED = 5
_SENTENCES = 200
_RESAMPLES = 999
_MARGIN = 0.3
_METHODS = 4

Draw = np.random.Generator


def by_seed(scores: Sequence[float] | np.ndarray) -> dict[int, float]:
    """Return seed -> score."""
    return dict(enumerate(np.asarray(scores).tolist(), 1))


def system(values: np.ndarray) -> np.ndarray:
    """Return the statistics (sentences, 2) of a system whose score is the mean of these values."""
    return np.column_stack([values, np.ones(len(values))])


def mean(sums: np.ndarray) -> np.ndarray:
    """Return the score of sums of the statistics of :func:`system`."""
    return sums[..., 0] / sums[..., 1]


def _paired(draw: Draw, n: int) -> float | None:
    seeds = draw.normal(size=n)
    return paired(by_seed(seeds + draw.normal(size=n)), by_seed(seeds + draw.normal(size=n))).p


def _one_sample(draw: Draw, n: int) -> float | None:
    return against_value(0.0, draw.normal(size=n).tolist()).p


def _welch(draw: Draw, n: int, more: int, ratio: float) -> float | None:
    """Of n trainings and more, whose deviation is ``ratio`` times as large."""
    return welch(draw.normal(size=n).tolist(), (ratio * draw.normal(size=more)).tolist()).p


def _tost(draw: Draw, n: int) -> float | None:
    return against_value(0.0, (_MARGIN + 0.1 * draw.normal(size=n)).tolist(), _MARGIN).p_equivalent


def _mixed(draw: Draw, n: int) -> float | None:
    seeds = draw.normal(size=n)
    scores = {str(k): by_seed(seeds + draw.normal(size=n)) for k in range(_METHODS)}
    return mixed_model(scores, "0")["1"].p


def _sentences(draw: Draw, of_trainings: float) -> float:
    """Two models; the difference of their trainings varies by this many deviations of the mean over sentences."""
    difference = draw.normal(size=_SENTENCES) + of_trainings * draw.normal() / _SENTENCES**0.5
    systems = {"base": system(np.zeros(_SENTENCES)), "mine": system(difference)}
    return bootstrap_statistics(mean, systems, _RESAMPLES, int(draw.integers(2**31)))[1].p


def _both_levels(draw: Draw, n: int) -> float:
    sentences = 0.1 * draw.normal(size=_SENTENCES) + 0.5 * draw.normal(size=(n, _SENTENCES))
    mine = [system(row) for row in 0.1 * draw.normal(size=(n, 1)) + sentences]
    base = [system(np.zeros(_SENTENCES))] * n
    return hierarchical_bootstrap(mean, base, mine, _RESAMPLES, int(draw.integers(2**31)))["p"]


#: (test, trainings) -> p of one trial
CASES: dict[tuple[str, str], Callable[[Draw], float | None]] = {
    ("paired t-test", "3"): lambda draw: _paired(draw, 3),
    ("paired t-test", "5"): lambda draw: _paired(draw, 5),
    ("one-sample t-test", "3"): lambda draw: _one_sample(draw, 3),
    ("Welch's t-test", "3 and 3"): lambda draw: _welch(draw, 3, 3, 1.0),
    ("Welch's t-test", "5 and 5"): lambda draw: _welch(draw, 5, 5, 1.0),
    ("Welch's t-test, one side varies 3 times as much", "3 and 5"): lambda draw: _welch(draw, 3, 5, 3.0),
    ("TOST, at the edge of the margin", "5"): lambda draw: _tost(draw, 5),
    (f"mixed-effects model, one of {_METHODS} methods", "5"): lambda draw: _mixed(draw, 5),
    ("hierarchical bootstrap", "3"): lambda draw: _both_levels(draw, 3),
    ("hierarchical bootstrap", "5"): lambda draw: _both_levels(draw, 5),
    ("hierarchical bootstrap", "10"): lambda draw: _both_levels(draw, 10),
    ("paired bootstrap of sentences, two models", "1"): lambda draw: _sentences(draw, 0.0),
    ("the same, read as if it spoke of methods", "1"): lambda draw: _sentences(draw, 1.0),
}


def simulate(test: str, trainings: str, trials: int) -> dict[str, Any]:
    """Return how many of the trials a test rejects at 5% and at 1%, with the shares' exact 95% intervals."""
    from scipy.stats import binomtest

    draw = np.random.default_rng([_SEED, list(CASES).index((test, trainings))])
    p = [found for _ in range(trials) if (found := CASES[test, trainings](draw)) is not None]
    row: dict[str, Any] = {"test": test, "trainings": trainings, "trials": len(p)}
    for level in (0.05, 0.01):
        rejected = int(np.sum(np.array(p) < level))
        interval = binomtest(rejected, len(p)).proportion_ci(0.95, method="exact")
        row[f"{level}"] = {"rejected": rejected, "share": rejected / len(p), "ci": [interval.low, interval.high]}
    return row


def main() -> None:
    """Simulate all, print and write."""
    parser = script_flags.new_parser(__doc__)
    parser.add_argument("--trials", type=int, default=5000, help="of each test")
    parser.add_argument("-o", "--output", help="write the result to this JSON file")
    args = parser.parse_args()
    script_flags.check(args, "trials")
    about = {"seed": _SEED, "sentences": _SENTENCES, "resamples": _RESAMPLES, "margin": _MARGIN}
    result = {**about, "rows": [simulate(*case, args.trials) for case in CASES], "environment": script_environment()}
    if args.output:
        write_json(args.output, result)
    tell(TYPE_1_ERRORS, result)


if __name__ == "__main__":
    script_flags.run(main)
