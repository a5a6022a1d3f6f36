"""fairseq's criterions with learned gates: L0 (Voita et al. 2019; Li et al. 2021, eq. 22, 23) and DSP (Li et al. 2021).

The logged loss is fairseq's; the penalty of L0 is logged separately (``gate_penalty``, in nats).
"""

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Optional

from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)
from fairseq.criterions.sentence_prediction import SentencePredictionConfig, SentencePredictionCriterion

from fairseq_headprune.criterions.settings import PRESETS, DSPConfig, GateConfig, L0Config
from fairseq_headprune.gates.rules import L0Rule, SubsetRule
from fairseq_headprune.gates.subset import Temperature
from fairseq_headprune.parts import Part, parse_components
from fairseq_headprune.parts.notation import parse_count

logger = logging.getLogger(__name__)

#: default share of the run over which the temperature, or the number of open gates, falls
_SHARE = 0.25
#: updates x learning rate that L0 with a target needs: several times the distance from open to closed
_L0_WAY = 20.0


class GatedCriterion:
    """Mixin of criterions: defines which gates the task learns, and how.

    Attributes:
        gate_config: the flags.
    """

    gate_config: GateConfig

    @classmethod
    def build_criterion(cls, cfg: GateConfig, task: Any) -> "GatedCriterion":
        """Build the criterion from its flags.

        Raises:
            ValueError: the task does not support gates, such as fairseq's own tasks, so that nothing would be learned.
        """
        if not getattr(task, "learns_gates", False):
            raise ValueError(
                f"the criterion learns gates, and the task {type(task).__name__} does not know of any: give --task "
                "translation_headprune (for GLUE --task glue)"
            )
        criterion = super().build_criterion(cfg, task)  # type: ignore[misc]  # fairseq's, which this is mixed into
        criterion.gate_config = cfg
        return criterion

    def candidates(self, heads: list[Part]) -> list[Part]:
        """Return the heads of the model that get a gate.

        Raises:
            ValueError: an unknown component, or one that the model lacks.
        """
        if self.gate_config.gate_components == "all":
            return list(heads)
        chosen = parse_components(self.gate_config.gate_components)
        missing = [component for component in chosen if component not in {head.component for head in heads}]
        if missing:
            raise ValueError(f"--gate-components: the model has no {' and no '.join(missing)}")
        return [head for head in heads if head.component in chosen]

    def rule(self, heads: list[Part], run: Optional[int]) -> Any:
        """Build the rule that maps weights to gates.

        Args:
            run: number of updates of the whole run, None if unknown.

        Raises:
            ValueError: flags are missing, out of range or contradict each other.
        """
        raise NotImplementedError

    def gate_rate(self, rule: Any = None) -> float:
        """Learning rate of the gates that the rule describes."""
        raise NotImplementedError


class L0Criterion(GatedCriterion):
    """A criterion whose gates have L0 regularisation; ``gate_config`` is an :class:`L0Config`."""

    gate_config: L0Config

    def rule(self, heads: list[Part], run: Optional[int]) -> L0Rule:
        """Build the L0 rule; by default a target is reached in the first quarter of the run (or 1,000 updates).

        Raises:
            ValueError: neither or both of --l0-penalty and --l0-target-heads; a value out of range or not finite.
        """
        cfg = self.gate_config
        if (cfg.l0_penalty is None) == (cfg.l0_target_heads is None):
            raise ValueError("L0 needs one of --l0-penalty LAMBDA and --l0-target-heads K")
        target = None if cfg.l0_target_heads is None else parse_count("--l0-target-heads", cfg.l0_target_heads)
        warm_up = 1000 if run is None else max(1, round(_SHARE * run))
        _check_shared(cfg)
        if not (cfg.l0_beta > 0 and math.isfinite(cfg.l0_beta)):
            raise ValueError(f"--l0-beta {cfg.l0_beta:g}: a temperature must be finite and above 0")
        with _about("--l0-penalty" if target is None else "--l0-target-heads"):
            rule = L0Rule(heads, cfg.l0_penalty, target, cfg.l0_beta, cfg.gate_init, warm_up)
        if target is not None and run is not None and run * self.gate_rate() < _L0_WAY:
            logger.warning(
                f"--l0-target-heads: {run} updates at --gate-lr {self.gate_rate():g} may not reach the number: give "
                f"{_L0_WAY / self.gate_rate():.0f} updates or a higher rate (headprune mask --heads corrects the rest)"
            )
        return rule

    def gate_rate(self, rule: Any = None) -> float:
        """Learning rate of the gates."""
        return 0.02 if self.gate_config.gate_lr is None else self.gate_config.gate_lr


