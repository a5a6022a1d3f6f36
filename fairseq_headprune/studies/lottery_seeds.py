"""Searches of several models side by side, each in a process of its own, for ``headprune lottery find --paths``."""

import contextlib
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from fairseq_headprune.files import write_text
from fairseq_headprune.jobs.claims import Claims
from fairseq_headprune.jobs.scheduler import Command, share_commands


class Seeds:
    """The searches of several models; processes with the same command share them, and a killed one goes on.

    Args:
        output: their folder.
        paths: the checkpoints.
        flags: flags of ``headprune lottery find`` without ``--path`` and ``--output``.

    Attributes:
        folders: the folder of each model.

    Raises:
        ValueError, FileNotFoundError: no folder is named, a checkpoint is missing, or one is named twice.
    """

    def __init__(self, output: Path, paths: Sequence[str], flags: Sequence[str]) -> None:
        if not output.name:
            raise ValueError("--paths needs -o DIR, the folder of the searches")
        missing = [path for path in paths if not Path(path).is_file()]
        if missing:
            raise FileNotFoundError(f"--paths {missing[0]}: there is no such file")
        if len(set(paths)) < len(paths):
            raise ValueError("--paths names a checkpoint twice; give one for each seed")
        names = [f"model-{number}" for number, _ in enumerate(paths, 1)]
        self.folders = [output / name for name in names]
        self._output, self._marks = output, {name: output / "logs" / f"{name}.done" for name in names}
        begin = [sys.executable, "-m", "fairseq_headprune", "lottery", "find", *flags]
        self._words = {
            name: [*begin, "--path", path, "-o", str(folder)]
            for name, path, folder in zip(names, paths, self.folders, strict=True)
        }

    def run(self, at_once: int | None = None) -> Iterator[str]:
        """Run what is not done, ``at_once`` at a time (default: all, at most one a core); yield names as they end.

        Raises:
            RuntimeError: some searches failed; raised after the others have ended.
        """
        (self._output / "logs").mkdir(parents=True, exist_ok=True)
        commands = [Command(name, words, self._output / "logs" / f"{name}.log") for name, words in self._words.items()]
        at_once = at_once or min(len(commands), os.cpu_count() or 1)
        with contextlib.closing(Claims(self._output)) as claims:
            for name in share_commands(commands, at_once, claims, self._done):
                write_text(self._marks[name], shlex.join(self._words[name]))
                yield name

    def _done(self) -> set[str]:
        marks = {name: mark.read_text() for name, mark in self._marks.items() if mark.exists()}
        return {name for name, text in marks.items() if text == shlex.join(self._words[name])}
