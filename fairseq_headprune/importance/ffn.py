"""Importance of feed-forward units and blocks: eq. 2 of Michel et al. 2019 with a gate on each of them.

Prasanna et al. 2020 put a gate on the output of every MLP block; a gate on a unit's activation is the same for units.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from fairseq_headprune.importance.estimate import ScoreSettings
from fairseq_headprune.importance.gradient import GateDerivatives, gradient_importance
from fairseq_headprune.importance.losses import Losses
from fairseq_headprune.importance.normalize import normalize_kept
from fairseq_headprune.modules.attach import find_gates
from fairseq_headprune.modules.ffn import FeedForwards
from fairseq_headprune.removal.ffn_layout import units_of

PARTS = ("blocks", "units")


class FfnGates:
    """Leaf gates on feed-forward blocks or units, as :class:`GateDerivatives` wants them.

    Attributes:
        modules: side -> gated output layers.
    """

    def __init__(self, ffn: FeedForwards, parts: str) -> None:
        self.modules, self._units = ffn.modules, parts == "units"

    @contextmanager
    def leaf_gates(self, shape: Callable[[str, int], tuple[int, ...]]) -> Iterator[dict[str, list[Tensor]]]:
        """Put a gate of ones that requires gradients on every unit or block, for a while."""
        gates: dict[str, list[Tensor]] = {}
        name = "unit_gate" if self._units else "block_gate"
        try:
            for side, modules in self.modules.items():
                for module in modules:
                    size = shape(side, module.in_features if self._units else 1)
                    gate = module.weight.new_ones(size).requires_grad_()
                    gates.setdefault(side, []).append(gate)
                    setattr(module, name, gate)
            yield gates
        finally:
            for modules in self.modules.values():
                for module in modules:
                    setattr(module, name, None)


def check_ffn_settings(settings: ScoreSettings) -> None:
    """Make sure that feed-forward parts can be scored like this.

    Raises:
        ValueError: an estimator without derivatives, or one per token.
    """
    if settings.estimator not in ("gradient", "fisher") or settings.reduction == "token":
        raise ValueError("--ffn needs --estimator gradient or fisher, and another --reduction than token")


def ffn_scores(
    model: nn.Module, batches: Iterable[dict[str, Any]], settings: ScoreSettings, losses: Losses, parts: str
) -> dict[str, list]:
    """Return the scores of feed-forward blocks (a number each) or units (a list for each block, in original numbers).

    What is masked or removed gets None. ``--normalize layer`` divides units by the l2 norm over the kept ones of their
    block; blocks, one a layer, stay as they are. ``minmax`` goes over all of them.

    Raises:
        ValueError: settings that do not fit, a model without feed-forward blocks, no sentences, or values that are not
            finite.
    """
    check_ffn_settings(settings)
    ffn = find_gates(model).ffn
    if not ffn.layers:
        raise ValueError("the model has no feed-forward blocks that can be gated")
    derivatives = GateDerivatives(model, losses, FfnGates(ffn, parts))
    power = 2 if settings.estimator == "fisher" else 1
    values, _ = gradient_importance(derivatives, batches, settings.reduction, power)
    rows = _pruned_as_none(ffn, values, parts)
    rows = normalize_kept(rows, "none" if parts == "blocks" and settings.normalize == "layer" else settings.normalize)
    return rows if parts == "units" else {side: [row[0] for row in layers] for side, layers in rows.items()}


def _pruned_as_none(ffn: FeedForwards, values: dict[str, list[list[float]]], parts: str) -> dict[str, list[list]]:
    """Return one value a unit in original numbers, or a row of one value a block; None for what is pruned."""
    rows: dict[str, list[list]] = {side: [] for side in values}
    for side, modules in ffn.modules.items():
        for module, found in zip(modules, values[side], strict=True):
            kept = module.kept()
            if parts == "blocks":
                rows[side].append([None if kept == 0 else found[0]])
                continue
            alive = set(units_of(kept, module.original_count))
            there = dict(zip(units_of(module.block, module.original_count), found, strict=True))
            rows[side].append([there[u] if u in alive else None for u in range(module.original_count)])
    return rows
