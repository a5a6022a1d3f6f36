"""Loads an exported ONNX folder as a fairseq model, so that fairseq's own search can translate with it."""

from pathlib import Path
from typing import Any

import onnxruntime
import torch
from fairseq.data import Dictionary
from fairseq.models import FairseqEncoder, FairseqEncoderDecoderModel, FairseqIncrementalDecoder
from torch import Tensor

from fairseq_headprune.files import PathLike


def load_onnx(
    folder: PathLike, source: Dictionary, target: Dictionary, cached: bool = True
) -> FairseqEncoderDecoderModel:
    """Return the model of a folder; ``cached`` chooses ``decoder_step.onnx`` over ``decoder.onnx``."""
    encoder, decoder = _OnnxEncoder(Path(folder), source), _OnnxDecoder(Path(folder), target, cached)
    return FairseqEncoderDecoderModel(encoder, decoder)


class _OnnxEncoder(FairseqEncoder):
    """``encoder.onnx``: named tensors with the batch as first dimension."""

    def __init__(self, folder: Path, dictionary: Dictionary) -> None:
        super().__init__(dictionary)
        self._session = onnxruntime.InferenceSession(str(folder / "encoder.onnx"))

    def forward(self, src_tokens: Tensor, src_lengths: Tensor | None = None, **_: Any) -> dict[str, Tensor]:
        return _run(self._session, {"src_tokens": src_tokens})

    def reorder_encoder_out(self, encoder_out: dict[str, Tensor], new_order: Tensor) -> dict[str, Tensor]:
        return {name: value.index_select(0, new_order) for name, value in encoder_out.items()}


class _OnnxDecoder(FairseqIncrementalDecoder):
    """``decoder_step.onnx`` with its cache in fairseq's incremental state, or ``decoder.onnx`` without a cache."""

    def __init__(self, folder: Path, dictionary: Dictionary, cached: bool) -> None:
        super().__init__(dictionary)
        self._cached = cached
        name = "decoder_step" if cached else "decoder"
        self._session = onnxruntime.InferenceSession(str(folder / f"{name}.onnx"))
        self._inputs = {i.name: i.shape for i in self._session.get_inputs()}

    def forward(
        self, prev_output_tokens: Tensor, encoder_out: Any = None, incremental_state: Any = None, **_: Any
    ) -> tuple[Tensor, None]:
        """Return log-probabilities (batch, tokens, vocabulary); with a cache, of the last token only."""
        feed = {"prev_output_tokens": prev_output_tokens, **encoder_out}
        if self._cached:
            for name, shape in self._inputs.items():
                if name.startswith("past"):
                    empty = torch.zeros(len(prev_output_tokens), shape[1], 0, shape[3])
                    feed[name] = incremental_state.get(name, empty)
        found = _run(self._session, {name: feed[name] for name in self._inputs})
        log_probs = found.pop("log_probs")
        if not self._cached:
            return log_probs, None
        incremental_state.update({name.replace("present", "past"): value for name, value in found.items()})
        return log_probs[:, None], None

    def reorder_incremental_state_scripting(self, incremental_state: dict[str, Tensor], new_order: Tensor) -> None:
        for name, value in incremental_state.items():
            incremental_state[name] = value.index_select(0, new_order)

    def max_positions(self) -> int:
        return 1000


def _run(session: onnxruntime.InferenceSession, feed: dict[str, Tensor]) -> dict[str, Tensor]:
    values = session.run(None, {name: value.numpy() for name, value in feed.items()})
    return {out.name: torch.from_numpy(value) for out, value in zip(session.get_outputs(), values, strict=True)}
