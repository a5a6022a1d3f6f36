"""Compare systems with a baseline on the same examples: metric, significance tests and results."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fairseq_headprune.evaluation.evaluator import AnswerMetric
from fairseq_headprune.evaluation.p_values import LEAST
from fairseq_headprune.evaluation.paired_tests import McNemarTest, TTest, corrected
from fairseq_headprune.evaluation.significance import SystemResult, bootstrap_statistics


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
