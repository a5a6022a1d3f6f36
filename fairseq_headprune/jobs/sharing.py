"""Commands that several processes share: each claims a command of the study before it starts it."""

import time
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any

from fairseq_headprune.jobs.claims import Claims
from fairseq_headprune.jobs.scheduler import Command, run_commands


def share_commands(
    commands: Sequence[Command],
    at_once: int,
    claims: Claims,
    finished: Callable[[], Container[str]],
    prepare: Callable[[str], Any] = lambda name: None,
    limit: float | None = None,
) -> Iterator[str]:
    """Yield the name of each command that has succeeded here; those that other processes run are waited for.

    Args:
        commands: in the order in which they are wanted; one that names another (``after``) waits for that.
        at_once, prepare, limit: see :func:`~fairseq_headprune.jobs.scheduler.run_commands`.
        claims: those of the study, on the commands' names.
        finished: tells the names of which nothing is to be done any more. The caller sees to it that a name that was
            yielded becomes one of them.

    Raises:
        RuntimeError, TimeoutError: see :func:`~fairseq_headprune.jobs.scheduler.run_commands`.
    """
    left = {command.name: command for command in commands}
    deadline = None if limit is None else time.monotonic() + limit

    def more() -> list[Command]:
        done = finished()
        ready = [name for name, command in left.items() if command.after is None or command.after in done]
        return [left.pop(name) for name in claims.take(ready, lambda: done)]

    def rest() -> list[str]:
        done = finished()
        return [name for name in left if name not in done]

    while rest():
        yield from run_commands((), at_once, prepare, None if deadline is None else deadline - time.monotonic(), more)
        if deadline is not None and time.monotonic() > deadline and rest():
            raise TimeoutError(f"not done within {limit:.0f} s: {', '.join(rest())}")
        if rest():
            claims.pause()