class SubsetCriterion(GatedCriterion):
    """A criterion with gates of DSP or STE; ``gate_config`` is a :class:`DSPConfig`."""

    gate_config: DSPConfig

    def rule(self, heads: list[Part], run: Optional[int]) -> SubsetRule:
        """Build the rule of DSP, or of STE.

        Raises:
            ValueError: no --heads-kept, a value out of range, temperatures given for STE, or a share of a run of
                unknown length.
        """
        cfg = self.gate_config
        if cfg.heads_kept is None:
            raise ValueError("DSP and STE need --heads-kept K, the number of heads to keep")
        kept = parse_count("--heads-kept", cfg.heads_kept)
        _check_shared(cfg)
        if cfg.straight_through:
            given = [name for name in ("tau_start", "tau_end", "tau_updates") if getattr(cfg, name) is not None]
            given += [name for name in ("tau_wait", "scale_gate_lr") if getattr(cfg, name)]
            if given:
                flags = ", ".join("--" + name.replace("_", "-") for name in given)
                raise ValueError(f"--straight-through has no temperature: omit {flags}")
            if str(cfg.gate_noise) == "cooling":
                raise ValueError("--straight-through has no temperature: --gate-noise is always or never there")
        temperature = None if cfg.straight_through else _temperature(cfg, run)
        noise = None if cfg.gate_noise is None else str(cfg.gate_noise)
        with _about("--heads-kept"):
            return SubsetRule(heads, kept, temperature, cfg.straight_through, cfg.gate_init, noise)

    def gate_rate(self, rule: Any = None) -> float:
        """Learning rate of the gates; with --scale-gate-lr, times the preset's updates of cooling over the rule's."""
        cfg = self.gate_config
        _, _, cooling, preset = PRESETS[str(cfg.preset or "dsp-mt")]
        rate = preset if cfg.gate_lr is None else cfg.gate_lr
        return rate * cooling / rule.temperature.updates if cfg.scale_gate_lr else rate


def _check_shared(cfg: GateConfig) -> None:
    if cfg.gate_init is not None and not math.isfinite(cfg.gate_init):
        raise ValueError(f"--gate-init {cfg.gate_init:g}: the gates' first weights must be finite")
    if cfg.gate_lr is not None and not (cfg.gate_lr > 0 and math.isfinite(cfg.gate_lr)):
        raise ValueError(f"--gate-lr {cfg.gate_lr:g}: the gates' learning rate must be finite and above 0")
    if cfg.gate_seed is not None and cfg.gate_seed < 0:
        raise ValueError(f"--gate-seed {cfg.gate_seed}: a seed must be 0 or more")


@contextmanager
def _about(flag: str) -> Iterator[None]:
    """Prefix an error about a flag's value with the flag."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{flag}: {error}") from None


def _temperature(cfg: DSPConfig, run: Optional[int]) -> Temperature:
    start, end, updates, _ = PRESETS[str(cfg.preset)] if cfg.preset is not None else (0.1, 1e-8, _SHARE, None)
    start = start if cfg.tau_start is None else cfg.tau_start
    end = end if cfg.tau_end is None else cfg.tau_end
    updates = updates if cfg.tau_updates is None else cfg.tau_updates
    if not updates > 0:
        raise ValueError(f"--tau-updates {updates:g}: give a number of updates, or a share of the run between 0 and 1")
    updates, wait = max(1, _in_updates("--tau-updates", updates, run)), _in_updates("--tau-wait", cfg.tau_wait, run)
    if run is not None and wait + updates > run:
        logger.warning(
            f"the run ends after {run} updates, before the temperature reaches --tau-end at update {wait + updates}: "
            "the gates will still be soft; lower --tau-updates"
        )
    return Temperature(start, end, updates, wait)


def _in_updates(flag: str, value: float, run: Optional[int]) -> int:
    """Return a number of updates, which below 1 is given as a share of the run."""
    if not (value >= 0 and math.isfinite(value)):
        raise ValueError(f"{flag} {value:g}: give a number of updates, or a share of the run between 0 and 1")
    if not 0 < value < 1:
        return int(value)
    if run is None:
        raise ValueError(
            f"{flag} {value:g} is a share of the run, whose length is not known: give --max-update or --max-epoch, or "
            "a number of updates"
        )
    return round(value * run)


@dataclass
class LabelSmoothedCrossEntropyL0Config(L0Config, LabelSmoothedCrossEntropyCriterionConfig):
    """Flags of label smoothing and of L0."""


@dataclass
class LabelSmoothedCrossEntropyDSPConfig(DSPConfig, LabelSmoothedCrossEntropyCriterionConfig):
    """Flags of label smoothing and of DSP."""


@dataclass
class SentencePredictionL0Config(L0Config, SentencePredictionConfig):
    """Flags of sentence prediction and of L0."""


@dataclass
class SentencePredictionDSPConfig(DSPConfig, SentencePredictionConfig):
    """Flags of sentence prediction and of DSP."""


@register_criterion("label_smoothed_cross_entropy_l0", dataclass=LabelSmoothedCrossEntropyL0Config)
class LabelSmoothedCrossEntropyL0(L0Criterion, LabelSmoothedCrossEntropyCriterion):
    """Translation with hard concrete gates; every open gate costs lambda."""


@register_criterion("label_smoothed_cross_entropy_dsp", dataclass=LabelSmoothedCrossEntropyDSPConfig)
class LabelSmoothedCrossEntropyDSP(SubsetCriterion, LabelSmoothedCrossEntropyCriterion):
    """Translation with exactly K heads open at the end, chosen by DSP (or straight-through top-K)."""


@register_criterion("sentence_prediction_l0", dataclass=SentencePredictionL0Config)
class SentencePredictionL0(L0Criterion, SentencePredictionCriterion):
    """Classification or regression with hard concrete gates; lambda is relative to the mean loss over examples."""


@register_criterion("sentence_prediction_dsp", dataclass=SentencePredictionDSPConfig)
class SentencePredictionDSP(SubsetCriterion, SentencePredictionCriterion):
    """Classification or regression with exactly K heads open at the end."""
