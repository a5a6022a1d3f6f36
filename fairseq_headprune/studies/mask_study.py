"""Studies whose cells are masks of one loaded model: settings, checks, and the common parts of their documents."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairseq_headprune.evaluation.evaluator import Evaluator
from fairseq_headprune.evaluation.p_values import LEAST, enough_resamples
from fairseq_headprune.files import PathLike
from fairseq_headprune.parts import Mask
from fairseq_headprune.report.document import Document
from fairseq_headprune.report.marks import Family, resamples_notice
from fairseq_headprune.studies.finished import finished_cells
from fairseq_headprune.studies.folder import StudyFolder
from fairseq_headprune.studies.study import UNPRUNED, Cell, Done, Study

if TYPE_CHECKING:
    import numpy as np

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


def mean_test(
    score: Any, base: Sequence["np.ndarray"], mine: Sequence["np.ndarray"], how: Comparison
) -> tuple[float, dict[str, Any]]:
    """Test the mean score of the systems ``mine`` against that of as many systems ``base``.

    The paired bootstrap resamples sentences; the systems are fixed.

    Args:
        score: sums of statistics (…, stats) -> scores (…).
        base, mine: one array (sentences, stats) per system.

    Returns:
        the mean score of ``base``; ``score``, ``ci``, ``wins``, ``losses``, ``ties`` and ``p`` of ``mine``.
    """
    import numpy as np

    from fairseq_headprune.evaluation.significance import bootstrap_statistics
    from fairseq_headprune.evaluation.statistics import mean_score

    systems = {"base": np.concatenate(base, axis=1), "mean": np.concatenate(mine, axis=1)}
    found = bootstrap_statistics(mean_score(score, len(mine)), systems, how.resamples or LEAST, how.seed)
    result = asdict(found[1])
    return found[0].score, {name: result[name] for name in ("score", "ci", "wins", "losses", "ties", "p")}


class MaskStudy(Study):
    """A study whose cells are masks of one model; its settings are those of :func:`model_settings` and more."""

    def __init__(self, settings: Mapping[str, Any], session: Any = None, folder: StudyFolder | None = None) -> None:
        """Make the study; if its settings leave the number of resamples open, choose it by the number of tests."""
        super().__init__(settings, session, folder)
        self.chosen = self.settings.get("resamples", LEAST) is None
        if self.chosen:
            self.settings["resamples"] = enough_resamples(self.tests, self.alpha)

    def open(self, path: PathLike, environment: Mapping[str, Any] | None = None) -> StudyFolder:
        """Open the folder; one begun with another number of resamples goes on with that, unless one is given."""
        if self.chosen and (Path(path) / "study.json").is_file():
            stored = StudyFolder(path).settings.get("resamples")
            self.settings["resamples"] = stored if isinstance(stored, int) else self.settings["resamples"]
        return super().open(path, environment)

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
            check_split(self.session, split)

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

    def document(self, title: str, baseline: Done | None, missing: list[str], comparisons: int) -> Document:
        """Return a document with the common parts of all studies of masks; the caller sets ``state["done"]``."""
        signature = baseline["signature"] if baseline else None
        state = {
            "measure": self.measure,
            "unpruned": baseline["score"] if baseline else None,
            "signature": signature,
            "planned": self.planned(),
            "comparisons": comparisons,
            **{name: self.settings[name] for name in ("alpha", "resamples", "seed")},
        }
        where = {"settings": self.settings, "runs": self.folder.runs, "study": str(self.folder.path)}
        return Document(title, missing=missing, state=state, data=self.provenance(baseline), provenance=where)

    def provenance(self, baseline: Done | None) -> dict[str, Any]:
        """Return how the numbers were computed, with the keys that the verbs print with ``--json``."""
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


def check_split(session: "Session", split: str) -> Evaluator:
    """Check before anything is written that masks can be compared on a split; return its evaluator.

    Raises:
        ValueError, FileNotFoundError: no such split, unsupported settings, fewer than two sentences, or heads with
            non-finite weights.
        RuntimeError: the gates have no effect on the output.
    """
    # Imports torch, which reading a finished study does not need.
    from fairseq_headprune.importance.part_weights import heads_with_broken_weights
    from fairseq_headprune.modules.connected import check_connected

    evaluator = session.evaluator(split)
    sentences = len(evaluator.references)
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
    return evaluator


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
