"""Tokenise raw text to an imported model's ids, as its tokenizer in transformers does, and binarise it."""

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from fairseq.data import indexed_dataset

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


#: lines tokenised at a time
_LINES = 10_000


def binarise(
    folder: Path, output: Path, prefixes: dict[str, str], source: str | None = None, target: str | None = None
) -> dict[str, dict[str, int]]:
    """Write the splits of a data folder, and return counts for each file.

    Raises:
        ValueError: sides of different lengths, an unknown language.
        FileNotFoundError: a text file is missing.
    """
    noted = json.loads((folder / FILE).read_text(encoding="utf-8"))
    given = {"source": source or noted["source_lang"], "target": target or noted["target_lang"]}
    output.mkdir(parents=True, exist_ok=True)
    counts, pair = {}, f"{given['source']}-{given['target']}"
    for side, language in given.items():
        dictionary = ImportedDictionary.read(folder / f"dict.{noted[f'{side}_lang']}.txt")
        if dictionary is None:
            raise ValueError(f"{folder}: its dictionaries are not those of an import")
        dictionary.save(output / f"dict.{language}.txt")
        numbers = Numbers(folder, side, dictionary, language)
        for split, prefix in prefixes.items():
            path = Path(f"{prefix}.{language}")
            name = f"{split}.{pair}.{language}"
            counts[name] = _write(path, output / name, numbers, dictionary)
    for split in prefixes:
        one, other = (counts[f"{split}.{pair}.{language}"]["sentences"] for language in given.values())
        if one != other:
            raise ValueError(f"{prefixes[split]}: {one:,} source and {other:,} target sentences")
    return counts


def _write(text: Path, stem: Path, numbers: Numbers, dictionary: ImportedDictionary) -> dict[str, int]:
    builder = indexed_dataset.make_builder(f"{stem}.bin", impl="mmap", vocab_size=len(dictionary))
    count = {"sentences": 0, "tokens": 0, "unknown": 0}
    for lines in _batches(text):
        for row in numbers(lines):
            builder.add_item(torch.tensor(row, dtype=torch.int32))
            count["sentences"] += 1
            count["tokens"] += len(row)
            count["unknown"] += row.count(dictionary.unk_index)
    builder.finalize(f"{stem}.idx")
    return count


def _batches(path: Path) -> Iterator[list[str]]:
    """Yield lines in batches; only ``\\n`` ends a line."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file")
    with open(path, encoding="utf-8", newline="\n") as stream:
        while True:
            lines = [line.removesuffix("\n").removesuffix("\r") for line in itertools.islice(stream, _LINES)]
            if not lines:
                return
            yield lines
