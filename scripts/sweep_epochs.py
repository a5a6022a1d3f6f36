"""The pruning curve at every epoch; runs ``headprune sweep-epochs`` from a clone without installing."""

import run_verb

if __name__ == "__main__":
    run_verb.run("sweep-epochs")
