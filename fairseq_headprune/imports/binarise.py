"""Binarise raw text to a fairseq data folder, with the token ids of an imported model."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import torch
from fairseq.data import indexed_dataset

from fairseq_headprune.imports.dictionary import ImportedDictionary
from fairseq_headprune.imports.pieces import FILE, Numbers

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
