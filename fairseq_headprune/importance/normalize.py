"""Making scores of different layers comparable."""

import math

from fairseq_headprune.importance.gradient import Values
from fairseq_headprune.parts import Mask

METHODS = ("layer", "none", "minmax")


def normalize(values: Values, mask: Mask, method: str = "layer") -> dict[str, list[list]]:
    """Normalise scores over the kept heads of each attention module; pruned heads get None.

    Args:
        method: ``layer``: divide by the l2 norm over the module's kept heads (Michel et al. 2019, §4.1, after Molchanov
            et al. 2017); enc_dec and dec_self of a decoder layer count apart; an all-zero module stays 0.
            ``minmax``: to 0..1 over all kept heads together (Li et al. 2021's code); all equal gives 0.
            ``none``: as they are.

    Raises:
        ValueError: an unknown method, or a score that is not finite.
    """
    kept = {
        c: [[v if k else None for v, k in zip(*pair, strict=True)] for pair in zip(rows, mask.rows[c], strict=True)]
        for c, rows in values.items()
    }
    return normalize_kept(kept, method)


def normalize_kept(kept: dict[str, list[list]], method: str = "layer") -> dict[str, list[list]]:
    """Normalise scores in which None stands for what is pruned; see :func:`normalize`.

    Raises:
        ValueError: as for :func:`normalize`.
    """
    if method not in METHODS:
        raise ValueError(f"unknown normalisation {method!r}; known are {', '.join(METHODS)}")
    flat = [v for rows in kept.values() for row in rows for v in row if v is not None]
    if not all(map(math.isfinite, flat)):
        raise ValueError("a score is not finite (NaN or infinity); nothing can be ranked by it")
    if method == "none":
        return kept
    if method == "minmax":
        low, high = min(flat, default=0.0), max(flat, default=0.0)
        span = high - low or 1.0
        return {c: [[None if v is None else (v - low) / span for v in row] for row in rows] for c, rows in kept.items()}
    return {c: [_by_norm(row) for row in rows] for c, rows in kept.items()}


def _by_norm(row: list) -> list:
    norm = math.sqrt(sum(v * v for v in row if v is not None))
    return [None if v is None else v / norm if norm else 0.0 for v in row]
