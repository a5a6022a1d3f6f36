"""Normalisation that makes the scores of different layers comparable, and what an order of them hides."""

import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from fairseq_headprune.importance.settings import METHODS, Values
from fairseq_headprune.parts import FFN, HEADS, Mask
from fairseq_headprune.parts.scores import Scores

#: scores, with None for pruned parts
Kept = dict[str, list[list[float | None]]]
#: component -> one norm per layer
Norms = dict[str, list[float]]

UNEVEN = (
    "modules keep different numbers of heads, and --normalize layer gives those with fewer larger scores (by "
    "1/sqrt(n)): --normalize none, layer-rms and layer-frozen do not"
)
TIED = "some heads have equal scores, so the order among them is that of their index"
_LAST = ": the last head of a module always gets 1 with --normalize {}; none and layer-frozen tell these apart"


def normalize(values: Values, mask: Mask, method: str, norms: Norms | None = None) -> Kept:
    """Normalise scores over the kept parts of each module; pruned parts get None.

    Heads and feed-forward parts are normalised separately.

    Args:
        mask: with an entry for every part that has a value.
        method: ``none``: unchanged.
            ``layer``: divide by the l2 norm over the module's kept parts (Michel et al. 2019, §4.1, after Molchanov
            et al. 2017); enc_dec and dec_self of a decoder layer are separate modules; an all-zero module stays 0.
            Blocks, one per layer, are unchanged (Prasanna et al. 2020).
            ``layer-rms``: divide by the root mean square instead, which does not depend on how many parts are kept.
            ``layer-frozen``: divide by ``norms``, those of the model before anything was pruned.
            ``minmax``: scale to 0..1 over all kept heads together (Li et al. 2021's code); if all are equal, 0.
        norms: for ``layer-frozen`` (see :func:`module_norms`); None: those of ``values`` themselves.

    Raises:
        ValueError: an unknown method, or a score that is not finite.
    """
    if method not in METHODS:
        raise ValueError(f"unknown normalisation {method!r}; known are {', '.join(METHODS)}")
    kept = _kept(values, mask)
    if not all(math.isfinite(v) for rows in kept.values() for row in rows for v in row if v is not None):
        raise ValueError("a score is not finite (NaN or infinity); nothing can be ranked by it")
    if method == "none":
        return kept
    if method == "minmax":
        groups = [{c: rows for c, rows in kept.items() if (c in FFN) == ffn} for ffn in (False, True)]
        return {c: rows for group in groups for c, rows in _to_unit_range(group).items()}
    norms = norms if norms and method == "layer-frozen" else module_norms(values, mask, method == "layer-rms")
    return {c: [_divided(*pair) for pair in zip(rows, norms[c], strict=True)] for c, rows in kept.items()}


def module_norms(values: Values, mask: Mask, mean: bool = False) -> Norms:
    """Return the l2 norm (``mean``: root mean square) of the kept parts of each module; 1 for blocks, one per layer."""
    kept = _kept(values, mask)
    return {c: [1.0 if c in FFN and len(row) == 1 else _norm(row, mean) for row in rows] for c, rows in kept.items()}


def _kept(values: Values, mask: Mask) -> Kept:
    return {c: [_alive(*pair) for pair in zip(rows, mask.rows[c], strict=True)] for c, rows in values.items()}


def _alive(row: list[float], mask: list[int]) -> list[float | None]:
    """Return the values of kept parts, None for pruned ones; a whole block, kept or removed, has a single entry."""
    if len(mask) != len(row):
        return [None] if mask == [0] else [*row]
    return [value if keep else None for value, keep in zip(row, mask, strict=True)]


def _to_unit_range(kept: Kept) -> Kept:
    flat = [v for rows in kept.values() for row in rows for v in row if v is not None]
    low, high = min(flat, default=0.0), max(flat, default=0.0)
    span = high - low or 1.0
    return {c: [[None if v is None else (v - low) / span for v in row] for row in rows] for c, rows in kept.items()}


def _norm(row: list[float | None], mean: bool) -> float:
    squares = [v * v for v in row if v is not None]
    return math.sqrt(sum(squares) / (len(squares) or 1 if mean else 1))


def _divided(row: list[float | None], norm: float) -> list[float | None]:
    return [None if v is None else v / norm if norm else 0.0 for v in row]


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
