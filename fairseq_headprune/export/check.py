"""Does the exported model compute what fairseq's does? Teacher-forced log-probabilities on made-up sentences."""

import random
from collections.abc import Callable

import torch
from torch import Tensor

from fairseq_headprune.export.model import Exportable
from fairseq_headprune.modules.attach import without_attention_weights

#: how far log-probabilities may be apart; beyond, the exported model is another one, not a rounded one
TOLERANCE = 1e-3

#: pairs of (source, target) token numbers, without end of sentence
Pairs = list[tuple[list[int], list[int]]]


def made_up_pairs(exported: Exportable, count: int = 8, seed: int = 1) -> Pairs:
    """Draw sentences of 1 to 12 random words."""
    draw = random.Random(seed)

    def sentence(dictionary) -> list[int]:
        special = getattr(dictionary, "special", ())  # imported dictionaries have special symbols anywhere
        words = [i for i in range(dictionary.nspecial, len(dictionary)) if i not in special]
        return [draw.choice(words) for _ in range(draw.randint(1, 12))]

    return [(sentence(exported.source), sentence(exported.target)) for _ in range(count)]


def fairseq_log_probs(exported: Exportable, pairs: Pairs) -> list[list[float]]:
    """Return the log-probability of every target token, end of sentence included, sentence by sentence."""
    result = []
    with torch.no_grad(), without_attention_weights(exported.model):
        for source, target in pairs:
            ends = [*target, exported.target.eos()]
            tokens = torch.tensor([[*source, exported.source.eos()]])
            previous = torch.tensor([[exported.target.eos(), *target]])
            logits = exported.model(tokens, torch.tensor([tokens.size(1)]), previous)[0]
            result.append(gathered(logits.log_softmax(dim=-1)[0], ends))
    return result


def gathered(log_probs: Tensor, tokens: list[int]) -> list[float]:
    """Return the log-probability of each token: log_probs is (length, V)."""
    return log_probs.gather(1, torch.tensor(tokens)[:, None])[:, 0].tolist()


def check(exported: Exportable, log_probs: Callable[[Pairs], list[list[float]]]) -> dict[str, float]:
    """Compare with what the other program computes and return the largest difference.

    Raises:
        RuntimeError: it is above ``TOLERANCE``.
    """
    pairs = made_up_pairs(exported)
    expected, found = fairseq_log_probs(exported, pairs), log_probs(pairs)
    difference = max(abs(a - b) for x, y in zip(expected, found, strict=True) for a, b in zip(x, y, strict=True))
    if not difference <= TOLERANCE:
        raise RuntimeError(f"log-probabilities of the exported model differ from fairseq's by up to {difference:.2g}")
    return {"sentences": len(pairs), "seed": 1, "largest_difference": difference, "tolerance": TOLERANCE}
