"""Sentence classification or regression with DSP or straight-through top-K (Li et al. 2021)."""

from dataclasses import dataclass
from typing import Any

from fairseq.criterions import register_criterion
from fairseq.criterions.sentence_prediction import SentencePredictionConfig, SentencePredictionCriterion

from fairseq_headprune.criterions.gated import SubsetCriterion
from fairseq_headprune.criterions.settings import DSPConfig


@dataclass
class SentencePredictionDSPConfig(DSPConfig, SentencePredictionConfig):
    """Flags of sentence prediction and of DSP."""


@register_criterion("sentence_prediction_dsp", dataclass=SentencePredictionDSPConfig)
class SentencePredictionDSP(SubsetCriterion, SentencePredictionCriterion):
    """fairseq's sentence prediction; exactly K heads are open in the end, chosen by learned weights."""

    def __init__(self, cfg: SentencePredictionDSPConfig, task: Any) -> None:
        super().__init__(cfg, task)
        self.gate_config = cfg
