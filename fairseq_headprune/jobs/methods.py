"""The pruning methods that are compared, and how each is trained (Li et al. 2021, §4.2 and §4.3)."""

#: method -> its name in tables
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
#: methods that choose heads of the trained, unpruned model: one training is enough for all head counts
AFTER_TRAINING = ("michel", "michel-signed", "random-after")
#: methods that learn gates
LEARNED = ("pipelined-dsp", "l0", "ste", "joint-dsp", "joint-dsp-constant", "l0-lambda")
#: the methods of Table 3b, and baselines that are not in the paper
DEFAULT = [name for name in NAMES if name not in ("joint-dsp-constant", "l0-lambda")]
#: a subset of Table 3b's head counts
COUNTS = [68, 60, 48, 36, 24, 20, 16, 12, 8, 4, 3, 2, 1]

#: Share of the training before the first validation. DSP's temperature and L0's target reach their final values after
#: a quarter of the training; before that L0 still has more heads than in the end, and would score too high.
SETTLED = 0.5


def method_flags(method: str, count: int, criterion: str, preset: str) -> list[str]:
    """Return the fairseq-train flags with which a method keeps ``count`` heads (Li et al. 2021, Table 2).

    Args:
        criterion: name of the criterion without gates; with gates it gets the suffix ``_l0`` or ``_dsp``.
        preset: DSP's preset for the model family.
    """
    subset = ["--criterion", f"{criterion}_dsp", "--heads-kept", str(count)]
    cool_down = ["--preset", preset, "--tau-updates"]
    return {
        "joint-dsp": [*subset, *cool_down, "0.25"],
        "joint-dsp-constant": [*subset, *cool_down, "0.25", "--tau-end", "0.1"],
        # One epoch on the trained model; the temperature falls in its first half.
        "pipelined-dsp": [*subset, "--gates-only", *cool_down, "0.5", "--max-epoch", "1"],
        "ste": [*subset, "--straight-through"],
        "l0": ["--criterion", f"{criterion}_l0", "--l0-target-heads", str(count)],
        # No flags: the job itself holds the mask.
        "random-start": ["--criterion", criterion],
    }[method]


def lambda_flags(penalty: float, criterion: str) -> list[str]:
    """Return the fairseq-train flags for L0 with a fixed penalty."""
    return ["--criterion", f"{criterion}_l0", "--l0-penalty", f"{penalty:g}"]
