"""Common base of model families: fairseq's settings from a configuration, and checks of both."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from fairseq_headprune.imports.vocabulary import SPECIALS, Vocabulary, about, symbols_in_order

#: activation in transformers -> fairseq's name of the same function
_ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_accurate",
    "gelu_fast": "gelu_accurate",
    "gelu_pytorch_tanh": "gelu_accurate",
    "swish": "swish",
    "silu": "swish",
    "tanh": "tanh",
    "linear": "linear",
}

#: sizes required in a configuration -> fairseq's setting
_SIZES = {
    "d_model": ("encoder_embed_dim", "decoder_embed_dim"),
    "encoder_layers": ("encoder_layers",),
    "decoder_layers": ("decoder_layers",),
    "encoder_attention_heads": ("encoder_attention_heads",),
    "decoder_attention_heads": ("decoder_attention_heads",),
    "encoder_ffn_dim": ("encoder_ffn_embed_dim",),
    "decoder_ffn_dim": ("decoder_ffn_embed_dim",),
    "max_position_embeddings": ("max_source_positions", "max_target_positions"),
}

_BART_DEFAULTS = {"activation_function": "gelu", "scale_embedding": False}

_DROPOUTS = {"dropout": 0.1, "attention_dropout": 0.0, "activation_dropout": 0.0}


@dataclass(frozen=True)
class ModelFamily:
    """One family of models.

    Attributes:
        arch: the architecture of the checkpoint.
        vocabulary: reads the vocabulary of a folder, given its configuration.
        fixed: settings common to all models of the family.
        defaults: the family's defaults for missing keys of the configuration; those of BART, which most descend from.
        refused: key of the configuration -> the value that transformers' model uses regardless of the key.
        bias: whether logits have a bias (``final_logits_bias``); ``embedding_norm``, ``final_norm``,
            ``learned_positions``: whether the model has these parameters.
    """

    arch: str
    vocabulary: Callable[[Path, Mapping[str, Any]], Vocabulary]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=_BART_DEFAULTS.copy)
    refused: Mapping[str, Any] = field(default_factory=dict)
    bias: bool = True
    embedding_norm: bool = False
    final_norm: bool = False
    learned_positions: bool = False

    def value(self, config: Mapping[str, Any], name: str) -> Any:
        """Return a value of a configuration, or the family's default."""
        return config.get(name, self.defaults.get(name))

    def settings(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return fairseq's settings of a model.

        Raises:
            ValueError: a size is missing or impossible, or the family does not support a setting.
        """
        result: dict[str, Any] = {}
        for name, ours in _SIZES.items():
            value = config.get(name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"config.json: {name} is {value!r}; a whole number above 0 is expected")
            result |= dict.fromkeys(ours, value)
        for side in ("encoder", "decoder"):
            if result["encoder_embed_dim"] % result[f"{side}_attention_heads"]:
                raise ValueError(
                    f"config.json: d_model {result['encoder_embed_dim']} cannot be split into "
                    f"{result[f'{side}_attention_heads']} {side} heads"
                )
        for name, expected in self.refused.items():
            if config.get(name, expected) != expected:
                raise ValueError(
                    f"config.json: {name} {config[name]!r} is not supported: transformers' own model computes as with "
                    f"{expected!r}"
                )
        for name, default in _DROPOUTS.items():
            result[name] = float(config.get(name, default))
        return {**result, **self._further(config), **self.fixed}

    def _further(self, config: Mapping[str, Any]) -> dict[str, Any]:
        activation = self.value(config, "activation_function")
        if activation not in _ACTIVATIONS:
            raise ValueError(
                f"config.json: the activation {activation!r} is not supported; supported are {', '.join(_ACTIVATIONS)}"
            )
        share, tie = self.ties(config)
        return {
            "activation_fn": _ACTIVATIONS[activation],
            "no_scale_embedding": not self.value(config, "scale_embedding"),
            "layernorm_embedding": self.embedding_norm,
            "encoder_learned_pos": self.learned_positions,
            "decoder_learned_pos": self.learned_positions,
            "encoder_normalize_before": self.final_norm,
            "decoder_normalize_before": self.final_norm,
            "share_all_embeddings": share and tie,
            "share_decoder_input_output_embed": tie,
        }

    def ties(self, config: Mapping[str, Any]) -> tuple[bool, bool]:
        """Return whether encoder and decoder share embeddings, and whether the output layer shares the decoder's."""
        share = config.get("share_encoder_decoder_embeddings", True)
        return bool(share), bool(config.get("tie_word_embeddings", True))


def shared_vocabulary(
    folder: Path,
    config: Mapping[str, Any],
    numbers: Mapping[str, int],
    pieces: dict[str, Any],
    frames: Mapping[str, dict[str, list[str]]],
    forced: str | int | None = None,
    **notes: Any,
) -> Vocabulary:
    """Return the vocabulary of a model whose two sides have the same symbols.

    Args:
        numbers: symbol -> id; pieces: see :class:`Vocabulary`; frames, notes: see :func:`about`.
        forced: the first token of every translation, as a symbol or an id.

    Raises:
        ValueError: as :func:`symbols_in_order`.
    """
    symbols = symbols_in_order(numbers, config["vocab_size"], str(folder))
    first = symbols[forced] if isinstance(forced, int) else forced
    return Vocabulary(symbols, symbols, about(SPECIALS, frames, forced=first, **notes), pieces)


def single_token(value: Any, name: str) -> Optional[int]:
    """Return a token id of a configuration, which may be a list with one element.

    Raises:
        ValueError: it is anything else.
    """
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if value is not None and not isinstance(value, int):
        raise ValueError(f"config.json: {name} is {value!r}; one token number is expected")
    return value
