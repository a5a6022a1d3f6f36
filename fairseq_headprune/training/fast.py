"""Implementation of ``--cuda-graphs``: where it is supported, and what the task calls before each micro-batch."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Optional

import torch
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.dataclass import ChoiceEnum
from fairseq.models.transformer import TransformerDecoderBase, TransformerEncoderBase
from fairseq.modules import LayerDropModuleList
from fairseq.optim import AMPOptimizer, FairseqBMUF, FP16Optimizer, MemoryEfficientFP16Optimizer
from torch import nn

from fairseq_headprune.cuda_graphs import CudaRecorder
from fairseq_headprune.training.optimizer import Readings, speed_up
from fairseq_headprune.training.passes import Gradients, PaddedPass, Passes
from fairseq_headprune.training.quick import ModeSwitch, QuickSeed, QuickSettings, UpdateCount
from fairseq_headprune.training.recording import INPUTS, PADDING, padded, shape_of

logger = logging.getLogger(__name__)

#: values of --cuda-graphs
MODES = ChoiceEnum(["off", "auto", "on"])
#: help text of ``--cuda-graphs`` for all tasks
CUDA_GRAPHS_HELP = (
    "replay forward and backward of a batch as one CUDA graph, and take the optimizer's step with few launches: "
    "off; auto, where it is known to help (translation on one GPU); on, and say why where it cannot be done. Batches "
    f"are padded to {PADDING}"
)


def why_not(model: nn.Module, criterion: Any, optimizer: Any) -> Optional[str]:
    """Return why the passes of this training cannot be recorded; None if they can."""
    return _device(model) or _loss(criterion) or _model(model) or _precision(optimizer)


def _device(model: nn.Module) -> Optional[str]:
    if torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1:
        return "training on several GPUs"
    if next(model.parameters()).device.type != "cuda":
        return "training on the CPU"
    return None


def _loss(criterion: Any) -> Optional[str]:
    # Also subclasses that do not change the loss, such as those with learned gates.
    known = (CrossEntropyCriterion, LabelSmoothedCrossEntropyCriterion)
    mine = type(criterion)
    if not any(isinstance(criterion, k) and _loss_of(mine) == _loss_of(k) for k in known):
        return f"the criterion {mine.__name__}"
    return "--report-accuracy" if getattr(criterion, "report_accuracy", False) else None


def _loss_of(kind: type) -> tuple[Any, ...]:
    return tuple(getattr(kind, name, None) for name in ("forward", "compute_loss", "get_lprobs_and_target"))


def _model(model: nn.Module) -> Optional[str]:
    sides = getattr(model, "encoder", None), getattr(model, "decoder", None)
    # Of others the result may depend on padding, which fairseq's convolutions read.
    if not isinstance(sides[0], TransformerEncoderBase) or not isinstance(sides[1], TransformerDecoderBase):
        return f"the model {type(model).__name__}"
    for module in model.modules():
        if isinstance(module, LayerDropModuleList) and module.p > 0:
            return "layerdrop"
        if hasattr(module, "precheckpoint_forward"):
            return "activation checkpointing"
        if module._forward_pre_hooks or module._forward_hooks:
            return "quantization noise (or another hook of a module)"
    if getattr(sides[1], "adaptive_softmax", None) is not None:
        return "adaptive softmax"
    return None


def _precision(optimizer: Any) -> Optional[str]:
    if isinstance(optimizer, AMPOptimizer):
        return "--amp"
    if isinstance(optimizer, MemoryEfficientFP16Optimizer):
        return "--memory-efficient-fp16 and --memory-efficient-bf16"
    return "--use-bmuf" if isinstance(optimizer, FairseqBMUF) else None


def can_speed_up(model: nn.Module, optimizer: Any) -> bool:
    """Whether the optimizer can be sped up although passes are not recorded, such as on GLUE."""
    return _device(model) is None and _precision(optimizer) is None


def why_not_batch(sample: dict[str, Any]) -> Optional[str]:
    """Return why a batch cannot be copied to fixed addresses; None if it can."""
    more = set(sample.get("net_input", {})) ^ INPUTS
    if more or "target" not in sample:
        return f"batches with {', '.join(sorted(more)) or 'no target'}"
    return None


class FastTraining:
    """Speeds up the updates of one run of fairseq-train.

    Attributes:
        passes: runs micro-batches; None if fairseq runs them.
    """

    passes: Optional[Passes] = None

    def __init__(self, mode: str, pad: int, eos: int, settings: Any = None) -> None:
        """Set the mode, one of :data:`MODES`.

        Args:
            pad, eos: indices of the target dictionary.
            settings: those of the run, which fairseq reads in every update.
        """
        self._mode, self._pad, self._eos, self._settings = mode, pad, eos, settings
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
        self._work = PaddedPass(model, criterion, parameters, gates)
        self._scale = 1.0
        self._logs_likelihood, self._by_sentence = hasattr(criterion, "eps"), criterion.sentence_avg
        self.passes = Passes(self._work, model, CudaRecorder(), self._pad, self._eos, gates is not None)
        optimizer.zero_grad = partial(_clear, optimizer, optimizer.zero_grad, self._work.gradients)
        ModeSwitch.install(model)
        UpdateCount.install(model)
        QuickSeed.install()
        QuickSettings.install(self._settings)
        logger.info(f"CUDA graphs: batches are padded to {PADDING}; a shape that comes up again is recorded")

    def _tell(self, reason: str, what: str = "it runs") -> None:
        if reason not in self._told:
            self._told.add(reason)
            logger.warning(f"--cuda-graphs: {reason} cannot be recorded; {what} eagerly")

    def takes(self, sample: dict[str, Any], ignored: bool) -> bool:
        """Whether :meth:`run` can run a micro-batch; otherwise fairseq does, accumulating the same gradients."""
        if self.passes is None or self._model._forward_hooks:
            return False  # with hooks fairseq looks for what is not finite: it needs its own pass, module by module
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
            self._tell(f"a shape ({passes.failure})", "from now on all batches run")
            passes.failure = None
        numbers = work.numbers.clone()
        loss, likelihood = numbers[:2].unbind()
        if self._readings.gates is not None:
            self._readings.gates.add_gradient(numbers[2:])
        size = sample["target"].size(0) if self._by_sentence else sample["ntokens"]
        logged = {"loss": loss, "nll_loss": likelihood} if self._logs_likelihood else {"loss": loss}
        logged |= {"ntokens": sample["ntokens"], "nsentences": sample["target"].size(0), "sample_size": size}
        return loss, size, logged

    def note(self, logged: dict[str, Any]) -> None:
        """Call after any micro-batch: its losses are read later, together with the gradient norm."""
        if self._reads:
            self._readings.note(logged)


def _clear(optimizer: Any, zero: Callable[[], None], gradients: Gradients) -> None:
    """Begin an update: gradients that passes have reached stay attached, and become 0."""
    if isinstance(optimizer, FP16Optimizer):
        # It would drop them one by one, to be attached again.
        every, optimizer.fp16_params = optimizer.fp16_params, gradients.unreached()
        try:
            zero()
        finally:
            optimizer.fp16_params = every
    else:
        zero()
        gradients.attach()
    gradients.clear()


def _of_model(optimizer: Any) -> list[nn.Parameter]:
    return optimizer.fp16_params if isinstance(optimizer, FP16Optimizer) else list(optimizer.params)


def _loss_scale(optimizer: Any) -> float:
    scaler = getattr(optimizer, "scaler", None)
    return 1.0 if scaler is None else float(scaler.loss_scale)
