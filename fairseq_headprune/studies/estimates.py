"""Estimating the importance of a loaded model's heads on a seeded subset of a split."""

from typing import Any

from fairseq_headprune.evaluation.memory import Card
from fairseq_headprune.importance.estimate import estimate
from fairseq_headprune.importance.ranks import own_share
from fairseq_headprune.importance.settings import ScoreSettings
from fairseq_headprune.parts.scores import Scores
from fairseq_headprune.progress import Bar
from fairseq_headprune.session import Session, sample_indices


def estimate_scores(session: Session, settings: ScoreSettings, first: Scores | None = None) -> Scores:
    """Estimate importance under the model's current mask; where other processes hold the GPU's memory, wait for it.

    Args:
        first: the scores before anything was pruned, whose norms ``--normalize layer-frozen`` divides by.

    Raises:
        ValueError, FileNotFoundError: no such split, no sentences, or non-finite values.
        torch.OutOfMemoryError: there is too little GPU memory for a batch.
    """
    data: dict[str, Any] = {}
    norms = first.details.get("norms") if first else None
    if settings.needs_data:
        total = len(session.dataset(settings.subset))
        data = {"path": session.args.data, "of": total, "seed": settings.seed, **session.data(settings.subset)}

    def scored() -> Scores:
        batches = _batches(session, settings) if settings.needs_data else []
        return estimate(session.model, session.gates, batches, settings, session.task, norms)

    card = Card.of(session)
    scores = scored() if card is None else card.patiently(scored)
    scores.data, scores.checkpoint, scores.precision = data, session.checkpoint, session.precision
    return scores


def _batches(session: Session, settings: ScoreSettings) -> Any:
    """Return this rank's batches for estimating importance, with a progress bar."""
    indices: Any = sample_indices(len(session.dataset(settings.subset)), settings.sentences, settings.seed)
    batches = session.batches(settings.subset, indices)
    batches.groups = list(own_share(batches.groups))
    bar = Bar("importance", "batch", batches, quiet=session.args.quiet)
    bar.line(f"{settings.subset}, sentences: {len(indices)}, batches: {len(batches)}")
    return bar
