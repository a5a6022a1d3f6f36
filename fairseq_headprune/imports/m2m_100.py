"""M2M-100 and dense NLLB-200: fairseq's own transformer with pre-layer norm, and language tokens.

Config keys as ``facebook/m2m100_418M`` and ``facebook/nllb-200-distilled-600M`` have them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq_headprune.imports.family import Family, shared_vocabulary
from fairseq_headprune.imports.folder import optional_json
from fairseq_headprune.imports.vocabulary import (
    LANGUAGE,
    Vocabulary,
    added_tokens,
    check_specials,
    cut_by,
    fairseq_order,
    framed,
    listed_tokens,
    read_numbers,
    tokenizer_or_sentencepiece,
)

#: symbols before and after a sentence, for source and target
_FRAME = framed([LANGUAGE], ["</s>"])

_MODEL = "sentencepiece.bpe.model"


def _vocabulary(folder: Path, config: Mapping[str, Any]) -> Vocabulary:
    check_specials(config)
    if (folder / "vocab.json").is_file():
        return _m2m(folder, config)
    if optional_json(folder, "tokenizer_config.json").get("legacy_behaviour"):
        raise ValueError(f"{folder}: legacy_behaviour (the language after the sentence) is not supported for NLLB")
    numbers, pieces = tokenizer_or_sentencepiece(folder, _MODEL, lambda: fairseq_order(folder, _MODEL, _listed(folder)))
    # Three letters of ISO 639-3 and four letters of the script.
    languages = [token for token in numbers if len(token) == 8 and token[3] == "_" and token[4].isupper()]
    return _made(folder, config, numbers, "{}", languages, pieces)


def _listed(folder: Path) -> list[str]:
    found = [token for token in listed_tokens(folder) if token != "<mask>"]
    if not found:
        raise ValueError(f"{folder}: tokenizer_config.json lists no languages (additional_special_tokens)")
    return [*found, "<mask>"]


def _m2m(folder: Path, config: Mapping[str, Any]) -> Vocabulary:
    numbers = read_numbers(folder / "vocab.json")
    added, listed = added_tokens(folder), listed_tokens(folder)
    spelled = [token for token in [*added, *listed] if token.startswith("__") and token.endswith("__")]
    for place, token in enumerate(dict.fromkeys(token for token in listed if token in spelled)):
        added.setdefault(token, len(numbers) + place)
    languages = [token for token in added if token in spelled]
    numbers = {**numbers, **{token: added[token] for token in languages}}
    return _made(folder, config, numbers, "__{}__", languages, cut_by("sentencepiece", _MODEL))


def _made(
    folder: Path, config: Mapping[str, Any], numbers: dict, spelling: str, languages: list[str], pieces: dict
) -> Vocabulary:
    if not languages:
        raise ValueError(f"{folder}: the tokenizer's files list no token of a language")
    frames = {"source": _FRAME, "target": _FRAME}
    return shared_vocabulary(
        folder, config, numbers, pieces, frames, forced=LANGUAGE, language=spelling, languages=languages
    )


FAMILY = Family(
    arch="m2m_100_gated",
    vocabulary=_vocabulary,
    defaults={"activation_function": "relu", "scale_embedding": True},
    bias=False,
    final_norm=True,
)
