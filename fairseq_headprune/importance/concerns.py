"""What makes an order of normalised scores say less than it seems to."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from fairseq_headprune.parts import HEADS
from fairseq_headprune.parts.scores import Scores

UNEVEN = (
    "modules keep different numbers of heads, and --normalize layer gives those with fewer larger scores (by "
    "1/sqrt(n)): --normalize none, layer-rms and layer-frozen do not"
)
TIED = "some heads have equal scores, so the order among them is that of their index"
_LAST = ": the last head of a module always gets 1 with --normalize {}; none and layer-frozen tell these apart"


def concerns(scores: Scores) -> list[str]:
    """Return what to warn of: kept heads per module differ under ``layer``, or scores are equal."""
    rows = [[v for v in row if v is not None] for c in scores.rows if c in HEADS for row in scores.rows[c]]
    uneven = scores.normalize == "layer" and len({len(row) for row in rows if row}) > 1
    tied = any(count > 1 for count in Counter(value for row in rows for value in row).values())
    alone = scores.normalize in ("layer", "layer-rms") and sum(len(row) == 1 for row in rows) > 1
    return [UNEVEN] * uneven + [TIED + (_LAST.format(scores.normalize) if alone else "")] * tied


def concerns_of_files(paths: Iterable[Path]) -> list[str]:
    """Return what to warn of in the score files of a study that exist, each once, with the step from which it is so."""
    found: dict[str, str] = {}
    for path in paths:
        for text in concerns(Scores.load(path)) if path.is_file() else ():
            found.setdefault(text, "" if path.stem == "scores" else f" (from {path.stem} on)")
    return [text + where for text, where in found.items()]
