"""Comparing systems with a baseline on the same examples: the bootstrap of a metric, Student's t, McNemar's test."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

import numpy as np

from fairseq_headprune.evaluation.evaluator import AnswerMetric
from fairseq_headprune.evaluation.p_values import LEAST, corrected, positive
from fairseq_headprune.evaluation.significance import SystemResult, bootstrap_statistics

#: Differences that vary by less than this share of the largest value count as equal: it is rounding.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class TTest:
    """A paired t-test of a system against the baseline.

    Attributes:
        mean_difference: mean over examples of system - baseline.
        t: the statistic; None if all differences are equal, where it is undefined.
        df: degrees of freedom, examples - 1.
        p: two-sided; p_holm after Holm's correction, the same where nothing else is compared. None: there is no test.
        note: why ``t`` is None; empty otherwise.
    """

    mean_difference: float
    t: Optional[float]
    df: int
    p: Optional[float]
    p_holm: Optional[float]
    note: str = ""


@dataclass(frozen=True)
class McNemarTest:
    """McNemar's exact test of a system against the baseline.

    Attributes:
        lost, gained: numbers of examples that only the baseline, or only the system, has right.
        p: two-sided; p_holm after Holm's correction, the same where nothing else is compared.
        note: says that there is no such example; empty otherwise.
    """

    lost: int
    gained: int
    p: float
    p_holm: float
    note: str = ""


def paired_t_test(baseline: Sequence[float], system: Sequence[float]) -> TTest:
    """Test whether the mean over examples differs (Student 1908), two-sided, with examples - 1 degrees of freedom.

    If the difference is the same for every example, there is no variance: p is 1 if the difference is 0, and otherwise
    there is no test (in the limit p would be 0, whatever the size of the test set); ``note`` says so in both cases.

    Args:
        baseline, system: one value per example, such as 1 for a right answer and 0 for a wrong one, (examples,).

    Raises:
        ValueError: the lengths differ (both are named), fewer than two examples, or a value that is not finite.
    """
    from scipy.stats import ttest_rel

    before, after = _pair(baseline, system)
    if not (np.isfinite(before).all() and np.isfinite(after).all()):
        raise ValueError("the paired t-test needs finite values, got NaN or infinity")
    delta, df = after - before, len(after) - 1
    mean, rounding = float(delta.mean()), _ROUNDING * max(np.abs(before).max(), np.abs(after).max())
    if np.ptp(delta) > rounding:
        found = ttest_rel(after, before)
        p = positive(float(found.pvalue))
        return TTest(mean, float(found.statistic), df, p, p)
    if abs(mean) <= rounding:
        return TTest(0.0, None, df, 1.0, 1.0, "equal on every example, so t is not defined and p = 1")
    return TTest(mean, None, df, None, None, "all differences are equal, so there is no variance to test with")


def mcnemar_exact(baseline: Sequence[bool], system: Sequence[bool]) -> McNemarTest:
    """Test whether two systems are right equally often (McNemar 1947), two-sided, by the binomial distribution.

    Under the null hypothesis each example that only one system has right is the system's with probability 1/2; if there
    are no such examples, p is 1.

    Args:
        baseline, system: whether each example is right, (examples,).

    Raises:
        ValueError: the lengths differ (both are named), fewer than two examples, or a value other than right or wrong.
    """
    from scipy.stats import binomtest

    before, after = _pair(baseline, system)
    if not (np.isin(before, (0, 1)).all() and np.isin(after, (0, 1)).all()):
        raise ValueError("McNemar's test needs 1 (right) or 0 (wrong) for every example")
    lost, gained = int((before > after).sum()), int((after > before).sum())
    if not lost + gained:
        return McNemarTest(0, 0, 1.0, 1.0, "no example that only one of the two has right, so p = 1")
    p = positive(float(binomtest(gained, lost + gained, 0.5).pvalue))
    return McNemarTest(lost, gained, p, p)


def _pair(baseline: Sequence[float], system: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    if len(baseline) != len(system):
        raise ValueError(f"the baseline has {len(baseline)} examples, the system {len(system)}: they must be the same")
    if len(system) < 2:
        raise ValueError(f"a paired test needs at least 2 examples, got {len(system)}")
    return np.asarray(baseline, dtype=np.float64), np.asarray(system, dtype=np.float64)


@dataclass(frozen=True)
class PairedTest:
    """A test on one value per example, in addition to the bootstrap of the metric.

    Attributes:
        key, label: its names in JSON and in tables.
        run: values of the baseline and of the system, (examples,) each -> the result.
    """

    key: str
    label: str
    run: Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Subject:
    """What is compared: the answers of several systems to the same examples, the baseline's first.

    Attributes:
        metric: bound to the references.
        answers: system -> one answer per example.
        tests: tests in addition to the bootstrap, on the numbers that ``values`` returns.
        values: answers -> numbers, (examples,).
        facts: entries of the JSON document about all systems; ``rows``: about each system.
        notes: lines below the table.
    """

    metric: AnswerMetric
    answers: Mapping[str, Sequence[Any]]
    tests: Sequence[PairedTest] = ()
    values: Callable[[Sequence[Any]], np.ndarray] = np.asarray
    facts: Mapping[str, Any] = field(default_factory=dict)
    rows: Sequence[Mapping[str, Any]] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Compared:
    """One system against the baseline. The baseline is the first system and is not tested.

    Attributes:
        bootstrap: of the metric.
        tests: by key; None for the baseline.
    """

    bootstrap: SystemResult
    tests: Mapping[str, TTest | McNemarTest | None]


def compare(subject: Subject, resamples: int = LEAST, seed: int = 12345, fraction: float = 1.0) -> list[Compared]:
    """Test every system against the first one, with Holm's correction over the systems for each of the tests.

    Args:
        fraction: size of a resample as a share of the examples.

    Raises:
        ValueError: the numbers of answers and references differ, fewer than two examples, or a setting out of range.
    """
    statistics = {name: subject.metric.extract(answers) for name, answers in subject.answers.items()}
    bootstrap = bootstrap_statistics(subject.metric.score, statistics, resamples, seed, sample_fraction=fraction)
    found: list[dict[str, Any]] = [{} for _ in bootstrap]
    if subject.tests:
        baseline, *others = (subject.values(answers) for answers in subject.answers.values())
        for test in subject.tests:
            results = corrected([test.run(baseline, values) for values in others])
            for tests, result in zip(found, [None, *results], strict=True):
                tests[test.key] = result
    return [Compared(result, tests) for result, tests in zip(bootstrap, found, strict=True)]
