"""Let a CPU record the passes of --cuda-graphs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import benchmarks  # noqa: F401  (puts the repository's root on sys.path)
import fairseq.utils

from fairseq_headprune.cuda_graphs import PlainRecorder
from fairseq_headprune.training import fast


@contextmanager
def on_cpu(recorder: Callable[[], Any] = PlainRecorder) -> Iterator[None]:
    """Context manager: trainings record on a CPU; the recorder decides what replaying does (default: run anew)."""
    with (
        patch.object(fast, "CudaRecorder", recorder),
        patch.object(fast, "_device", lambda model: None),
        # which such a training replaces
        patch.object(fairseq.utils, "set_torch_seed", fairseq.utils.set_torch_seed),
    ):
        yield
