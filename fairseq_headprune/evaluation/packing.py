"""How much is translated at once: as many rows as memory takes, and half as many where it did not."""

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

logger = logging.getLogger(__name__)

#: Rows of a batch on a CPU: more were slower on two cores.
_CPU_ROWS = 640

#: Rows of a batch on CUDA where memory takes more: kernels are busy long before.
_CUDA_ROWS = 2**18

#: Share of the free memory that a batch is planned for.
_SHARE = 0.7

#: Translates these sentences under these masks.
Work = Callable[[Sequence[int], Sequence[int]], None]


class Packer:
    """Divides sentences times masks into batches.

    Attributes:
        rows: hypotheses that a batch holds at most; it becomes smaller when memory runs out.
    """

    def __init__(self, rows: Callable[[int], int], beam: int) -> None:
        """Args: ``rows``: how many hypotheses fit, by the length of the longest sentence; ``beam``: of a sentence."""
        self._fitting, self._beam = rows, beam
        self.rows: float = math.inf

    def run(self, sentences: Sequence[int], lengths: Sequence[int], masks: int, work: Work) -> None:
        """Do the work in batches, the longest sentences first, so that memory runs out early if it does.

        Args:
            lengths: of the sentences; those of similar length share a batch.

        Raises:
            torch.OutOfMemoryError: there is no memory for a single sentence under a single mask.
        """
        order = sorted(zip(lengths, sentences, strict=True), reverse=True)
        while order:
            fitting = min(self.rows, self._fitting(order[0][0])) / (self._beam * masks)
            batch, order = order[: max(1, int(fitting))], order[max(1, int(fitting)) :]
            self._try([sentence for _, sentence in batch], range(masks), work)

    def _try(self, sentences: Sequence[int], masks: Sequence[int], work: Work) -> None:
        try:
            work(sentences, masks)
            return
        except torch.OutOfMemoryError:
            count = len(sentences) * len(masks)
            if count == 1:
                raise
        # Outside of the handler, which would keep the tensors of the failed batch alive.
        torch.cuda.empty_cache()
        self.rows = min(self.rows, count * self._beam // 2)
        logger.warning(f"out of memory with {count * self._beam} hypotheses in a batch; going on with half as many")
        for half in _halves(sentences) if len(sentences) > 1 else [sentences]:
            for part in [masks] if len(sentences) > 1 else _halves(masks):
                self._try(half, part, work)


def _halves(items: Sequence[int]) -> Iterator[Sequence[int]]:
    yield items[: len(items) // 2]
    yield items[len(items) // 2 :]


def fitting_rows(model: Any, device: torch.device, beam: int, limit: Callable[[int], int]) -> Callable[[int], int]:
    """Return how many hypotheses fit into a batch, as a function of the length of its longest sentence.

    On CUDA the free memory is asked for each time, and divided by what one hypothesis takes of the caches and of the
    activations of a layer; translations are taken to be no longer than twice the sentence and 10 tokens.

    Args:
        limit: the largest length of a translation by the length of the sentence.
    """
    if device.type != "cuda":
        return lambda length: _CPU_ROWS
    size = model.decoder.embed_tokens.weight.element_size()
    width, inner = model.decoder.embed_dim, max(layer.fc2.in_features for layer in model.decoder.layers)

    def fitting(length: int) -> int:
        free = torch.cuda.mem_get_info(device)[0]
        free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        positions = min(limit(length), 2 * length + 10)
        # Keys and values of all layers, and of one more while its rows move; the activations of one layer.
        caches = 2 * (len(model.decoder.layers) + 1) * width * (positions + length / beam)
        return min(_CUDA_ROWS, int(_SHARE * free / (size * (caches + 2 * inner + 20 * width))))

    return fitting
