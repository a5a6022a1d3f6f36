"""Studies: settings determine the cells to compute, and cells determine the result.

Processes that share a study's folder divide its cells, and none is computed twice.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, Self

from fairseq_headprune.files import PathLike
from fairseq_headprune.json_lines import first_difference
from fairseq_headprune.report.document import Document
from fairseq_headprune.studies.folder import StudyFolder

#: id of the cell that all others are compared with
UNPRUNED = "unpruned"

#: A finished cell, as stored in ``cells.jsonl``.
Done = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """One unit of work, computed and saved once.

    Attributes:
        id: name of the cell and its files.
        mask: the heads that are kept (a ``Mask``); None for a job without a mask.
        facts: values stored with the cell, besides the scores.
        split: the split that the model is run on; None: the study's split.
        against: id of the cell that this one is tested against; that cell is computed first.
        job: the training that is run first, in studies that train.
    """

    id: str
    mask: Any = None
    facts: dict[str, Any] = field(default_factory=dict)
    split: str | None = None
    against: str = UNPRUNED
    job: Any = None


class Study:
    """What is computed and how results are reported; subclasses define ``name``, ``plan`` or ``next``, and ``result``.

    A study is made from its settings alone, so that a stored one can be shown without its model. Running it also needs
    a session and a folder (:meth:`open`).

    Attributes:
        name: the verb.
        settings: stored in ``study.json``; a study can only be resumed with the same settings.
        session: the loaded model.
        first: the number from which tables count layers and heads: 1 as in the papers; the report page, whose maps
            show original numbers, sets 0.
    """

    name: ClassVar[str]
    first = 1

    def __init__(self, settings: Mapping[str, Any], session: Any = None, folder: StudyFolder | None = None) -> None:
        self.settings, self.session = dict(settings), session
        self._folder = folder

    @classmethod
    def command(cls) -> str:
        """Return the command that makes such a study."""
        return f"headprune {cls.name.replace('lottery-', 'lottery ')}"  # its verbs are two words

    @classmethod
    def read(cls, path: PathLike) -> Self:
        """Open a stored study of this kind, without its model.

        Raises:
            FileNotFoundError, ValueError: the folder holds no study, or one of another kind.
        """
        folder = StudyFolder(path)
        kind = folder.settings.get("study")
        if kind != cls.name:
            raise ValueError(f"{path} is a study of headprune {kind}, not of {cls.command()}")
        return cls(folder.settings, folder=folder)

    @property
    def folder(self) -> StudyFolder:
        """The folder of a study that was opened or read."""
        if self._folder is None:
            raise RuntimeError(f"the study {self.name} has no folder yet: open it first")
        return self._folder

    def cells(self) -> dict[str, Done]:
        """Return the finished cells by id; raises ValueError if one is damaged or lacks what a result needs."""
        return self.folder.cells()

    def check(self) -> None:
        """Check before anything is written that the study can run to its end."""

    def check_folder(self, path: PathLike) -> None:
        """Check that :meth:`open` would create the folder or resume it; nothing is written.

        Raises:
            ValueError: the folder holds something else, or a study with other settings.
        """
        StudyFolder.check(path, self.settings)

    def warnings(self) -> list[str]:
        """Return warnings about what weakens the results, one sentence each."""
        return []

    def notices(self) -> list[str]:
        """Return what a user should know of settings that were chosen for them, one sentence each."""
        return []

    def plan(self) -> Sequence[Cell]:
        """Return the cells that are known in advance."""
        return []

    def next(self, done: Mapping[str, Done]) -> Sequence[Cell]:
        """Return the next cells, which depend on finished ones; empty when the study is finished."""
        return []

    def before(self) -> Sequence[Any]:
        """Return the trainings that are no cells, but that the jobs of cells wait for (``after``)."""
        return []

    def planned(self) -> int | None:
        """Return the total number of cells; None if unknown."""
        return len(self.plan())

    def at_most(self) -> tuple[int | None, str]:
        """Return the largest number of cells, and why there may be fewer; empty if there cannot."""
        return self.planned(), ""

    @property
    def stepwise(self) -> bool:
        """Whether most cells need the one before them, so that they do not share a batch."""
        return False

    @property
    def again(self) -> str:
        """The way to finish the study."""
        return f"run {self.command()} again with its settings"

    def unfinished(self, done: int, what: str = "cells", why: str = "") -> list[str]:
        """Say how many of the planned cells are done; empty if all are.

        Args:
            what, why: what the cells are, and what is said only when all are done.
        """
        planned = self.planned() or 0
        return [f"{done} of {planned} {what} are done{why}: {self.again}"] if done < planned else []

    def check_only_differs(self, other: "Study", may: Iterable[str]) -> None:
        """Check that another study differs from this one only in these settings, those of a seed.

        Raises:
            ValueError: it differs in others; the message names the first.
        """
        same = dict.fromkeys(may)
        if difference := first_difference(self.settings | same, other.settings | same):
            name, before, now = difference
            raise ValueError(
                f"{self.folder.path} and {other.folder.path} differ in more than a seed: {name} is {before} there and "
                f"{now} here"
            )

    def result(self, cells: Mapping[str, Done]) -> Document:
        """Report the results of these cells (by id); some may still be missing."""
        raise NotImplementedError

    def open(self, path: PathLike, environment: Mapping[str, Any] | None = None) -> StudyFolder:
        """Create the study's folder, or resume it if its settings are the same."""
        self._folder = StudyFolder.open(path, self.settings, environment)
        return self.folder


