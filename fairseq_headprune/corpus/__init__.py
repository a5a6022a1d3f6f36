"""The embedded corpus: a small real German-English task, generated offline from a seed."""

from fairseq_headprune.corpus.folder import Settings, generate, make_corpus

__all__ = ["Settings", "generate", "make_corpus"]
