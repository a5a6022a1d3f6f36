"""BART: learned positions with an offset of 2, layer norm of the embeddings, byte-level symbols.

Config keys as ``facebook/bart-base`` and ``facebook/bart-large-cnn`` have them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq_headprune.imports.family import Family, shared_vocabulary, single_token
from fairseq_headprune.imports.vocabulary import (
    Vocabulary,
    added_tokens,
    check_specials,
    cut_by,
    framed,
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
    generation = config.get("generation") or {}
    key = "forced_bos_token_id"
    forced = single_token(generation.get(key, config.get(key)), key)
    frame = framed(["<s>"], ["</s>"])
    return shared_vocabulary(folder, config, numbers, pieces, {"source": frame, "target": frame}, forced)


FAMILY = Family(
    arch="bart_gated",
    vocabulary=_vocabulary,
    refused={
        "normalize_before": False,
        "normalize_embedding": True,
        "add_final_layer_norm": False,
        "static_position_embeddings": False,
    },
    embedding_norm=True,
    learned_positions=True,
)
