"""Registers everything fairseq is to know: importing this module is the registration."""

import os

import fairseq
import torch
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.models import MODEL_REGISTRY
from fairseq.tasks import TASK_REGISTRY

import fairseq_headprune
from fairseq_headprune import tasks  # noqa: F401
from fairseq_headprune.checkpoints import allow_settings
from fairseq_headprune.criterions import (  # noqa: F401
    label_smoothed_cross_entropy_dsp,
    label_smoothed_cross_entropy_l0,
    sentence_prediction_dsp,
    sentence_prediction_l0,
)
from fairseq_headprune.models import bert_gated, transformer_gated  # noqa: F401
from fairseq_headprune.studies.workers import stay_on_leash


def _check_registered() -> None:
    # fairseq hands back the first class silently when another plugin has taken the name.
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


def _know_bare_name() -> None:
    """Let ``--user-dir fairseq_headprune`` be recognised as this package when it is imported already.

    fairseq looks a bare name up as ``<fairseq>/../NAME`` and compares that text with the paths of the imported module.
    """
    bare = os.path.join(os.path.dirname(fairseq.utils.__file__), "..", "fairseq_headprune")
    if bare not in fairseq_headprune.__path__ and os.path.exists(bare):
        if os.path.samefile(bare, fairseq_headprune.__path__[0]):
            fairseq_headprune.__path__.append(bare)


def _avoid_plans_per_shape() -> None:
    """Leave cuDNN's attention out of what ``scaled_dot_product_attention`` chooses from.

    It makes a plan for every new shape, which takes some 0.3 seconds on an H100, and a translation model's batches
    have a new shape at almost every step. The other fused kernels take any shape.
    """
    if torch.backends.cuda.is_built() and hasattr(torch.backends.cuda, "enable_cudnn_sdp"):
        torch.backends.cuda.enable_cudnn_sdp(False)


_avoid_plans_per_shape()
allow_settings()
_check_registered()
_know_bare_name()
# Where this is a training of a comparison: what goes on when that is gone would be started again beside it.
stay_on_leash()
