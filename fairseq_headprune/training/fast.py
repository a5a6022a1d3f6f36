"""Implementation of ``--cuda-graphs``, which the task calls before each micro-batch."""

import logging
from typing import Any, Optional

from fairseq.dataclass import ChoiceEnum
from fairseq.optim import FP16Optimizer
from torch import nn

from fairseq_headprune.training.batch import LENGTH, SENTENCES, padded, shape_of
from fairseq_headprune.training.capture import CudaRecorder
from fairseq_headprune.training.host import ModeSwitch, QuickSeed
from fairseq_headprune.training.optimizer import Readings, speed_up
from fairseq_headprune.training.passes import Passes, Work
from fairseq_headprune.training.support import can_speed_up, why_not, why_not_batch

logger = logging.getLogger(__name__)

#: values of --cuda-graphs
MODES = ChoiceEnum(["off", "auto", "on"])
#: help text of ``--cuda-graphs`` for all tasks
CUDA_GRAPHS_HELP = (
    "replay forward and backward of a batch as one CUDA graph, and take the optimizer's step with few launches: "
    "off; auto, where it is known to help (translation on one GPU); on, and say why where it cannot be done. Batches "
    "are padded to multiples of 16 sentences and of 8 tokens"
)


class FastTraining:
    """Speeds up the updates of one run of fairseq-train.

    Attributes:
        passes: runs micro-batches; None if fairseq runs them.
    """

    passes: Optional[Passes] = None

    def __init__(self, mode: str, pad: int, eos: int) -> None:
        self._mode, self._pad, self._eos = mode, pad, eos
        self._readings = Readings()
        self._optimizer: Any = None
        self._told: set[str] = set()
        self._reads = False

    def begin(self, model: nn.Module, criterion: Any, optimizer: Any, gates: Any = None) -> None:
        """Call before a micro-batch: sets everything up if the model or the optimizer is new.

        Args:
            gates: learned gates (see ``LearnedGates``), if there are any.
        """
        if optimizer is self._optimizer:
            return
        self._optimizer, self.passes = optimizer, None
        reason = why_not(model, criterion, optimizer)
        self._reads = reason is None or can_speed_up(model, optimizer)
        if self._reads:
            speed_up(optimizer, self._readings)
        if reason is None:
            self._start(model, criterion, optimizer, gates)
        elif self._mode == "on":
            self._tell(reason)

    def _start(self, model: Any, criterion: Any, optimizer: Any, gates: Any) -> None:
        parameters = [p for p in _of_model(optimizer) if p.requires_grad]
        if gates is not None:
            gates.stay_at_one_place()
            self._readings.gates = gates
        self._model, self._limits = model, model.max_positions()
        self._work = Work(model, criterion, parameters, gates)
        self._scale = 1.0
        self._logs_likelihood, self._by_sentence = hasattr(criterion, "eps"), criterion.sentence_avg
        self.passes = Passes(self._work, model, CudaRecorder(), self._pad, self._eos, gates is not None)
        zero = optimizer.zero_grad

        def zero_grad() -> None:
            zero()
            self._work.gradients.clear()

        optimizer.zero_grad = zero_grad
        ModeSwitch.install(model)
        QuickSeed.install()
        logger.info(
            f"CUDA graphs: batches are padded to multiples of {SENTENCES} sentences and {LENGTH} tokens; a shape that "
            "comes up again is recorded"
        )

    def _tell(self, reason: str) -> None:
        if reason not in self._told:
            self._told.add(reason)
            logger.warning(f"--cuda-graphs: {reason} cannot be recorded; it runs eagerly")

    def takes(self, sample: dict[str, Any], ignored: bool) -> bool:
        """Whether :meth:`run` can run a micro-batch; otherwise fairseq does, accumulating the same gradients."""
        if self.passes is None:
            return False
        reason = "a dummy batch" if ignored else why_not_batch(sample)
        if reason is not None and self._mode == "on":
            self._tell(reason)
        return reason is None

    def run(self, sample: dict[str, Any], update: int) -> tuple[Any, Any, dict[str, Any]]:
        """Train on a micro-batch; return loss, sample size and logging output, like a task's ``train_step``."""
        passes, work = self.passes, self._work
        assert passes is not None  # takes() said so
        scale = _loss_scale(self._optimizer)
        if scale != self._scale:
            work.scale.fill_(scale)
            self._scale = scale
        passes.run(sample, padded(shape_of(sample), *self._limits))
        if isinstance(self._optimizer, FP16Optimizer):
            self._optimizer._needs_sync = True
        # Done while the GPU works: no module's output depends on it.
        self._model.set_num_updates(update)
        if self._readings.gates is not None:
            self._readings.gates.learner.prepare()
        if passes.failure is not None:
            self._tell(f"another shape ({passes.failure})")
            passes.failure = None
        loss, likelihood = work.losses.clone().unbind()
        size = sample["target"].size(0) if self._by_sentence else sample["ntokens"]
        logged = {"loss": loss, "nll_loss": likelihood} if self._logs_likelihood else {"loss": loss}
        logged |= {"ntokens": sample["ntokens"], "nsentences": sample["target"].size(0), "sample_size": size}
        return loss, size, logged

    def note(self, logged: dict[str, Any]) -> None:
        """Call after any micro-batch: its losses are read later, together with the gradient norm."""
        if self._reads:
            self._readings.note(logged)


def _of_model(optimizer: Any) -> list[nn.Parameter]:
    return optimizer.fp16_params if isinstance(optimizer, FP16Optimizer) else list(optimizer.params)


def _loss_scale(optimizer: Any) -> float:
    scaler = getattr(optimizer, "scaler", None)
    return 1.0 if scaler is None else float(scaler.loss_scale)
