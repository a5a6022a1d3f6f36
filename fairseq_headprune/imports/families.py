"""The families of models that can be imported, by the ``model_type`` of their configuration."""

from collections.abc import Mapping
from typing import Any

from fairseq_headprune.imports import bart, m2m_100, marian, mbart
from fairseq_headprune.imports.family import Family

FAMILIES = {"marian": marian.FAMILY, "m2m_100": m2m_100.FAMILY, "bart": bart.FAMILY, "mbart": mbart.FAMILY}

#: model type -> why it is refused
_OTHERS = {
    "nllb-moe": "its layers are mixtures of experts; the dense NLLB-200 models (distilled-600M, 1.3B, 3.3B) can be "
    "imported",
    "switch_transformers": "its layers are mixtures of experts",
    "t5": "its attention adds biases of relative positions, which fairseq's attention does not have",
    "mt5": "its attention adds biases of relative positions, which fairseq's attention does not have",
    "umt5": "its attention adds biases of relative positions, which fairseq's attention does not have",
    "pegasus": "it is not among the families that were compared with transformers",
    "fsmt": "it was converted from a fairseq checkpoint: take fairseq's own file (wmt19.…)",
    "bert": "a classifier is read by --arch bert_gated --bert FOLDER",
}


def family_of(config: Mapping[str, Any]) -> Family:
    """Return the family of a configuration.

    Raises:
        ValueError: the family is not supported.
    """
    kind = config.get("model_type")
    if kind in FAMILIES:
        if config.get("num_experts") or config.get("router_type"):
            raise ValueError(f"a model of type {kind} with experts cannot be imported: {_OTHERS['nllb-moe']}")
        _check_head(config, kind)
        return FAMILIES[kind]
    why = _OTHERS.get(str(kind), "its architecture is another one")
    raise ValueError(f"a model of type {kind!r} cannot be imported: {why}; known are {', '.join(FAMILIES)}")


def _check_head(config: Mapping[str, Any], kind: str) -> None:
    if not config.get("is_encoder_decoder", True) or config.get("is_decoder"):
        raise ValueError(f"this {kind} model is a decoder alone: it translates nothing")
    names = config.get("architectures") or []
    wrong = [name for name in names if not name.endswith(("MTModel", "ForConditionalGeneration", "Model"))]
    if wrong:
        raise ValueError(f"{wrong[0]} generates no text; {kind} models with an output layer can be imported")
