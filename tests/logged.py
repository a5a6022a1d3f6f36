"""fairseq's programs in this process, with what they log."""

import logging
from contextlib import contextmanager
from unittest.mock import patch

import learning
import tiny
from fairseq.logging import metrics

OURS = ["--task", "translation_headprune", "--cpu", "--num-workers", "0"]


@contextmanager
def log_lines():
    """The messages that fairseq logs meanwhile."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    root, level = logging.getLogger(), logging.getLogger().level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


def program(verb, *arguments):
    """Run ``fairseq-<verb>``; return its log and its output."""
    metrics.reset()
    try:
        # fairseq-validate removes every other handler of the root logger, whoever's it is.
        with patch("fairseq_cli.validate.reset_logging"), log_lines() as lines:
            return lines, tiny.fairseq_here(verb, *arguments)
    finally:
        metrics.reset()


def training(data, save, *arguments):
    """Train with our task, 16 sentences a batch, every update logged as JSON; return the log and the output."""
    base = [data, "--save-dir", save, "--optimizer", "adam", "--lr", "0.01", "--batch-size", "16", "--seed", "1", *OURS]
    base += ["--no-epoch-checkpoints", "--share-all-embeddings", "--log-format", "json", "--log-interval", "1"]
    return program("train", *base, *arguments)


def train(data, save, *more):
    """The same as ``learning.train``, with label smoothing unless told otherwise; return also the log."""
    metrics.reset()
    with log_lines() as lines:
        return learning.train(data, save, "--criterion", "label_smoothed_cross_entropy", *more), lines
