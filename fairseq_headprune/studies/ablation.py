"""A finished study of ``headprune ablate``, from its folder or from what the verb printed with ``--json``."""

from pathlib import Path
from typing import Any

from fairseq_headprune.files import PathLike, read_json, sha256
from fairseq_headprune.parts import HEADS, Part
from fairseq_headprune.parts.scores import Scores
from fairseq_headprune.studies.ablate import Ablate
from fairseq_headprune.studies.study import Done


class Ablation:
    """The differences that a study found.

    Attributes:
        path: the study folder, or the JSON document; ``settings``: of the study; ``measure`` is the name of the score.
        origin: how it was made: ``runs``, and of a document also the model's updates and the hashes of the data.
        start: the mask before anything is pruned.
        baseline: the unpruned cell.
        cells: head -> its cell with ``delta``, in the fixed order of heads.
    """

    def __init__(self, path: PathLike) -> None:
        """Read the folder or the document.

        Raises:
            FileNotFoundError: it holds no study.
            ValueError: it is another kind of study, damaged, or not finished.
        """
        self.path = Path(path)
        study, done, self.origin = _printed(self.path) if self.path.is_file() else _stored(path)
        self.settings, self.measure = study.settings, study.measure
        try:
            self.start = study.start
            baseline, self.cells, missing = study.compared(done, list(study.masks))
            self._data, self._checkpoint = study.settings["data"], study.settings["checkpoint"]
        except KeyError as error:
            raise ValueError(f"{path} is damaged: there is no {error} in it; make it again") from error
        if baseline is None or missing:
            what = missing[0] if baseline else f"the unpruned model is not done; {study.again}"
            raise ValueError(f"{path} is not finished: {what}")
        self.baseline = baseline

    def oracle(self) -> Scores:
        """Return the oracle order of Michel et al. (2019), §4.2: the head whose removal hurts least scores lowest.

        A head's score is minus its difference in BLEU; heads that the study did not remove have none.
        """
        shape = self.start.shape
        scores = {
            c: [[self._loss(Part(c, layer, head)) for head in range(n)] for layer, n in enumerate(shape[c])]
            for c in HEADS
            if c in shape
        }
        return Scores(
            scores,
            estimator="oracle",
            data=self._data,
            checkpoint={"sha256": self._checkpoint},
            details={
                "study": str(self.path),
                "cells": sha256(self.path if self.path.is_file() else self.path / "cells.jsonl"),
                "signature": self.baseline["signature"],
                **{name: self.settings[name] for name in ("generation", "metric") if name in self.settings},
            },
        )

    def _loss(self, head: Part) -> float | None:
        return -self.cells[head]["delta"] if head in self.cells else None


def _stored(path: PathLike) -> tuple[Ablate, dict[str, Done], dict[str, Any]]:
    study = Ablate.read(path)
    return study, study.cells(), {"runs": study.folder.runs}


def _printed(path: Path) -> tuple[Ablate, dict[str, Done], dict[str, Any]]:
    value = read_json(path)
    settings = value.get("settings") if isinstance(value, dict) else None
    if not isinstance(settings, dict) or settings.get("study") != Ablate.name or "cells" not in value:
        raise ValueError(f"{path} is not what headprune ablate --json prints of a finished study")
    origin = {name: value[name] for name in ("runs", "updates", "data_files") if name in value}
    try:
        return Ablate(settings), {cell["id"]: cell for cell in value["cells"]}, origin
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error!r}); make it again with headprune ablate --json") from error
