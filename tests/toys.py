"""A session without a model: answers follow from the mask by rule, so that studies run in milliseconds."""

import argparse
import contextlib

import tiny
import torch

from fairseq_headprune.evaluation.statistics import corpus_metric
from fairseq_headprune.parts import Mask, all_heads

#: Masks answered in each call, of all sessions of a test.
PACKS = []


class ToyGates:
    """Holds a mask."""

    def __init__(self, shape):
        self.shape, self._mask = shape, Mask.full(shape)

    def mask(self):
        return Mask(self._mask.rows)

    def full(self):
        return Mask.full(self.shape)

    @contextlib.contextmanager
    def masked(self, mask):
        before, self._mask = self._mask, mask
        yield
        self._mask = before


class ToyEvaluator:
    """Translates 24 sentences; the k-th head, where it is masked, costs a word in every (k + 2)-th sentence."""

    obstacle = None

    def __init__(self, session, split):
        self._gates, self._heads = session.gates, list(all_heads(session.gates.shape))
        offset = sum(map(ord, split))
        self.references = [" ".join(f"w{(offset + i * 7 + j) % 50}" for j in range(14)) for i in range(24)]
        self.sources, self._offset = [f"s{line}" for line in self.references], offset

    def answers(self):
        return self.answers_of([self._gates.mask()])[0]

    def answers_of(self, masks):
        PACKS.append(len(masks))
        return [
            [self._answer(i, words, set(mask.dropped())) for i, words in enumerate(self.references)] for mask in masks
        ]

    def _answer(self, number, words, dropped):
        gone = [k for k, head in enumerate(self._heads) if head in dropped and (number + self._offset) % (k + 2) == 0]
        return " ".join("x" if place in gone else word for place, word in enumerate(words.split()))

    def metric(self, comparison):
        return corpus_metric("bleu", self.references, comparison.tokenize)

    def beside(self):
        return {"chrf": corpus_metric("chrf", self.references)}


class ToySession:
    """What studies need of a session."""

    path, overrides, precision = "toy.pt", {}, "fp32"
    checkpoint = {"path": "toy.pt", "sha256": "c" * 64}
    device = torch.device("cpu")

    def __init__(self, shape=None, masks_at_once=0):
        self.gates = ToyGates(shape or tiny.SHAPE)
        self.args = argparse.Namespace(masks_at_once=masks_at_once, quiet=True)

    def data(self, split):
        return {"split": split, "sha256": {f"{split}.bin": split}}

    def answering(self):
        return {"generation": {"beam": 1}}

    def evaluator(self, split):
        return ToyEvaluator(self, split)
