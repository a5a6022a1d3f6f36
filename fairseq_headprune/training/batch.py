"""A batch at fixed addresses, padded to a fixed shape: what a recorded pass reads."""

from typing import Any

from torch import Tensor

from fairseq_headprune.training.shapes import Shape

#: What a batch may hold for its model; anything else (prefixes, constraints) has no place in a padded copy.
INPUTS = {"src_tokens", "src_lengths", "prev_output_tokens"}


def shape_of(sample: dict[str, Any]) -> Shape:
    """Return a batch's own shape."""
    source, target = sample["net_input"]["src_tokens"], sample["target"]
    return Shape(source.size(0), source.size(1), target.size(1))


class PaddedBatch:
    """Tensors of one shape into which batches are copied.

    Padding stands behind the tokens, on the right, and below them: positions are counted without padding, and no
    token attends to it. A row that holds no sentence has one token on each side, so that attention has somewhere to
    go, and nothing but padding as its target: it adds nothing to the loss, and exactly 0 to every gradient.

    Attributes:
        sample: the padded batch in fairseq's form, always the same tensors.
    """

    def __init__(self, shape: Shape, like: dict[str, Any], pad: int, eos: int) -> None:
        """Make the tensors, of the device and types of a batch."""
        inputs = like["net_input"]
        self._pad, self._eos, rows = pad, eos, shape.sentences
        self._source = inputs["src_tokens"].new_empty(rows, shape.source)
        self._lengths = inputs["src_lengths"].new_empty(rows)
        self._previous = inputs["prev_output_tokens"].new_empty(rows, shape.target)
        self._target = like["target"].new_empty(rows, shape.target)
        net_input = {
            "src_tokens": self._source,
            "src_lengths": self._lengths,
            "prev_output_tokens": self._previous,
        }
        self.sample = {"net_input": net_input, "target": self._target}

    def load(self, sample: dict[str, Any]) -> None:
        """Copy a batch in."""
        inputs = sample["net_input"]
        rows = len(sample["target"])
        _fill(self._source, inputs["src_tokens"], self._pad)
        _fill(self._previous, inputs["prev_output_tokens"], self._pad)
        _fill(self._target, sample["target"], self._pad)
        self._lengths[:rows].copy_(inputs["src_lengths"])
        if rows < len(self._source):
            self._lengths[rows:].fill_(1)
            self._source[rows:, 0].fill_(self._eos)
            self._previous[rows:, 0].fill_(self._eos)


def _fill(to: Tensor, tokens: Tensor, pad: int) -> None:
    if to.shape != tokens.shape:
        to.fill_(pad)
    to[: tokens.size(0), : tokens.size(1)].copy_(tokens)
