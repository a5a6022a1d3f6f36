"""A small network of six layers that names the pattern of an attention map (Prasanna et al. 2020, §5.2)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_headprune.patterns.examples import PATTERNS, SIZE

_CHANNELS = (8, 16, 32, 32)
_EPOCHS, _BATCH, _RATE = 8, 64, 2e-3


def network() -> nn.Sequential:
    """Build four convolutions (3 x 3, each halves the map) and two linear layers; the paper gives only their number."""
    layers: list[nn.Module] = []
    for before, after in zip((1, *_CHANNELS), _CHANNELS, strict=False):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    side = SIZE // 2 ** len(_CHANNELS)
    layers += [nn.Flatten(), nn.Linear(_CHANNELS[-1] * side**2, 64), nn.ReLU(), nn.Linear(64, len(PATTERNS))]
    return nn.Sequential(*layers)


def train(maps: Tensor, labels: Tensor, seed: int, epochs: int = _EPOCHS) -> nn.Sequential:
    """Train the network on the CPU; the same seed gives the same network.

    Args:
        maps: (n, 32, 32), as :func:`~fairseq_headprune.patterns.examples.canvas` makes them.
        labels: (n,), positions in :data:`PATTERNS`.
    """
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(seed)
        net = network()
        optimizer = torch.optim.Adam(net.parameters(), lr=_RATE)
        for _ in range(epochs):
            for chosen in torch.randperm(len(maps)).split(_BATCH):
                optimizer.zero_grad()
                F.cross_entropy(net(maps[chosen, None]), labels[chosen]).backward()
                optimizer.step()
    return net.eval()


def classify(net: nn.Module, maps: Tensor) -> Tensor:
    """Return the pattern of each map, (n, 32, 32) -> (n,)."""
    with torch.no_grad():
        return net(maps[:, None]).argmax(dim=1)


@dataclass(frozen=True)
class Quality:
    """How well patterns are recognised.

    Attributes:
        maps: number of maps of each pattern.
        precision, recall, f1: of each pattern, in the order of :data:`PATTERNS`; 0 where undefined.
        weighted_f1: mean of f1 weighted by the number of maps.
    """

    maps: list[int]
    precision: list[float]
    recall: list[float]
    f1: list[float]
    weighted_f1: float


def quality(labels: Sequence[int], found: Sequence[int]) -> Quality:
    """Compare patterns with the true ones.

    Raises:
        ImportError: scikit-learn is not installed.
    """
    try:
        from sklearn.metrics import precision_recall_fscore_support
    except ImportError as error:
        raise ImportError('this needs scikit-learn: pip install "fairseq_headprune[lottery]"') from error
    names = range(len(PATTERNS))
    by_class = precision_recall_fscore_support(labels, found, labels=names, zero_division=0)
    weighted = precision_recall_fscore_support(labels, found, labels=names, average="weighted", zero_division=0)
    precision, recall, f1, maps = (values.tolist() for values in by_class)
    return Quality(maps, precision, recall, f1, float(weighted[2]))
