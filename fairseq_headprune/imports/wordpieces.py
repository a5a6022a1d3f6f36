"""WordPiece vocabularies: read from a folder, stored as one text, and used to encode sentences as BERT's own ids."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Optional

from fairseq_headprune.files import PathLike, read_json, read_lines

# Data loaders fork after sentences were encoded in parallel. This avoids a warning; workers encode nothing.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


class Encoded(NamedTuple):
    """One example: ids and token types of its pieces, with [CLS] and [SEP], and whether it was truncated."""

    ids: list[int]
    types: list[int]
    is_cut: bool


class WordPieceVocabulary:
    """BERT's WordPiece vocabulary, which also encodes text, by the library ``tokenizers``."""

    def __init__(self, text: str, name: str = "the vocabulary") -> None:
        """Read the text of a ``tokenizer.json``, which :meth:`to_text` returns too.

        Args:
            name: its origin, for messages.

        Raises:
            ValueError: it is damaged, or not a WordPiece vocabulary with BERT's special tokens.
        """
        from tokenizers import Tokenizer, models

        try:
            self._tokenizer = Tokenizer.from_str(text)
        except Exception as error:  # the library raises plain Exception
            raise ValueError(f"{name}: not a tokenizer.json ({error})") from error
        kind = type(self._tokenizer.model)
        if kind is not models.WordPiece:
            raise ValueError(f"{name}: a {kind.__name__} vocabulary; BERT's is WordPiece")
        absent = [token for token in _SPECIAL if self._tokenizer.token_to_id(token) is None]
        if absent:
            raise ValueError(f"{name}: {', '.join(absent)} missing")
        # A tokenizer.json may pad and truncate to a length of its own.
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()

    @classmethod
    def from_folder(cls, path: PathLike) -> "WordPieceVocabulary":
        """Read ``tokenizer.json``, or ``vocab.txt`` with ``tokenizer_config.json``, from a folder or a file.

        Raises:
            FileNotFoundError: neither exists.
            ValueError: see the constructor.
        """
        path = Path(path)
        whole, plain = path / "tokenizer.json", path / "vocab.txt"
        if path.is_file():
            whole, plain = (path, plain) if path.suffix == ".json" else (whole, path)
        if whole.is_file():
            return cls(whole.read_text(encoding="utf-8"), str(whole))
        if plain.is_file():
            return cls(_from_list(plain), str(plain))
        raise FileNotFoundError(f"{path}: neither tokenizer.json nor vocab.txt is there")

    def __len__(self) -> int:
        return self._tokenizer.get_vocab_size()

    def _id(self, symbol: str) -> int:
        number = self._tokenizer.token_to_id(symbol)
        assert number is not None  # checked when the vocabulary was read
        return number

    @property
    def pad(self) -> int:
        """The id of [PAD]."""
        return self._id("[PAD]")

    @property
    def edges(self) -> tuple[int, int]:
        """The ids of [CLS] and [SEP]."""
        return self._id("[CLS]"), self._id("[SEP]")

    def to_text(self) -> str:
        """Return the vocabulary as the text of a ``tokenizer.json``."""
        return self._tokenizer.to_str()

    def pieces(self) -> list[str]:
        """Return the pieces sorted by id, as the lines of a ``vocab.txt``."""
        return sorted(self._tokenizer.get_vocab(), key=self._tokenizer.get_vocab().__getitem__)

    def encode(self, firsts: Sequence[str], seconds: Optional[Sequence[str]], limit: int) -> list[Encoded]:
        """Encode sentences or pairs; pairs longer than ``limit`` are truncated, the longer sentence first."""
        self._tokenizer.enable_truncation(limit, strategy="longest_first")
        inputs = list(firsts) if seconds is None else list(zip(firsts, seconds, strict=True))
        encodings = self._tokenizer.encode_batch(inputs)
        self._tokenizer.no_truncation()
        return [Encoded(found.ids, found.type_ids, bool(found.overflowing)) for found in encodings]


def _from_list(path: Path) -> str:
    """Return a ``tokenizer.json`` that is equivalent to a ``vocab.txt``."""
    from tokenizers import BertWordPieceTokenizer

    pieces = {piece: number for number, piece in enumerate(read_lines(path))}
    for token in _SPECIAL:
        if token not in pieces:
            raise ValueError(f"{path}: {token} missing")
    options = path.with_name("tokenizer_config.json")
    how = read_json(options) if options.is_file() else {}
    tokenizer = BertWordPieceTokenizer(
        pieces,
        handle_chinese_chars=how.get("tokenize_chinese_chars", True),
        strip_accents=how.get("strip_accents"),
        lowercase=how.get("do_lower_case", True),
    )
    return tokenizer.to_str()
