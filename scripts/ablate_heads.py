"""Mask every head on its own; runs ``headprune ablate`` from a clone without installing."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from fairseq_headprune.cli import main  # noqa: E402  (from this clone)

if __name__ == "__main__":
    sys.exit(main(["ablate", *sys.argv[1:]]))
