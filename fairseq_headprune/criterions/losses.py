"""fairseq's criterions with learned gates: L0 (Voita et al. 2019; Li et al. 2021, eq. 22, 23) and DSP (Li et al. 2021).

The logged loss is fairseq's; the penalty of L0 is logged separately (``gate_penalty``, in nats).
"""

from dataclasses import dataclass
from typing import Any

from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)
from fairseq.criterions.sentence_prediction import SentencePredictionConfig, SentencePredictionCriterion

from fairseq_headprune.criterions.gated import L0Criterion, SubsetCriterion
from fairseq_headprune.criterions.settings import DSPConfig, L0Config


class _LabelSmoothed(LabelSmoothedCrossEntropyCriterion):
    """fairseq's label-smoothed cross entropy, built from its own flags and those of the gates."""

    def __init__(self, cfg: Any, task: Any) -> None:
        super().__init__(task, cfg.sentence_avg, cfg.label_smoothing, cfg.ignore_prefix_size, cfg.report_accuracy)
        self.gate_config = cfg


class _SentencePrediction(SentencePredictionCriterion):
    """fairseq's sentence prediction; lambda is relative to the mean loss over examples."""

    def __init__(self, cfg: Any, task: Any) -> None:
        super().__init__(cfg, task)
        self.gate_config = cfg


@dataclass
class LabelSmoothedCrossEntropyL0Config(L0Config, LabelSmoothedCrossEntropyCriterionConfig):
    """Flags of label smoothing and of L0."""


@dataclass
class LabelSmoothedCrossEntropyDSPConfig(DSPConfig, LabelSmoothedCrossEntropyCriterionConfig):
    """Flags of label smoothing and of DSP."""


@dataclass
class SentencePredictionL0Config(L0Config, SentencePredictionConfig):
    """Flags of sentence prediction and of L0."""


@dataclass
class SentencePredictionDSPConfig(DSPConfig, SentencePredictionConfig):
    """Flags of sentence prediction and of DSP."""


@register_criterion("label_smoothed_cross_entropy_l0", dataclass=LabelSmoothedCrossEntropyL0Config)
class LabelSmoothedCrossEntropyL0(L0Criterion, _LabelSmoothed):
    """Translation with hard concrete gates; every open gate costs lambda."""


@register_criterion("label_smoothed_cross_entropy_dsp", dataclass=LabelSmoothedCrossEntropyDSPConfig)
class LabelSmoothedCrossEntropyDSP(SubsetCriterion, _LabelSmoothed):
    """Translation with exactly K heads open at the end, chosen by DSP (or straight-through top-K)."""


@register_criterion("sentence_prediction_l0", dataclass=SentencePredictionL0Config)
class SentencePredictionL0(L0Criterion, _SentencePrediction):
    """Classification or regression with hard concrete gates."""


@register_criterion("sentence_prediction_dsp", dataclass=SentencePredictionDSPConfig)
class SentencePredictionDSP(SubsetCriterion, _SentencePrediction):
    """Classification or regression with exactly K heads open at the end."""
