"""Speed and size of models: ``headprune bench``, named like the other benchmarks.

bench_speed.py DATA_BIN --path full.pt --models slim-50.pt slim-90.pt --source-lang de --target-lang en --json
"""

import run_verb

if __name__ == "__main__":
    run_verb.run("bench")
