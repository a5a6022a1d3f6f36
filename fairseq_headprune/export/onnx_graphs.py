"""ONNX: the encoder, the decoder over a whole prefix, and one decoder step with a cache, as three files.

``encoder.onnx``
    ``src_tokens`` (batch, src), including end of sentence, padded on either side -> ``encoder_out`` (batch, src, d),
    ``encoder_padding_mask`` (batch, src), and ``cross_key_<i>``, ``cross_value_<i>`` (batch, heads, src, head_dim) of
    every decoder layer i that has encoder-decoder heads.
``decoder.onnx``
    ``prev_output_tokens`` (batch, tgt), ``encoder_out``, ``encoder_padding_mask`` -> ``log_probs`` (batch, tgt, V).
``decoder_step.onnx``
    ``prev_output_tokens`` (batch, tgt; no padding), ``encoder_padding_mask``, the cross keys and values, and
    ``past_key_<i>``, ``past_value_<i>`` (batch, heads, tgt - 1, head_dim; length 0 at first) of every layer i with
    self-attention heads -> ``log_probs`` (batch, V) of the next token, ``present_key_<i>``, ``present_value_<i>``.

:func:`load_onnx` makes a fairseq model of them, so that fairseq's own search can translate with it.
"""

import copy
import warnings
from pathlib import Path
from typing import Any, Optional

import onnx
import onnxruntime
import torch
from fairseq.data import Dictionary
from fairseq.models import FairseqEncoder, FairseqEncoderDecoderModel, FairseqIncrementalDecoder
from torch import Tensor, nn

from fairseq_headprune.export.model import Exportable, Pairs, gathered
from fairseq_headprune.files import PathLike
from fairseq_headprune.models.imported import HalvesPositions
from fairseq_headprune.models.transformer_gated import NO_LAYER

OPSET = 17


class Positions(nn.Module):
    """fairseq's positional embeddings, as a table of fixed size and without Python arithmetic on lengths."""

    padding_idx: int
    table: Tensor

    def __init__(self, module: Any, length: int) -> None:
        super().__init__()
        self.padding_idx = module.padding_idx
        if isinstance(module, nn.Embedding):
            table = module.weight
        else:
            table = module.get_embedding(self.padding_idx + 1 + length, module.embedding_dim, self.padding_idx)
        self.register_buffer("table", table.detach().clone())

    def forward(self, tokens: Tensor, incremental_state: Optional[dict] = None) -> Tensor:
        """Return the embeddings of all positions, or of the last one while decoding step by step."""
        if incremental_state is not None:
            places = torch.ones_like(tokens).cumsum(dim=1)[:, -1:]
        else:
            real = tokens.ne(self.padding_idx).long()
            places = real.cumsum(dim=1) * real
        return torch.nn.functional.embedding(places + self.padding_idx, self.table)


class EncoderGraph(nn.Module):
    """Everything that is computed once per sentence."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.encoder, self.cross = model.encoder, nn.ModuleList(cross_attention(model).values())

    def forward(self, src_tokens: Tensor) -> tuple[Tensor, ...]:
        """See the module docstring."""
        output = self.encoder(src_tokens, src_lengths=None)
        states, padding = output["encoder_out"][0], output["encoder_padding_mask"][0]
        cross: Any = self.cross
        pairs = [m._heads_first(p(states)) for m in cross for p in (m.k_proj, m.v_proj)]
        return states.transpose(0, 1), padding, *pairs


class DecoderGraph(nn.Module):
    """The decoder over a whole prefix, without a cache."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.decoder = model.decoder

    def forward(self, tokens: Tensor, encoder_out: Tensor, padding: Tensor) -> Tensor:
        """See the module docstring."""
        output = {"encoder_out": [encoder_out.transpose(0, 1)], "encoder_padding_mask": [padding]}
        logits, _ = self.decoder(tokens, encoder_out=output, alignment_layer=NO_LAYER)
        return logits.log_softmax(dim=-1)


class StepGraph(nn.Module):
    """One decoder step with a cache."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.decoder = model.decoder
        self.cross, self.own = cross_attention(model), self_attention(model)

    def forward(self, tokens: Tensor, padding: Tensor, *caches: Tensor) -> tuple[Tensor, ...]:
        """See the module docstring."""
        state: dict[str, Any] = {}
        modules = [*self.cross.values(), *self.own.values()]
        for place, module in enumerate(modules):
            saved: dict[str, Optional[Tensor]] = {
                "prev_key": caches[2 * place],
                "prev_value": caches[2 * place + 1],
                "prev_key_padding_mask": padding if module.encoder_decoder_attention else None,
            }
            module._set_input_buffer(state, saved)
        # The keys are in the cache, so only the batch size of the encoder's output is used.
        nothing = tokens.new_zeros(1, tokens.size(0), self.decoder.embed_dim, dtype=torch.float)
        output = {"encoder_out": [nothing], "encoder_padding_mask": [padding]}
        logits, _ = self.decoder(tokens, encoder_out=output, incremental_state=state, alignment_layer=NO_LAYER)
        present = [module._get_input_buffer(state) for module in self.own.values()]
        return logits[:, -1].log_softmax(dim=-1), *[p[k] for p in present for k in ("prev_key", "prev_value")]


def cross_attention(model: Any) -> dict[int, Any]:
    """Return the encoder-decoder attention modules that have heads, by layer."""
    return {i: layer.encoder_attn for i, layer in enumerate(model.decoder.layers) if layer.encoder_attn.num_heads}


def self_attention(model: Any) -> dict[int, Any]:
    """Return the decoder's self-attention modules that have heads, by layer."""
    return {i: layer.self_attn for i, layer in enumerate(model.decoder.layers) if layer.self_attn.num_heads}


