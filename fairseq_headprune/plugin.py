"""Registers the package's models, tasks and losses with fairseq; importing this module is enough."""

import importlib
import pkgutil

import torch
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.models import MODEL_REGISTRY
from fairseq.tasks import TASK_REGISTRY

from fairseq_headprune import criterions, models, tasks
from fairseq_headprune.checkpoints import allow_settings


def _register() -> None:
    for package in (tasks, models, criterions):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)


def _check_registered() -> None:
    # If another plugin has taken the name, fairseq silently returns that plugin's class.
    ours = [(MODEL_REGISTRY, "transformer_gated"), (MODEL_REGISTRY, "bert_gated")]
    ours += [(TASK_REGISTRY, "translation_headprune"), (TASK_REGISTRY, "glue")]
    losses = ("label_smoothed_cross_entropy", "sentence_prediction")
    ours += [(CRITERION_REGISTRY, f"{loss}_{kind}") for loss in losses for kind in ("l0", "dsp")]
    for registry, name in ours:
        owner = registry[name].__module__
        if not owner.startswith("fairseq_headprune."):
            raise ImportError(
                f"{name!r} is already registered with fairseq by {owner}; load only one of the two plugins"
            )


def _avoid_plans_per_shape() -> None:
    """Exclude cuDNN's attention from the back ends of ``scaled_dot_product_attention``.

    It builds a plan for every new shape, which takes about 0.3 seconds on an H100, and almost every batch of a
    translation model has a new shape. The other fused kernels accept any shape.
    """
    if torch.backends.cuda.is_built():
        torch.backends.cuda.enable_cudnn_sdp(False)


_avoid_plans_per_shape()
allow_settings()
_register()
_check_registered()
