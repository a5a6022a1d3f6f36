"""How our tasks batch their splits: the batches of a training survive its stops, and a score lacks no sentence."""

import copy
from typing import TYPE_CHECKING, Any, Optional
from weakref import WeakKeyDictionary

from omegaconf import OmegaConf

from fairseq_headprune.training.kept_batches import keep_batches, keep_order

if TYPE_CHECKING:
    from fairseq.tasks import FairseqTask
else:
    FairseqTask = object  # a mixin, placed before fairseq's own task


class BatchedTask(FairseqTask):
    """Mixin for fairseq tasks whose configuration has ``train_subset``; must come before fairseq's classes.

    Attributes:
        keeps_batches: whether batches are kept in memory where the epochs of a split share them.
    """

    keeps_batches = False
    _batches_in_epoch: Optional[int] = None

    def __init__(self, cfg: Any, *args: Any) -> None:
        super().__init__(cfg, *args)
        #: the training set -> a copy of it that is validated on: fairseq has one iterator a dataset, also for both
        self._validated: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    def get_batch_iterator(
        self, dataset, *args, required_batch_size_multiple: int = 1, seed: int = 1, epoch: int = 1, **kwargs
    ):
        """Batch a split; a resumed training has an uninterrupted one's batches; outside training, keep every sentence.

        fairseq silently drops the last batch if its size is not a multiple of ``--required-batch-size-multiple`` (8),
        so that a score would lack up to 7 sentences.
        """
        training = "update_epoch_batch_itr" in kwargs  # which fairseq passes for the epochs of a training only
        if not training and dataset is self.datasets.get(self.cfg.train_subset):
            dataset = self._validated.setdefault(dataset, copy.copy(dataset))
        kwargs["required_batch_size_multiple"] = required_batch_size_multiple if training else 1
        anew = kwargs.get("update_epoch_batch_itr") or kwargs.get("disable_iterator_cache")
        shared = self.can_reuse_epoch_itr(dataset) and not anew
        # If a run's epochs share their batches, fairseq seeds these with the epoch in which the run was started.
        first = seed + 1 - epoch if training and shared else seed
        run = self._settings_of_run()
        if training and shared and run is not None and run.dataset.update_ordered_indices_seed:
            first -= epoch - 1  # the trainer has added the epoch to the seed
        iterator = super().get_batch_iterator(dataset, *args, seed=first, epoch=epoch, **kwargs)
        iterator.seed = seed
        keep_order(iterator)
        if shared and self.keeps_batches:
            keep_batches(iterator)
        if training:
            self._batches_in_epoch = len(iterator)
        return iterator

    def _settings_of_run(self) -> Any:
        """Return the settings that fairseq saves (``self.cfg`` copies the task's); None outside a training run."""
        return self.cfg._get_parent() if OmegaConf.is_config(self.cfg) else None
