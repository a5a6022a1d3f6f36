"""Paired bootstrap between translation systems, from a clone without installing: ``headprune compare``'s arguments."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

# Under the command's name the package does not load fairseq, which takes seconds and is not needed here.
sys.argv[0] = "headprune"

from fairseq_headprune.cli import main  # noqa: E402  (the lines above come first)

if __name__ == "__main__":
    sys.exit(main(["compare", *sys.argv[1:]]))