class Work(Protocol):
    """Computes cells: runs the model under masks, or trains."""

    def size(self) -> int:
        """Return how many cells are best computed together."""

    def compute(self, cells: Sequence[Cell]) -> Iterable[Any]:
        """Compute cells and append each to the folder; yield whenever some were appended.

        This process gives up cells that are not appended at the end; others may try them.
        """


#: Told the ids of the cells that this process begins.
Begin = Callable[[Sequence[str]], None]


def run(study: Study, work: Work, begin: Begin = lambda names: None) -> Iterator[Done]:
    """Yield every cell of an opened study when it is finished, whether earlier, here or by another process.

    Raises:
        ValueError: the folder's finished cells are of other masks than the study's.
    """
    cells: Sequence[Cell] = study.plan() or study.next(study.folder.cells())
    with contextlib.closing(study.folder.claims):
        while cells:
            check_masks(study.folder, cells)
            first = [cell for cell in cells if cell.id == cell.against]
            yield from shared(study.folder, first, work, begin)
            yield from shared(study.folder, [cell for cell in cells if cell.id != cell.against], work, begin)
            cells = study.next(study.folder.cells())


def check_masks(folder: StudyFolder, cells: Sequence[Cell]) -> None:
    """Before resuming a study, check that the masks of its finished cells are those that its settings give now.

    A finished study is not checked: it is consistent even if another version drew its masks.

    Raises:
        ValueError: a cell has another mask.
    """
    done = folder.cells()
    begun = [cell for cell in cells if cell.mask is not None and cell.id in done]
    for cell in begun if len(begun) < len(cells) else []:
        if folder.mask_path(cell.id).is_file() and folder.read_mask(cell.id).rows != cell.mask.rows:
            raise ValueError(
                f"{folder.path} cannot go on: {cell.id} is of another mask than its settings give now (older versions "
                "drew heads by chance in another way); name another folder"
            )


def shared(folder: StudyFolder, cells: Iterable[Cell], work: Work, begin: Begin = lambda names: None) -> Iterator[Done]:
    """Yield each of these cells once, when it is finished; other processes may compute some of them."""
    waiting = {cell.id: cell for cell in cells}
    yield from _finished(folder, waiting)
    while waiting:
        mine = folder.claims.take(list(waiting), folder.cells, work.size())
        if not mine:
            folder.claims.pause()
        else:
            begin(mine)
            for _ in work.compute([waiting[name] for name in mine]):
                yield from _finished(folder, waiting)
            yield from _finished(folder, waiting)
            given_up = [name for name in mine if waiting.pop(name, None)]
            if given_up:
                folder.claims.release(given_up)
        yield from _finished(folder, waiting)


def _finished(folder: StudyFolder, waiting: dict[str, Cell]) -> Iterator[Done]:
    """Yield the waiting cells that are finished, and remove them from ``waiting``."""
    done = folder.cells() if waiting else {}
    for name in [name for name in waiting if name in done]:
        del waiting[name]
        yield done[name]
