"""What recorded passes need: padded shapes and batches at fixed addresses, and which recordings are kept."""

from collections import Counter
from typing import Any, Generic, NamedTuple, Optional, TypeVar

from torch import Tensor, nn

#: a batch's number of sentences is padded to a multiple of this
SENTENCES = 16
#: source and target lengths are padded to multiples of the first up to LONG, of the second above: what is added to a
#: short batch is a larger part of it
LENGTH, LONG_LENGTH = 4, 8
LONG = 32
#: what batches are padded to, in words
PADDING = f"multiples of {SENTENCES} sentences and of {LENGTH} tokens (above {LONG} tokens, of {LONG_LENGTH})"
#: maximum number of recordings; the least used one is dropped for a new one
KEPT = 160
#: a shape is recorded at this use; before that its batches run eagerly
WORTH = 2
#: it replaces another one when it was used this much more often: about as many passes as a recording takes to pay
LEAD = 8

T = TypeVar("T")


class BatchShape(NamedTuple):
    """Size of a batch: sentences, and tokens of the longest source and target, including the end of sentence."""

    sentences: int
    source: int
    target: int


def padded(shape: BatchShape, longest_source: int, longest_target: int) -> BatchShape:
    """Return the shape that a batch is padded to; lengths stay within the model's maximum.

    Args:
        shape: of the batch itself.
        longest_source, longest_target: the model's ``max_positions``.
    """
    return BatchShape(
        _up(shape.sentences, SENTENCES),
        max(shape.source, min(_length(shape.source), longest_source)),
        max(shape.target, min(_length(shape.target), longest_target)),
    )


def _length(tokens: int) -> int:
    return _up(tokens, LENGTH if tokens <= LONG else LONG_LENGTH)


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


class Recordings(Generic[T]):
    """The recordings by shape, limited in number: those of the shapes that are used most."""

    def __init__(self, kept: int = KEPT, worth: int = WORTH, lead: int = LEAD) -> None:
        """Start empty.

        Args:
            kept: maximum number of recordings, 1 or more.
            worth: record a shape at this use.
            lead: if there are as many as that, record a shape that was used this much more often than another one.
        """
        self._kept, self._worth, self._lead = kept, worth, lead
        self._found: dict[BatchShape, T] = {}
        self._uses: Counter[BatchShape] = Counter()

    def __len__(self) -> int:
        return len(self._found)

    def get(self, shape: BatchShape) -> Optional[T]:
        """Return the recording of a shape, or None; counts as a use of the shape."""
        self._uses[shape] += 1
        return self._found.get(shape)

    def is_due(self, shape: BatchShape) -> bool:
        """Whether the shape has been used often enough to be recorded."""
        uses = self._uses[shape]
        # Otherwise the shapes of an epoch that has more of them would drop each other and be recorded again and again.
        room = len(self._found) < self._kept or uses >= self._uses[self._least_used()] + self._lead
        return room and uses >= self._worth

    def _least_used(self) -> BatchShape:
        return min(self._found, key=self._uses.__getitem__)

    def add(self, shape: BatchShape, recording: T) -> None:
        """Add a recording; if there are too many, drop the least used one."""
        while len(self._found) >= self._kept:
            del self._found[self._least_used()]
        self._found[shape] = recording

    def clear(self) -> None:
        """Drop all recordings, but keep the counts of uses."""
        self._found.clear()

    def halve(self) -> int:
        """Drop all recordings, and keep half as many as there were from now on; return how many that is."""
        self._kept = len(self._found) // 2
        self.clear()
        return self._kept


#: Supported model inputs; a batch with any other (prefixes, constraints) is not copied.
INPUTS = {"src_tokens", "src_lengths", "prev_output_tokens"}


def shape_of(sample: dict[str, Any]) -> BatchShape:
    """Return a batch's shape."""
    source, target = sample["net_input"]["src_tokens"], sample["target"]
    return BatchShape(source.size(0), source.size(1), target.size(1))


class PaddedBatch:
    """Tensors of one shape into which batches are copied.

    Padding is added on the right and as extra rows: positions are counted without padding, and no token attends to it.
    A row without a sentence has one source and one target input token, so that attention is defined, and only padding
    as its target: it adds nothing to the loss, and exactly 0 to every gradient.

    Attributes:
        sample: the padded batch in fairseq's form, always the same tensors.
    """

    def __init__(self, shape: BatchShape, like: dict[str, Any], pad: int, eos: int) -> None:
        """Create the tensors, on the device and with the dtypes of a batch."""
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


def loose_tensors(model: nn.Module) -> list[Tensor]:
    """Return the tensors that modules hold besides their parameters and may replace (masks and tables that grow).

    A recording reads them at their old addresses, so they must be kept alive as long as it.
    """
    held = []
    for module in model.modules():
        held += [value for value in vars(module).values() if isinstance(value, Tensor)]
        held += [value for value in module._buffers.values() if value is not None]
    return held
