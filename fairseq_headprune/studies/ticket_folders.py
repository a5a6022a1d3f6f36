"""What ``headprune lottery tickets`` left: survivors of several searches, and how many weights of each part survive."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairseq_headprune.checkpoints import part_modules, read_state
from fairseq_headprune.choosing.magnitude import Kept, load_weights
from fairseq_headprune.files import PathLike, read_json
from fairseq_headprune.parts import COMPONENTS, HEADS, Mask, Part, Shape
from fairseq_headprune.parts.scores import Scores
from fairseq_headprune.studies.study import UNPRUNED


@dataclass(frozen=True)
class TicketFolder:
    """The good tickets of the searches of several seeds.

    Attributes:
        name: of the folder.
        content: ``tickets.json``.
        goods: the surviving parts of each search; empty for tickets of weights.
        kept: the surviving weights of each search; empty for tickets of parts.
    """

    path: Path
    name: str
    content: dict[str, Any]
    goods: list[Mask]
    kept: list[Kept]

    @property
    def mode(self) -> str:
        """What was pruned."""
        return self.content["settings"]["mode"]

    @property
    def task(self) -> str:
        """The task, or for translation the metric."""
        settings = self.content["settings"]
        return settings["data"].get("task") or settings.get("metric", "BLEU")

    @property
    def start(self) -> Mask:
        """The parts before pruning."""
        return Mask(self.content["settings"]["start"])

    @property
    def checkpoints(self) -> list[str]:
        """Hashes of the models."""
        return [search["checkpoint"] for search in self.content["searches"]]

    @cached_property
    def sizes(self) -> dict[Part, int] | None:
        """Number of weights of each part, from the first model's file; None if it is not there any more."""
        search = Path(self.content["searches"][0]["path"])
        mask = search / "masks" / f"{UNPRUNED}.json"
        source = Mask.load(mask).source.get("checkpoint") if mask.is_file() else None
        if not source or not Path(source["path"]).is_file():
            return None
        return sizes(read_state(source["path"])["model"], self.start.shape)

    def weights_kept(self, mask: Mask) -> float | None:
        """Return the percentage of the weights before pruning that a mask keeps; None if the model is gone."""
        if self.sizes is None:
            return None
        kept, every = (sum(self.sizes.get(part, 0) for part in of.kept(COMPONENTS)) for of in (mask, self.start))
        return 100 * kept / every

    def importance(self) -> list[Scores]:
        """The scores of the first step of each search, where its folder still has them."""
        paths = [Path(search["path"]) / "scores" / f"{UNPRUNED}.json" for search in self.content["searches"]]
        return [Scores.load(path) for path in paths if path.is_file()]


def read_folders(paths: Sequence[PathLike]) -> list[TicketFolder]:
    """Read folders of ``headprune lottery tickets``.

    Raises:
        ValueError, FileNotFoundError: a folder holds no tickets, or only those of one search.
    """
    places = [Path(path) for path in paths]
    names = [place.resolve().name for place in places]
    return [
        _read(place, name if names.count(name) == 1 else str(place))
        for place, name in zip(places, names, strict=True)
    ]  # fmt: skip


def _read(path: Path, name: str) -> TicketFolder:
    if not (path / "tickets.json").is_file():
        raise FileNotFoundError(f"{path} has no tickets.json; name folders that headprune lottery tickets wrote")
    content = read_json(path / "tickets.json")
    if not isinstance(content, dict) or not {"settings", "searches"} <= set(content):
        raise ValueError(f"{path / 'tickets.json'} is damaged: it has no searches; make the tickets again")
    numbers = range(1, len(content["searches"]) + 1)
    if len(numbers) < 2:
        raise ValueError(f"{path} has the tickets of one search; survival over seeds needs two or more")
    if content["settings"]["mode"] == "magnitude":
        return TicketFolder(path, name, content, [], [load_weights(path / str(n) / "good.pt")[0] for n in numbers])
    return TicketFolder(path, name, content, [Mask.load(path / str(n) / "good.json") for n in numbers], [])


def by_part(matrices: Mapping[str, Tensor], shape: Shape) -> dict[Part, list[Tensor]]:
    """Return the entries of the matrices that belong to each part.

    A head has its rows of the q, k and v projections and its columns of out_proj; a block has fc1 and fc2. Biases are
    left out.

    Args:
        matrices: name in the state dict -> matrix, of weights or of a mask of weights.
        shape: numbers of heads, and 1 per block, by component and layer.
    """
    found: dict[Part, list[Tensor]] = {}
    for module in part_modules(matrices):
        if module.component not in shape:
            continue
        mine = {name.removeprefix(module.prefix): matrices[name] for name in module.names(matrices)}
        mine = {name: matrix for name, matrix in mine.items() if matrix.dim() == 2}
        if module.component not in HEADS:
            found[Part(module.component, module.layer, 0)] = [mine["fc1.weight"], mine["fc2.weight"]]
            continue
        count = shape[module.component][module.layer]
        for head in range(count):
            found[Part(module.component, module.layer, head)] = [
                matrix.chunk(count, dim=1 if name == "out_proj.weight" else 0)[head] for name, matrix in mine.items()
            ]
    return found


def shares(kept: Kept, shape: Shape) -> dict[Part, float]:
    """Return the share of each part's weights that a ticket of weights keeps."""
    return {
        part: float(sum(int(entries.sum()) for entries in mine) / sum(entries.numel() for entries in mine))
        for part, mine in by_part(kept, shape).items()
    }


def sizes(matrices: Mapping[str, Tensor], shape: Shape) -> dict[Part, int]:
    """Return the number of weights of each part."""
    return {part: sum(entries.numel() for entries in mine) for part, mine in by_part(matrices, shape).items()}


def judgements(goods: list[Kept]) -> np.ndarray:
    """Return whether each weight survived in each search, (weights, searches), for agreement."""
    return np.stack([torch.cat([kept.flatten() for kept in good.values()]).numpy() for good in goods], axis=1)
