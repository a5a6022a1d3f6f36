"""The embedded corpus: a small real German-English task, generated offline from a seed.

``spelling`` (numbers, dates, money… in words) · ``words`` and ``templates`` (the language) · ``sentences`` (one
random pair) · ``splits`` (train, valid, test without overlap, checked by checksum) · ``pieces`` (sentencepiece) ·
``folder`` (all of it on disk, and fairseq's binary form).
"""

from fairseq_headprune.corpus.folder import make_corpus
from fairseq_headprune.corpus.splits import Settings, generate

__all__ = ["Settings", "generate", "make_corpus"]
