"""Batches that are loaded once: a small corpus stays in memory, and no process has to load it again in every epoch."""

from collections.abc import Iterator, Sequence
from typing import Any, Optional

from fairseq.data.iterators import CountingIterator, EpochBatchIterator
from fairseq.data.language_pair_dataset import LanguagePairDataset
from fairseq.utils import apply_to_sample
from torch import Tensor

#: maximum size of all kept batches of a split, in bytes; of a larger split none are kept
LIMIT = 2**30


def keep_order(iterator: Any) -> None:
    """Let a loader that fairseq uses again shuffle as it is asked to, also one that does so already.

    It would otherwise keep the order of its first epoch: with ``--curriculum`` batches would never be shuffled, but for
    a run that was resumed.
    """
    if not isinstance(iterator, EpochBatchIterator) or "_get_iterator_for_epoch" in vars(iterator):
        return
    load = iterator._get_iterator_for_epoch

    def in_order(epoch: int, shuffle: bool, fix_batches_to_gpus: bool = False, offset: int = 0) -> Any:
        sampler = getattr(iterator, "epoch_batch_sampler", None)
        if sampler is not None:
            sampler.shuffle, sampler.fix_batches_to_gpus = shuffle, fix_batches_to_gpus
        return load(epoch, shuffle, fix_batches_to_gpus, offset)

    iterator._get_iterator_for_epoch = in_order


def keep_batches(iterator: Any, limit: int = LIMIT) -> None:
    """Let fairseq's iterator over a split load every batch once, if epochs differ only in the order of their batches.

    Args:
        iterator: as ``get_batch_iterator`` returns it, also one that keeps its batches already.
        limit: maximum size of all batches, in bytes.
    """
    fixed = isinstance(iterator, EpochBatchIterator) and not callable(iterator.batch_sampler)
    if not fixed or isinstance(iterator._get_iterator_for_epoch, KeptBatches):
        return
    # Other datasets may change their sentences with the epoch.
    if type(iterator.dataset) is LanguagePairDataset:
        keep_order(iterator)
        iterator._get_iterator_for_epoch = KeptBatches(iterator, limit)


class KeptBatches:
    """Replaces an iterator's ``_get_iterator_for_epoch``: keeps what fairseq loads, until all of an epoch is there."""

    def __init__(self, iterator: EpochBatchIterator, limit: int) -> None:
        self._iterator, self._limit = iterator, limit
        self._load = iterator._get_iterator_for_epoch
        self._kept: dict[tuple[int, ...], Any] = {}
        self._bytes = 0

    def __call__(self, epoch: int, shuffle: bool, fix_batches_to_gpus: bool = False, offset: int = 0) -> Any:
        """Return the batches of an epoch, in its order, from ``offset`` on."""
        if self._bytes > self._limit:
            return self._load(epoch, shuffle, fix_batches_to_gpus, offset)
        batches = self._iterator.ordered_batches(epoch, fix_batches_to_gpus, shuffle)[offset:]
        found = self._all(batches)
        if found is None or not batches:
            loaded = self._load(epoch, shuffle, fix_batches_to_gpus, offset)
            return loaded and CountingIterator(self._noted(batches, loaded), start=offset, total=len(loaded))
        self._end_workers()
        last = int(self._iterator.skip_remainder_batch)
        return CountingIterator(found, start=offset, total=offset + len(found) - last)

    def _all(self, batches: Sequence[Any]) -> Optional[list[Any]]:
        found = [self._kept.get(tuple(batch)) for batch in batches]
        return None if any(sample is None for sample in found) else found

    def _noted(self, batches: Sequence[Any], loaded: CountingIterator) -> Iterator[Any]:
        for batch, sample in zip(batches, loaded, strict=False):
            if self._bytes <= self._limit and tuple(batch) not in self._kept:
                self._note(tuple(batch), sample)
            yield sample

    def _note(self, batch: tuple[int, ...], sample: Any) -> None:
        sizes: list[int] = []

        def own(tensor: Tensor) -> Tensor:
            sizes.append(tensor.nbytes)
            # What a process has loaded holds a file descriptor per tensor, unless it was copied to pinned memory.
            return tensor.clone() if tensor.is_shared() else tensor

        self._kept[batch] = apply_to_sample(own, sample)
        self._bytes += sum(sizes)
        if self._bytes > self._limit:
            self._kept.clear()

    def _end_workers(self) -> None:
        """End the processes that loaded the first epoch: as garbage, each would cost 5 seconds."""
        loader, self._iterator.dataloader = self._iterator.dataloader, None
        end: Any = getattr(getattr(loader, "_iterator", None), "_shutdown_workers", None)
        if end is not None:
            end()
