"""``headprune lottery``: when BERT, or a translation model, plays the lottery (Prasanna et al. 2020)."""

import importlib
import sys

#: what is done -> in one line; the code is in ``cli/lottery_NAME.py``
PARTS = {
    "find": "prune while the score holds: the good subnetwork of one model",
}


def run(argv: list[str]) -> int:
    """Run ``headprune lottery PART``.

    Raises:
        ValueError: no such part.
    """
    part = argv[0] if argv else None
    if part in (None, "-h", "--help"):
        lines = ["usage: headprune lottery PART …   (headprune lottery PART --help tells more)", ""]
        text = "\n".join([*lines, *(f"  {name:<10} {what}" for name, what in PARTS.items())])
        print(text, file=sys.stderr if part is None else sys.stdout)
        return 2 if part is None else 0
    if part not in PARTS:
        raise ValueError(f"there is no {part!r}; there is {', '.join(PARTS)}")
    return importlib.import_module(f"fairseq_headprune.cli.lottery_{part}").run(argv[1:])
