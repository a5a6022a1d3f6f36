"""Joint sentencepiece BPE over both languages, and text cut into its pieces."""

import io
from typing import Any

try:
    import sentencepiece
except ModuleNotFoundError as error:
    raise ValueError("sentencepiece is not installed: pip install 'fairseq_headprune[corpus]'") from error


def train_pieces(text: str, vocab: int) -> bytes:
    """Train a joint BPE model on lines of text and return the model file's bytes.

    One thread, no sampling and no normalisation: the same text gives the same model, and decoding gives it back.

    Raises:
        ValueError: the text does not give so many pieces, or has more letters than that.
    """
    model = io.BytesIO()
    fixed: dict[str, Any] = {"model_type": "bpe", "character_coverage": 1.0, "normalization_rule_name": "identity"}
    fixed |= {"num_threads": 1, "shuffle_input_sentence": False, "minloglevel": 2, "vocab_size": vocab}
    lines = iter(text.splitlines())
    try:
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=lines, model_writer=model, **fixed)
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1]
        raise ValueError(f"no sentencepiece vocabulary of {vocab} pieces from this text ({reason})") from error
    return model.getvalue()


def encode(model: bytes, text: str) -> str:
    """Cut each line into pieces separated by spaces."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return "".join(" ".join(pieces) + "\n" for pieces in processor.encode(text.splitlines(), out_type=str))
