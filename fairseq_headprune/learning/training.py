"""Learned gates in fairseq's trainer: one gradient per update, over all micro-batches and ranks."""

import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

import numpy as np
import torch
from fairseq.distributed import utils as distributed
from fairseq.logging import metrics
from fairseq.logging.meters import MetersDict
from torch import Tensor, nn

from fairseq_headprune.gates.learner import GateLearner, is_finite
from fairseq_headprune.gates.log import GateLog, gate_metrics
from fairseq_headprune.learning.learned import LearnedGates
from fairseq_headprune.learning.watch import NotFiniteError, loss_scale, report_overflow, watch
from fairseq_headprune.modules.attach import GatedParts

logger = logging.getLogger(__name__)


class GateTraining:
    """Learns the gates of one model during one run of fairseq-train.

    The gates' gradient is summed over micro-batches and ranks, divided by the sample size and the loss scale, and
    passed to the learner once for every update of the trainer (skipped fp16 updates do not count).
    """

    def __init__(self, model: nn.Module, gates: GatedParts, criterion: Any, run: Optional[int]) -> None:
        """Build the learner, or continue with the one in the checkpoint that the model was loaded from.

        Args:
            run: number of updates of the whole run, None if unknown.

        Raises:
            ValueError: wrong flags; --gates-only without a model; a checkpoint with another kind or number of gates.
        """
        config = criterion.gate_config
        state: Any = model.head_gates
        if config.gates_only and not state.model_was_loaded:
            raise ValueError(
                "--gates-only needs a trained model: name it with --finetune-from-model CHECKPOINT (none was loaded)"
            )
        tensors, description = state.loaded
        # The checkpoint's own mask is its gates' learned set; a mask given by the user is not.
        present = gates.full().kept()
        if gates.mask().kept() != present and (not tensors or gates.mask_is_fixed()):
            raise ValueError(
                "the model has a head mask, and learned gates choose among all heads: remove the pruned heads first "
                "(headprune slim), or omit the mask (--head-mask none)"
            )
        heads = criterion.candidates(present)
        seed = config.seed if config.gate_seed is None else config.gate_seed
        rule = criterion.rule(heads, run)
        learner = GateLearner(rule, heads, criterion.gate_rate(rule), seed, config.clip_norm)
        if tensors:
            learner.load(tensors, description)
        self.learned = LearnedGates(gates, learner)
        self.gates_only = config.gates_only
        self._samples: Any = 0
        self._watched: Any = None
        self._vanishing_is_told = self._blindness_is_told = False
        self._interval, self._save_dir = config.gate_log_interval, config.save_dir
        self._resumed = description
        state.learner = learner
        model.register_state_dict_pre_hook(lambda *_: self.learned.refresh_mask())
        self._log: Optional[GateLog] = None
        self._shown: tuple[int, dict[str, float]] = (-1, {})

    def _begin(self, update: int) -> None:
        """Continue the schedule of a resumed run, or start a new one if the trainer does; open the log."""
        learner = self.learned.learner
        if update == 0 and learner.updates:
            learner.restart()
        elif learner.updates and learner.rule.keep_schedule(self._resumed):
            logger.warning(
                "the gates go on with the schedule that the checkpoint was trained with, not with that of the flags "
                f"and of the length of this run: {learner.rule.description()}; --finetune-from-model begins a new one"
            )
        if self._interval > 0 and _is_master():
            self._log = GateLog(self._save_dir)
            self._log.start(learner.description(), learner.updates)
        logger.info(f"learned gates: {learner.description()}, {learner.updates} updates done")

    def before_pass(self, optimizer: Any, update: int, put: bool = True) -> None:
        """Apply the gates to the heads, before a forward and backward pass.

        Args:
            update: number of updates that the trainer has made.
            put: False if the pass itself applies them.
        """
        if self._watched is None:
            self._begin(update)
        if self._watched is not optimizer:
            self._norm = watch(optimizer, self._forget, self._where)
            self._watched = optimizer
        if put:
            self.learned.put()
        else:
            self.learned.begin()

    def _forget(self) -> None:
        self._samples = 0
        self.learned.forget_gradient()

    def after_pass(self, sample_size: Any, ignored: bool) -> None:
        """Add a micro-batch's sample size; the dummy batch of a rank without data counts 0."""
        if not ignored:
            self._samples = self._samples + sample_size

    def gradient(self, optimizer: Any) -> Optional[np.ndarray]:
        """Return the gradient of the mean loss over all ranks and micro-batches w.r.t. the gates, float64 (heads,).

        From here to the next update's gates everything is NumPy: its calls are shorter than torch's, and a GPU waits.

        Returns:
            None if mixed precision overflowed, so that the trainer will repeat the update.

        Raises:
            OverflowError: the gates' gradient overflowed in fp16; the trainer skips the update.
            NotFiniteError: it is not finite, in another precision.
        """
        gradient, samples = self._gather(self.learned.take_gradient())
        if not self._norm.is_finite:
            return None  # --amp calls the step nevertheless, and repeats the update
        gradient /= (samples or 1.0) * loss_scale(optimizer)
        if not is_finite(gradient):
            report_overflow(optimizer)
            raise NotFiniteError(f"{self.learned.learner.not_finite(gradient)}; {self._last_checkpoint()}")
        return gradient

    def step(self, gradient: np.ndarray) -> None:
        """Take a step of the gates."""
        self.learned.step(gradient)
        self._samples = 0
        self._record()

    def _gather(self, gradient: Tensor) -> tuple[np.ndarray, float]:
        """Sum gradient, float64 (heads,), and sample size over ranks."""
        if gradient.is_cpu and not isinstance(self._samples, Tensor) and not _is_one_of_several():
            return gradient.numpy().astype(np.float64), float(self._samples)
        size = torch.as_tensor(self._samples, device=gradient.device).reshape(1)
        total = torch.cat([gradient.double(), size.double()])
        if _is_one_of_several():
            distributed.all_reduce(total, group=distributed.get_data_parallel_group())
        values = total.cpu().numpy()
        return values[:-1], float(values[-1])

    def _record(self) -> None:
        learner = self.learned.learner
        if learner.gradient_vanished and not self._vanishing_is_told:
            self._vanishing_is_told = True
            logger.warning(
                f"update {learner.updates}: the gradient of the gates' weights is exactly zero at the temperature "
                f"{learner.stats()['temperature']:.3g}, and from now on the chosen set hardly changes"
            )
        if self._log is not None and learner.updates % self._interval == 0:
            self._log.update(learner)

    def record_validation(self, values: dict[str, float]) -> None:
        """Write a validation's results to the log, and the validated set if it is not logged yet."""
        learner = self.learned.learner
        if not self._blindness_is_told and self.learned.mask().is_blind():
            self._blindness_is_told = True
            logger.warning(
                f"update {learner.updates}: the learned set has no head of encoder-decoder attention, so that the "
                "decoder does not see the source (--heads-kept enc_dec=N,… gives each component its own number)"
            )
        if self._log is not None:
            if self._log.logged != learner.updates:
                self._log.update(learner)
            self._log.validation(learner.updates, values)

    def log_metrics(self) -> None:
        """Log the state of the gates with the loss; it is computed when fairseq prints a line, not in every update.

        Not in the innermost group of metrics, in which fairseq sums up one batch: it asks for all values there.
        """
        if not self._shown[1]:
            self._show("")
        for group in metrics.get_active_aggregators()[:-1]:
            if next(reversed(self._shown[1])) not in group:
                for name in [name for name in self._shown[1] if name not in group]:
                    meter = MetersDict._DerivedMeter(lambda _, name=name: self._show(name))
                    group.add_meter(name, meter, priority=20)  # as metrics.log_derived does

    def _show(self, name: str) -> Any:
        """Return one of the numbers to log, of the present update."""
        learner = self.learned.learner
        if self._shown[0] != learner.updates:
            self._shown = learner.updates, gate_metrics(learner)
        return self._shown[1].get(name)

    def _where(self) -> str:
        learner = self.learned.learner
        broken = (~torch.isfinite(self.learned.take_gradient())).nonzero().flatten().tolist()
        gate = (
            f"the gate of {learner.heads[broken[0]]} is the first" if broken else "the gates' own gradients are finite"
        )
        return f"update {learner.updates} ({gate}); {self._last_checkpoint()}"

    def _last_checkpoint(self) -> str:
        folder = Path(self._save_dir)
        saved = sorted(folder.glob("checkpoint*.pt"), key=lambda p: (p.name == "checkpoint_last.pt", p.stat().st_mtime))
        if not saved:
            return f"no checkpoint was saved in {folder} yet"
        return f"the last good checkpoint is {saved[-1]}"


