"""Where recorded passes are supported, or the reason why they are not."""

from typing import Any, Optional

import torch
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.modules import LayerDropModuleList
from fairseq.optim import AMPOptimizer, FairseqBMUF, MemoryEfficientFP16Optimizer
from torch import nn

from fairseq_headprune.training.batch import INPUTS


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
    if not hasattr(model, "encoder") or not hasattr(model, "decoder"):
        return f"the model {type(model).__name__}"
    for module in model.modules():
        if isinstance(module, LayerDropModuleList) and module.p > 0:
            return "layerdrop"
        if hasattr(module, "precheckpoint_forward"):
            return "activation checkpointing"
        if module._forward_pre_hooks:
            return "quantization noise (or another hook before a module)"
    if getattr(model.decoder, "adaptive_softmax", None) is not None:
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
