"""GPU memory: the share that a process may use of a GPU shared with others, and waiting when none is free."""

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any, Optional, TypeVar

import torch

logger = logging.getLogger(__name__)

Found = TypeVar("Found")

#: Share of the free memory that is used; the processes of a study on one GPU divide it.
SHARE = 0.5

#: Seconds between retries while other processes hold the memory.
WAITS = (5, 15, 30, 60)

#: Wait for others only if they hold more bytes than this; less is the driver's own memory.
_OTHERS = 2**30


class Card:
    """The memory of one GPU.

    Args:
        jobs: processes of the same study on it, this one included.
    """

    def __init__(self, device: torch.device, jobs: int = 1) -> None:
        self.device, self._jobs = device, jobs

    @classmethod
    def of(cls, session: Any) -> "Optional[Card]":
        """Return the GPU that a session computes on; None on a CPU."""
        if session.device.type != "cuda":
            return None
        return cls(session.device, getattr(session.args, "jobs_on_gpu", 1))

    def free(self) -> int:
        """Return the bytes that nobody uses, including those in this process' cache."""
        kept = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        return torch.cuda.mem_get_info(self.device)[0] + kept

    def share(self) -> int:
        """Return the bytes that this process may allocate in addition to what it uses now."""
        return int(SHARE * self.free() / self._jobs)

    @contextlib.contextmanager
    def limited(self) -> Iterator[None]:
        """Limit this process to its share, torch's cache included.

        Without a limit, key and value caches that grow step by step leave many times their size in torch's cache.
        """
        most = torch.cuda.memory_allocated(self.device) + self.share()
        self._set_limit(min(1.0, most / self._total()))
        try:
            yield
        finally:
            self._set_limit(1.0)

    def patiently(self, work: Callable[[], Found]) -> Found:
        """Do the smallest possible piece of work with all free memory; if other processes hold it, wait and try again.

        Raises:
            torch.OutOfMemoryError: there still is too little; the message says what is free and what to do.
        """
        self._set_limit(1.0)
        for seconds in (*WAITS, 0):
            # Release the failed attempt's memory before waiting for others.
            torch.cuda.empty_cache()
            with contextlib.suppress(torch.OutOfMemoryError):
                return work()
            if not seconds or self._others() < _OTHERS:
                break
            logger.warning(f"no GPU memory: {self._state()}; trying again in {seconds} s")
            time.sleep(seconds)
        raise torch.OutOfMemoryError(
            f"no GPU memory for a single sentence: {self._state()}; run fewer --jobs and other programs on this GPU, "
            "or --masks-at-once 1 with a small --batch-size"
        )

    def _set_limit(self, share: float) -> None:
        # Unlike the other functions, this one refuses a device without an index; None is the current device.
        torch.cuda.set_per_process_memory_fraction(share, self.device.index)

    def _total(self) -> int:
        return torch.cuda.mem_get_info(self.device)[1]

    def _others(self) -> int:
        free, total = torch.cuda.mem_get_info(self.device)
        return total - free - torch.cuda.memory_reserved(self.device)

    def _state(self) -> str:
        free, total, others = self.free() / 2**30, self._total() / 2**30, self._others() / 2**30
        return f"{free:.1f} of {total:.1f} GiB are free, others hold {others:.1f}"
