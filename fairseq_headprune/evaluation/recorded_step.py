"""Decoder steps of few rows as CUDA graphs: launching their kernels one by one takes longer than they run."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Optional

from torch import Tensor

from fairseq_headprune.cuda_graphs import AssumePadding, CudaRecorder, first_line, ran_out_of_memory
from fairseq_headprune.evaluation.beams import Beams

logger = logging.getLogger(__name__)

#: up to this many hypotheses, a step takes longer to launch than to run
_FEW = 4096
#: record a step when the rows were the same in this many before: recording takes about as long as one
_WORTH = 1
#: finished rows are dropped when they are this share of all: the others' step has to be recorded again
DROPPED_IF_RECORDED = 1 / 2

#: last tokens (hypotheses, 1), totals (rows, beam), whether a row is at its limit (rows,) -> the best continuations
Step = Callable[[Tensor, Tensor, Tensor], Sequence[Tensor]]


class StepRecorder:
    """Records steps of a decoder, one at a time."""

    def __init__(self, decoder: Any) -> None:
        self._decoder = decoder
        self._can = not any(module._forward_hooks or module._forward_pre_hooks for module in decoder.modules())

    def wants(self, hypotheses: int, alike: int) -> bool:
        """Whether to record the next step: of how many hypotheses, and after how many steps of the same rows."""
        return self._can and hypotheses <= _FEW and alike >= _WORTH

    def record(self, step: Step, beams: Beams) -> "Optional[RecordedStep]":
        """Record a step for rows like those of ``beams``; None if it cannot be recorded."""
        try:
            return RecordedStep(self._recorder, self._decoder, step, beams)
        except RuntimeError as error:
            if not ran_out_of_memory(error):
                logger.warning(f"steps of the decoder are not recorded: {first_line(error)}")
                self._can = False
            return None

    @cached_property
    def _recorder(self) -> CudaRecorder:
        return CudaRecorder()


class RecordedStep:
    """A step from and to the same tensors, for as long as the rows and their caches are the same."""

    def __init__(self, recorder: Any, decoder: Any, step: Step, beams: Beams) -> None:
        """Record the step without running it.

        Raises:
            RuntimeError: it cannot be recorded, or there is too little memory.
        """
        self._decoder = decoder
        self._given = [tensor.clone() for tensor in self._inputs(beams)]
        self._found: Sequence[Tensor] = ()

        def work() -> None:
            with AssumePadding(), self._position_given():
                self._found = step(*self._given[:3])

        self._replay = recorder.record(work)

    def run(self, beams: Beams) -> Sequence[Tensor]:
        """Run the step; what it returns is overwritten by the next one."""
        for mine, new in zip(self._given, self._inputs(beams), strict=True):
            mine.copy_(new)
        self._replay()
        return self._found

    def _inputs(self, beams: Beams) -> list[Tensor]:
        """Return what changes from step to step: a :data:`Step`'s arguments, and the embedding of the position."""
        inputs = [beams.tokens[:, -1:], beams.scores, beams.at_limit()]
        if self._decoder.embed_positions is None:
            return inputs
        # All hypotheses have the same position. In a search fairseq only reads how long they are.
        return [*inputs, self._decoder.embed_positions(beams.tokens[:1], incremental_state={})]

    @contextmanager
    def _position_given(self) -> Iterator[None]:
        """Context manager: the decoder takes the embedding of the position from its tensor."""
        if self._decoder.embed_positions is None:
            yield
            return
        hook = self._decoder.embed_positions.register_forward_hook(lambda *_: self._given[3])
        try:
            yield
        finally:
            hook.remove()
