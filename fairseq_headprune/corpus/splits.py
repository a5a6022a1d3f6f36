"""Train, valid and test of the embedded corpus: distinct pairs, no sentence in two splits, checked by checksum."""

import hashlib
import importlib.metadata
import random
from dataclasses import dataclass

from fairseq_headprune.corpus.sentences import draw
from fairseq_headprune.corpus.spelling import Pair

#: The versions whose spelling the checksums hold for; setup.py asks for the same.
PINNED = {"num2words": "0.5.14", "Babel": "2.19.0"}

#: Longest sentence in space-separated tokens, either side.
MAX_TOKENS = 20

#: So many draws in a row without a new pair mean that there are no more.
_PATIENCE = 10_000

LANGUAGES = ("de", "en")


@dataclass(frozen=True)
class Settings:
    """What decides the text of a corpus: the seed, the pairs of each split, the sentencepiece vocabulary.

    Raises:
        ValueError: a negative seed, an empty split, or a vocabulary that cannot hold letters.
    """

    seed: int = 1
    train: int = 14_000
    valid: int = 500
    test: int = 500
    vocab: int = 1_000

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise ValueError(f"seed {self.seed} is negative; give 0 or more")
        for name in ("train", "valid", "test"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} {getattr(self, name)}: a split needs at least one sentence pair")
        if self.vocab < 100:
            raise ValueError(f"vocab {self.vocab} is too small to hold the letters of both languages; give 100 or more")

    @property
    def sizes(self) -> dict[str, int]:
        """Sentence pairs of each split."""
        return {"train": self.train, "valid": self.valid, "test": self.test}


#: Settings of text -> SHA-256 of its files. Written once from the pinned libraries; see tests/test_corpus.py.
CHECKSUMS: dict[tuple[int, int, int, int], dict[str, str]] = {
    (1, 14_000, 500, 500): {
        "test.de": "e9569fde8609c27650146665b75338af4b8353041de180fa7857d33272acb64a",
        "test.en": "61845c7ad5b00de5351e23a46e38e6afbaaebd1ea67e6655bfa46c2a98ccd854",
        "valid.de": "f5cd485f6b9a2ce7a72646993a50cb884add95a6b04c1f0b5ca37c4950fbb2b5",
        "valid.en": "ed9503461d2d484869f5fe382ac4490ab4c1dcab504b2d79f3e42de097063427",
        "train.de": "ae9e952a2039d4e36475b1df3aa132529ea2f57edb50bdbe614ed50d855de274",
        "train.en": "fc8b319f08ad780bdd84588c760caa1c8baf2bf3ce824f607be9b44acece9e75",
    },
}


def check_libraries() -> None:
    """Refuse libraries of other versions than the pinned ones: they may spell or name things in another way.

    Raises:
        ValueError: names the version found and the one needed.
    """
    for name, pinned in PINNED.items():
        found = importlib.metadata.version(name)
        if found != pinned:
            raise ValueError(
                f"{name} {found} is installed, but the corpus is defined by {name} {pinned}; "
                f"run: pip install {name}=={pinned}"
            )


def distinct_pairs(seed: int, count: int) -> list[Pair]:
    """Draw ``count`` sentence pairs of which no German and no English sentence occurs twice.

    Raises:
        ValueError: the templates do not hold so many.
    """
    rng = random.Random(seed)
    pairs: list[Pair] = []
    seen: tuple[set[str], set[str]] = (set(), set())
    misses = 0
    while len(pairs) < count:
        pair = draw(rng)
        new = all(text not in texts and len(text.split()) <= MAX_TOKENS for text, texts in zip(pair, seen, strict=True))
        if new:
            pairs.append(pair)
            for text, texts in zip(pair, seen, strict=True):
                texts.add(text)
        misses = 0 if new else misses + 1
        if misses == _PATIENCE:
            raise ValueError(f"{count} distinct pairs asked for, but only {len(pairs)} found; ask for fewer")
    return pairs


def generate(settings: Settings) -> dict[str, str]:
    """Generate the text of a corpus: file name (``train.de``, …) -> its lines.

    Test and valid are drawn first, so that they stay the same whatever the size of train.

    Raises:
        ValueError: other library versions than the pinned ones, or a text that differs from its known checksum.
    """
    check_libraries()
    pairs = distinct_pairs(settings.seed, settings.test + settings.valid + settings.train)
    files, start = {}, 0
    for split in ("test", "valid", "train"):
        part = pairs[start : start + settings.sizes[split]]
        start += len(part)
        for side, language in enumerate(LANGUAGES):
            files[f"{split}.{language}"] = "".join(f"{pair[side]}\n" for pair in part)
    known = CHECKSUMS.get((settings.seed, settings.train, settings.valid, settings.test), {})
    for name, expected in known.items():
        found = hashlib.sha256(files[name].encode()).hexdigest()
        if found != expected:
            raise ValueError(f"{name} was generated with SHA-256 {found}, expected {expected}: a changed installation?")
    return files
