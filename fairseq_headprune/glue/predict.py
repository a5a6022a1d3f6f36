"""Predicting the labels of a split, under the mask in force or under many masks at once."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairseq_headprune.glue.examples import Split
from fairseq_headprune.glue.statistics import LabelMetric
from fairseq_headprune.heads import HeadMask
from fairseq_headprune.modules.row_masks import RowMasks, branching

#: tokens, times masks, that one pass of the model takes
_TOKENS = {"cpu": 16384, "cuda": 262144}


class Predictor:
    """Predicts one split again and again.

    Attributes:
        obstacle: always None: many masks may be at work at once.
        task: what GLUE says of the task.
    """

    obstacle: str | None = None

    def __init__(self, session: Any, split: str) -> None:
        """Load the split.

        Raises:
            KeyError, FileNotFoundError, ValueError: see :meth:`GlueSession.dataset`.
        """
        self._session, self.task = session, session.task.glue
        self._name, self._dataset = split, session.dataset(split)

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
        batches = self._session.batches(self._name)
        return self._gather(batches, lambda sample: self._session.model(**sample["net_input"])[0][None], 1)[0]

    def predict_many(self, masks: Sequence[HeadMask]) -> np.ndarray:
        """Return the same under each mask, (masks, examples); what masks have in common is computed once.

        Raises:
            ValueError: masks that do not fit, or prune different feed-forward parts.
        """
        session = self._session
        rows, layers = RowMasks(session.gates, masks), session.model.encoder.layers
        tokens = max(_TOKENS.get(session.device.type, 16384) // len(masks), session.task.limit)

        def logits(sample: dict) -> Tensor:
            with branching(layers, masks, rows) as group:
                found = session.model(**sample["net_input"])[0]
            return found.view(1 + max(group), sample["id"].numel(), -1)[group]

        with rows.in_force():
            return self._gather(session.batches(self._name, max_tokens=tokens), logits, len(masks))

    def _gather(self, batches: Iterable[dict], logits: Callable[[dict], Tensor], masks: int) -> np.ndarray:
        """Collect predictions from logits (masks, batch, classes) of every batch."""
        found = np.zeros((masks, len(self._dataset)), dtype=np.float32 if self.task.is_regression else np.int64)
        with torch.no_grad():
            for sample in batches:
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
