"""Studies whose cells are masks of one loaded model: settings, checks, and the common parts of their documents."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairseq_headprune.evaluation.p_values import LEAST, enough_resamples
from fairseq_headprune.files import PathLike
from fairseq_headprune.parts import Mask
from fairseq_headprune.report.document import Document
from fairseq_headprune.report.marks import Family, resamples_notice
from fairseq_headprune.studies.folder import StudyFolder
from fairseq_headprune.studies.results import ScoredSplit, finished_cells
from fairseq_headprune.studies.study import UNPRUNED, Cell, Done, Study

if TYPE_CHECKING:
    from fairseq_headprune.session import Session


@dataclass(frozen=True)
class Comparison:
    """How translations or predictions are scored and compared.

    Attributes:
        tokenize: sacrebleu's tokeniser, or ``tok`` (tokenised BLEU); ignored for predictions.
        resamples, seed, alpha: settings of the paired bootstrap; None: as many resamples as the study's tests need.
    """

    tokenize: str = "13a"
    resamples: int | None = None
    seed: int = 12345
    alpha: float = 0.01


class MaskStudy(Study):
    """A study whose cells are masks of one model; its settings are those of :func:`model_settings` and more."""

    def __init__(self, settings: Mapping[str, Any], session: Any = None, folder: StudyFolder | None = None) -> None:
        """Make the study; if its settings leave the number of resamples open, choose it by the number of tests."""
        super().__init__(settings, session, folder)
        self._scored: dict[str, ScoredSplit] = {}
        self.chosen = self.settings.get("resamples", LEAST) is None
        if self.chosen:
            self.settings["resamples"] = enough_resamples(self.tests, self.alpha)

    def open(self, path: PathLike, environment: Mapping[str, Any] | None = None) -> StudyFolder:
        """Open the folder; one begun with another number of resamples goes on with that, unless one is given."""
        self._go_on(path)
        self._scored.clear()
        return super().open(path, environment)

    def check_folder(self, path: PathLike) -> None:
        """Check the folder as :meth:`open` does."""
        self._go_on(path)
        super().check_folder(path)

    def _go_on(self, path: PathLike) -> None:
        if self.chosen and (Path(path) / "study.json").is_file():
            stored = StudyFolder(path).settings.get("resamples")
            self.settings["resamples"] = stored if isinstance(stored, int) else self.settings["resamples"]

    @property
    def tests(self) -> int:
        """The number of tests in the largest family for Holm's correction; 1 if it is not known in advance."""
        return max(1, (self.planned() or 2) - 1)

    def notices(self) -> list[str]:
        """Say how many resamples were chosen, and what they cost."""
        count = self.settings["resamples"]
        return [resamples_notice(count, self.tests, self.alpha)] if self.chosen and count > LEAST else []

    def cells(self) -> dict[str, Done]:
        """Return the finished cells by id; raises ValueError if one lacks a required number."""
        return finished_cells(self.folder)

    def check(self) -> None:
        """Check that masks can be compared on this model and split."""
        for split in self.splits:
            _check_split(self.session, split)

    @property
    def start(self) -> Mask:
        """The mask of the model before anything is pruned."""
        return Mask(self.settings["start"])

    @property
    def split(self) -> str:
        """The split that is scored."""
        return self.settings["data"]["split"]

    @property
    def splits(self) -> list[str]:
        """All splits that the model is run on."""
        return [self.split]

    @property
    def select(self) -> str:
        """The split that parts are chosen on, in studies that choose them on one of its own."""
        return self.settings["select_data"]["split"]

    @property
    def reports(self) -> bool:
        """Whether results are on examples that nothing was chosen on."""
        chosen, told = (self.settings[name] | {"split": None} for name in ("select_data", "data"))
        return chosen != told

    @property
    def alpha(self) -> float:
        """The significance level."""
        return self.settings["alpha"]

    @property
    def measure(self) -> str:
        """The name of the score."""
        return self.settings.get("metric", "BLEU")

    @property
    def comparison(self) -> Comparison:
        """How outputs are scored and compared."""
        return Comparison(**{name: self.settings[name] for name in ("tokenize", "resamples", "seed", "alpha")})

    def unpruned(self, **facts: Any) -> Cell:
        """Return the cell of the unpruned model, with which all others are compared."""
        return Cell(UNPRUNED, self.start, facts)

    def family(self, count: int) -> Family:
        """Return the family of this study's ``count`` tests."""
        return Family(self.alpha, self.settings["resamples"], self.settings["seed"], count)

    def document(
        self, title: str, baseline: Done | None, missing: list[str], comparisons: int, done: int = 0
    ) -> Document:
        """Return a document with the common parts of all studies of masks; ``done``: number of finished cells."""
        tests = {name: self.settings[name] for name in ("alpha", "resamples", "seed")}
        signature = {"signature": baseline["signature"] if baseline else None}
        where = {"study": str(self.folder.path), "settings": self.settings, "runs": self.folder.runs}
        unpruned = {"measure": self.measure, "unpruned": baseline["score"] if baseline else None}
        state = {**unpruned, **signature, "done": done, "planned": self.planned(), "comparisons": comparisons, **tests}
        model = self.session.checkpoint if self.session else {"sha256": self.settings.get("checkpoint")}
        data = {**tests, **signature, "checkpoint": model, "data": self.settings["data"], **where}
        return Document(title, missing=missing, state=state, data=data, provenance=where)

    def split_of(self, cell_id: str) -> str:
        """Return the split that a cell is on; ids of cells on another one than the study's begin with it."""
        return cell_id.rpartition("@")[0] or self.split

    def compared_with(self, cell: Done) -> str:
        """Return the id of the cell that a finished cell is tested against."""
        prefix, at, _ = cell["id"].rpartition("@")
        return prefix + at + UNPRUNED

    def scored(self, split: str) -> ScoredSplit:
        """Return the scored outputs of a split: what computes the cells and what records them share it."""
        if split not in self._scored:
            self._scored[split] = ScoredSplit(self.folder, self.session.evaluator(split), self.comparison)
        return self._scored[split]

    def sentence_statistics(self) -> list[dict[str, Any]]:
        """Return what every p comes from, a record per split (:mod:`~fairseq_headprune.evaluation.recorded`).

        Empty without a session, whose references it takes, and for metrics that cannot be recorded.
        """
        from fairseq_headprune.evaluation.recorded import packed  # numpy: not for --help

        records, how = [], self.comparison
        cells = list(self.cells().values()) if self.session else []
        for split in dict.fromkeys(self.split_of(cell["id"]) for cell in cells):
            here = self.scored(split)
            if not hasattr(here.metric, "recipe"):
                continue
            against = {c["id"]: self.compared_with(c) for c in cells if self.split_of(c["id"]) == split}
            statistics = {cell_id: here.of(cell_id) for cell_id in against}
            found = packed(here.metric, statistics, against, how.resamples or LEAST, how.seed)
            records.append({"split": split, **found})
        return records


