"""What M2M-100, NLLB, BART and mBART share: fairseq's numbers of special symbols, and two forms of a vocabulary."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fairseq_headprune.imports.vocabulary import sentencepiece_symbols, tokenizer_numbers

SPECIALS = {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>"}

_NUMBERS = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}


def check_specials(config: Mapping[str, Any], start: int | None = 2) -> None:
    """Make sure that special symbols have fairseq's numbers, which the models of these families were trained with.

    Raises:
        ValueError: they have others.
    """
    expected = {**_NUMBERS, **({} if start is None else {"decoder_start_token_id": start})}
    for key, number in expected.items():
        found = config.get(key, number)
        if found not in (number, [number]):
            raise ValueError(f"config.json: {key} is {found!r}; in models of this family it is {number}")


def tokenizer_or_sentencepiece(
    folder: Path, model: str, numbers: Callable[[], dict[str, int]]
) -> tuple[dict[str, int], dict[str, str]]:
    """Return the numbers of symbols, and how text becomes symbols: ``tokenizer.json`` if it is there, as transformers.

    Raises:
        FileNotFoundError: neither is there.
    """
    if (folder / "tokenizer.json").is_file():
        pieces = {"kind": "tokenizer", "source": "tokenizer.json", "target": "tokenizer.json"}
        return tokenizer_numbers(folder / "tokenizer.json"), pieces
    if not (folder / model).is_file():
        raise FileNotFoundError(f"{folder} has neither tokenizer.json nor {model}")
    return numbers(), {"kind": "sentencepiece", "source": model, "target": model}


def fairseq_order(folder: Path, model: str, further: Sequence[str]) -> dict[str, int]:
    """Return numbers: fairseq's special symbols, those of a sentencepiece model, and further ones."""
    pieces = sentencepiece_symbols(folder / model)[3:]
    return {symbol: number for number, symbol in enumerate([*SPECIALS.values(), *pieces, *further])}
