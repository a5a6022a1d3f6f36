"""Sentencepiece models: loaded, trained, and applied to text."""

import io
from pathlib import Path
from types import ModuleType
from typing import Any


def _library() -> ModuleType:
    """Import sentencepiece, which only some extras install."""
    try:
        import sentencepiece
    except ModuleNotFoundError as error:
        raise ValueError("sentencepiece is not installed: pip install 'sentencepiece>=0.2'") from error
    return sentencepiece


def sentencepiece_symbols(path: Path) -> list[str]:
    """Return the pieces of a sentencepiece model in the order of their ids.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not a sentencepiece model.
    """
    processor = load_sentencepiece(path)
    return [processor.id_to_piece(i) for i in range(processor.get_piece_size())]


def load_sentencepiece(path: Path) -> Any:
    """Load a sentencepiece model.

    Raises:
        FileNotFoundError, ValueError: as for :func:`sentencepiece_symbols`, or the package is missing.
    """
    library = _library()
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing")
    try:
        return library.SentencePieceProcessor(model_file=str(path))
    except (RuntimeError, OSError) as error:
        raise ValueError(f"{path}: no sentencepiece model") from error


def train_pieces(text: str, vocab: int) -> bytes:
    """Train a joint BPE model on lines of text and return the model file's bytes.

    One thread, no sampling and no normalisation: the same text gives the same model, and decoding restores the text.

    Raises:
        ValueError: the text does not give that many pieces, or has more distinct letters; or the package is missing.
    """
    library, model = _library(), io.BytesIO()
    fixed: dict[str, Any] = {"model_type": "bpe", "character_coverage": 1.0, "normalization_rule_name": "identity"}
    fixed |= {"num_threads": 1, "shuffle_input_sentence": False, "minloglevel": 2, "vocab_size": vocab}
    lines = iter(text.splitlines())
    try:
        library.SentencePieceTrainer.train(sentence_iterator=lines, model_writer=model, **fixed)
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1]
        raise ValueError(f"no sentencepiece vocabulary of {vocab} pieces from this text ({reason})") from error
    return model.getvalue()


def encode(model: bytes, text: str) -> str:
    """Cut each line into pieces separated by spaces."""
    processor = _library().SentencePieceProcessor(model_proto=model)
    return "".join(" ".join(pieces) + "\n" for pieces in processor.encode(text.splitlines(), out_type=str))
