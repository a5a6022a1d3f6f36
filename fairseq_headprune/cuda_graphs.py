"""Kernels recorded as CUDA graphs: replaying them costs one launch."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Optional

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


class AssumePadding(TorchFunctionMode):
    """Let every ``Tensor.any()`` (is there padding?) be true, without asking the device.

    fairseq's encoder and decoder check whether a batch has padding before they mask it. This waits for the device,
    which cannot be recorded. Masking without padding changes nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self._answers: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: Optional[dict] = None) -> Any:
        """Replace ``Tensor.any()`` over a whole tensor and the truth value of its result, nothing else."""
        if func is Tensor.any and len(args) == 1 and not kwargs:
            answer = torch.ones((), dtype=torch.bool, device=args[0].device)
            self._answers.append(answer)
            return answer
        if func is Tensor.__bool__ and any(args[0] is answer for answer in self._answers):
            return True
        return func(*args, **(kwargs or {}))


class CudaRecorder:
    """Records functions as CUDA graphs that share one memory pool; no result may be kept in the pool."""

    #: torch considers a used pool released when its last graph is freed: this graph is kept to prevent it
    _keeper: Optional[Callable[[], None]] = None

    def __init__(self) -> None:
        self._stream = torch.cuda.Stream()
        self._begin()

    def renew(self) -> None:
        """Begin with a new pool; the memory of the old one is released, if its recordings were dropped.

        Raises:
            RuntimeError: there is too little memory.
        """
        self._keeper = None
        torch.cuda.empty_cache()
        self._begin()

    def _begin(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()
        self._keeper = self.record(lambda: torch.zeros((), device="cuda").add_(1))

    def record(self, work: Callable[[], object]) -> Callable[[], None]:
        """Record what ``work`` launches, without running it, and return a function that replays it.

        Random numbers come from CUDA's default generator, the same ones that ``work`` itself would draw.

        Raises:
            RuntimeError: something cannot be recorded, or there is too little memory. Drop all earlier recordings then:
                they draw random numbers from a generator that is no longer seeded.
        """
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        self._stream.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(self._stream), _without_collection():
                # Other threads load batches meanwhile: only check this thread's calls.
                graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
                try:
                    work()
                finally:
                    graph.capture_end()
        except RuntimeError:
            _free_generator()
            raise
        torch.cuda.current_stream().wait_stream(self._stream)
        return graph.replay


def _free_generator() -> None:
    """Give CUDA's generator a new state: a failed recording leaves it in recording mode."""
    generator = torch.cuda.default_generators[torch.cuda.current_device()]
    generator.graphsafe_set_state(generator.clone_state())


def ran_out_of_memory(error: Optional[BaseException]) -> bool:
    """Whether a recording failed for lack of memory; its end, which fails then as well, may hide that."""
    return error is not None and (isinstance(error, torch.OutOfMemoryError) or ran_out_of_memory(error.__context__))


def first_line(error: Exception) -> str:
    """Return what is told of a recording that failed; what follows is advice on debugging CUDA."""
    return str(error).strip().split("\n")[0]


class PlainRecorder:
    """The same without a graph: replaying runs the function again. For tests on a CPU."""

    def renew(self) -> None:
        """Nothing: there is no pool."""

    def record(self, work: Callable[[], object]) -> Callable[[], object]:
        """Return the work itself."""
        return work


@contextmanager
def _without_collection() -> Iterator[None]:
    """Turn off garbage collection: freeing a tensor or graph meanwhile would break the recording."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
