"""Run a verb of ``headprune`` from this clone, without installing."""

import sys
from pathlib import Path
from typing import NoReturn


def run(verb: str) -> NoReturn:
    """Run a verb with the flags of the script that is running, and exit."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from fairseq_headprune.cli import main  # from this clone

    sys.exit(main([verb, *sys.argv[1:]]))