def _check_split(session: "Session", split: str) -> None:
    """Check before anything is written that masks can be compared on a split.

    Raises:
        ValueError, FileNotFoundError: no such split, unsupported settings, fewer than two sentences, or heads with
            non-finite weights.
        RuntimeError: the gates have no effect on the output.
    """
    # Imports torch, which reading a finished study does not need.
    from fairseq_headprune.importance.part_weights import heads_with_broken_weights
    from fairseq_headprune.modules.connected import check_connected

    sentences = len(session.evaluator(split).references)
    if sentences < 2:
        raise ValueError(
            f"{split} has {sentences} sentence; the paired bootstrap needs at least 2: p is not defined for one"
        )
    kept = set(session.gates.mask().kept())
    broken = [head for head in heads_with_broken_weights(session.gates) if head in kept]
    if broken:
        raise ValueError(
            f"{session.path}: NaN or infinity in the weights of {', '.join(map(str, broken))}: take an earlier "
            "checkpoint"
        )
    sample = next(iter(session.batches(split)))
    full = session.gates.full()
    for component in session.gates.shape:
        # One component at a time: with all encoder-decoder heads masked, the encoder has no effect by design.
        with session.gates.masked(full.without(full.kept([component]))):
            check_connected(session.model, sample["net_input"])


def model_settings(session: "Session", study: str, split: str) -> dict[str, Any]:
    """Return the settings that every study of masks has: model, initial mask, data, and generation."""
    return {
        "study": study,
        "checkpoint": session.checkpoint["sha256"],
        "model_overrides": session.overrides,
        "precision": session.precision,
        "start": session.gates.mask().rows,
        "data": session.data(split),
        **session.answering(),
    }
