"""The pruning methods that are compared, and how each is trained (Li et al. 2021, §4.2 and §4.3).

A method may have variants, named with options after a plus sign: ``michel+none+once``, ``joint-dsp+lr=0.5``.
"""

import re
from collections.abc import Iterable

from fairseq_headprune.importance.settings import METHODS as NORMALISERS
from fairseq_headprune.importance.settings import REDUCTIONS

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
    "learned-start": "Joint DSP's heads from the start",
}
#: methods that choose heads of the trained, unpruned model: one training is enough for all head counts
AFTER_TRAINING = ("michel", "michel-signed", "random-after")
#: methods that learn gates
LEARNED = ("pipelined-dsp", "l0", "ste", "joint-dsp", "joint-dsp-constant", "l0-lambda")
#: the methods of Table 3b, and baselines that are not in the paper
DEFAULT = [name for name in NAMES if name not in ("joint-dsp-constant", "l0-lambda", "learned-start")]
#: a subset of Table 3b's head counts
COUNTS = [68, 60, 48, 36, 24, 20, 16, 12, 8, 4, 3, 2, 1]

#: Share of the training before the first validation. DSP's temperature and L0's target reach their final values after
#: a quarter of the training; before that L0 still has more heads than in the end, and would score too high.
SETTLED = 0.5

#: option of a variant that trains -> fairseq-train flag (with a value, as in lr=0.5, or with this one)
_FLAGS = {"lr": "--gate-lr", "cool": "--tau-updates", "wait": "--tau-wait", "noise": "--gate-noise"}
_NUMBER = "[0-9.e-]+"
#: method -> regular expression of the options of its variants
_OPTIONS = {
    "michel": "|".join([*REDUCTIONS, *NORMALISERS, "once", "tuned"]),
    "random-after": "order=[0-9]+|tuned",
    "random-start": "mask=[0-9]+|long",
    "learned-start": "mask=[0-9]+|layers|components",
    "unpruned": "tuned|long",
    "pipelined-dsp": f"(lr|cool|wait)={_NUMBER}|noise=(always|cooling)|scaled|tuned",
    "joint-dsp": f"(lr|cool|wait)={_NUMBER}|noise=(always|cooling)|scaled|long",
    "ste": f"lr={_NUMBER}|noise=always|long",
    "l0": f"lr={_NUMBER}|long",
}


def base(method: str) -> str:
    """Return the method of a variant."""
    return method.partition("+")[0]


def options(method: str) -> list[str]:
    """Return the options of a variant."""
    return method.split("+")[1:]


def option(method: str, name: str) -> str | None:
    """Return the value of a variant's option ``name=value``."""
    return next((text.partition("=")[2] for text in options(method) if text.startswith(f"{name}=")), None)


def check_method(method: str) -> None:
    """Check the name of a method or variant.

    Raises:
        ValueError: no such method, or it has no such option.
    """
    if base(method) not in NAMES:
        raise ValueError(f"unknown method {method!r}; known are {', '.join(NAMES)}")
    known = _OPTIONS.get(base(method), "")
    wrong = [text for text in options(method) if not known or not re.fullmatch(known, text)]
    if wrong:
        raise ValueError(f"method {method!r}: {base(method)} has no option {wrong[0]!r}; it has {known or 'none'}")


def title(method: str) -> str:
    """Return a method's name in tables."""
    more = ", ".join(text.replace("=", " ") for text in options(method))
    return NAMES.get(base(method), base(method)) + (f" ({more})" if more else "")


def place(method: str) -> tuple[int, str]:
    """Return the sort key of a method in tables."""
    return list(NAMES).index(base(method)), method


def in_order(methods: Iterable[str]) -> list[str]:
    """Sort methods in the order of tables, each once."""
    return sorted(set(methods), key=place)


def ranks(method: str) -> bool:
    """Whether a method only chooses heads of the trained, unpruned model, without a training of its own."""
    return base(method) in AFTER_TRAINING and "tuned" not in options(method)


def estimates(method: str) -> bool:
    """Whether a method chooses heads of the trained, unpruned model by estimates of their importance."""
    return ranks(method) and base(method) != "random-after"


def learns(method: str) -> bool:
    """Whether the training of a method learns gates."""
    return base(method) in LEARNED and "tuned" not in options(method)


def method_flags(method: str, count: int, criterion: str, preset: str) -> list[str]:
    """Return the fairseq-train flags with which a method keeps ``count`` heads (Li et al. 2021, Table 2).

    Args:
        criterion: name of the criterion without gates; with gates it gets the suffix ``_l0`` or ``_dsp``.
        preset: DSP's preset for the model family.
    """
    subset = ["--criterion", f"{criterion}_dsp", "--heads-kept", str(count)]
    cool_down = ["--preset", preset, "--tau-updates"]
    fixed = ["--criterion", criterion]  # no flags: the job itself holds the mask
    if "tuned" in options(method):
        return fixed
    flags = {
        "joint-dsp": [*subset, *cool_down, "0.25"],
        "joint-dsp-constant": [*subset, *cool_down, "0.25", "--tau-end", "0.1"],
        # One epoch on the trained model; the temperature falls in its first half.
        "pipelined-dsp": [*subset, "--gates-only", *cool_down, "0.5", "--max-epoch", "1"],
        "ste": [*subset, "--straight-through"],
        "l0": ["--criterion", f"{criterion}_l0", "--l0-target-heads", str(count)],
    }.get(base(method), fixed)
    for text in options(method):
        name, _, value = text.partition("=")
        flags = [*flags, *([_FLAGS[name], value] if name in _FLAGS else ["--scale-gate-lr"] * (name == "scaled"))]
    return flags


def lambda_flags(penalty: float, criterion: str) -> list[str]:
    """Return the fairseq-train flags for L0 with a fixed penalty."""
    return ["--criterion", f"{criterion}_l0", "--l0-penalty", f"{penalty:g}"]
