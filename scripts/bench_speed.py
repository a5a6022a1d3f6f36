"""Speed and size of models: ``headprune bench``, named like the other benchmarks.

bench_speed.py DATA_BIN --path full.pt --models slim-50.pt slim-90.pt --source-lang de --target-lang en --json
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from fairseq_headprune.cli import main  # noqa: E402  (from this clone)

if __name__ == "__main__":
    sys.exit(main(["bench", *sys.argv[1:]]))
