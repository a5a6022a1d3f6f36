"""COMET (Rei et al. 2020), where unbabel-comet is installed: a metric that stands beside BLEU and is not tested."""

import contextlib
import functools
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from fairseq_headprune.evaluation.statistics import check_lengths


class Comet:
    """A COMET model bound to sources and references; the score is 100 times the mean of its scores of sentences.

    Attributes:
        name: ``comet``; ``signature`` has the model and the version of the package.
    """

    def __init__(self, model: str, sources: Sequence[str], references: Sequence[str], gpus: int = 0) -> None:
        """Load the model (once in a process).

        Args:
            model: a name that ``comet.download_model`` knows, such as ``Unbabel/wmt22-comet-da``, or a checkpoint file.
            gpus: 1 to run it on a GPU.

        Raises:
            ValueError: COMET is not installed, or there is no such model.
        """
        check_installed(model)
        self._model, self._gpus = _load(model), gpus
        self._sources, self._references = sources, references
        # Most masks change few translations.
        self._known: dict[tuple[int, str], float] = {}
        self.name, self.recipe = "comet", {"metric": "comet", "model": model}
        self.signature = f"{os.path.basename(model)}|version:{_version()}|x100"

    def extract(self, hypotheses: Sequence[str]) -> np.ndarray:
        """Return each sentence's score and a 1, (sentences, 2), float64.

        Raises:
            ValueError: not one hypothesis per reference.
        """
        check_lengths(len(hypotheses), len(self._references))
        new = [place for place in enumerate(hypotheses) if place not in self._known]
        if new:
            data = [{"src": self._sources[i], "mt": text, "ref": self._references[i]} for i, text in new]
            with contextlib.redirect_stdout(sys.stderr):  # stdout holds results only
                found = self._model.predict(data, batch_size=16, gpus=self._gpus, progress_bar=False)
            self._known.update(zip(new, map(float, found.scores), strict=True))
        return np.array([[self._known[place], 1.0] for place in enumerate(hypotheses)])

    def score(self, sums: np.ndarray) -> np.ndarray:
        """Return scores (…) from sums of statistics (…, 2)."""
        return 100.0 * sums[..., 0] / sums[..., 1]


def check_installed(model: str) -> None:
    """Check, before a model is loaded, that COMET is installed; raises ValueError if it is not."""
    if importlib.util.find_spec("comet") is None:
        raise ValueError(f"--comet {model}: COMET is not installed; pip install unbabel-comet, or omit --comet")


def _version() -> str:
    try:
        return importlib.metadata.version("unbabel-comet")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


@functools.cache
def _load(model: str) -> Any:
    from comet import download_model, load_from_checkpoint

    try:
        with contextlib.redirect_stdout(sys.stderr):
            return load_from_checkpoint(model if os.path.isfile(model) else download_model(model))
    except Exception as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(
            f"--comet {model}: COMET cannot load it ({said}); name a model or a checkpoint file"
        ) from error
