"""The vocabulary of a folder: the symbol of each id, special symbols, languages, and the tokeniser."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairseq_headprune.files import read_json
from fairseq_headprune.imports.folder import optional_json
from fairseq_headprune.sentencepieces import sentencepiece_symbols

#: placeholder for a language's token, around a sentence or as first token (``start``, ``forced``)
LANGUAGE = "language"


@dataclass(frozen=True)
class Vocabulary:
    """Both sides' vocabularies.

    Attributes:
        source, target: the symbols in the order of their ids, as many as the model has embeddings.
        about: what the dictionaries note, see ``ImportedDictionary``; with ``frames``: side -> symbols before and after
            a sentence.
        pieces: how text becomes symbols: ``{"kind": "sentencepiece", "source": FILE, "target": FILE}`` or
            ``{"kind": "tokenizer", "source": "tokenizer.json", "target": …}``.
    """

    source: list[str]
    target: list[str]
    about: dict[str, Any]
    pieces: dict[str, Any] = field(default_factory=dict)


def symbols_in_order(numbers: Mapping[str, int], size: int, name: str) -> list[str]:
    """Return symbols in the order of their ids; ids without a symbol get ``madeupword0``, ….

    Raises:
        ValueError: two symbols have the same id, or an id is out of range.
    """
    found: dict[int, str] = {}
    for symbol, number in numbers.items():
        if not isinstance(number, int) or not 0 <= number < size:
            raise ValueError(f"{name}: {symbol!r} has the number {number!r}, the model has {size} embeddings")
        if number in found:
            raise ValueError(f"{name}: {symbol!r} and {found[number]!r} have the number {number}")
        if "\n" in symbol:
            raise ValueError(f"{name}: the symbol {symbol!r} has a line break in it")
        found[number] = symbol
    known, count, result = set(numbers), 0, []
    for number in range(size):
        if number not in found:
            while f"madeupword{count}" in known:
                count += 1
            found[number], count = f"madeupword{count}", count + 1
        result.append(found[number])
    return result


def read_numbers(path: Path) -> dict[str, int]:
    """Read a ``vocab.json``: symbol -> id.

    Raises:
        FileNotFoundError, ValueError: it does not exist, or has another form.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing")
    value = read_json(path)
    if not isinstance(value, dict):
        raise ValueError(f"{path}: an object of symbols and numbers is expected")
    return value


def added_tokens(folder: Path) -> dict[str, int]:
    """Return the tokens that the tokenizer's files add to the vocabulary, with their ids."""
    found: dict[str, int] = {}
    for number, token in optional_json(folder, "tokenizer_config.json").get("added_tokens_decoder", {}).items():
        found[str(token["content"])] = int(number)
    return {**found, **optional_json(folder, "added_tokens.json")}


def listed_tokens(folder: Path) -> list[str]:
    """Return the additional special tokens in the tokenizer's files, which have no ids there, in order."""
    found: dict[str, None] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        value = optional_json(folder, name)
        for key in ("additional_special_tokens", "extra_special_tokens"):
            tokens = value.get(key) or []
            for token in tokens.values() if isinstance(tokens, dict) else tokens:
                found[str(token["content"] if isinstance(token, dict) else token)] = None
    return list(found)


def tokenizer_numbers(path: Path) -> dict[str, int]:
    """Return the vocabulary of a ``tokenizer.json``, including added tokens."""
    return load_tokenizer(path).get_vocab(with_added_tokens=True)


def load_tokenizer(path: Path) -> Any:
    """Load a ``tokenizer.json``.

    Raises:
        ValueError: a damaged file, or the package ``tokenizers`` is missing.
    """
    try:
        import tokenizers
    except ImportError as error:
        raise ValueError("this model needs the package tokenizers: pip install tokenizers") from error
    try:
        return tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:
        raise ValueError(f"{path}: not a tokenizer ({error})") from error


def framed(before: Sequence[str], after: Sequence[str]) -> dict[str, dict[str, list[str]]]:
    """Return side -> the symbols before and after a sentence, if they are the same on both sides."""
    return {side: {"before": list(before), "after": list(after)} for side in ("source", "target")}


def cut_by(kind: str, file: str) -> dict[str, str]:
    """Return the tokenisation if one file is for both sides; see :class:`Vocabulary`."""
    return {"kind": kind, "source": file, "target": file}


def about(
    specials: Mapping[str, str | None],
    frames: Mapping[str, dict[str, list[str]]],
    language: str | None = None,
    languages: Iterable[str] = (),
    start: str | None = None,
    forced: str | None = None,
) -> dict[str, Any]:
    """Return the ``about`` of dictionaries."""
    return {
        **specials,
        "frames": dict(frames),
        "language": language,
        "languages": sorted(languages),
        "start": start,
        "forced": forced,
    }


SPECIALS = {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>"}

_NUMBERS = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}


def check_specials(config: Mapping[str, Any], start: int | None = 2) -> None:
    """Check that special symbols have fairseq's ids, with which the models of these families were trained.

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
    """Return the ids of symbols and the tokenisation: ``tokenizer.json`` if it exists, as in transformers.

    Raises:
        FileNotFoundError: neither is there.
    """
    if (folder / "tokenizer.json").is_file():
        return tokenizer_numbers(folder / "tokenizer.json"), cut_by("tokenizer", "tokenizer.json")
    if not (folder / model).is_file():
        raise FileNotFoundError(f"{folder} has neither tokenizer.json nor {model}")
    return numbers(), cut_by("sentencepiece", model)


def fairseq_order(folder: Path, model: str, further: Sequence[str]) -> dict[str, int]:
    """Return ids: fairseq's special symbols, those of a sentencepiece model, and further ones."""
    pieces = sentencepiece_symbols(folder / model)[3:]
    return {symbol: number for number, symbol in enumerate([*SPECIALS.values(), *pieces, *further])}
