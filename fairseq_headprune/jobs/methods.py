"""The pruning methods that are compared, and how each is trained (Li et al. 2021, §4.2 and §4.3)."""

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


def method_flags(method: str, count: int, criterion: str, preset: str) -> list[str]:
    """Return the flags of fairseq-train that make a method keep ``count`` heads (Li et al. 2021, Table 2).

    Args:
        criterion: the one without gates; those with gates end in ``_l0`` and ``_dsp``.
        preset: of DSP's settings, by model family.
    """
    subset = ["--criterion", f"{criterion}_dsp", "--heads-kept", str(count)]
    cool_down = ["--preset", preset, "--tau-updates"]
    return {
        "joint-dsp": [*subset, *cool_down, "0.25"],
        "joint-dsp-constant": [*subset, *cool_down, "0.25", "--tau-end", "0.1"],
        # One epoch on the trained model, in whose first half the temperature falls.
        "pipelined-dsp": [*subset, "--gates-only", *cool_down, "0.5", "--max-epoch", "1"],
        "ste": [*subset, "--straight-through"],
        "l0": ["--criterion", f"{criterion}_l0", "--l0-target-heads", str(count)],
        # The job has the mask.
        "random-start": ["--criterion", criterion],
    }[method]


def lambda_flags(penalty: float, criterion: str) -> list[str]:
    """Return the flags of fairseq-train for L0 with a fixed penalty."""
    return ["--criterion", f"{criterion}_l0", "--l0-penalty", f"{penalty:g}"]
