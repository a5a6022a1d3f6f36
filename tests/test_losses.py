"""Sentence losses against fairseq's criteria and a closed form."""

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import label_smoothed_nll_loss

from fairseq_headprune.importance.losses import sentence_losses

PAD = 1


def test_losses_equal_fairseqs_criteria():
    # Source: fairseq's own functions, on a batch of one for each sentence.
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(3, 5, 24, generator=generator)
    target = torch.randint(4, 24, (3, 5), generator=generator)
    target[1, 3:] = PAD
    for i, length in enumerate((5, 3, 5)):
        log_probabilities = torch.log_softmax(logits[i], dim=-1)
        smoothed, nll = label_smoothed_nll_loss(log_probabilities, target[i], 0.2, ignore_index=PAD)
        assert float(sentence_losses(logits, target, PAD)[i]) == pytest.approx(float(nll), rel=1e-6)
        assert float(sentence_losses(logits, target, PAD, "mean")[i]) == pytest.approx(float(nll) / length, rel=1e-6)
        found = sentence_losses(logits, target, PAD, "label-smoothed", 0.2)[i]
        assert float(found) == pytest.approx(float(smoothed), rel=1e-6)


def test_the_loss_keeps_double_precision_and_widens_half():
    logits, target = torch.zeros(1, 2, 8), torch.tensor([[3, 4]])
    assert sentence_losses(logits.double(), target, PAD).dtype == torch.float64
    # Source: the closed form 2 log 8 of a uniform distribution over 8 words.
    found = sentence_losses(logits.half(), target, PAD)
    assert found.dtype == torch.float32 and float(found) == pytest.approx(4.1588831, rel=1e-6)
