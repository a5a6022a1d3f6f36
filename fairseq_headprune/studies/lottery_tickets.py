"""Tickets from the searches of several seeds: good, random, bad, super-survivors; and whether the seeds agree."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairseq_headprune.checkpoints import read_state
from fairseq_headprune.choosing.lottery import GROUPS, bad_ticket, parts_kept, random_ticket, super_survivors
from fairseq_headprune.choosing.magnitude import Kept, bad_weights, random_weights, save_weights, without_lowest
from fairseq_headprune.choosing.random_heads import generator
from fairseq_headprune.evaluation.agreement import agreement, require_statsmodels
from fairseq_headprune.files import PathLike, sha256, write_json
from fairseq_headprune.parts import COMPONENTS, HEADS, Mask, Part
from fairseq_headprune.report.document import Document, HeadMap, map_components
from fairseq_headprune.report.marks import small
from fairseq_headprune.report.tables import Table, fixed
from fairseq_headprune.studies.lottery import LotteryFind
from fairseq_headprune.studies.study import UNPRUNED


class Searches:
    """The finished searches of several models that differ only in the seed.

    Attributes:
        studies: studies of ``headprune lottery find``.
        start: the initial mask, common to all.
    """

    def __init__(self, paths: Sequence[PathLike]) -> None:
        """Read the studies.

        Raises:
            ValueError, FileNotFoundError: a folder holds no search, a search has not ended, or the searches differ in
                more than the checkpoint or have the same one.
        """
        self.studies = [_read(path) for path in paths]
        first = self.studies[0]
        seen: dict[str, Path] = {}
        for study in self.studies:
            here = study.folder.path
            first.check_only_differs(study, ["checkpoint"])
            other = seen.setdefault(study.settings["checkpoint"], here)
            if other is not here:
                raise ValueError(f"{other} and {here} are searches of the same checkpoint; give one for each seed")
        self.start, self.mode, self.settings = first.start, first.mode, first.settings
        self.tickets = [study.ticket(study.cells()) for study in self.studies]

    @property
    def goods(self) -> list[Mask]:
        """The parts that survived each search."""
        pairs = zip(self.studies, self.tickets, strict=True)
        return [study.folder.read_mask(ticket["id"]) for study, ticket in pairs]


def _read(path: PathLike) -> LotteryFind:
    study = LotteryFind.read(path)
    cells = study.cells()
    if UNPRUNED not in cells or not study.ended(cells):
        raise ValueError(f"{path}: the search has not ended; {study.again}")
    return study


def write_tickets(searches: Searches, output: Path, seed: int, made_by: dict[str, Any]) -> Document:
    """Write the tickets of each search to a folder; the document lists them and reports how far they agree.

    Args:
        seed: seed of all draws, which are made in the order of the searches.
        made_by: the command and the software.

    Raises:
        ValueError: statsmodels is not installed; nothing is written.
    """
    if searches.mode != "magnitude" and len(searches.studies) > 1:
        require_statsmodels()
    document = _weights(searches, output, seed) if searches.mode == "magnitude" else _parts(searches, output, seed)
    document.data |= {"seed": seed, "settings": {**searches.settings, "checkpoint": None}}
    document.data["searches"] = [
        {"path": str(study.folder.path), "checkpoint": study.settings["checkpoint"], "ticket": ticket}
        for study, ticket in zip(searches.studies, searches.tickets, strict=True)
    ]
    write_json(output / "tickets.json", {**document.data, "made_by": made_by})
    return document


def _parts(searches: Searches, output: Path, seed: int) -> Document:
    """Write tickets of heads and blocks as mask files."""
    start, goods, chance = searches.start, searches.goods, generator(seed)
    rows = []
    for number, good in enumerate(goods, 1):
        found = {"good": Mask(good.rows)}
        found |= {"random": random_ticket(start, good, chance), "bad": bad_ticket(start, good, chance)}
        if len(set(start.rows) & set(HEADS)) > 1:
            found["random-by-component"] = random_ticket(start, good, chance, [[c] for c in COMPONENTS])
        survivor = set(good.kept(COMPONENTS))
        for name, mask in found.items():
            _save(mask, output / str(number) / f"{name}.json", seed, name, [searches.studies[number - 1]])
            kept = mask.kept(COMPONENTS)
            rows.append([f"{number} {name}", *parts_kept(mask).values(), sum(part in survivor for part in kept)])
    always = super_survivors(goods)
    _save(always, output / "super-survivors.json", seed, "super-survivors", searches.studies)
    rows.append(["super-survivors", *parts_kept(always).values(), len(always.kept(COMPONENTS))])
    document = Document(f"Tickets of {len(goods)} searches ({searches.mode})")
    caption = "Tickets: how many heads and blocks each keeps, and how many of these survived the search"
    document.tables = [Table(["Ticket", "Heads", "Blocks", "Survived"], rows, caption=caption)]
    _add_stability(document, start, goods)
    return document


def _save(mask: Mask, path: Path, seed: int, kind: str, studies: Sequence[LotteryFind]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    checkpoints = [study.settings["checkpoint"] for study in studies]
    mask.source = {"ticket": kind, "seed": seed, "checkpoints": checkpoints}
    mask.save(path)


def _add_stability(document: Document, start: Mask, goods: Sequence[Mask]) -> None:
    """Report how far the searches agree on what survives (Prasanna et al. 2020, §5.1, Figure 1b, appendix A)."""

    def values(part: Part) -> dict[str, Any]:
        return {"importance": float(np.mean([good[part] for good in goods]))} if start[part] else {"state": "pruned"}

    caption = f"Share of {len(goods)} searches in which each part survived"
    document.maps = [
        HeadMap(caption, "importance", map_components(start.shape, values), "share of searches", "survival")
    ]
    if len(goods) < 2:
        document.notes.append("one search: agreement needs two or more")
        return
    rows, pairs = [], []
    found: dict[str, Any] = {}
    for what, group in GROUPS.items():
        parts = start.kept(group)
        table = [[int(good[part] != 0) for good in goods] for part in parts]
        if not parts or all(map(all, table)):
            continue  # not pruned in this mode, or never
        found[what] = asdict(agreement(table))
        numbers = [fixed(found[what][name], 3) for name in ("kappa", "q")]
        rows.append([what.capitalize(), len(parts), *numbers, small(found[what]["p"])])
        for pair in found[what]["overlaps"]:
            label = f"{what}, {' and '.join(map(str, pair['searches']))}"
            pairs.append([label, pair["both"], f"{pair['expected']:.1f}", fixed(pair["jaccard"], 3)])
    note = (
        "kappa: 1 if all searches agree, 0 if they agree as often as by chance; Q tests only whether all searches keep "
        "equally many: a large p is no sign of agreement"
    )
    if rows:
        header = ["Parts", "In all", "Fleiss' kappa", "Cochran's Q", "p"]
        document.tables.append(Table(header, rows, caption="Do the searches agree on what survives?", notes=[note]))
        header = ["Pair of searches", "Kept by both", "By chance", "Jaccard"]
        document.tables.append(Table(header, pairs, caption="What pairs of searches share"))
    document.data["stability"] = found


def _weights(searches: Searches, output: Path, seed: int) -> Document:
    """Write tickets of single weights: the kept weights of each matrix, packed as bits."""
    rows, goods = [], []
    for number, (good, sha) in enumerate(_good_weights(searches), 1):
        found = {"good": good, "random": random_weights(good, seed + number), "bad": bad_weights(good, seed + number)}
        for name, kept in found.items():
            about = {"ticket": name, "seed": seed, "checkpoints": [sha]}
            save_weights(kept, output / str(number) / f"{name}.pt", about)
            survived = sum(int((kept[m] & good[m]).sum()) for m in kept)
            rows.append([f"{number} {name}", f"{_count(kept):,}", f"{survived:,}"])
        goods.append(good)
    always = {m: torch.stack([good[m] for good in goods]).all(dim=0) for m in goods[0]}
    checkpoints = [study.settings["checkpoint"] for study in searches.studies]
    about = {"ticket": "super-survivors", "seed": seed, "checkpoints": checkpoints}
    save_weights(always, output / "super-survivors.pt", about)
    rows.append(["super-survivors", f"{_count(always):,}", f"{_count(always):,}"])
    document = Document(f"Tickets of {len(goods)} searches (magnitude)")
    caption = "Tickets: how many weights each keeps, the same number of each matrix, and how many survived the search"
    shares = [[float(good[m].float().mean()) for good in goods] for m in always]
    matrices = [
        [
            m,
            always[m].numel(),
            f"{100 * np.mean(share):.1f}",
            f"{100 * np.std(share, ddof=1):.1f}" if share[1:] else None,
        ]
        for m, share in zip(always, shares, strict=True)
    ]
    document.tables = [
        Table(["Ticket", "Weights", "Survived"], rows, caption=caption),
        Table(["Matrix", "Weights", "Survive (%)", "sd"], matrices, caption="Weights that survive, mean over searches"),
    ]
    document.data["survival"] = dict(zip(always, shares, strict=True))
    return document


def _good_weights(searches: Searches) -> Iterator[tuple[Kept, str]]:
    """Yield the weights that survived each search and the hash of its checkpoint, from which they follow."""
    for study, ticket in zip(searches.studies, searches.tickets, strict=True):
        source = study.folder.read_mask(UNPRUNED).source["checkpoint"]
        if sha256(source["path"]) != study.settings["checkpoint"]:
            raise ValueError(f"{source['path']} is not the checkpoint of {study.folder.path} any more")
        matrices: dict[str, Tensor] = {
            name: value
            for name, value in read_state(source["path"])["model"].items()
            if ".layers." in f".{name}" and name.endswith("weight") and value.dim() == 2
        }
        if sum(value.numel() for value in matrices.values()) != study.settings["weights"]:
            raise ValueError(f"{source['path']} has other matrices than {study.folder.path} pruned")
        yield without_lowest(matrices, ticket["weights"]), source["sha256"]


def _count(kept: Kept) -> int:
    return sum(int(value.sum()) for value in kept.values())
