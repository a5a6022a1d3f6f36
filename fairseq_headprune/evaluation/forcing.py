"""fairseq's search where the model wants every translation to begin with a token, such as that of its language."""

from typing import Any, Optional

from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor


class ForcingGenerator(SequenceGenerator):
    """fairseq's search, where every translation begins with one token that is given (``forced``), at no cost.

    As transformers' ``forced_bos_token_id``: the token counts in the length, its log-probability is taken as 0.
    """

    def __init__(self, *args: Any, forced: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.forced = forced

    def _generate(self, sample: dict, prefix_tokens: Optional[Tensor] = None, constraints=None, bos_token=None):
        if prefix_tokens is None:
            prefix_tokens = self.begun(sample["net_input"]["src_tokens"])
        return super()._generate(sample, prefix_tokens, constraints, bos_token)

    def begun(self, tokens: Tensor) -> Tensor:
        """Return what the translations of a batch (batch, time) begin with: (batch, 1)."""
        return tokens.new_full((tokens.size(0), 1), self.forced)

    def _prefix_tokens(self, step: int, lprobs: Tensor, *args: Any):
        lprobs, tokens, scores = super()._prefix_tokens(step, lprobs, *args)
        if step == 0:
            self.at_no_cost(lprobs)
        return lprobs, tokens, scores

    def at_no_cost(self, rows: Tensor) -> None:
        """Let the forced token have probability 1 in log-probabilities (hypotheses, vocabulary) of the first step."""
        rows[:, self.forced] = rows[:, self.forced].masked_fill(rows[:, self.forced].isfinite(), 0.0)