def freeze(model: nn.Module) -> None:
    """Turn off gradients of all weights but one small vector: the trainer needs something to optimise.

    Its gradient is not used: with ``--gates-only``, the optimizer makes no step.
    """
    parameters = list(model.parameters())
    kept = min(reversed(parameters), key=lambda p: p.numel())
    for parameter in parameters:
        parameter.requires_grad_(parameter is kept)


def _is_one_of_several() -> bool:
    return torch.distributed.is_initialized() and distributed.get_data_parallel_world_size() > 1


def _is_master() -> bool:
    return not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0


def run_length(config: Any, batches: Optional[int]) -> Optional[int]:
    """Return the number of updates of a run, from ``--max-update`` and ``--max-epoch``; None if neither is set.

    Args:
        config: has ``max_update``, ``max_epoch`` and ``update_freq``.
        batches: number of batches of one epoch and one rank, None if unknown.
    """
    lengths = []
    if config.max_update:
        lengths.append(int(config.max_update))
    if config.max_epoch and batches:
        lengths.append(updates_in_epochs(batches, config.update_freq, int(config.max_epoch)))
    return min(lengths, default=None)


def updates_in_epochs(batches: int, update_freq: Sequence[int], epochs: int) -> int:
    """Return the number of updates in ``epochs`` epochs; epochs beyond the list ``update_freq`` use its last value."""
    frequencies = [int(number) for number in update_freq or [1]]
    listed = frequencies[:epochs]
    later = (epochs - len(listed)) * math.ceil(batches / frequencies[-1])
    return sum(math.ceil(batches / frequency) for frequency in listed) + later
