"""Parses fairseq-generate's flags together with a verb's own, for every verb that loads a model."""

import argparse
import contextlib
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice

from fairseq import options, utils
from fairseq.tasks import TASK_REGISTRY

import fairseq_headprune
from fairseq_headprune import plugin  # noqa: F401  (registers)
from fairseq_headprune.checkpoints import read_state, task_settings
from fairseq_headprune.errors import errors_of, one_line_error
from fairseq_headprune.tasks.seam import PrunableTask, default_task, task_class


def parse_generation_args(
    verb: str,
    argv: list[str],
    add_flags: Callable[[argparse.ArgumentParser], None],
    description: str,
    one_model: bool = True,
) -> argparse.Namespace:
    """Parse fairseq-generate's flags and a verb's own; without ``one_model``, ``--path`` is refused.

    Invalid flags exit with status 2 and one line on stderr. ``--user-dir`` may name this package (already loaded) or
    another one to load as well. ``--task`` may name the fairseq task that one of our tasks extends.

    Raises:
        ValueError, FileNotFoundError: a ``--user-dir``, task or checkpoint that cannot be used.
    """
    _quiet()
    # A second import of this package would be refused.
    argv = _without(argv, "--user-dir", _is_own_folder)
    words, task = argv, _task(argv)
    if task is not None:
        words = _without(argv, "--task")
    with called(f"headprune {verb}", words):
        parser = options.get_generation_parser(default_task=(task or default_task()).registered_name())
        if task is not None:
            parser.set_defaults(gen_subset=task.default_subset)
        parser.prog, parser.description = f"headprune {verb}", description
        parser.error = partial(one_line_error, parser, given=words)  # type: ignore[method-assign]
        add_flags(parser)
        args = options.parse_args_and_arch(parser, words)
    args.headprune_command = shlex.join(["headprune", *verb.split(), *argv])
    if one_model and not args.path:
        parser.error("--path CHECKPOINT is required")
    if args.path and not one_model:
        parser.error("--path names one checkpoint and is not supported here")
    if args.path:
        read_state(args.path)  # report errors of the checkpoint before those of its task
    return args


@contextlib.contextmanager
def called(program: str, words: Sequence[str]) -> Iterator[None]:
    """Context manager: set ``sys.argv``, which fairseq reads while it builds its parser and when it trains."""
    before, sys.argv = sys.argv, [program, *words]
    try:
        yield
    finally:
        sys.argv = before


def _task(argv: list[str]) -> type[PrunableTask] | None:
    """Return the task given by ``--task``, or else by the checkpoint; None for an unknown name.

    Raises:
        ValueError: the task is not supported, or ``--user-dir`` cannot be loaded.
    """
    folders = _values(argv, "--user-dir")
    try:
        utils.import_user_module(argparse.Namespace(user_dir=folders[-1] if folders else None))
    except ImportError as error:
        raise ValueError(f"--user-dir: {error}") from error
    given, paths = _values(argv, "--task"), _values(argv, "--path")
    if given:
        return task_class(given[-1]) if given[-1] in TASK_REGISTRY else None
    if not paths:
        return default_task()
    try:
        name = task_settings(read_state(paths[-1])).get("_name")
    except (ValueError, OSError):
        return default_task()  # the session reports the error
    with errors_of(paths[-1]):
        return default_task() if name is None else task_class(name)


def _values(argv: list[str], flag: str) -> list[str]:
    """Return the values given for a flag."""
    joined = [word.partition("=")[2] for word in argv if word.startswith(f"{flag}=")]
    return joined + [value for word, value in zip(argv, argv[1:], strict=False) if word == flag]


def _without(argv: list[str], flag: str, dropped: Callable[[str], bool] = lambda value: True) -> list[str]:
    """Return the arguments without a flag and its values, or without those that are to be dropped."""
    kept: list[str] = []
    words = iter(argv)
    for word in words:
        name, joined, value = word.partition("=")
        given = [word] if joined or name != flag else [word, *islice(words, 1)]
        if name != flag or not dropped(value if joined else "".join(given[1:])):
            kept += given
    return kept


def _quiet() -> None:
    """Keep Hydra's messages about fairseq's configuration off stderr, which is for progress and errors."""
    warnings.filterwarnings("ignore", module="hydra")
    warnings.filterwarnings("ignore", message=r"\s*'config' is validated against ConfigStore")


def _is_own_folder(name: str) -> bool:
    """Whether this is the package or its folder, in any spelling."""
    own = os.path.realpath(fairseq_headprune.__path__[0])
    return name == os.path.basename(own) or os.path.realpath(name) == own
