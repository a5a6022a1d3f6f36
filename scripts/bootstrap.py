"""Paired bootstrap between translation systems; runs ``headprune compare`` from a clone without installing."""

import run_verb

if __name__ == "__main__":
    run_verb.run("compare")