def save(exported: Exportable, folder: PathLike) -> dict[str, Any]:
    """Write the three graphs (float32) into a folder, with the dictionaries, and describe them."""
    model = _traceable(exported)
    pad, eos = exported.target.pad(), exported.target.eos()
    # The example input has padding, since tracing only records the handling of padding if there is some.
    source = torch.tensor([[5, 6, 7, eos], [pad, pad, 6, eos]])
    target = torch.tensor([[eos, 5, 6], [eos, 5, pad]])
    cross = [f"cross_{kind}_{i}" for i in cross_attention(model) for kind in ("key", "value")]
    past = [f"past_{kind}_{i}" for i in self_attention(model) for kind in ("key", "value")]
    present = [name.replace("past", "present") for name in past]
    with torch.no_grad():
        states, padding, *keys = EncoderGraph(model)(source)
        caches = [
            torch.zeros(len(target), m.num_heads, 2, m.head_dim) for m in self_attention(model).values() for _ in "kv"
        ]
    outputs = ["encoder_out", "encoder_padding_mask", *cross]
    _export(EncoderGraph(model), (source,), Path(folder, "encoder.onnx"), ["src_tokens"], outputs)
    inputs = ["prev_output_tokens", "encoder_out", "encoder_padding_mask"]
    _export(DecoderGraph(model), (target, states, padding), Path(folder, "decoder.onnx"), inputs, ["log_probs"])
    inputs, whole = ["prev_output_tokens", "encoder_padding_mask", *cross, *past], target.clamp(min=eos)
    arguments = (whole, padding, *keys, *caches)
    _export(StepGraph(model), arguments, Path(folder, "decoder_step.onnx"), inputs, ["log_probs", *present])
    exported.source.save(str(Path(folder, "dict.source.txt")))
    exported.target.save(str(Path(folder, "dict.target.txt")))
    return {"version": onnx.__version__, "opset": OPSET, "eos": eos, "pad": pad}


def log_probs(exported: Exportable, folder: PathLike, pairs: Pairs) -> list[list[float]]:
    """Score target sentences with the saved encoder and decoder, in the form that ``check`` expects."""
    encoder, decoder = (onnxruntime.InferenceSession(str(Path(folder, f"{n}.onnx"))) for n in ("encoder", "decoder"))
    eos = exported.target.eos()
    result = []
    for source, target in pairs:
        states, padding, *_ = encoder.run(None, {"src_tokens": _row([*source, eos])})
        feed = {"prev_output_tokens": _row([eos, *target]), "encoder_out": states, "encoder_padding_mask": padding}
        known = {entry.name for entry in decoder.get_inputs()}
        found = decoder.run(["log_probs"], {name: value for name, value in feed.items() if name in known})[0]
        result.append(gathered(torch.from_numpy(found)[0], [*target, eos]))
    return result


def _row(tokens: list[int]) -> Any:
    return torch.tensor([tokens]).numpy()


def _traceable(exported: Exportable) -> Any:
    """Copy the model and replace what tracing would make constant: positions, and the causal mask."""
    model = copy.deepcopy(exported.model)
    for part, length in (
        (model.encoder, model.encoder.max_source_positions),
        (model.decoder, model.decoder.max_positions()),
    ):
        if not isinstance(part.embed_positions, HalvesPositions):  # which can be traced as they are
            part.embed_positions = Positions(part.embed_positions, length)
    model.decoder.buffered_future_mask = _future_mask
    for layer in model.decoder.layers:
        layer.need_attn = False
    return model


def _future_mask(x: Tensor) -> Tensor:
    places = torch.ones_like(x[:, 0, 0]).cumsum(dim=0)
    return torch.zeros_like(places[:, None] - places).masked_fill(places[None, :] > places[:, None], float("-inf"))


#: the names of the dynamic axes, by kind of tensor
_AXES = {
    "src_tokens": {0: "batch", 1: "src"},
    "prev_output_tokens": {0: "batch", 1: "tgt"},
    "encoder_out": {0: "batch", 1: "src"},
    "encoder_padding_mask": {0: "batch", 1: "src"},
    "log_probs": {0: "batch"},
    "cross": {0: "batch", 2: "src"},
    "past": {0: "batch", 2: "past"},
    "present": {0: "batch", 2: "tgt"},
}


def _export(graph: nn.Module, arguments: tuple, path: Path, inputs: list[str], outputs: list[str]) -> None:
    axes = {name: dict(_AXES.get(name) or _AXES[name.split("_")[0]]) for name in [*inputs, *outputs]}
    if path.name == "decoder.onnx":
        axes["log_probs"][1] = "tgt"
    with warnings.catch_warnings():
        # The tracer warns about each Python condition and about being deprecated.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            graph.eval(),
            arguments,
            str(path),
            input_names=inputs,
            output_names=outputs,
            dynamic_axes=axes,
            opset_version=OPSET,
            dynamo=False,
        )


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
