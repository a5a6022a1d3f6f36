"""The embedded corpus on disk: text, sentencepiece pieces, fairseq's binary form, and ``corpus.json`` about them."""

import hashlib
import importlib.metadata
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from fairseq_headprune.corpus.pieces import encode, train_pieces
from fairseq_headprune.corpus.splits import LANGUAGES, PINNED, Settings, generate
from fairseq_headprune.files import PathLike, read_json, sha256, write_bytes, write_json

#: Version of ``corpus.json``.
FORMAT = "headprune.corpus/1"

_WAY_OUT = "choose another folder, or give --force to replace it"


def make_corpus(directory: PathLike, settings: Settings, binarise: bool = True, force: bool = False) -> dict[str, Any]:
    """Write the corpus into a folder, or reuse the same corpus found there.

    Files: ``train|valid|test.de|en`` (text), the same as ``.spm.de|en`` (pieces), ``spm.model``, ``corpus.json``
    (written last), and ``data-bin/`` for fairseq with a joined dictionary.

    Args:
        binarise: also run fairseq-preprocess.
        force: replace another corpus found in the folder.

    Returns:
        The contents of ``corpus.json``.

    Raises:
        ValueError: the folder holds another corpus, or the libraries are not the pinned ones.
        OSError: the folder cannot be written.
        RuntimeError: fairseq-preprocess failed.
    """
    directory = Path(directory)
    _check_other_corpus(directory / "corpus.json", settings, force)
    if binarise and importlib.util.find_spec("fairseq_cli") is None:
        raise ValueError("fairseq is not installed: pip install 'fairseq_headprune[fairseq]', or give --no-binarise")
    description = _complete(directory, settings)
    if description is None:
        description = _write(directory, settings, force)
    if binarise:
        _binarise(directory, description, force)
    return description


def _describes(description: Any, settings: Settings) -> bool:
    keys = {"format": FORMAT, "seed": settings.seed, "sentences": settings.sizes, "vocabulary": settings.vocab}
    return isinstance(description, dict) and all(description.get(key) == value for key, value in keys.items())


def _check_other_corpus(path: Path, settings: Settings, force: bool) -> None:
    if path.exists() and not force and not _describes(read_json(path), settings):
        raise ValueError(f"{path} describes another corpus than {settings}; {_WAY_OUT}")


def _complete(directory: Path, settings: Settings) -> dict[str, Any] | None:
    """Return the folder's description when all its files are there and unchanged."""
    path = directory / "corpus.json"
    if not path.exists():
        return None
    description = read_json(path)
    if not _describes(description, settings):
        return None
    files = description.get("sha256", {})
    if files and all((directory / name).exists() and sha256(directory / name) == files[name] for name in files):
        return description
    return None


def _contents(settings: Settings) -> dict[str, bytes]:
    """Return file name -> bytes of everything but ``corpus.json`` and ``data-bin``."""
    text = generate(settings)
    model = train_pieces(text["train.de"] + text["train.en"], settings.vocab)
    files = {name: content.encode() for name, content in text.items()}
    for name, content in text.items():
        split, language = name.split(".")
        files[f"{split}.spm.{language}"] = encode(model, content).encode()
    files["spm.model"] = model
    return files


def _write(directory: Path, settings: Settings, force: bool) -> dict[str, Any]:
    files = _contents(settings)
    directory.mkdir(parents=True, exist_ok=True)
    # All checks before the first write: a refused folder stays as it was.
    for name, content in files.items():
        path = directory / name
        if path.exists() and not force and path.read_bytes() != content:
            raise ValueError(f"{path} exists and is not this corpus's; {_WAY_OUT}")
    for name, content in files.items():
        write_bytes(directory / name, content)
    description = {
        "format": FORMAT,
        "seed": settings.seed,
        "sentences": settings.sizes,
        "vocabulary": settings.vocab,
        "libraries": {name: importlib.metadata.version(name) for name in (*PINNED, "sentencepiece")},
        "sha256": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
    }
    write_json(directory / "corpus.json", description)
    return description


def _binarise(directory: Path, description: dict[str, Any], force: bool) -> None:
    """Run fairseq-preprocess into ``data-bin``, which appears complete or not at all."""
    target = directory / "data-bin"
    label = target / "corpus.json"
    if target.exists():
        if label.exists() and read_json(label) == description:
            return
        if not force:
            raise ValueError(f"{target} was made from another corpus; {_WAY_OUT}")
    with tempfile.TemporaryDirectory(prefix=".data-bin.", dir=directory) as scratch:
        made = Path(scratch) / "data-bin"
        _preprocess(directory, made)
        write_json(made / "corpus.json", description)
        if target.exists():
            shutil.rmtree(target)
        made.rename(target)


def _preprocess(directory: Path, target: Path) -> None:
    command = [sys.executable, "-m", "fairseq_cli.preprocess", "--joined-dictionary", "--destdir", str(target)]
    for option, value in zip(("--source-lang", "--target-lang"), LANGUAGES, strict=True):
        command += [option, value]
    for split in ("train", "valid", "test"):
        command += [f"--{split}pref", str(directory / f"{split}.spm")]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RuntimeError(f"fairseq-preprocess failed with status {done.returncode}: {last}")
