"""Common base of tasks with gated models: masks, learned gates, and checks that they have an effect."""

import logging
import os
from typing import Any, Optional
from weakref import WeakSet

from fairseq.logging import metrics
from omegaconf import OmegaConf

from fairseq_headprune.choosing.magnitude import KeptWeights, load_weights
from fairseq_headprune.criterions.gated import GatedCriterion
from fairseq_headprune.learning.training import GateTraining, freeze, run_length
from fairseq_headprune.learning.watch import skip_step
from fairseq_headprune.models.starting import (
    name_plugin,
    refuse_other_heads,
    refuse_unsupported,
    settings_to_start_from,
    state_to_start_from,
)
from fairseq_headprune.modules.attach import GatedParts, attach_gates, find_gates
from fairseq_headprune.modules.connected import check_connected
from fairseq_headprune.modules.shrink import PrunedWeights
from fairseq_headprune.parts import COMPONENTS, HEADS, Mask
from fairseq_headprune.tasks import patience
from fairseq_headprune.tasks.batched import BatchedTask
from fairseq_headprune.tasks.seam import PrunableTask
from fairseq_headprune.training.fast import FastTraining

logger = logging.getLogger(__name__)

#: value of --head-mask that keeps every head, even if the checkpoint has a mask
NO_MASK = "none"

#: help text of ``--head-mask`` for all tasks
HEAD_MASK_HELP = (
    "mask file: which attention heads are kept, in training, validation and generation "
    "('none' keeps all; default: the mask that the checkpoint holds, if any)"
)

#: help text of ``--weight-mask`` for all tasks
WEIGHT_MASK_HELP = (
    "ticket of single weights (headprune lottery tickets, .pt): the weights that it prunes are 0 in training "
    "(default: none; they stay 0 in the checkpoint)"
)


