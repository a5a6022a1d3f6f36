"""What fairseq finds under ``--task``."""

from fairseq_headprune.tasks import glue, translation_headprune  # noqa: F401
