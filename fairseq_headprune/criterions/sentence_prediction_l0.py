"""Sentence classification or regression with L0-regularised gates (Voita et al. 2019; Li et al. 2021)."""

from dataclasses import dataclass
from typing import Any

from fairseq.criterions import register_criterion
from fairseq.criterions.sentence_prediction import SentencePredictionConfig, SentencePredictionCriterion

from fairseq_headprune.criterions.gated import L0Criterion
from fairseq_headprune.criterions.settings import L0Config


@dataclass
class SentencePredictionL0Config(L0Config, SentencePredictionConfig):
    """Flags of sentence prediction and of L0."""


@register_criterion("sentence_prediction_l0", dataclass=SentencePredictionL0Config)
class SentencePredictionL0(L0Criterion, SentencePredictionCriterion):
    """fairseq's sentence prediction; the loss that lambda is weighed against is the mean over examples."""

    def __init__(self, cfg: SentencePredictionL0Config, task: Any) -> None:
        super().__init__(cfg, task)
        self.gate_config = cfg
