"""What fairseq finds under ``--task``."""

from fairseq_headprune.tasks import translation_headprune  # noqa: F401
