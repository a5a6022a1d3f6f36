"""Operations counted instead of timed: where starting them is what takes the time, this tells more than a clock."""

from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class _Counter(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += not func.is_view
        return func(*args, **(kwargs or {}))


def operations(work: Callable[[], object]) -> int:
    """Count the operations that torch carries out, views left out: about as many as kernels that a GPU would start."""
    with _Counter() as counter:
        work()
    return counter.count
