"""``python -m fairseq_headprune VERB …`` is the command ``headprune VERB …``."""

import sys

from fairseq_headprune.cli import main

if __name__ == "__main__":
    sys.exit(main())
