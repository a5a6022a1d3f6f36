"""The trainings that a comparison of pruning methods needs (Li et al. 2021, §4.3)."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from fairseq_headprune.jobs.methods import (
    SETTLED,
    base,
    check,
    in_order,
    lambda_flags,
    method_flags,
    option,
    options,
    ranks,
)
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
        updates: at most so many.
        mask_of: the training (or ranking) whose heads it keeps, or None.
    """

    name: str
    method: str
    seed: int
    count: int | None = None
    flags: Sequence[str] = field(default_factory=list)
    after: str | None = None
    penalty: float | None = None
    updates: int = 0
    mask_of: str | None = None

    @property
    def mask_seed(self) -> int:
        """The seed of random heads: that of the training, or of the option ``mask=N``."""
        return int(option(self.method, "mask") or self.seed)


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
    tune: int = 0,
) -> list[Training]:
    """List all trainings of a comparison; the unpruned models, from which others start, come first.

    Args:
        lambdas: penalties of ``l0-lambda``.
        updates: updates of every training, except pipelined DSP's (one epoch).
        tune: updates of variants that are fine-tuned (``tuned``), and more updates of those trained ``long``.

    Raises:
        ValueError: an unknown method, or one that takes the heads of another that is not compared.
    """
    for method in methods:
        check(method)
    chosen = [m for m in in_order(["unpruned", *methods]) if base(m) != "l0-lambda" and not ranks(m)]
    if not tune and any({"tuned", "long"} & {*options(method)} for method in chosen):
        raise ValueError("variants that are tuned, or trained for long, need --tune UPDATES")

    def of(method: str, count: int | None, seed: int) -> Training:
        limit = updates + tune if "long" in options(method) else updates
        return _training(method, count, seed, tune if "tuned" in options(method) else limit, task)

    whole = [method for method in chosen if base(method) == "unpruned"]
    result = [of(method, None, seed) for method in whole for seed in seeds]
    for seed in seeds:
        # Ordered by head count, so that an interrupted comparison has complete rows of the table.
        result += [of(method, count, seed) for count in counts for method in chosen if method not in whole]
        for value in lambdas if "l0-lambda" in methods else ():
            flags = [*lambda_flags(value, task.criterion), "--validate-after-updates", str(int(SETTLED * updates))]
            name = f"l0-lambda-{value:g}-{seed}"
            result.append(Training(name, "l0-lambda", seed, None, flags, penalty=value, updates=updates))
    _check_sources(result, methods, seeds)
    return result


def _training(method: str, count: int | None, seed: int, updates: int, task: Task) -> Training:
    """Return a training of so many updates, from random weights or from the unpruned model."""
    tuned, plain = "tuned" in options(method), ["--criterion", task.criterion]
    flags = plain if count is None else method_flags(method, count, task.criterion, task.preset)
    short = tuned or base(method) == "pipelined-dsp"
    flags = flags if short else [*flags, "--validate-after-updates", str(int(SETTLED * updates))]
    after = unpruned_name(seed) if short else None
    made = Training(_name(method, count, seed), method, seed, count, flags, after, updates=updates)
    if base(method) == "learned-start":
        return replace(made, mask_of=_name("joint-dsp", count, made.mask_seed))
    if tuned and count is not None:
        return replace(made, mask_of=_name(method.replace("+tuned", ""), count, seed))
    return made


def _check_sources(made: Sequence[Training], methods: Sequence[str], seeds: Sequence[int]) -> None:
    for training in made:
        if training.mask_of is None:
            continue
        source, _, seed = training.mask_of.rsplit("-", 2)
        if source not in methods or int(seed) not in seeds:
            raise ValueError(f"{training.method} takes the heads of {source}, seed {seed}: compare these, too")


def _name(method: str, count: int | None, seed: int) -> str:
    return f"{method}-{seed}" if count is None else f"{method}-{count}-{seed}"
