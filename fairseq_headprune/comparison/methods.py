"""The methods that are compared, and how each is trained (Li et al. 2021, §4.2 and §4.3)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from fairseq_headprune.comparison.kind import Kind

#: method -> what it is called in tables
NAMES = {
    "unpruned": "Unpruned",
    "michel": "Michel et al.",
    "michel-signed": "Michel, signed",
    "pipelined-dsp": "Pipelined DSP",
    "l0": "Voita et al. (L0)",
    "ste": "STE",
    "joint-dsp": "Joint DSP",
    "random-after": "Random after",
    "random-start": "Random start",
    "joint-dsp-constant": "Joint DSP, constant temperature",
    "l0-lambda": "L0, fixed lambda",
}
#: methods that choose heads of the trained, unpruned model: one training serves all numbers of heads
AFTER_TRAINING = ("michel", "michel-signed", "random-after")
#: methods that learn gates
LEARNED = ("pipelined-dsp", "l0", "ste", "joint-dsp", "joint-dsp-constant", "l0-lambda")
#: Table 3b's methods and the baselines that the paper lacks
DEFAULT = [name for name in NAMES if name not in ("joint-dsp-constant", "l0-lambda")]
#: Table 3b's numbers of heads, thinned out
COUNTS = [68, 60, 48, 36, 24, 20, 16, 12, 8, 4, 3, 2, 1]

#: Share of the run that comes before the first validation. Gates are settled then: DSP's temperature has fallen after
#: a quarter, and so has L0's target. Before that L0 has more heads than it ends with, which would look like quality.
SETTLED = 0.5


@dataclass(frozen=True)
class Training:
    """One training run.

    Attributes:
        name: also of its folder.
        count: heads to keep; None for the unpruned model and for ``l0-lambda``.
        flags: of fairseq-train, beside those that all runs have.
        after: the training whose best checkpoint it starts from, or None.
        penalty: lambda, for ``l0-lambda``.
    """

    name: str
    method: str
    seed: int
    count: int | None = None
    flags: Sequence[str] = field(default_factory=list)
    after: str | None = None
    penalty: float | None = None


def unpruned_name(seed: int) -> str:
    """Name the training of the unpruned model."""
    return f"unpruned-{seed}"


def trainings(
    methods: Sequence[str],
    counts: Sequence[int],
    seeds: Sequence[int],
    lambdas: Sequence[float],
    updates: int,
    kind: Kind,
) -> list[Training]:
    """List all trainings of a comparison; the unpruned models, on which others build, come first.

    Args:
        lambdas: penalties of ``l0-lambda``.
        updates: of every training but those of pipelined DSP, which take one epoch.
        kind: what is trained.

    Raises:
        ValueError: an unknown method.
    """
    unknown = [method for method in methods if method not in NAMES]
    if unknown:
        raise ValueError(f"unknown method {unknown[0]!r}; known are {', '.join(NAMES)}")
    whole = ["--validate-after-updates", str(int(SETTLED * updates))]
    plain = ["--criterion", kind.criterion]
    result = [Training(unpruned_name(seed), "unpruned", seed, None, [*plain, *whole]) for seed in seeds]
    chosen = [m for m in NAMES if m in methods and m not in ("unpruned", "l0-lambda", *AFTER_TRAINING)]
    for seed in seeds:
        # A number of heads after the other, so that what is done after a stop is whole lines of the table.
        for count in counts:
            for method in chosen:
                flags = [*method_flags(method, count, kind), *([] if method == "pipelined-dsp" else whole)]
                after = unpruned_name(seed) if method == "pipelined-dsp" else None
                result.append(Training(f"{method}-{count}-{seed}", method, seed, count, flags, after))
        for value in lambdas if "l0-lambda" in methods else ():
            flags = [*lambda_flags(value, kind), *whole]
            result.append(Training(f"l0-lambda-{value:g}-{seed}", "l0-lambda", seed, None, flags, penalty=value))
    return result


def method_flags(method: str, count: int, kind: Kind) -> list[str]:
    """Return the flags of fairseq-train that make a method, with so many heads kept (Li et al. 2021, Table 2)."""
    subset = ["--criterion", f"{kind.criterion}_dsp", "--heads-kept", str(count)]
    cool_down = ["--preset", kind.preset, "--tau-updates"]
    return {
        "joint-dsp": [*subset, *cool_down, "0.25"],
        "joint-dsp-constant": [*subset, *cool_down, "0.25", "--tau-end", "0.1"],
        # One epoch on the trained model, in whose first half the temperature falls.
        "pipelined-dsp": [*subset, "--gates-only", *cool_down, "0.5", "--max-epoch", "1"],
        "ste": [*subset, "--straight-through"],
        "l0": ["--criterion", f"{kind.criterion}_l0", "--l0-target-heads", str(count)],
        # The driver names the mask.
        "random-start": ["--criterion", kind.criterion],
    }[method]


def lambda_flags(penalty: float, kind: Kind) -> list[str]:
    """Return the flags of fairseq-train for L0 with a fixed penalty."""
    return ["--criterion", f"{kind.criterion}_l0", "--l0-penalty", f"{penalty:g}"]
