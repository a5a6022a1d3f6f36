"""Attention-head gates, importance, pruning and their statistics for fairseq's translation models and BERT.

Importing the package registers its architectures and tasks with fairseq (``--user-dir fairseq_headprune`` does
just that). Only when the package is started as the command ``headprune`` or ``python -m fairseq_headprune`` is
registration left to the verbs that load a model: comparing two files should not wait seconds for fairseq.
"""

import os
import sys

__version__ = "0.1.0"


def _started_as_command() -> bool:
    # While "python -m fairseq_headprune" is still looking for the module, sys.argv[0] is "-m".
    return sys.argv[:1] == ["-m"] or os.path.basename(sys.argv[0] if sys.argv else "") == "headprune"


if not _started_as_command() or "fairseq" in sys.modules:
    from fairseq_headprune import plugin  # noqa: F401  (registers)
