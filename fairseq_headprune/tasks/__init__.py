"""The tasks that fairseq registers for ``--task``."""

from fairseq_headprune.tasks import glue, translation_headprune  # noqa: F401
