"""Which shape a batch is padded to, which shapes have a recording, and a batch at fixed addresses, which it reads."""

from collections import Counter, OrderedDict
from typing import Any, Generic, NamedTuple, Optional, TypeVar

from torch import Tensor

#: a batch's number of sentences is padded to a multiple of this
SENTENCES = 16
#: source and target lengths are padded to multiples of this
LENGTH = 8
#: recordings that are kept; the one that has not been used for longest is dropped for a new one
KEPT = 160
#: a shape is recorded when it comes up for this time; before, its batches run eagerly
WORTH = 2

T = TypeVar("T")


class Shape(NamedTuple):
    """Size of a batch: sentences, and tokens of the longest source and target, end of sentence included."""

    sentences: int
    source: int
    target: int


def padded(shape: Shape, longest_source: int, longest_target: int) -> Shape:
    """Return the shape that a batch is padded to; lengths stay within the model's longest ones.

    Args:
        shape: of the batch itself.
        longest_source, longest_target: the model's ``max_positions``.
    """
    return Shape(
        _up(shape.sentences, SENTENCES),
        max(shape.source, min(_up(shape.source, LENGTH), longest_source)),
        max(shape.target, min(_up(shape.target, LENGTH), longest_target)),
    )


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


class Recordings(Generic[T]):
    """What was recorded for each shape, bounded in number."""

    def __init__(self, kept: int = KEPT, worth: int = WORTH) -> None:
        """Start empty.

        Args:
            kept: how many recordings there may be at once.
            worth: at which use of a shape it is worth a recording.
        """
        self._kept, self._worth = kept, worth
        self._found: OrderedDict[Shape, T] = OrderedDict()
        self._uses: Counter[Shape] = Counter()

    def __len__(self) -> int:
        return len(self._found)

    def get(self, shape: Shape) -> Optional[T]:
        """Return the recording of a shape, which counts as a use of it; None where there is none."""
        self._uses[shape] += 1
        if shape in self._found:
            self._found.move_to_end(shape)
        return self._found.get(shape)

    def is_due(self, shape: Shape) -> bool:
        """Whether the shape has been used often enough to be recorded."""
        return self._uses[shape] >= self._worth

    def add(self, shape: Shape, recording: T) -> None:
        """Keep a recording; where there are too many, drop the one that was not used for longest."""
        while len(self._found) >= max(1, self._kept):
            oldest, _ = self._found.popitem(last=False)
            self._uses[oldest] = 0
        self._found[shape] = recording

    def clear(self) -> None:
        """Drop all recordings; how often shapes were used stays known."""
        self._found.clear()


#: What a batch may hold for its model; a batch with anything else (prefixes, constraints) is not copied.
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
