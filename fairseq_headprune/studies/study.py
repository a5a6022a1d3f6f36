"""A study: what it does is decided by its settings; one class in one file says its cells and its result."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fairseq_headprune.files import PathLike
from fairseq_headprune.parts import Mask
from fairseq_headprune.report.document import Document
from fairseq_headprune.report.marks import Family
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
        folder: where it is stored.
    """

    name: ClassVar[str]

    def __init__(self, settings: Mapping[str, Any], session: Any = None, folder: StudyFolder | None = None) -> None:
        self.settings, self.session = dict(settings), session
        self._folder = folder

    @property
    def folder(self) -> StudyFolder:
        """The folder of a study that was opened or read."""
        if self._folder is None:
            raise RuntimeError(f"the study {self.name} has no folder yet: open it first")
        return self._folder

    def check(self) -> None:
        """Refuse what would stop the study later, before anything is written."""

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
        """Check the study, then create its folder or resume it if its settings are the same."""
        self.check()
        self._folder = StudyFolder.open(path, self.settings, environment)
        return self.folder


class MaskStudy(Study):
    """A study whose cells are masks of one model; its settings are those of :func:`mask_settings` and its own."""

    def check(self) -> None:
        """Refuse a model or a split that masks cannot be compared on."""
        from fairseq_headprune.studies.masked import check_split

        check_split(self.session, self.split)

    @property
    def start(self) -> Mask:
        """The mask of the model before anything is pruned."""
        return Mask(self.settings["start"])

    @property
    def split(self) -> str:
        """What is answered and scored."""
        return self.settings["data"]["split"]

    @property
    def alpha(self) -> float:
        """The level of significance."""
        return self.settings["alpha"]

    @property
    def measure(self) -> str:
        """The name of the score."""
        return self.settings.get("metric", "BLEU")

    @property
    def comparison(self) -> Any:
        """How answers are scored and compared."""
        from fairseq_headprune.studies.masked import Comparison

        return Comparison(**{name: self.settings[name] for name in ("tokenize", "resamples", "seed", "alpha")})

    def family(self, count: int) -> Family:
        """Return the family of tests of which this study makes ``count``."""
        return Family(self.alpha, self.settings["resamples"], self.settings["seed"], count)

    def document(self, title: str, baseline: Done | None, missing: list[str], comparisons: int) -> Document:
        """Return a document with what those of all studies of masks hold; ``state["done"]`` is the caller's."""
        state = {
            "measure": self.measure,
            "unpruned": baseline["score"] if baseline else None,
            "signature": baseline["signature"] if baseline else None,
            "planned": self.planned(),
            "comparisons": comparisons,
            **{name: self.settings[name] for name in ("alpha", "resamples", "seed")},
        }
        where = {"settings": self.settings, "runs": self.folder.runs, "study": str(self.folder.path)}
        return Document(title, missing=missing, state=state, data=self.provenance(baseline), provenance=where)

    def unpruned(self, **facts: Any) -> Cell:
        """Return the cell of the model as it is, with which all others are compared."""
        return Cell(UNPRUNED, self.start, facts)

    def provenance(self, baseline: Done | None) -> dict[str, Any]:
        """Return how the numbers were computed, in the keys that the verbs print with ``--json``."""
        settings = self.settings
        return {
            "alpha": self.alpha,
            "resamples": settings["resamples"],
            "seed": settings["seed"],
            "signature": baseline["signature"] if baseline else None,
            "checkpoint": self.session.checkpoint if self.session else {"sha256": settings.get("checkpoint")},
            "data": settings["data"],
            "study": str(self.folder.path),
            "settings": settings,
            "runs": self.folder.runs,
        }
