"""Speed and size by heads kept: ``headprune bench-heads``, named like the other benchmarks.

speed_by_heads.py GLUE --path checkpoint_best.pt --heads 72,36,6 --masks 10 --points points.json -o speed.json
"""

import run_verb

if __name__ == "__main__":
    run_verb.run("bench-heads")
