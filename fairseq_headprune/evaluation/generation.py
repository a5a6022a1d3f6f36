"""fairseq's search: settings that are refused when translations are compared, and a forced first token."""

from collections.abc import Callable, Sequence
from typing import Any, Optional, TypeVar

from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

_Built = TypeVar("_Built")

_RANDOM = "gives another translation each time; omit it: translations are compared by beam search"
#: unsupported settings -> the reason
_UNSUPPORTED = {
    "sampling": _RANDOM,
    "retain_dropout": _RANDOM,
    "score_reference": "translates nothing; omit it",
    "replace_unk": "is not supported here; omit it",
    "constraints": "reads constraints from an input of its own, which is not supported here; omit it",
    "lm_path": "is not supported here: only the model itself translates; omit it",
}


def check_generation(generation: Any) -> None:
    """Refuse settings that are not supported here or are out of range.

    Raises:
        ValueError: the first such setting.
    """
    for name, reason in _UNSUPPORTED.items():
        if getattr(generation, name) not in (None, False):
            raise ValueError(f"{_flag(name)} {reason}")
    for name, least in {"beam": 1, "min_len": 0, "max_len_a": 0, "prefix_size": 0}.items():
        if not getattr(generation, name) >= least:  # NaN too
            raise ValueError(f"{_flag(name)} {getattr(generation, name)}: it must be at least {least}")
    shortest = 0 if generation.max_len_a else generation.min_len
    if generation.max_len_b < shortest:
        why = "" if generation.max_len_a else f", as --min-len is {generation.min_len} and --max-len-a is 0"
        raise ValueError(f"--max-len-b {generation.max_len_b}: it must be at least {shortest}{why}")
    groups = generation.diverse_beam_groups
    if groups > 0 and generation.beam % groups:
        raise ValueError(f"--beam {generation.beam}: it must be a multiple of --diverse-beam-groups {groups}")


def check_prefix(size: int, lengths: Sequence[int]) -> None:
    """Refuse a prefix so long that it gives the answers away: at least half of the references are no longer than it.

    Args:
        lengths: the references' numbers of tokens.

    Raises:
        ValueError: the prefix is too long.
    """
    whole = sum(length <= size for length in lengths)
    if size > 0 and 2 * whole >= len(lengths):
        raise ValueError(
            f"--prefix-size {size}: {whole} of {len(lengths)} references have no more tokens, so that the search would "
            "be given the answers; give a smaller prefix"
        )


def built(setting: str, build: Callable[[], _Built]) -> _Built:
    """Return what ``build`` returns; turn any error of fairseq's into a ValueError that names the setting.

    Raises:
        ValueError: ``build`` failed; fairseq's classes each raise errors of their own.
    """
    try:
        return build()
    except Exception as error:
        said = str(error).strip().split("\n")[0] or type(error).__name__
        raise ValueError(f"{setting}: {said}") from error


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


class ForcingGenerator(SequenceGenerator):
    """fairseq's search with a forced first token (``forced``) whose log-probability counts as 0.

    Like transformers' ``forced_bos_token_id``: the token counts towards the length.
    """

    def __init__(self, *args: Any, forced: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.forced = forced

    def _generate(self, sample: dict, prefix_tokens: Optional[Tensor] = None, constraints=None, bos_token=None):
        if prefix_tokens is None:
            prefix_tokens = self.begun(sample["net_input"]["src_tokens"])
        return super()._generate(sample, prefix_tokens, constraints, bos_token)

    def begun(self, tokens: Tensor) -> Tensor:
        """Return the first token of each translation, (batch, 1), for a batch of tokens (batch, time)."""
        return tokens.new_full((tokens.size(0), 1), self.forced)

    def _prefix_tokens(self, step: int, lprobs: Tensor, *args: Any):
        lprobs, tokens, scores = super()._prefix_tokens(step, lprobs, *args)
        if step == 0:
            self.at_no_cost(lprobs)
        return lprobs, tokens, scores

    def at_no_cost(self, rows: Tensor) -> None:
        """Set the forced token's log-probability to 0 in those of the first step, (hypotheses, vocabulary)."""
        rows[:, self.forced] = rows[:, self.forced].masked_fill(rows[:, self.forced].isfinite(), 0.0)
