"""Predictions of labels: of a split under the current mask or many masks at once, and during fairseq's validation."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Optional

import numpy as np
import torch
from fairseq.distributed import utils as distributed
from torch import Tensor

from fairseq_headprune.evaluation.memory import Card
from fairseq_headprune.glue.dataset import Split
from fairseq_headprune.glue.metrics import LabelMetric
from fairseq_headprune.imports.bert import HEAD
from fairseq_headprune.modules.row_masks import RowMasks, branching
from fairseq_headprune.parts import Mask

#: tokens x masks in one forward pass; fewer on a GPU if its share of the memory is too small
_TOKENS = {"cpu": 16384, "cuda": 65536}


class Predictor:
    """Predicts the labels of one split, any number of times.

    Attributes:
        obstacle: always None: labels can be predicted under many masks at once.
        task: GLUE's description of the task.
    """

    obstacle: str | None = None

    def __init__(self, session: Any, split: str) -> None:
        """Load the split.

        Raises:
            KeyError, FileNotFoundError, ValueError: see :meth:`GlueSession.dataset`.
        """
        self._session, self.task = session, session.task.glue
        self._name, self._dataset = split, session.dataset(split)
        self._card = Card.of(session)

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
        """The label names, or scores, as text; see :attr:`targets`."""
        return self.names(self.targets)

    @property
    def sources(self) -> list[str]:
        """The sentences; pairs are joined by a tab."""
        return ["\t".join(sentences) for sentences in self.split.sentences]

    def names(self, predicted: np.ndarray) -> list[str]:
        """Return predictions as text: label names, or scores."""
        if self.task.is_regression:
            return [f"{value:.6f}" for value in predicted]
        return [self.task.labels[int(number)] for number in predicted]

    def predict(self) -> np.ndarray:
        """Return class numbers, or scores, (examples,) in the order of the file, under the current mask."""
        batches = self._session.batches(self._name)
        return self._gather(batches, lambda sample: self._session.model(**sample["net_input"])[0][None], 1)[0]

    def predict_many(self, masks: Sequence[Mask]) -> np.ndarray:
        """Return the same under each mask, (masks, examples); layers on which masks agree are computed once.

        Raises:
            ValueError: masks do not fit the model, or prune different feed-forward parts.
            torch.OutOfMemoryError: there is too little memory for a single example under a single mask.
        """
        tokens = max(self._fitting() // len(masks), self._session.task.limit)
        with self._card.limited() if self._card else contextlib.nullcontext():
            found = self._try(masks, tokens)
        torch.cuda.empty_cache()
        return found

    def _fitting(self) -> int:
        """Return how many tokens x masks fit in one pass."""
        if self._card is None:
            return _TOKENS["cpu"]
        encoder = self._session.model.encoder
        weight = encoder.embed_tokens.weight
        inner = max(layer.fc2.in_features for layer in encoder.layers)
        heads = max(layer.self_attn.num_heads for layer in encoder.layers)
        # The activations of one layer, and its attention weights.
        numbers = 20 * weight.size(1) + 2 * inner + 3 * heads * self._session.task.limit
        taken = weight.element_size() * numbers
        return min(_TOKENS["cuda"], self._card.share() // taken)

    def _try(self, masks: Sequence[Mask], tokens: int) -> np.ndarray:
        """Predict with this many tokens per batch; out of memory: with half as many, then with half of the masks."""
        try:
            return self._predicted(masks, tokens)
        except torch.OutOfMemoryError:
            if self._card is None:
                raise
        # Outside the handler, which would keep the tensors of the failed batch alive.
        torch.cuda.empty_cache()
        least, half = self._session.task.limit, len(masks) // 2
        if tokens > least:
            return self._try(masks, max(tokens // 2, least))
        if half:
            return np.concatenate([self._try(part, tokens) for part in (masks[:half], masks[half:])])
        return self._card.patiently(lambda: self._predicted(masks, tokens))

    def _predicted(self, masks: Sequence[Mask], tokens: int) -> np.ndarray:
        session = self._session
        rows, layers = RowMasks(session.gates, masks), session.model.encoder.layers

        def logits(sample: dict) -> Tensor:
            with branching(layers, rows, range(rows.masks)) as group:
                found = session.model(**sample["net_input"])[0]
            return found.view(1 + max(group), sample["id"].numel(), -1)[group]

        with rows.in_force():
            return self._gather(session.batches(self._name, max_tokens=tokens), logits, len(masks))

    def _gather(self, batches: Iterable[dict], logits: Callable[[dict], Tensor], masks: int) -> np.ndarray:
        """Collect the predictions of all batches; ``logits`` returns (masks, batch, classes)."""
        found = np.zeros((masks, len(self._dataset)), dtype=np.float32 if self.task.is_regression else np.int64)
        with torch.no_grad():
            for sample in batches:
                values = logits(sample).float()
                values = values[..., 0] if self.task.is_regression else values.argmax(dim=-1)
                found[:, sample["id"].cpu().numpy()] = values.cpu().numpy()
        return found

    def answers(self) -> list[str]:
        """Return predictions as text, under the current mask."""
        return self.names(self.predict())

    def answers_of(self, masks: Sequence[Mask]) -> list[list[str]]:
        """Return predictions as text, under each mask."""
        return [self.names(row) for row in self.predict_many(masks)]

    def metric(self, comparison: Any) -> LabelMetric:
        """Return the task's metric, bound to the labels; a comparison's BLEU settings have no effect."""
        return LabelMetric(self.task, self._session.task.metric, self.references)

    def beside(self) -> dict[str, LabelMetric]:
        """Labels have no further metric."""
        return {}


def predictions(logits: Tensor, is_regression: bool) -> Tensor:
    """Return class numbers, or scores, (examples,), on the CPU, from logits (examples, classes)."""
    return (logits.view(-1).float() if is_regression else logits.argmax(dim=-1)).cpu()


@contextmanager
def noted_logits(model: Any) -> Iterator[list[Tensor]]:
    """Record the logits of every forward pass: fairseq's criterion does not return them."""
    while not hasattr(model, "classification_heads") and hasattr(model, "module"):
        model = model.module
    found: list[Tensor] = []
    hook = model.classification_heads[HEAD].register_forward_hook(lambda _, __, logits: found.append(logits.detach()))
    try:
        yield found
    finally:
        hook.remove()


def of_all_ranks(predicted: Optional[tuple[Tensor, Tensor]]) -> list[tuple[Tensor, Tensor]]:
    """Return the predictions and labels of a step's batches on all ranks; every rank must call it.

    fairseq's own collectives only sum numbers, or need CUDA.
    """
    found = [predicted]
    if distributed.get_data_parallel_world_size() > 1:
        found = [None] * distributed.get_data_parallel_world_size()
        torch.distributed.all_gather_object(found, predicted, group=distributed.get_data_parallel_group())
    return [pair for pair in found if pair is not None]
