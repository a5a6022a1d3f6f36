"""The trainings that a comparison of pruning methods needs (Li et al. 2021, §4.3)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from fairseq_headprune.jobs.methods import AFTER_TRAINING, NAMES, SETTLED, lambda_flags, method_flags
from fairseq_headprune.studies.pruners.tasks import Task


@dataclass(frozen=True)
class Training:
    """One training of a method.

    Attributes:
        name: name of its job.
        count: heads to keep; None for the unpruned model and for ``l0-lambda``.
        flags: fairseq-train flags, besides those common to all trainings.
        after: the training whose best checkpoint it starts from, or None.
        penalty: lambda of ``l0-lambda``.
    """

    name: str
    method: str
    seed: int
    count: int | None = None
    flags: Sequence[str] = field(default_factory=list)
    after: str | None = None
    penalty: float | None = None


def unpruned_name(seed: int) -> str:
    """Return the name of the unpruned model's training."""
    return f"unpruned-{seed}"


def trainings(
    methods: Sequence[str],
    counts: Sequence[int],
    seeds: Sequence[int],
    lambdas: Sequence[float],
    updates: int,
    task: Task,
) -> list[Training]:
    """List all trainings of a comparison; the unpruned models, from which others start, come first.

    Args:
        lambdas: penalties of ``l0-lambda``.
        updates: updates of every training, except pipelined DSP's (one epoch).

    Raises:
        ValueError: an unknown method.
    """
    unknown = [method for method in methods if method not in NAMES]
    if unknown:
        raise ValueError(f"unknown method {unknown[0]!r}; known are {', '.join(NAMES)}")
    whole = ["--validate-after-updates", str(int(SETTLED * updates))]
    plain = ["--criterion", task.criterion]
    result = [Training(unpruned_name(seed), "unpruned", seed, None, [*plain, *whole]) for seed in seeds]
    chosen = [m for m in NAMES if m in methods and m not in ("unpruned", "l0-lambda", *AFTER_TRAINING)]
    for seed in seeds:
        # Ordered by head count, so that an interrupted comparison has complete rows of the table.
        for count in counts:
            for method in chosen:
                flags = method_flags(method, count, task.criterion, task.preset)
                flags += [] if method == "pipelined-dsp" else whole
                after = unpruned_name(seed) if method == "pipelined-dsp" else None
                result.append(Training(f"{method}-{count}-{seed}", method, seed, count, flags, after))
        for value in lambdas if "l0-lambda" in methods else ():
            flags = [*lambda_flags(value, task.criterion), *whole]
            result.append(Training(f"l0-lambda-{value:g}-{seed}", "l0-lambda", seed, None, flags, penalty=value))
    return result
