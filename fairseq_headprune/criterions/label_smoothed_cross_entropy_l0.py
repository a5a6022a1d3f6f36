"""Label-smoothed cross entropy with L0-regularised gates (Voita et al. 2019; Li et al. 2021, eq. 22 and 23)."""

from dataclasses import dataclass
from typing import Any

from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)

from fairseq_headprune.criterions.gated import L0Criterion
from fairseq_headprune.criterions.settings import L0Config


@dataclass
class LabelSmoothedCrossEntropyL0Config(L0Config, LabelSmoothedCrossEntropyCriterionConfig):
    """Flags of label smoothing and of L0."""


@register_criterion("label_smoothed_cross_entropy_l0", dataclass=LabelSmoothedCrossEntropyL0Config)
class LabelSmoothedCrossEntropyL0(L0Criterion, LabelSmoothedCrossEntropyCriterion):
    """fairseq's label-smoothed cross entropy; the heads' gates are hard concrete, and every open one costs lambda.

    The loss that is logged is the cross entropy; the penalty is logged beside it (``gate_penalty``, in nats).
    """

    def __init__(self, cfg: LabelSmoothedCrossEntropyL0Config, task: Any) -> None:
        super().__init__(task, cfg.sentence_avg, cfg.label_smoothing, cfg.ignore_prefix_size, cfg.report_accuracy)
        self.gate_config = cfg
