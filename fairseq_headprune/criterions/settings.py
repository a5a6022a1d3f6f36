"""The flags of learned gates: those of all criterions with gates, and those of L0 and DSP."""

from dataclasses import dataclass, field
from typing import Any, Optional

from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from omegaconf import II

#: --preset -> (tau-start, tau-end, tau-updates, gate-lr): Li et al. 2021, Table 2
PRESETS = {"dsp-mt": (0.1, 1e-8, 15000.0, 0.2), "dsp-bert": (1000.0, 1e-8, 25000.0, 0.5)}

#: values of --gate-noise
NOISE = ("always", "cooling", "never")


def setting(default: Any, text: str) -> Any:
    """Return a dataclass field for a setting of fairseq, with the help text of its flag."""
    return field(default=default, metadata={"help": text})


@dataclass
class GateConfig(FairseqDataclass):
    """Flags of every criterion whose gates are learned."""

    gate_components: str = setting("all", "components whose heads are gated: all, or enc_self,enc_dec,dec_self")
    gate_lr: Optional[float] = setting(
        None, "learning rate of the gates, constant (default: 0.2, or the preset's, for DSP and STE; 0.02 for L0)"
    )
    gate_init: Optional[float] = setting(
        None,
        "first value of every gate's weight (default: 2.5, open, for L0; small random ones for DSP and STE)",
    )
    gate_seed: Optional[int] = setting(None, "seed of the gates' own random numbers (default: --seed)")
    gates_only: bool = setting(
        False, "pipelined pruning: learn the gates alone; not one bit of the model's weights changes"
    )
    gate_log_interval: int = setting(50, "write a line to SAVE_DIR/gates.jsonl every so many updates (0: none)")
    # Settings of the rest of the training that the gates depend on.
    seed: int = II("common.seed")
    clip_norm: float = II("optimization.clip_norm")
    max_update: int = II("optimization.max_update")
    max_epoch: int = II("optimization.max_epoch")
    update_freq: Any = II("optimization.update_freq")
    save_dir: str = II("checkpoint.save_dir")


@dataclass
class L0Config(GateConfig):
    """Flags of L0 regularisation (Louizos et al. 2018; Voita et al. 2019)."""

    l0_penalty: Optional[float] = setting(
        None,
        "lambda: the loss is the mean over target tokens (in nats; sentence prediction: over examples) plus lambda "
        "times the sum over heads of P(open), "
        "whatever the batch size, --update-freq and number of GPUs. Voita et al.'s coefficient multiplies the mean "
        "over their attention modules: lambda = theirs / number of modules. Li et al.'s multiplies the sum, added to "
        "a loss summed over a batch's tokens: lambda = theirs / tokens in a batch",
    )
    l0_target_heads: Optional[str] = setting(
        None,
        "number of heads to keep, or enc_self=8,enc_dec=8,dec_self=8: instead of --l0-penalty, "
        "a Lagrange multiplier is learned that leads the number of open gates there, in a run of 1,000 updates or more "
        "at the default --gate-lr",
    )
    l0_beta: float = setting(
        0.33, "temperature of the hard concrete distribution (Voita's code: 0.33; Louizos: 0.6667)"
    )


@dataclass
class DSPConfig(GateConfig):
    """Flags of differentiable subset pruning and straight-through top-K (Li et al. 2021)."""

    heads_kept: Optional[str] = setting(
        None, "K: number of heads to keep, or one number a component: enc_self=8,enc_dec=8,dec_self=8 (required)"
    )
    straight_through: bool = setting(False, "hard top-K with a straight-through gradient (STE) instead of DSP")
    preset: Optional[ChoiceEnum(list(PRESETS))] = setting(  # type: ignore[valid-type]
        None, "the paper's values of --tau-start, --tau-end, --tau-updates and --gate-lr (Table 2); flags override them"
    )
    tau_start: Optional[float] = setting(None, "temperature of the first update (default: 0.1)")
    tau_end: Optional[float] = setting(None, "temperature after --tau-updates (default: 1e-8)")
    tau_wait: float = setting(
        0.0, "updates before the temperature begins to fall, such as those of the warm-up; below 1: share of the run"
    )
    gate_noise: Optional[ChoiceEnum(list(NOISE))] = setting(  # type: ignore[valid-type]
        None, "Gumbel noise: always (default of DSP), cooling: until the temperature has fallen, never (default of STE)"
    )
    scale_gate_lr: bool = setting(
        False,
        "multiply the gates' learning rate by the preset's updates of cooling (dsp-mt: 15,000) over those of this run, "
        "so that a short run moves the gates as far",
    )
    tau_updates: Optional[float] = setting(
        None, "updates in which the temperature falls, log-linearly (eq. 24); below 1: share of the run (default: 0.25)"
    )
