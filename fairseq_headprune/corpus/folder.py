"""The embedded corpus on disk: text, sentencepiece pieces, fairseq's binary format, and ``corpus.json`` about them."""

import hashlib
import importlib.metadata
import importlib.util
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from fairseq_headprune.corpus.sentences import distinct_pairs
from fairseq_headprune.files import PathLike, read_json, read_lines, write_bytes, write_json
from fairseq_headprune.leftovers import new_folder
from fairseq_headprune.sentencepieces import encode, train_pieces


@dataclass(frozen=True)
class Settings:
    """The settings that determine a corpus: the seed, the pairs of each split, the sentencepiece vocabulary size.

    Raises:
        ValueError: a negative seed, an empty split, or a vocabulary too small for the letters.
    """

    seed: int = 1
    train: int = 14_000
    valid: int = 500
    test: int = 500
    vocab: int = 1_000

    def __post_init__(self) -> None:
        for name, lowest in {"seed": 0, "train": 1, "valid": 1, "test": 1, "vocab": 100}.items():
            if getattr(self, name) < lowest:
                raise ValueError(f"{name} {getattr(self, name)} is too small: give {lowest} or more")

    @property
    def sizes(self) -> dict[str, int]:
        """Number of sentence pairs of each split."""
        return {"train": self.train, "valid": self.valid, "test": self.test}


def generate(settings: Settings) -> dict[str, str]:
    """Generate the text of a corpus: file name (``train.de``, …) -> its lines.

    Test and valid are drawn first, so that they do not depend on the size of train.
    """
    text, pairs = {}, distinct_pairs(settings.seed)
    for split in ("test", "valid", "train"):
        for lang, side in zip(("de", "en"), zip(*islice(pairs, settings.sizes[split]), strict=True), strict=True):
            text[f"{split}.{lang}"] = "".join(f"{line}\n" for line in side)
    return text


def make_corpus(directory: PathLike, settings: Settings, binarise: bool = True, force: bool = False) -> dict[str, Any]:
    """Write the corpus into a folder, or complete the same corpus found there; return what ``corpus.json`` holds.

    Files: ``train|valid|test.de|en`` (text), ``….spm.de|en`` (the same as pieces), ``spm.model``, ``corpus.json``
    (written last), and with ``binarise`` ``data-bin/`` for fairseq with a joined dictionary.

    Raises:
        ValueError: the folder holds another corpus and ``force`` is not given, or fairseq is not installed.
        OSError: the folder cannot be written.
    """
    if binarise and importlib.util.find_spec("fairseq") is None:
        raise ValueError("fairseq is not installed: pip install 'fairseq_headprune[fairseq]', or give --no-binarise")
    folder, text = Path(directory), generate(settings)
    model = train_pieces(text["train.de"] + text["train.en"], settings.vocab)
    text |= {name.replace(".", ".spm."): encode(model, content) for name, content in text.items()}
    files = {name: content.encode() for name, content in text.items()} | {"spm.model": model}
    about = {"format": "headprune.corpus/1", "seed": settings.seed, "sentences": settings.sizes}
    about |= {"vocabulary": settings.vocab, "libraries": {"sentencepiece": importlib.metadata.version("sentencepiece")}}
    about["sha256"] = hashes = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    # All checks come before the first write, so that a refused folder is unchanged.
    described = _holds(folder / "corpus.json", hashes, _hashes, force)
    missing = [name for name in files if not _holds(folder / name, files[name], Path.read_bytes, force)]
    binarised = not binarise or _holds(folder / "data-bin", hashes, _hashes, force)
    folder.mkdir(parents=True, exist_ok=True)
    for name in missing:
        write_bytes(folder / name, files[name])
    if not described:
        write_json(folder / "corpus.json", about)
    if not binarised:
        _binarise(folder, about)
    return about


def _holds(path: Path, wanted: Any, read: Callable[[Path], Any], force: bool) -> bool:
    """Tell whether a path holds what is wanted; something else is refused, unless it may be replaced."""
    same = path.exists() and read(path) == wanted
    if path.exists() and not same and not force:
        raise ValueError(f"{path} is of another corpus; choose another folder, or give --force to replace it")
    return same


def _hashes(path: Path) -> Any:
    label = path / "corpus.json" if path.is_dir() else path
    about = read_json(label) if label.exists() else None
    return about.get("sha256") if isinstance(about, dict) else None


def _binarise(folder: Path, about: dict[str, Any]) -> None:
    """Write ``data-bin``: what fairseq-preprocess with a joined dictionary makes of the pieces."""
    from fairseq.data import Dictionary, indexed_dataset

    lines = {name: read_lines(folder / name) for name in about["sha256"] if ".spm." in name}
    dictionary = Dictionary()
    for word in " ".join(lines["train.spm.de"] + lines["train.spm.en"]).split():
        dictionary.add_symbol(word)
    dictionary.finalize()
    shutil.rmtree(folder / "data-bin", ignore_errors=True)
    with new_folder(folder / "data-bin") as made:
        for name, content in lines.items():
            split, _, lang = name.split(".")
            dictionary.save(str(made / f"dict.{lang}.txt"))
            builder = indexed_dataset.make_builder(f"{made}/{split}.de-en.{lang}.bin", "mmap", len(dictionary))
            for line in content:
                builder.add_item(dictionary.encode_line(line, add_if_not_exist=False))
            builder.finalize(f"{made}/{split}.de-en.{lang}.idx")
        write_json(made / "corpus.json", about)
