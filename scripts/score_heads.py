"""Importance of every attention head; runs ``headprune score`` from a clone without installing."""

import run_verb

if __name__ == "__main__":
    run_verb.run("score")
