"""The heads of a model that is not trained yet, from the flags of fairseq-train."""

import sys
from collections.abc import Sequence
from typing import NoReturn

from fairseq_headprune.parts import Shape


def model_shape(data: str, flags: Sequence[str]) -> Shape:
    """Return the number of heads of each layer of the encoder-decoder that these flags describe.

    Raises:
        ValueError: a flag that fairseq does not know, or an architecture whose settings do not tell layers and heads.
    """
    from fairseq import options

    from fairseq_headprune import plugin  # noqa: F401  (registers)

    before = sys.argv
    # fairseq looks into sys.argv while it builds the parser.
    words = ["--task", "translation_headprune", "--criterion", "label_smoothed_cross_entropy", *flags]
    sys.argv = ["fairseq-train", data, *words]
    try:
        parser = options.get_training_parser()
        parser.error = _refuse  # type: ignore[method-assign]
        found = vars(options.parse_args_and_arch(parser, sys.argv[1:]))
    finally:
        sys.argv = before
    names = [f"{side}_{what}" for side in ("encoder", "decoder") for what in ("layers", "attention_heads")]
    if not all(isinstance(found.get(name), int) for name in names):
        raise ValueError(f"--arch {found.get('arch')}: its settings do not tell {', '.join(names)}")
    encoder_layers, encoder_heads, decoder_layers, decoder_heads = (found[name] for name in names)
    decoder = [decoder_heads] * decoder_layers
    return {"enc_self": [encoder_heads] * encoder_layers, "enc_dec": decoder, "dec_self": list(decoder)}


def _refuse(message: str) -> NoReturn:
    raise ValueError(f"fairseq-train would refuse its flags: {message}")
