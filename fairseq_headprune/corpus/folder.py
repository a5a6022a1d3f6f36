"""The embedded corpus on disk: text, sentencepiece pieces, fairseq's binary format, and ``corpus.json`` about them."""

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import io
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_headprune.corpus.sentences import distinct_pairs
from fairseq_headprune.files import PathLike, read_json, sha256, write_bytes, write_json
from fairseq_headprune.leftovers import temporary_folder
from fairseq_headprune.sentencepieces import encode, train_pieces

_WAY_OUT = "choose another folder, or give --force to replace it"


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
    pairs = iter(distinct_pairs(settings.seed, sum(settings.sizes.values())))
    parts = {split: [next(pairs) for _ in range(settings.sizes[split])] for split in ("test", "valid", "train")}
    sides = [(split, side, lang) for split in parts for side, lang in enumerate(("de", "en"))]
    return {f"{split}.{lang}": "".join(f"{pair[side]}\n" for pair in parts[split]) for split, side, lang in sides}


def make_corpus(directory: PathLike, settings: Settings, binarise: bool = True, force: bool = False) -> dict[str, Any]:
    """Write the corpus into a folder, or reuse the same corpus found there; return the contents of ``corpus.json``.

    Files: ``train|valid|test.de|en`` (text), ``….spm.de|en`` (the same as pieces), ``spm.model``, ``corpus.json``
    (written last), and with ``binarise`` ``data-bin/`` for fairseq with a joined dictionary.

    Raises:
        ValueError: the folder holds another corpus and ``force`` is not given, or fairseq is not installed.
        OSError: the folder cannot be written.
        RuntimeError: fairseq-preprocess failed.
    """
    directory, path = Path(directory), Path(directory, "corpus.json")
    found = read_json(path) if path.exists() else {}
    wanted = {"format": "headprune.corpus/1", "seed": settings.seed, "sentences": settings.sizes}
    wanted["vocabulary"] = settings.vocab
    same = isinstance(found, dict) and found == found | wanted
    if path.exists() and not same and not force:
        raise ValueError(f"{path} describes another corpus than {settings}; {_WAY_OUT}")
    if binarise and importlib.util.find_spec("fairseq_cli") is None:
        raise ValueError("fairseq is not installed: pip install 'fairseq_headprune[fairseq]', or give --no-binarise")
    hashes = found.get("sha256", {}) if same else {}
    if not hashes or any(not (directory / n).exists() or sha256(directory / n) != hashes[n] for n in hashes):
        hashes = _write(directory, settings, force)
        found = wanted | {"libraries": {"sentencepiece": importlib.metadata.version("sentencepiece")}, "sha256": hashes}
        write_json(path, found)
    if binarise:
        _binarise(directory, found, force)
    return found


def _write(directory: Path, settings: Settings, force: bool) -> dict[str, str]:
    """Write text, model and pieces; return file name -> SHA-256."""
    text = generate(settings)
    model = train_pieces(text["train.de"] + text["train.en"], settings.vocab)
    text |= {name.replace(".", ".spm."): encode(model, content) for name, content in text.items()}
    files = {name: content.encode() for name, content in text.items()} | {"spm.model": model}
    directory.mkdir(parents=True, exist_ok=True)
    # All checks come before the first write, so that a refused folder is unchanged.
    for name, content in files.items():
        if (directory / name).exists() and not force and (directory / name).read_bytes() != content:
            raise ValueError(f"{directory / name} exists and is not this corpus's; {_WAY_OUT}")
    for name, content in files.items():
        write_bytes(directory / name, content)
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


def _binarise(directory: Path, description: dict[str, Any], force: bool) -> None:
    """Run fairseq-preprocess into ``data-bin``, atomically."""
    target = directory / "data-bin"
    label = target / "corpus.json"
    if target.exists():
        if label.exists() and read_json(label).get("sha256") == description["sha256"]:
            return
        if not force:
            raise ValueError(f"{target} was made from another corpus; {_WAY_OUT}")
    with temporary_folder(target) as scratch:
        made = scratch / "data-bin"
        flags = ["--joined-dictionary", "--source-lang=de", "--target-lang=en", f"--destdir={made}"]
        _preprocess([*flags, *(f"--{split}pref={directory / split}.spm" for split in ("train", "valid", "test"))])
        write_json(made / "corpus.json", description)
        if target.exists():
            shutil.rmtree(target)
        made.rename(target)


def _preprocess(flags: list[str]) -> None:
    """Run fairseq-preprocess without logs, in this process, so that it ends when this process is killed."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        from fairseq import options
        from fairseq_cli import preprocess

        before = list(preprocess.logger.handlers)
        try:
            preprocess.main(options.get_preprocessing_parser().parse_args(flags))
        except Exception as error:
            raise RuntimeError(f"fairseq-preprocess failed: {error}") from error
        finally:
            # fairseq opens a log in the folder it writes, and the next call in this process would write there again.
            for handler in [h for h in preprocess.logger.handlers if h not in before]:
                preprocess.logger.removeHandler(handler)
                handler.close()
