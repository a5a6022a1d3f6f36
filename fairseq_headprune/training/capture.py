"""Record what a function launches on the GPU, and launch it again at once (CUDA graphs)."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Optional

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode


class AssumePadding(TorchFunctionMode):
    """Answer every question whether there is any (padding) with yes, without asking the device.

    fairseq's encoder and decoder look whether a batch has padding before they mask it: the program would wait for the
    device, which cannot be recorded. Masking no padding changes nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self._answers: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: Optional[dict] = None) -> Any:
        """Replace ``Tensor.any()`` over a whole tensor and the truth of its result; leave everything else."""
        if func is Tensor.any and len(args) == 1 and not kwargs:
            answer = torch.ones((), dtype=torch.bool, device=args[0].device)
            self._answers.append(answer)
            return answer
        if func is Tensor.__bool__ and any(args[0] is answer for answer in self._answers):
            return True
        return func(*args, **(kwargs or {}))


class CudaRecorder:
    """Records functions as CUDA graphs that share one pool of memory; nothing they compute may be kept in it."""

    def __init__(self) -> None:
        self._stream = torch.cuda.Stream()
        self._pool = torch.cuda.graph_pool_handle()
        # torch takes a pool that was in use once for gone when its last graph is: this one stays.
        self._keeper = self.record(lambda: torch.zeros((), device="cuda").add_(1))

    def record(self, work: Callable[[], object]) -> Callable[[], None]:
        """Record what ``work`` launches, without running it, and return the function that runs it.

        Random numbers come from CUDA's default generator, and are those that ``work`` itself would have drawn.

        Raises:
            RuntimeError: something in it cannot be recorded, or there is too little memory. Recordings made before then
                draw random numbers from a generator that is no longer seeded: drop them.
        """
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        self._stream.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(self._stream), _without_collection():
                # Other threads load batches meanwhile: only this one's calls count.
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
    """Give CUDA's generator a new state: a recording that failed leaves it waiting for that recording's end."""
    generator = torch.cuda.default_generators[torch.cuda.current_device()]
    generator.graphsafe_set_state(generator.clone_state())


class PlainRecorder:
    """The same without a graph: what was recorded is run anew. For tests on a CPU."""

    def record(self, work: Callable[[], object]) -> Callable[[], object]:
        """Return the work itself."""
        return work


@contextmanager
def _without_collection() -> Iterator[None]:
    """A tensor or graph that Python frees meanwhile would spoil the recording."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def loose_tensors(model: nn.Module) -> list[Tensor]:
    """Return the tensors that modules hold beside their parameters and may replace (masks and tables that grow).

    A recording reads them where they were, so whoever keeps it must keep them, too.
    """
    held = []
    for module in model.modules():
        held += [value for value in vars(module).values() if isinstance(value, Tensor)]
        held += [value for value in module._buffers.values() if value is not None]
    return held
