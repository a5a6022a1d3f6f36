"""GPU memory: a process' share of it, waiting when none is free, and batches of translation that fit into it."""

import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Optional, Protocol, TypeVar

import torch

logger = logging.getLogger(__name__)

Found = TypeVar("Found")

#: Share of the free memory that is used; the processes of a study on one GPU divide it.
SHARE = 0.5

#: Seconds between retries while other processes hold the memory.
WAITS = (5, 15, 30, 60)

#: Wait for others only if they hold more bytes than this; less is the driver's own memory.
_OTHERS = 2**30

#: Rows of a batch on a CPU: more was slower on two cores.
_CPU_ROWS = 640

#: Maximum rows of a batch on CUDA even if more fit: from some size on, more rows only cost memory.
_CUDA_ROWS = 2**18

#: What batches set aside is done when it is as many rows as a batch, and at the end; on a GPU, where it takes memory
#: from batches and most of it goes on to the maximum length, already when it is this share of one.
_ASIDE_ON_GPU = 1 / 4

#: Translates these sentences under these masks.
Work = Callable[[Sequence[int], Sequence[int]], None]

#: (lengths of sentences, descending; hypotheses of each) -> how many of the first ones fit into a batch, at least 0.
Fitting = Callable[[Sequence[int], int], int]


class Card:
    """The memory of one GPU.

    Args:
        jobs: processes of the same study on it, this one included.
    """

    def __init__(self, device: torch.device, jobs: int = 1) -> None:
        self.device, self._jobs = device, jobs

    @classmethod
    def of(cls, session: Any) -> "Optional[Card]":
        """Return the GPU that a session computes on; None on a CPU."""
        if session.device.type != "cuda":
            return None
        return cls(session.device, getattr(session.args, "jobs_on_gpu", 1))

    def free(self) -> int:
        """Return the bytes that nobody uses, including those in this process' cache."""
        kept = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        return torch.cuda.mem_get_info(self.device)[0] + kept

    def share(self) -> int:
        """Return the bytes that this process may allocate in addition to what it uses now."""
        return int(SHARE * self.free() / self._jobs)

    @contextlib.contextmanager
    def limited(self) -> Iterator[None]:
        """Limit this process to its share, torch's cache included.

        Without a limit, key and value caches that grow step by step leave many times their size in torch's cache.
        """
        most = torch.cuda.memory_allocated(self.device) + self.share()
        self._set_limit(min(1.0, most / self._total()))
        try:
            yield
        finally:
            self._set_limit(1.0)

    def patiently(self, work: Callable[[], Found]) -> Found:
        """Do the smallest possible piece of work with all free memory; if other processes hold it, wait and try again.

        Raises:
            torch.OutOfMemoryError: there still is too little; the message says what is free and what to do.
        """
        self._set_limit(1.0)
        for seconds in (*WAITS, 0):
            # Release the failed attempt's memory before waiting for others.
            torch.cuda.empty_cache()
            with contextlib.suppress(torch.OutOfMemoryError):
                return work()
            if not seconds or self._others() < _OTHERS:
                break
            logger.warning(f"no GPU memory: {self._state()}; trying again in {seconds} s")
            time.sleep(seconds)
        raise torch.OutOfMemoryError(
            f"no GPU memory for the smallest batch: {self._state()}; run fewer --jobs and other programs on this GPU, "
            "or --masks-at-once 1 with a small --batch-size"
        )

    def _set_limit(self, share: float) -> None:
        # Unlike the other functions, this one refuses a device without an index; None is the current device.
        torch.cuda.set_per_process_memory_fraction(share, self.device.index)

    def _total(self) -> int:
        return torch.cuda.mem_get_info(self.device)[1]

    def _others(self) -> int:
        free, total = torch.cuda.mem_get_info(self.device)
        return total - free - torch.cuda.memory_reserved(self.device)

    def _state(self) -> str:
        free, total, others = self.free() / 2**30, self._total() / 2**30, self._others() / 2**30
        return f"{free:.1f} of {total:.1f} GiB are free, others hold {others:.1f}"


class Aside(Protocol):
    """What batches set aside, to be done together; see :class:`~fairseq_headprune.evaluation.rests.Rests`."""

    @property
    def rows(self) -> int: ...

    def taken(self, last: bool) -> tuple[int, Callable[[Sequence[int]], None]]: ...


