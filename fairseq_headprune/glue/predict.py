"""Predicting the labels of a split, under the mask in force or under many masks at once."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairseq_headprune.glue.examples import Split
from fairseq_headprune.glue.statistics import LabelMetric
from fairseq_headprune.heads import HeadMask
from fairseq_headprune.modules.row_masks import RowMasks

#: rows (examples times masks) that one pass of the model takes
_ROWS = {"cpu": 64, "cuda": 2048}


class Predictor:
    """Predicts one split again and again.

    Attributes:
        obstacle: always None: many masks may be at work at once, unless one prunes feed-forward parts.
        task: what GLUE says of the task.
    """

    obstacle: str | None = None

    def __init__(self, session: Any, split: str) -> None:
        """Load and batch the split.

        Raises:
            KeyError, FileNotFoundError, ValueError: see :meth:`GlueSession.dataset`.
        """
        self._session, self.task = session, session.task.glue
        self._batches = session.batches(split)
        self._dataset = session.dataset(split)

    @property
    def split(self) -> Split:
        """The examples."""
        return self._dataset.split

    @property
    def targets(self) -> np.ndarray:
        """Class numbers, or scores, (examples,), in the order of the file.

        Raises:
            ValueError: a test set, which has none.
        """
        if self._dataset.targets is None:
            raise ValueError(f"{self.split.about['path']} has no labels, which are needed here")
        return self._dataset.targets

    @property
    def references(self) -> list[str]:
        """The labels' names, or scores, as texts; see :attr:`targets`."""
        return self.names(self.targets)

    @property
    def sources(self) -> list[str]:
        """The sentences; those of a pair are joined by a tab."""
        return ["\t".join(sentences) for sentences in self.split.sentences]

    def names(self, predicted: np.ndarray) -> list[str]:
        """Return predictions as texts: names of labels, or scores."""
        if self.task.is_regression:
            return [f"{value:.6f}" for value in predicted]
        return [self.task.labels[int(number)] for number in predicted]

    def predict(self) -> np.ndarray:
        """Return class numbers, or scores, (examples,) in the order of the file, under the mask in force."""
        return self._gather(lambda sample: self._session.model(**sample["net_input"])[0][None], 1)[0]

    def predict_many(self, masks: Sequence[HeadMask]) -> np.ndarray:
        """Return the same under each mask, (masks, examples); every row of a batch has its own mask.

        Raises:
            ValueError: a mask that does not fit, or prunes feed-forward parts.
        """
        if any(mask.ffn for mask in masks):
            raise ValueError("masks of feed-forward parts cannot be at work at once")
        tables = RowMasks(self._session.gates, masks)

        def logits(sample: dict) -> Tensor:
            count = sample["id"].numel()
            at_once = max(1, _ROWS.get(self._session.device.type, 64) // count)
            found = []
            for first in range(0, len(masks), at_once):
                numbers = torch.arange(first, min(first + at_once, len(masks)), device=sample["id"].device)
                for component in self._session.gates.shape:
                    tables.set(component, numbers.repeat_interleave(count))
                rows = {n: v.repeat(len(numbers), *(1,) * (v.dim() - 1)) for n, v in sample["net_input"].items()}
                found.append(self._session.model(**rows)[0].view(len(numbers), count, -1))
            return torch.cat(found)

        with tables.in_force():
            return self._gather(logits, len(masks))

    def _gather(self, logits: Callable[[dict], Tensor], masks: int) -> np.ndarray:
        """Collect predictions from logits (masks, batch, classes) of every batch."""
        found = np.zeros((masks, len(self._dataset)), dtype=np.float32 if self.task.is_regression else np.int64)
        with torch.no_grad():
            for sample in self._batches:
                values = logits(sample).float()
                values = values[..., 0] if self.task.is_regression else values.argmax(dim=-1)
                found[:, sample["id"].cpu().numpy()] = values.cpu().numpy()
        return found

    def answers(self) -> list[str]:
        """Return predictions as texts, under the mask in force."""
        return self.names(self.predict())

    def answers_of(self, masks: Sequence[HeadMask]) -> list[list[str]]:
        """Return predictions as texts, under each mask."""
        return [self.names(row) for row in self.predict_many(masks)]

    def metric(self, comparison: Any) -> LabelMetric:
        """Return the task's metric, bound to the labels; BLEU's settings in a comparison have no say here."""
        return LabelMetric(self.task, self._session.task.metric, self.references)
