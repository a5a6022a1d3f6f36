"""Where a number comes from: the software and the machine that computed it."""

import functools
import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from fairseq_headprune import __version__

_PACKAGE = Path(__file__).resolve().parent


def software() -> dict[str, Any]:
    """Describe the software without loading torch: versions, the package's git commit, the platform."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "headprune": __version__,
        "git": git_commit(),
        **{name: _version(name) for name in ("numpy", "sacrebleu")},
    }


def environment(command: str | None = None) -> dict[str, Any]:
    """Describe the system: versions, the package's git commit, processors and GPU; and the command, if given.

    ``git`` is ``None`` unless the package is run from its repository; its ``dirty`` means that the package's files
    differ from that commit. For code copied without its repository, the variable HEADPRUNE_COMMIT may name the commit
    (``dirty`` is then ``None``: unverified). ``fairseq`` names the distribution, since several forks install the same
    module.
    """
    import torch  # here, since the rest of this module does not need it and it takes seconds to load

    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "headprune": __version__,
        "git": git_commit(),
        "torch": torch.__version__,
        "fairseq": _fairseq(),
        "sacrebleu": _version("sacrebleu"),
        "cpus": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        **({} if command is None else {"command": command}),
    }


def script_command(folder: str = "") -> str:
    """Return the command of the script that is running, in this folder; absolute paths keep their last names only.

    Folders of one machine say nothing on another.
    """
    words = (Path(word).name if word.startswith("/") else word for word in sys.argv[1:])
    return shlex.join([f"{folder}{Path(sys.argv[0]).name}", *words])


def script_environment() -> dict[str, Any]:
    """Describe the system and the command of the script that is running, see :func:`script_command`."""
    return environment(script_command())


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


@functools.cache
def _fairseq() -> dict[str, str | None] | None:
    # Not importlib.metadata.packages_distributions: it reads the lists of all files that are installed.
    found = importlib.metadata.distributions()
    names = sorted({d.metadata["Name"] for d in found if "fairseq" in (d.read_text("top_level.txt") or "").split()})
    if not names:
        return None
    return {"distribution": ", ".join(names), "version": ", ".join(str(_version(name)) for name in names)}


def git_commit() -> dict[str, Any] | None:
    """Return the commit of the package's repository and whether its files differ, as in :func:`environment`."""
    # A package installed inside another project's repository is not tracked there: that commit is not ours.
    if _run_git("ls-files", "--error-unmatch", "files.py") is None:
        given = os.environ.get("HEADPRUNE_COMMIT")
        return {"commit": given, "dirty": None} if given else None
    commit = _run_git("rev-parse", "HEAD")
    status = _run_git("status", "--porcelain", "--", ".")
    return None if commit is None or status is None else {"commit": commit.strip(), "dirty": bool(status.strip())}


def _run_git(*arguments: str) -> str | None:
    # Without optional locks, so that asking for the status does not disturb other running git commands.
    command = ["git", "--no-optional-locks", "-C", str(_PACKAGE), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
