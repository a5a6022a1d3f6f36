"""Speed and size by heads kept: ``headprune bench-heads``, named like the other benchmarks.

speed_by_heads.py GLUE --path checkpoint_best.pt --heads 72,36,6 --masks 10 --points points.json -o speed.json
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from fairseq_headprune.cli import main  # noqa: E402  (from this clone)

if __name__ == "__main__":
    sys.exit(main(["bench-heads", *sys.argv[1:]]))