class Packer:
    """Divides sentences times masks into batches.

    Attributes:
        rows: maximum number of hypotheses in a batch; it is reduced when memory runs out, until the next run.
    """

    def __init__(self, fitting: Fitting, beam: int, card: Optional[Card] = None) -> None:
        """Store the limits.

        Args:
            beam: hypotheses per sentence.
            card: the GPU; None on a CPU.
        """
        self._fitting, self._beam, self._card = fitting, beam, card
        self.rows: float = math.inf

    def run(
        self,
        sentences: Sequence[int],
        lengths: Sequence[int],
        masks: int,
        work: Work,
        aside: Optional[Aside] = None,
    ) -> None:
        """Do the work in batches, the longest sentences first, so that memory runs out early if it does.

        There are as few batches as possible, of as equal numbers of sentences as possible. On a GPU
        each batch is limited to its share of the memory, and torch's cache is released at the end.

        Args:
            lengths: of the sentences; sentences of similar length share a batch.
            aside: where the work leaves some of its rows (sentences times masks).

        Raises:
            torch.OutOfMemoryError: there is too little memory for a single sentence under a single mask.
        """
        self.rows = math.inf
        order = sorted(zip(lengths, sentences, strict=True), reverse=True)
        lengths, sentences = ([pair[place] for pair in order] for place in (0, 1))
        rows = self._beam * masks
        left = self._batches(lengths, rows)
        while sentences:
            size = min(self._size(lengths, rows), -(-len(sentences) // max(1, left)))
            batch, sentences, lengths, left = sentences[:size], sentences[size:], lengths[size:], left - 1
            with self._limited():
                self._try(batch, range(masks), work)
            most = min(size * masks, self.rows / self._beam) * (_ASIDE_ON_GPU if self._card else 1)
            if aside is not None and aside.rows and (not sentences or aside.rows >= most):
                self._join(aside, last=not sentences)
        torch.cuda.empty_cache()

    def _limited(self) -> contextlib.AbstractContextManager:
        return self._card.limited() if self._card else contextlib.nullcontext()

    def _join(self, aside: Aside, last: bool) -> None:
        """Do what was set aside as one batch; what fits of it says nothing about other batches."""
        fitted = self.rows
        rows, work = aside.taken(last)
        with self._limited():
            self._try(range(rows), range(1), lambda some, _: work(some))
        self.rows = fitted

    def _batches(self, lengths: Sequence[int], rows: int) -> int:
        """Return how many batches are needed for sentences of these lengths, descending."""
        count = start = 0
        while start < len(lengths):
            count, start = count + 1, start + self._size(lengths[start:], rows)
        return count

    def _size(self, lengths: Sequence[int], rows: int) -> int:
        return int(max(1, min(self.rows / rows, self._fitting(lengths, rows))))

    def _try(self, sentences: Sequence[int], masks: Sequence[int], work: Work) -> None:
        try:
            work(sentences, masks)
            return
        except torch.OutOfMemoryError:
            count = len(sentences) * len(masks)
            if count == 1 and self._card is None:
                raise
        # Outside the handler, which would keep the tensors of the failed batch alive.
        torch.cuda.empty_cache()
        if count == 1 and self._card is not None:
            self._card.patiently(lambda: work(sentences, masks))
            # Others have released memory, so determine again how much fits.
            self.rows = math.inf
            return
        self.rows = min(self.rows, count * self._beam // 2)
        logger.warning(f"out of memory with {count * self._beam} hypotheses in a batch; going on with half as many")
        for half in _halves(sentences) if len(sentences) > 1 else [sentences]:
            for part in [masks] if len(sentences) > 1 else _halves(masks):
                self._try(half, part, work)


def _halves(items: Sequence[int]) -> Iterator[Sequence[int]]:
    yield items[: len(items) // 2]
    yield items[len(items) // 2 :]


def expected_tokens(lengths: Sequence[int], limits: Sequence[int]) -> Iterator[float]:
    """Yield how many tokens translations of the first sentences have at the same time at most, of 1, 2, … of them.

    Translations are assumed to be no longer than 1.25 times the sentence plus 5 tokens, and those of shorter sentences
    to end earlier.

    Args:
        lengths, limits: of the sentences, descending, and the maximum lengths of their translations.
    """
    most = 0.0
    for number, (length, limit) in enumerate(zip(lengths, limits, strict=True), 1):
        # When the translation of this sentence ends, only those of the longer ones go on.
        most = max(most, number * min(limit, 1.25 * length + 5))
        yield most


def fitting(model: Any, card: Optional[Card], beam: int, limit: Callable[[int], int]) -> Fitting:
    """Return how many sentences fit into a batch.

    On CUDA they may take the current share of the free memory: for each hypothesis its caches and the activations of a
    layer. Where translations are longer than :func:`expected_tokens` says, memory may run out, and the batch is halved.

    Args:
        card: the GPU; None on a CPU.
        limit: length of the sentence -> maximum length of its translation.
    """
    if card is None:
        return lambda lengths, rows: _CPU_ROWS // rows
    size, layers = model.decoder.embed_tokens.weight.element_size(), len(model.decoder.layers)
    width, inner = model.decoder.embed_dim, max(layer.fc2.in_features for layer in model.decoder.layers)
    # Keys and values of all layers, and a block as large as those of one layer (see BeamCache).
    cached = (2 * layers + 1) * width

    def _of_share(lengths: Sequence[int], rows: int) -> int:
        share = card.share() / (size * rows)
        fixed = cached * lengths[0] / beam + 2 * inner + 20 * width
        lengths = lengths[: _CUDA_ROWS // rows]
        for number, most in enumerate(expected_tokens(lengths, [limit(length) for length in lengths]), 1):
            if number * fixed + most * cached > share:
                return number - 1
        return len(lengths)

    return _of_share
