"""Compare pruning methods; runs ``headprune compare-pruners`` from a clone without installing."""

import logging
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fairseq_headprune.cli.compare_pruners import run  # noqa: E402

if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(name)s: %(message)s")
    sys.exit(run(sys.argv[1:], "compare_pruners.py"))
