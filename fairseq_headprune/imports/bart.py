"""BART: learned positions with an offset of 2, layer norm of the embeddings, byte-level symbols.

Config keys as ``facebook/bart-base`` and ``facebook/bart-large-cnn`` have them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq_headprune.imports.family import Family, single_token
from fairseq_headprune.imports.vocabulary import (
    SPECIALS,
    Vocabulary,
    about,
    added_tokens,
    check_specials,
    cut_by,
    framed,
    in_order,
    read_numbers,
    tokenizer_numbers,
)


def _vocabulary(folder: Path, config: Mapping[str, Any]) -> Vocabulary:
    check_specials(config)
    if (folder / "tokenizer.json").is_file():
        numbers = tokenizer_numbers(folder / "tokenizer.json")
        pieces = cut_by("tokenizer", "tokenizer.json")
    else:
        numbers = {**read_numbers(folder / "vocab.json"), **added_tokens(folder)}
        pieces = cut_by("byte-level", "vocab.json")
    symbols = in_order(numbers, config["vocab_size"], str(folder))
    generation = config.get("generation") or {}
    key = "forced_bos_token_id"
    first = single_token(generation.get(key, config.get(key)), key)
    frame = framed(["<s>"], ["</s>"])
    forced = None if first is None else symbols[first]
    return Vocabulary(symbols, symbols, about(SPECIALS, {"source": frame, "target": frame}, forced=forced), pieces)


FAMILY = Family(
    arch="bart_gated",
    fixed={},
    vocabulary=_vocabulary,
    defaults={"activation_function": "gelu", "scale_embedding": False},
    refused={
        "normalize_before": False,
        "normalize_embedding": True,
        "add_final_layer_norm": False,
        "static_position_embeddings": False,
    },
    embedding_norm=True,
    learned_positions=True,
)
