"""The losses of classified or graded examples, for the estimators of importance."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ExampleLosses:
    """Cross entropy of each classified example, or squared error of each graded one."""

    def __init__(self, pad: int, is_regression: bool) -> None:
        self.pad, self.is_regression = pad, is_regression

    def __call__(self, model: nn.Module, sample: dict[str, Any]) -> Tensor:
        """Run the model and return losses, (batch,)."""
        logits = model(**sample["net_input"])[0]
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if self.is_regression:
            return (logits.view(-1) - sample["target"]).square()
        return F.cross_entropy(logits, sample["target"], reduction="none")

    def counts(self, sample: dict[str, Any]) -> dict[str, int]:
        """Return the counts; tokens are those that are read."""
        tokens = int(sample["net_input"]["src_tokens"].ne(self.pad).sum())
        return {"sentences": sample["target"].numel(), "batches": 1, "tokens": tokens, "source_tokens": tokens}

    def positions(self, component: str, sample: dict[str, Any]) -> int:
        """The tokens that are read."""
        return sample["net_input"]["src_tokens"].size(1)
