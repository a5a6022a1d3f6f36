"""What linear layers are given: the layout of their inputs, and the same inputs in another form.

torch computes ``F.linear`` of an input that is contiguous, or has two dimensions, as one product with the bias inside:
what it sums is rounded once. Of other inputs it computes the product, and adds the bias then: in half precision that is
rounded twice.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Optional
from unittest.mock import patch

import torch.nn.functional as F
from torch import Tensor, nn


@contextmanager
def flattened(least_rows: int = 0) -> Iterator[None]:
    """Context manager: linear layers get contiguous rows, with rows of zeros after them where they are too few."""
    linear = F.linear

    def of_rows(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None) -> Tensor:
        rows = x.reshape(-1, x.size(-1)).contiguous()
        more = F.pad(rows, (0, 0, 0, max(0, least_rows - len(rows))))
        return linear(more, weight, bias)[: len(rows)].view(*x.shape[:-1], -1)

    with patch.object(F, "linear", of_rows):
        yield


def layouts(model: nn.Module, ways: Mapping[str, Callable[[], Any]]) -> list[dict[str, Any]]:
    """Return in which share of its calls each linear layer has an input that is not contiguous, in each of these ways.

    Layers whose inputs are contiguous in all ways are omitted.
    """
    names = {id(parameter): name.removesuffix(".weight") for name, parameter in model.named_parameters()}
    shares = {}
    for way, work in ways.items():
        with _calls() as calls:
            work()
        # What is joined from several layers is none of the model's parameters.
        strided, all_of = Counter[str](), Counter[str]()
        for (weight, is_strided), count in calls.items():
            all_of[names.get(weight, "joined")] += count
            strided[names.get(weight, "joined")] += count * is_strided
        shares[way] = {layer: strided[layer] / count for layer, count in all_of.items()}
    some = [layer for layer in ["joined", *names.values()] if any(found.get(layer) for found in shares.values())]
    return [
        {"layer": layer, "way": way, "not_contiguous": found[layer]}
        for layer in some
        for way, found in shares.items()
        if layer in found
    ]


@contextmanager
def _calls() -> Iterator[Counter[tuple[int, bool]]]:
    """Context manager: count calls by the identity of the weight, and whether the input is not contiguous."""
    linear, found = F.linear, Counter[tuple[int, bool]]()

    def counted(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None) -> Tensor:
        found[id(weight), not x.is_contiguous()] += 1
        return linear(x, weight, bias)

    with patch.object(F, "linear", counted):
        yield found
