"""Magnitude pruning over all matrices of a model's layers: the weights nearest to zero; and tickets of weights."""

import contextlib
import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fairseq_headprune.files import PathLike, write_with

WEIGHTS_FORMAT = "headprune.weights/1"

#: name of a matrix -> bool mask of its kept weights
Kept = dict[str, Tensor]


def layer_matrices(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the weight matrices of encoder and decoder layers by name, without embeddings, output or task layers."""
    return {name: value for name, value in model.named_parameters() if ".layers." in f".{name}" and value.dim() == 2}


def without_lowest(matrices: Mapping[str, Tensor], count: int) -> Kept:
    """Return the masks of kept weights after pruning the ``count`` smallest absolute values.

    Ties are pruned in the order of the matrices and their rows.

    Raises:
        ValueError: ``count`` is negative or exceeds the number of weights.
    """
    values = torch.cat([matrix.detach().abs().flatten() for matrix in matrices.values()])
    if not 0 <= count <= len(values):
        raise ValueError(f"cannot prune {count} of {len(values)} weights")
    kept = torch.ones_like(values, dtype=torch.bool)
    if count:
        limit = values.kthvalue(count).values
        kept[values < limit] = False
        ties = (values == limit).nonzero().flatten()
        kept[ties[: count - int((~kept).sum())]] = False
    parts = kept.split([matrix.numel() for matrix in matrices.values()])
    return {name: part.view_as(matrix) for (name, matrix), part in zip(matrices.items(), parts, strict=True)}


@contextlib.contextmanager
def zeroed(matrices: Mapping[str, Tensor], kept: Mapping[str, Tensor]) -> Iterator[None]:
    """Context manager: set the pruned weights to zero."""
    before = {name: matrix.detach().clone() for name, matrix in matrices.items()}
    try:
        with torch.no_grad():
            for name, matrix in matrices.items():
                matrix.mul_(kept[name].to(matrix.device))
        yield
    finally:
        with torch.no_grad():
            for name, matrix in matrices.items():
                matrix.copy_(before[name])


def save_weights(kept: Kept, path: PathLike, source: Mapping[str, Any]) -> None:
    """Write which weights are kept, one bit each, and make the folder of the file."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    packed = {name: torch.from_numpy(np.packbits(value.numpy())) for name, value in kept.items()}
    shapes = {name: list(value.shape) for name, value in kept.items()}
    content = {"format": WEIGHTS_FORMAT, "source": dict(source), "shapes": shapes, "kept": packed}
    write_with(path, lambda stream: torch.save(content, stream))


def load_weights(path: PathLike) -> tuple[Kept, dict[str, Any]]:
    """Read which weights are kept, and what the file says of its origin.

    Raises:
        ValueError, FileNotFoundError: not a file that :func:`save_weights` wrote.
    """
    try:
        content = torch.load(path, weights_only=True)
    except (pickle.UnpicklingError, EOFError, RuntimeError) as error:
        raise ValueError(f"{path}: not a ticket of weights of headprune lottery tickets ({error})") from error
    if not isinstance(content, dict) or content.get("format") != WEIGHTS_FORMAT:
        raise ValueError(f"{path}: not a ticket of weights of headprune lottery tickets ({WEIGHTS_FORMAT})")
    shapes = content["shapes"]
    bits = {
        name: np.unpackbits(value.numpy(), count=int(np.prod(shapes[name]))) for name, value in content["kept"].items()
    }
    return {name: torch.from_numpy(value).bool().view(shapes[name]) for name, value in bits.items()}, content["source"]


def random_weights(good: Kept, seed: int) -> Kept:
    """Draw as many weights of each matrix as the good ticket keeps there."""
    chance = torch.Generator().manual_seed(seed)
    return {name: _highest(torch.rand(kept.numel(), generator=chance), kept) for name, kept in good.items()}


def bad_weights(good: Kept, seed: int) -> Kept:
    """Draw as many weights of each matrix as the good ticket keeps there, preferring those that it prunes."""
    chance = torch.Generator().manual_seed(seed)
    return {
        name: _highest(torch.rand(kept.numel(), generator=chance) - kept.flatten().float(), kept)
        for name, kept in good.items()
    }


def _highest(keys: Tensor, kept: Tensor) -> Tensor:
    """Return a mask of the weights with the highest keys, as many as ``kept`` keeps."""
    found = torch.zeros(len(keys), dtype=torch.bool)
    found[keys.argsort(descending=True, stable=True)[: int(kept.sum())]] = True
    return found.view_as(kept)


def check_weights(matrices: Mapping[str, Tensor], kept: Kept, ticket: str, model: str) -> None:
    """Check that a ticket has a mask of the right shape for each matrix of a model.

    Raises:
        ValueError: it has not; ``ticket`` and ``model`` name both.
    """
    for name in [*matrices, *kept]:
        mine, its = (tuple(of[name].shape) if name in of else None for of in (matrices, kept))
        if mine != its:
            raise ValueError(f"{ticket} is of another model than {model}: {name} is {its} there, {mine} in the model")


class KeptWeights:
    """Trains a model with the pruned weights at zero: they are set to 0, and their gradients as well.

    So they stay exactly 0 whatever the optimizer, and do not count in the gradient's norm.

    Args:
        ticket: name of the ticket for errors.

    Raises:
        ValueError: the ticket is of another model.
    """

    def __init__(self, model: nn.Module, kept: Kept, ticket: str) -> None:
        self._matrices, self._kept, self._held = layer_matrices(model), kept, False
        check_weights(self._matrices, kept, ticket, "the model to train")
        # Before fairseq copies the weights to float32, so that these copies are 0 as well.
        self._prune()
        model.register_load_state_dict_post_hook(lambda *_: self._prune())

    def _prune(self) -> None:
        with torch.no_grad():
            for name, matrix in self._matrices.items():
                matrix.mul_(self._kept[name].to(matrix.device))

    def hold(self) -> None:
        """Keep them at 0 from now on; the model is on its device."""
        if not self._held:
            for name, matrix in self._matrices.items():
                kept = self._kept[name] = self._kept[name].to(matrix.device)
                matrix.register_hook(lambda gradient, kept=kept: gradient * kept)
            self._held = True
