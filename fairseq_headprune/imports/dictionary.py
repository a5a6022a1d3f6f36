"""Dictionaries of imported models: every symbol, including special ones, keeps its id in the model."""

import json
from collections.abc import Sequence
from typing import Any, Optional

from fairseq.data import Dictionary
from fairseq.data.data_utils import post_process
from fairseq.data.encoders.gpt2_bpe_utils import bytes_to_unicode

from fairseq_headprune.files import PathLike, write_text
from fairseq_headprune.imports.vocabulary import LANGUAGE

#: prefix of the file's first line; it makes stock fairseq refuse the file instead of shifting the ids
MARK = "#headprune:numbers "

#: value of ``--post-process`` for models with byte-level symbols (BART)
BYTES = "byte-level"

#: character of a byte-level symbol -> the byte it stands for
_BYTES = {character: byte for byte, character in bytes_to_unicode().items()}


class ImportedDictionary(Dictionary):
    """A dictionary with the model's own ids of special symbols, and its languages.

    Attributes:
        about: content of its file's first line: the special symbols by name (``bos``, ``pad``, ``eos``, ``unk``),
            ``language`` (how a language's token is spelled, as ``__{}__``; None where there are none),
            ``languages`` (their tokens), ``frames`` (side -> the symbols ``before`` and ``after`` a sentence),
            ``start`` (what the decoder starts with: None for the end of sentence, a symbol, or LANGUAGE),
            ``forced`` (what a translation begins with: None, a symbol, or LANGUAGE).
    """

    def __init__(self, symbols: Sequence[str], about: dict[str, Any]) -> None:
        names = {name: about[name] for name in ("bos", "pad", "eos", "unk")}
        names["bos"] = names["bos"] or names["eos"]
        super().__init__(**names, add_special_symbols=False)
        for symbol in symbols:
            self.add_symbol(symbol)
        if len(self.symbols) != len(symbols):
            twice = next(symbol for symbol, count in zip(self.symbols, self.count, strict=True) if count > 1)
            raise ValueError(f"the symbol {twice!r} has two numbers")
        self.about = dict(about)
        for name, symbol in names.items():
            if symbol not in self.indices:
                raise ValueError(f"the vocabulary lacks the symbol {symbol!r} ({name})")
            setattr(self, f"{name}_index", self.indices[symbol])
        special = {*names.values(), *about.get("languages", [])}
        self.special = {self.indices[symbol] for symbol in special if symbol in self.indices}
        self.nspecial = 0

    @classmethod
    def read(cls, path: PathLike) -> Optional["ImportedDictionary"]:
        """Read a file written by :meth:`save`; None for a dictionary in fairseq's own format.

        Raises:
            ValueError: a damaged file.
        """
        with open(path, encoding="utf-8", newline="\n") as stream:
            head = stream.readline()
            if not head.startswith(MARK):
                return None
            lines = stream.read().split("\n")[:-1]
        try:
            return cls([line.rsplit(" ", 1)[0] for line in lines], json.loads(head[len(MARK) :]))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}: a damaged dictionary ({error})") from error

    def save(self, f: PathLike) -> None:
        """Write the dictionary, one symbol per line in the order of the ids."""
        lines = [f"{symbol} 1\n" for symbol in self.symbols]
        write_text(f, "".join([MARK, json.dumps(self.about, ensure_ascii=False, sort_keys=True), "\n", *lines]))

    def language(self, name: Optional[str]) -> Optional[int]:
        """Return the id of a language's token; None for a model without language tokens.

        Raises:
            ValueError: the model does not know the language.
        """
        spelling = self.about.get("language")
        if spelling is None:
            return None
        token = spelling.replace("{}", name or "")
        if token not in self.about["languages"]:
            known = [self._name(language) for language in self.about["languages"]]
            raise ValueError(f"the model does not know the language {name!r}; it knows {', '.join(sorted(known))}")
        return self.indices[token]

    def _name(self, token: str) -> str:
        before, _, after = self.about["language"].partition("{}")
        return token[len(before) : len(token) - len(after)]

    def start(self, language: Optional[str]) -> int:
        """Return the decoder's start token for translation into this language."""
        return self._resolved("start", language, self.eos_index)

    def forced(self, language: Optional[str]) -> Optional[int]:
        """Return the forced first token of translations into a language, None if there is none."""
        return self._resolved("forced", language, None)

    def _resolved(self, name: str, language: Optional[str], default: Any) -> Any:
        what = self.about.get(name)
        if what is None:
            return default
        return self.language(language) if what == LANGUAGE else self.indices[what]

    def string(self, tensor, bpe_symbol=None, escape_unk=False, extra_symbols_to_ignore=None, **kwargs) -> str:
        """Convert ids to text as fairseq does, without special symbols; ``byte-level`` joins byte-level symbols."""
        ignored = {*(extra_symbols_to_ignore or ()), *(self.special - {self.unk_index})}
        if kwargs.get("include_eos"):
            ignored.discard(self.eos_index)
        text = super().string(tensor, None, escape_unk, ignored, **kwargs)
        return joined(text) if bpe_symbol == BYTES else post_process(text, bpe_symbol)


def joined(text: str) -> str:
    """Decode space-joined byte-level symbols to text; other characters are kept."""
    data = bytearray()
    for character in text.replace(" ", ""):
        data += bytes([_BYTES[character]]) if character in _BYTES else character.encode()
    return data.decode("utf-8", errors="replace").strip()
