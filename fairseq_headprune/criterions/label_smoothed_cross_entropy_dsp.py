"""Label-smoothed cross entropy with differentiable subset pruning or straight-through top-K (Li et al. 2021)."""

from dataclasses import dataclass
from typing import Any

from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)

from fairseq_headprune.criterions.gated import SubsetCriterion
from fairseq_headprune.criterions.settings import DSPConfig


@dataclass
class LabelSmoothedCrossEntropyDSPConfig(DSPConfig, LabelSmoothedCrossEntropyCriterionConfig):
    """Flags of label smoothing and of DSP."""


@register_criterion("label_smoothed_cross_entropy_dsp", dataclass=LabelSmoothedCrossEntropyDSPConfig)
class LabelSmoothedCrossEntropyDSP(SubsetCriterion, LabelSmoothedCrossEntropyCriterion):
    """fairseq's label-smoothed cross entropy; exactly K heads are open in the end, chosen by learned weights."""

    def __init__(self, cfg: LabelSmoothedCrossEntropyDSPConfig, task: Any) -> None:
        super().__init__(task, cfg.sentence_avg, cfg.label_smoothing, cfg.ignore_prefix_size, cfg.report_accuracy)
        self.gate_config = cfg
