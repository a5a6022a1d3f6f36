"""A study: what it does is decided by its settings; one class in one file says its cells and its result."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fairseq_headprune.files import PathLike
from fairseq_headprune.report.document import Document
from fairseq_headprune.studies.folder import StudyFolder

#: id of the cell that all others are compared with
UNPRUNED = "unpruned"

#: A finished cell, as the list of cells holds it.
Done = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """One unit of work: what is computed, saved and never computed again.

    Attributes:
        id: names the cell and its files.
        mask: the heads that are kept (a ``Mask``); None for a job without one.
        facts: what the list of cells says of it, beside the scores.
        split: what is answered; None for the study's split.
        against: the cell that this one is tested against, which is computed before all others that name it.
        job: a training that comes first, for a study that trains.
    """

    id: str
    mask: Any = None
    facts: dict[str, Any] = field(default_factory=dict)
    split: str | None = None
    against: str = UNPRUNED
    job: Any = None


class Study:
    """What is computed, and what the results say. A subclass gives ``name``, ``plan`` or ``next``, and ``result``.

    A study is made from its settings alone, so that the page can show a stored one without its model. To run it, it
    needs a session as well, and a folder (:meth:`open`).

    Attributes:
        name: of the verb.
        settings: its identity, as it is stored in ``study.json`` and compared when it is resumed.
        session: the loaded model.
        first: number that layers and heads count from in tables: 1 as in the papers. The report page, whose maps show
            original numbers, sets 0.
    """

    name: ClassVar[str]
    first = 1

    def __init__(self, settings: Mapping[str, Any], session: Any = None, folder: StudyFolder | None = None) -> None:
        self.settings, self.session = dict(settings), session
        self._folder = folder

    @property
    def folder(self) -> StudyFolder:
        """The folder of a study that was opened or read."""
        if self._folder is None:
            raise RuntimeError(f"the study {self.name} has no folder yet: open it first")
        return self._folder

    def cells(self) -> dict[str, Done]:
        """Return the finished cells by id, which have what a result needs; a damaged one raises ValueError."""
        return self.folder.cells()

    def check(self) -> None:
        """Refuse what would stop the study later, before anything is written."""

    def warnings(self) -> list[str]:
        """Return what weakens the results, a sentence each."""
        return []

    def plan(self) -> Sequence[Cell]:
        """Return the cells that are known before any is computed."""
        return []

    def next(self, done: Mapping[str, Done]) -> Sequence[Cell]:
        """Return cells that depend on those that are done; none when the study is finished."""
        return []

    def planned(self) -> int | None:
        """Return how many cells there are in the end; None if that is open."""
        return len(self.plan())

    def result(self, cells: Mapping[str, Done]) -> Document:
        """Say what was found in these cells by id, of which some may be missing still."""
        raise NotImplementedError

    def open(self, path: PathLike, environment: Mapping[str, Any] | None = None) -> StudyFolder:
        """Create the study's folder, or resume it if its settings are the same."""
        self._folder = StudyFolder.open(path, self.settings, environment)
        return self.folder
