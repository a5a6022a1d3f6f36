"""Tokenise raw text to an imported model's ids, the same as its tokenizer in transformers, line by line."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fairseq_headprune.files import PathLike, read_json
from fairseq_headprune.imports.dictionary import ImportedDictionary
from fairseq_headprune.imports.vocabulary import LANGUAGE, load_tokenizer
from fairseq_headprune.sentencepieces import load_sentencepiece

#: the file next to a checkpoint that defines the tokenisation
FILE = "pieces.json"

#: folder of the tokenizer files, next to the checkpoint
FOLDER = "huggingface"

#: tokenises lines to ids, without the symbols around a sentence
Cut = Callable[[Sequence[str]], list[list[int]]]


class Numbers:
    """Converts sentences of one side to ids.

    Args:
        folder: an import's folder, with ``pieces.json``.
        side: ``source`` or ``target``.
        dictionary: that side's dictionary.
        language: that side's language, by the model's name for it.

    Raises:
        ValueError, FileNotFoundError: a language the model does not know, files that are missing or damaged.
    """

    def __init__(self, folder: PathLike, side: str, dictionary: ImportedDictionary, language: str | None) -> None:
        pieces = read_json(Path(folder, FILE))
        frame = dictionary.about["frames"][side]
        code = dictionary.language(language)
        numbers = dictionary.indices if code is None else {**dictionary.indices, LANGUAGE: code}
        self._before, self._after = ([numbers[symbol] for symbol in frame[place]] for place in ("before", "after"))
        path = Path(folder, FOLDER, pieces[side])
        self._cut = _CUTS[pieces["kind"]](path, dictionary)

    def __call__(self, lines: Sequence[str]) -> list[list[int]]:
        """Return the ids of sentences, with the symbols around them."""
        return [[*self._before, *numbers, *self._after] for numbers in self._cut(lines)]


def _sentencepiece(path: Path, dictionary: ImportedDictionary) -> Cut:
    model, has_codes = load_sentencepiece(path), bool(dictionary.about.get("codes"))

    def cut(lines: Sequence[str]) -> list[list[int]]:
        codes, rests = zip(*(_code(line) if has_codes else ([], line) for line in lines), strict=True)
        found = model.encode(list(rests), out_type=str)
        rows = zip(codes, found, strict=True)
        return [[dictionary.index(piece) for piece in [*code, *pieces]] for code, pieces in rows]

    return cut


def _code(line: str) -> tuple[list[str], str]:
    """Split Marian's code of the target language (``>>fra<<``) from the sentence after it."""
    end = line.find("<<")
    return ([line[: end + 2]], line[end + 2 :]) if line.startswith(">>") and end >= 0 else ([], line)


def _tokenizer(path: Path, dictionary: ImportedDictionary) -> Cut:
    return _encoding(load_tokenizer(path))


def _byte_level(path: Path, dictionary: ImportedDictionary) -> Cut:
    """BART's byte pairs from ``vocab.json`` and ``merges.txt``."""
    import tokenizers
    from tokenizers import models, pre_tokenizers

    model = models.BPE.from_file(str(path), str(path.with_name("merges.txt")))
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return _encoding(tokenizer)


def _encoding(tokenizer: Any) -> Cut:
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def cut(lines: Sequence[str]) -> list[list[int]]:
        return [encoding.ids for encoding in tokenizer.encode_batch(list(lines), add_special_tokens=False)]

    return cut


_CUTS = {"sentencepiece": _sentencepiece, "tokenizer": _tokenizer, "byte-level": _byte_level}
