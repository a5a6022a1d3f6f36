"""A pruning curve per component or over all, from a clone without installing: ``headprune prune``'s arguments."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

# Under the command's name the package loads fairseq only when a verb needs it, so that --help and errors come at once.
sys.argv[0] = "headprune"

from fairseq_headprune.cli import main  # noqa: E402  (the lines above come first)

if __name__ == "__main__":
    sys.exit(main(["prune", *sys.argv[1:]]))
