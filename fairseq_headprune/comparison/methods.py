"""The methods that are compared, and how each is trained (Li et al. 2021, §4.2 and §4.3)."""

from dataclasses import dataclass, field

#: method -> what it is called in tables
NAMES = {
    "unpruned": "Unpruned",
    "michel": "Michel et al.",
    "michel-signed": "Michel, signed sums",
    "pipelined-dsp": "Pipelined DSP",
    "l0": "Voita et al. (L0)",
    "ste": "STE",
    "joint-dsp": "Joint DSP",
    "random-after": "Random after training",
    "random-start": "Random from the start",
    "joint-dsp-constant": "Joint DSP, constant temperature",
    "l0-lambda": "L0, fixed lambda",
}
#: methods that choose heads of the trained, unpruned model: one training serves all numbers of heads
AFTER_TRAINING = ("michel", "michel-signed", "random-after")
_CROSS_ENTROPY = ["--criterion", "label_smoothed_cross_entropy"]
_DSP = ["--criterion", "label_smoothed_cross_entropy_dsp"]
_L0 = ["--criterion", "label_smoothed_cross_entropy_l0"]


@dataclass(frozen=True)
class Training:
    """One training run.

    Attributes:
        name: also of its folder.
        count: heads to keep; for ``l0-lambda`` the place of lambda in the list. None for the unpruned model.
        flags: of fairseq-train, beside those that all runs have.
        needs: the training whose best checkpoint it starts from, or None.
    """

    name: str
    method: str
    seed: int
    count: int | None = None
    flags: list[str] = field(default_factory=list)
    needs: str | None = None


def unpruned_name(seed: int) -> str:
    """Name the training of the unpruned model."""
    return f"unpruned-{seed}"


def random_mask_name(count: int, seed: int) -> str:
    """Name the mask file of ``random-start``, relative to the working folder."""
    return f"masks/random-{count}-{seed}.json"


def trainings(
    methods: list[str], counts: list[int], seeds: list[int], lambdas: list[float], epoch_share: float
) -> list[Training]:
    """List all trainings of a comparison, those that others start from first.

    Args:
        epoch_share: share of pipelined DSP's single epoch in which its temperature falls.

    Raises:
        KeyError: an unknown method.
    """
    unknown = [method for method in methods if method not in NAMES]
    if unknown:
        raise KeyError(f"unknown method {unknown[0]}; known are {', '.join(NAMES)}")
    result = []
    for seed in seeds:
        result.append(Training(unpruned_name(seed), "unpruned", seed, None, _CROSS_ENTROPY))
    for seed in seeds:
        for method in methods:
            if method in AFTER_TRAINING or method == "unpruned":
                continue
            if method == "l0-lambda":
                for place, value in enumerate(lambdas):
                    flags = [*_L0, "--l0-penalty", f"{value:g}"]
                    result.append(Training(f"l0-lambda-{value:g}-{seed}", method, seed, place, flags))
                continue
            for count in counts:
                flags, needs = _flags(method, count, seed, epoch_share)
                result.append(Training(f"{method}-{count}-{seed}", method, seed, count, flags, needs))
    return result


def _flags(method: str, count: int, seed: int, epoch_share: float) -> tuple[list[str], str | None]:
    kept = ["--heads-kept", str(count)]
    if method == "joint-dsp":
        return [*_DSP, *kept, "--preset", "dsp-mt", "--tau-updates", "0.25"], None
    if method == "joint-dsp-constant":
        return [*_DSP, *kept, "--preset", "dsp-mt", "--tau-updates", "0.25", "--tau-end", "0.1"], None
    if method == "ste":
        return [*_DSP, *kept, "--straight-through"], None
    if method == "l0":
        return [*_L0, "--l0-target-heads", str(count)], None
    if method == "random-start":
        return [*_CROSS_ENTROPY, "--head-mask", random_mask_name(count, seed)], None
    pipelined = ["--gates-only", "--preset", "dsp-mt", "--tau-updates", str(epoch_share), "--max-epoch", "1"]
    return [*_DSP, *kept, *pipelined], unpruned_name(seed)
