"""Mask every head on its own; runs ``headprune ablate`` from a clone without installing."""

import run_verb

if __name__ == "__main__":
    run_verb.run("ablate")
