"""The sentences whose translation changes most under a mask."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fairseq_headprune.evaluation.statistics import Metric, corpus_metric
from fairseq_headprune.files import read_lines
from fairseq_headprune.report.document import Document
from fairseq_headprune.studies.folder import StudyFolder


class Changes:
    """Compares translations under masks with the unpruned model's, sentence by sentence, on one split of a study.

    The change of a sentence is the absolute difference of its sacrebleu chrF2 against the reference. If the study has
    no references, it is 100 minus the chrF2 of one translation against the other.

    Attributes:
        sentences: line number from 1 -> ``source``, ``reference`` (None if not stored) and ``unpruned`` translation,
            for all sentences shown so far.
        lacking: what the folder lacks, one phrase each.
    """

    def __init__(self, folder: StudyFolder, split: str, unpruned: str, most: int) -> None:
        """Read the unpruned translations (the cell ``unpruned``), references and sources.

        Args:
            most: maximum number of sentences per mask.

        Raises:
            ValueError: files of different lengths, or not UTF-8.
        """
        self._folder, self._most = folder, most
        self.sentences: dict[str, dict[str, str | None]] = {}
        self.lacking: list[str] = []
        self._unpruned: list[str] | None = None
        self._unpruned = self._read(folder.hyp_path(unpruned)) if most else None
        self._references = self._kept(split, "reference") if self._unpruned else None
        self._sources = self._kept(split, "source") if self._unpruned else None
        if self._unpruned and not (self._references and self._sources):
            verb = folder.settings["study"]
            self.lacking.append(f"sources and references: headprune {verb}, run again with its settings, adds them")
        self._metric = corpus_metric("chrf", self._references or self._unpruned) if self._unpruned else None
        self._before = _scores(self._metric, self._unpruned) if self._metric and self._unpruned else np.zeros(0)

    @property
    def measure(self) -> dict[str, str] | None:
        """How a change is measured: ``signature`` and ``text``; None if nothing can be compared."""
        if self._metric is None:
            return None
        against = (
            "absolute difference of the sentence's chrF2 (sacrebleu) against the reference"
            if self._references
            else "100 minus the chrF2 (sacrebleu) of the translation against the unpruned model's translation, since "
            "the study keeps no references"
        )
        return {"signature": self._metric.signature, "text": against}

    def of(self, cell: str) -> list[dict[str, Any]] | None:
        """Return the sentences that change most in a cell, largest change first; None if it has no translations.

        Each has ``sentence`` (line number from 1), ``translation``, ``chrf`` (of the unpruned translation and of this
        one) and ``change``. Sentences with identical translations are omitted.
        """
        if self._metric is None or self._unpruned is None:
            return None
        unpruned, translations = self._unpruned, self._read(self._folder.hyp_path(cell))
        if translations is None:
            return None
        after = _scores(self._metric, translations)
        change = np.abs(after - self._before) if self._references else 100 - after
        other = [i for i, text in enumerate(translations) if text != unpruned[i]]
        chosen = sorted(other, key=lambda i: (-round(float(change[i]), 9), i))[: self._most]
        for i in chosen:
            self.sentences[str(i + 1)] = {
                "source": self._sources[i] if self._sources else None,
                "reference": self._references[i] if self._references else None,
                "unpruned": unpruned[i],
            }
        return [
            {
                "sentence": i + 1,
                "translation": translations[i],
                "chrf": [float(self._before[i]), float(after[i])],
                "change": float(change[i]),
            }
            for i in chosen
        ]

    def _read(self, path: Any) -> list[str] | None:
        if not path.is_file():
            self.lacking.append(f"{path.relative_to(self._folder.path)}, and so its example sentences")
            return None
        lines = read_lines(path)
        expected = len(lines if self._unpruned is None else self._unpruned)
        if len(lines) != expected:
            raise ValueError(
                f"{path} has {len(lines)} lines, the unpruned model's translations have {expected}; the folder is "
                "damaged: make the study again in another one"
            )
        return lines

    def _kept(self, split: str, side: str) -> list[str] | None:
        path = self._folder.text_path(split, side)
        return self._read(path) if path.is_file() else None


def _scores(metric: Metric, translations: Sequence[str]) -> np.ndarray:
    return metric.score(metric.extract(translations))


def with_examples(document: Document, folder: StudyFolder, most: int) -> Document:
    """Add to a document's maps the sentences whose translation each mask changes most, and notes on missing files.

    Args:
        most: maximum number of sentences per mask.
    """
    maps = []
    for head_map in document.maps:
        # Only for translations, and only if the unpruned model has been scored.
        shown = document.state["measure"] == "BLEU" and document.state["unpruned"] is not None
        if shown and head_map.split and head_map.against:
            changes = Changes(folder, head_map.split, head_map.against, most)
            for part in head_map.components:
                for cell in (cell for layer in part["layers"] for cell in layer if "id" in cell):
                    cell["examples"] = changes.of(cell["id"])
            document.missing = document.missing + changes.lacking
            head_map = replace(head_map, sentences=changes.sentences, measure=changes.measure)
        maps.append(head_map)
    document.maps = maps
    return document
