"""Joint sentencepiece BPE over both languages, and text cut into its pieces."""

import io

import sentencepiece


def train_pieces(text: str, vocab: int) -> bytes:
    """Train a joint BPE model on lines of text and return the model file's bytes.

    One thread, no sampling and no normalisation: the same text gives the same model, and decoding gives back the
    text exactly.

    Raises:
        ValueError: the text does not give so many pieces, or has more letters than that.
    """
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(text.splitlines()),
            model_writer=model,
            model_type="bpe",
            vocab_size=vocab,
            character_coverage=1.0,
            normalization_rule_name="identity",
            num_threads=1,
            shuffle_input_sentence=False,
            minloglevel=2,
        )
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1]
        raise ValueError(f"no sentencepiece vocabulary of {vocab} pieces from this text ({reason})") from error
    return model.getvalue()


def encode(model: bytes, text: str) -> str:
    """Cut each line into pieces separated by spaces."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return "".join(" ".join(pieces) + "\n" for pieces in processor.encode(text.splitlines(), out_type=str))
