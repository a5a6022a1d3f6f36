"""``--patience`` after a stop: validations without a better result count on, which fairseq begins to count anew."""

import sys
from collections.abc import Mapping
from typing import Any, Optional

from fairseq import checkpoint_utils


def count() -> dict[str, Any]:
    """Return what a checkpoint keeps of the count: the best result, and the validations since; empty without any."""
    counter = _counter()
    if not hasattr(counter, "best"):
        return {}
    return {"patience": {"best": float(counter.best), "runs": int(counter.num_runs)}}


def go_on(kept: Optional[Mapping[str, Any]]) -> None:
    """Go on counting in a training that fairseq has resumed with its meters; otherwise do nothing.

    Args:
        kept: the ``task_state`` of the checkpoint.
    """
    counter, found = _counter(), (kept or {}).get("patience")
    if counter is None or found is None or hasattr(counter, "best"):
        return
    if hasattr(checkpoint_utils.save_checkpoint, "best"):  # fairseq has restored its own
        counter.best, counter.num_runs = found["best"], found["runs"]


def _counter() -> Any:
    """Return fairseq-train's function that counts, in its attributes; None outside fairseq-train."""
    for name in ("__main__", "fairseq_cli.train"):
        if hasattr(sys.modules.get(name), "should_stop_early"):
            return sys.modules[name].should_stop_early
    return None
