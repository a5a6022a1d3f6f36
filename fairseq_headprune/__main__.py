"""``python -m fairseq_headprune VERB …`` is the command ``headprune VERB …``."""

import sys

from fairseq_headprune.jobs.processes import end_with_parent

if __name__ == "__main__":
    end_with_parent()  # in a worker: before anything else, since the imports of a verb take seconds
    from fairseq_headprune.cli import main

    sys.exit(main())
