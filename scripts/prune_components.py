"""Pruning curves per component or overall; runs ``headprune prune`` from a clone without installing."""

import run_verb

if __name__ == "__main__":
    run_verb.run("prune")