class GatedTask(BatchedTask, PrunableTask):
    """Mixin for fairseq tasks whose configuration has ``head_mask`` and ``train_subset``; must be the first base class.

    The mask is stored in the checkpoint with the weights, and its origin in the checkpoint's ``task_state``.

    Attributes:
        learns_gates: tells criterions with learned gates that this task supports them.
    """

    learns_gates = True
    _begun = False

    def __init__(self, cfg: Any, *args: Any) -> None:
        super().__init__(cfg, *args)
        self._mask = _read_mask(cfg.head_mask)
        self._kept_weights: Optional[KeptWeights] = None
        self._gates: Optional[GatedParts] = None
        self._model: Any = None
        self._model_settings: Any = None
        self._criterion: Optional[GatedCriterion] = None
        self._learning: Optional[GateTraining] = None
        self._checked: WeakSet[Any] = WeakSet()
        self._fast = self._fast_training()
        self.keeps_batches = self._fast is not None

    @classmethod
    def setup_task(cls, cfg: Any, **kwargs: Any) -> "GatedTask":
        """Set the task up.

        A task rebuilt from a checkpoint (``from_checkpoint``) ignores a mask file that no longer exists, since the mask
        is stored with the weights.
        """
        for name in ("head_mask", "weight_mask"):
            path = getattr(cfg, name, None)
            if kwargs.get("from_checkpoint") and path not in (None, NO_MASK) and not os.path.exists(path):
                setattr(cfg, name, None)
        return super().setup_task(cfg, **kwargs)

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Build the model, attach gates and apply ``--head-mask``.

        Raises:
            ValueError: the mask does not fit the model, the model does not fit the checkpoint that training starts
                from, or a setting is not supported.
        """
        refuse_unsupported(cfg)
        model = super().build_model(cfg, from_checkpoint)
        if not from_checkpoint:
            refuse_other_heads(cfg, settings_to_start_from(cfg))
        gates = self._gates = attach_gates(model)
        self._model, self._model_settings = model, cfg
        self._pruned_weights = PrunedWeights(gates)
        if ticket := getattr(self.cfg, "weight_mask", None):
            self._kept_weights = KeptWeights(model, load_weights(ticket)[0], ticket)
        if self._mask is not None:
            gates.set_mask(self._mask, fixed=True)
            logger.info(f"head mask {self.cfg.head_mask}: {gates.mask()!r}")
        elif self.cfg.head_mask == NO_MASK:
            gates.set_mask(None, fixed=True)
        return model

    def build_criterion(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Build the criterion; with ``--gates-only``, freeze the model, which was built before.

        Raises:
            ValueError: a mask or learned gates together with ``--store-ema``.
        """
        criterion = super().build_criterion(cfg, from_checkpoint)
        self._refuse_moving_averages(criterion)
        if isinstance(criterion, GatedCriterion):
            self._criterion = criterion
            name_plugin(self._model_settings)
            if criterion.gate_config.gates_only and self._model is not None:
                freeze(self._model)
        return criterion

    def _refuse_moving_averages(self, criterion: Any) -> None:
        run = self._settings_of_run()
        if run is None or not OmegaConf.select(run, "ema.store_ema"):
            return
        masked = self._mask is not None and self._mask.dropped(COMPONENTS)
        what = "--head-mask" if masked else "learned gates" if isinstance(criterion, GatedCriterion) else None
        if what is not None:
            raise ValueError(
                f"--store-ema is not supported with {what}: fairseq averages whatever a checkpoint holds, and a mask "
                "has no mean; omit it"
            )

    def begin_epoch(self, epoch: int, model: Any) -> None:
        """Before the first epoch, start to learn gates if the criterion has them.

        ``--head-mask`` and ``--weight-mask`` are removed from the settings in checkpoints, since the masks are stored
        with the weights: the files may change later, and ``none`` would remove the learned set.

        Raises:
            ValueError: the criterion's flags are wrong, or do not fit the model or the checkpoint.
        """
        super().begin_epoch(epoch, model)
        run = self._settings_of_run()
        if run is not None and run.checkpoint.patience > 0 and not self._begun:
            patience.go_on((state_to_start_from(run.checkpoint) or {}).get("task_state"))
        self._begun = True
        if run is not None:
            run.task.head_mask = None
            if "weight_mask" in run.task:
                run.task.weight_mask = None
        if self._kept_weights is not None:
            self._kept_weights.hold()
        if self._criterion is None or self._learning is not None:
            return
        run = run_length(self._criterion.gate_config, self._batches_in_epoch)
        self._learning = GateTraining(model, find_gates(model), self._criterion, run)

    def state_dict(self) -> dict:
        """Return the task's state for checkpoints: the current mask and its origin, and the count of ``--patience``."""
        state = {**super().state_dict(), **patience.count()}
        mask = None if self._gates is None else self._gates.mask()
        if mask is not None and mask.dropped(COMPONENTS):
            name_plugin(self._model_settings)
            state["head_mask"] = {**mask.source, "heads": mask.rows}
        return state

    def load_state_dict(self, state_dict: dict) -> None:
        """Load the state, except the mask, which is stored and loaded with the weights, and the count."""
        mine = ("head_mask", "patience")
        super().load_state_dict({name: value for name, value in state_dict.items() if name not in mine})

    def train_step(self, sample, model, criterion, optimizer, update_num, ignore_grad=False):
        """Train on one batch; before the first one, check that the mask has an effect."""
        learning, fast = self._learning, self._fast
        if fast is not None:
            fast.begin(model, criterion, optimizer, None if learning is None else learning.learned)
        recorded = fast is not None and fast.takes(sample, ignore_grad)
        if learning is None:
            self.check_mask(model, sample)
        else:
            learning.before_pass(optimizer, update_num, put=not recorded)
        if recorded:
            loss, sample_size, logged = fast.run(sample, update_num)
        else:
            loss, sample_size, logged = super().train_step(sample, model, criterion, optimizer, update_num, ignore_grad)
        if learning is not None:
            learning.after_pass(sample_size, ignore_grad)
        if fast is not None:
            fast.note(logged)
        return loss, sample_size, logged

    def _fast_training(self) -> Optional[FastTraining]:
        """Return the implementation of ``--cuda-graphs``; None if it is off."""
        mode = str(getattr(self.cfg, "cuda_graphs", "off"))
        if mode == "off":
            return None
        dictionary = self.target_dictionary
        pad, eos = (0, 0) if dictionary is None else (dictionary.pad(), dictionary.eos())
        return FastTraining(mode, pad, eos, self._settings_of_run())

    def optimizer_step(self, optimizer, model, update_num):
        """Make a step of the gates, if they are learned, and one of the weights, unless they are frozen.

        The weights of heads pruned by a fixed mask do not change.
        """
        learning = self._learning
        if learning is None:
            with self._pruned_weights.held():
                super().optimizer_step(optimizer, model, update_num)
            return
        gradient = learning.gradient(optimizer)
        if gradient is not None and learning.gates_only:
            skip_step(optimizer)
        else:
            super().optimizer_step(optimizer, model, update_num)
        if gradient is not None:
            learning.step(gradient)  # on the host, while a GPU makes the weights' step

    def valid_step(self, sample, model, criterion):
        """Validate on one batch, with the same check; learned gates use their hard set."""
        if self._learning is not None:
            self._learning.learned.refresh_mask()
        self.check_mask(model, sample)
        return super().valid_step(sample, model, criterion)

    def post_validate(self, model: Any, stats: dict, agg: Any) -> None:
        """Write the results of a validation to the gates' log."""
        if self._learning is not None:
            self._learning.record_validation(agg.get_smoothed_values())

    def reduce_metrics(self, logging_outputs, criterion) -> None:
        """Log fairseq's metrics and, if there is a mask or ``--head-mask none``, the active heads of each component.

        While gates are learned, log their state instead.
        """
        super().reduce_metrics(logging_outputs, criterion)
        if self._learning is not None:
            self._learning.log_metrics()
            return
        for component, count in self._active_heads.items():
            metrics.log_scalar(f"heads_{component}", count, weight=0, round=0)

    _active_heads: dict[str, int] = {}

    def check_mask(self, model: Any, sample: dict) -> None:
        """Before a model's first batch, count its active heads and check that its mask has an effect.

        Raises:
            RuntimeError: the mask has no effect.
        """
        while not hasattr(model, "encoder") and hasattr(model, "module"):
            model = model.module  # DistributedDataParallel and fairseq's wrappers
        if model in self._checked or not sample:
            return
        self._checked.add(model)
        mask = find_gates(model).mask()
        if mask.dropped() or self.cfg.head_mask is not None:
            self._active_heads = {c: n["kept"] for c, n in mask.only(HEADS).counts().items()}
        if mask.dropped(COMPONENTS):
            check_connected(model, self.net_input(sample))

    def net_input(self, sample: dict) -> dict:
        """Return the model's inputs from a batch."""
        return sample["net_input"]


def _read_mask(path: Optional[str]) -> Optional[Mask]:
    """Return the mask of ``--head-mask``; its source includes the file's path."""
    return None if path in (None, NO_MASK) else Mask.given(path)
