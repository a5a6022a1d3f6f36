"""Which shape a batch is padded to, and which shapes have a recording."""

from collections import Counter, OrderedDict
from typing import Generic, NamedTuple, Optional, TypeVar

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
