"""Times a classifier's predictions of the same examples."""

from typing import Any

from fairseq_headprune.session import Session
from fairseq_headprune.speed.measure import Side
from fairseq_headprune.speed.size import encoder_multiply_adds


class ClassifierSide(Side):
    """One BERT model that is timed: one pass over examples as they are, so that all models do the same."""

    def __init__(self, session: Session, split: str) -> None:
        """Take the model over."""
        self.session, self.split, self.length = session, split, None

    def step(self, batch: dict[str, Any], beam: int | None) -> None:
        """Predict one batch."""
        self.session.model(**batch["net_input"])

    def multiply_adds(self) -> int:
        """Return those of an example of the split's mean length."""
        mean = round(float(self.session.dataset(self.split).sizes.mean()))
        return encoder_multiply_adds(self.session.model, self.session.gates, mean)
