"""CTranslate2: one head count per stack; every layer is padded to it with all-zero heads.

CTranslate2 reads one ``num_heads`` for the encoder and one for the decoder, whose self-attention and encoder-decoder
attention share it. After heads are removed, the width of a head is no longer width / heads, so ``head_dim`` is set in
the specification: without it the model loads but translates wrongly.
"""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_headprune.choosing.scored import STACKS
from fairseq_headprune.export.model import Exportable, Pairs
from fairseq_headprune.files import PathLike
from fairseq_headprune.imports.dictionary import ImportedDictionary
from fairseq_headprune.modules.attach import find_gates
from fairseq_headprune.modules.cutting import cut
from fairseq_headprune.modules.multihead import GatedMultiheadAttention
from fairseq_headprune.removal.surgery import with_inputs


def head_counts(exported: Exportable) -> dict[str, int]:
    """Return the head count to which each stack's layers are padded (CTranslate2 requires at least one)."""
    modules = find_gates(exported.model).modules
    return {s: max([1, *(m.num_heads for c in parts for m in modules[c])]) for s, parts in STACKS.items()}


def padded_heads(exported: Exportable) -> int:
    """Count the all-zero heads added as padding."""
    counts, modules = head_counts(exported), find_gates(exported.model).modules
    return sum(counts[s] - m.num_heads for s, parts in STACKS.items() for c in parts for m in modules[c])


def save(exported: Exportable, folder: PathLike) -> dict[str, Any]:
    """Write a CTranslate2 model (float32) with its vocabularies into a folder, and describe it.

    Raises:
        ValueError: settings that CTranslate2 does not support.
    """
    import ctranslate2

    spec = _specification(exported)
    spec.validate()
    # Needed even without quantisation: it stores tied embeddings only once.
    spec.optimize(quantization=None)
    spec.save(str(folder))
    counts = {"heads_per_layer": head_counts(exported), "padded_heads": padded_heads(exported)}
    return counts | {"version": ctranslate2.__version__}


def log_probs(exported: Exportable, folder: PathLike, pairs: Pairs) -> list[list[float]]:
    """Score target sentences with the saved model, in the form that ``check`` expects."""
    import ctranslate2

    translator = ctranslate2.Translator(str(folder), device="cpu", compute_type="float32", intra_threads=1)
    source = [[exported.source[i] for i in words] for words, _ in pairs]
    target = [[exported.target[i] for i in words] for _, words in pairs]
    return [result.log_probs for result in translator.score_batch(source, target)]


def _specification(exported: Exportable) -> Any:
    from ctranslate2.converters import fairseq as converter
    from ctranslate2.specs.transformer_spec import TransformerDecoderSpec, TransformerEncoderSpec, TransformerSpec

    model, settings, counts = exported.model, exported.settings, head_counts(exported)
    shared = {
        "pre_norm": _pre_norm(settings),
        "activation": _activation(settings),
        "layernorm_embedding": model.encoder.layernorm_embedding is not None,
    }
    gates = find_gates(model).modules
    encoder = TransformerEncoderSpec(
        len(model.encoder.layers),
        counts["encoder"],
        head_dim=gates["enc_self"][0].head_dim,
        no_final_norm=model.encoder.layer_norm is None,
        **shared,
    )
    decoder = TransformerDecoderSpec(
        len(model.decoder.layers),
        counts["decoder"],
        head_dim=gates["dec_self"][0].head_dim,
        no_final_norm=model.decoder.layer_norm is None,
        project_in_out=_projects(model.decoder),
        **shared,
    )
    spec = TransformerSpec(encoder, decoder)
    for stack, part in ((spec.encoder, model.encoder), (spec.decoder, model.decoder)):
        _fill_stack(converter, stack, part)
    for component, rows in gates.items():
        heads = counts["encoder" if component == "enc_self" else "decoder"]
        for layer, module in enumerate(rows):
            _fill_attention(converter, spec, component, layer, _padded(module, heads))
    spec.register_source_vocabulary(_symbols(converter, exported.source))
    spec.register_target_vocabulary(_symbols(converter, exported.target))
    spec.config.decoder_start_token = spec.config.eos_token
    if isinstance(exported.target, ImportedDictionary):
        spec.config.decoder_start_token = exported.target[exported.target.start(exported.target_lang)]
    spec.config.add_source_eos = True
    return spec


def _symbols(converter: Any, dictionary: Any) -> list[str]:
    return dictionary.symbols if isinstance(dictionary, ImportedDictionary) else converter._get_vocab(dictionary)


def _projects(decoder: Any) -> bool:
    return decoder.project_in_dim is not None or decoder.project_out_dim is not None


def _fill_stack(converter: Any, spec: Any, module: Any) -> None:
    """Fill in everything except the attention."""
    converter.set_input_layers(spec, module)
    for name in ("layer_norm", "layernorm_embedding"):
        if getattr(module, name) is not None:
            converter.set_layer_norm(getattr(spec, name), getattr(module, name))
    if hasattr(spec, "projection"):
        converter.set_linear(spec.projection, module.output_projection)
        if _projects(module):
            # CTranslate2 requires both or neither.
            same = _linear(torch.eye(module.embed_dim), None)
            converter.set_linear(spec.project_in, module.project_in_dim or same)
            converter.set_linear(spec.project_out, module.project_out_dim or same)
    for layer, part in zip(spec.layer, module.layers, strict=True):
        converter.set_ffn(layer.ffn, _feed_forward(part))
        converter.set_layer_norm(layer.self_attention.layer_norm, part.self_attn_layer_norm)
        if hasattr(part, "encoder_attn"):
            converter.set_layer_norm(layer.attention.layer_norm, part.encoder_attn_layer_norm)


def _fill_attention(converter: Any, spec: Any, component: str, layer: int, linear: dict[str, nn.Linear]) -> None:
    from ctranslate2.converters import utils
    from ctranslate2.specs.common_spec import LinearSpec

    row = (spec.encoder if component == "enc_self" else spec.decoder).layer[layer]
    place = row.attention if component == "enc_dec" else row.self_attention
    parts = {name: LinearSpec() for name in ("q_proj", "k_proj", "v_proj")}
    for name, part in parts.items():
        converter.set_linear(part, linear[name])
    if component == "enc_dec":
        converter.set_linear(place.linear[0], linear["q_proj"])
        utils.fuse_linear(place.linear[1], [parts["k_proj"], parts["v_proj"]])
    else:
        utils.fuse_linear(place.linear[0], list(parts.values()))
    converter.set_linear(place.linear[-1], linear["out_proj"])


def _feed_forward(layer: Any) -> Any:
    """Return the block; without units, a block with one all-zero unit and the existing output bias."""
    fc1, fc2 = layer.fc1, layer.fc2
    if not fc2.in_features:
        bias = torch.zeros(fc2.out_features) if fc2.bias is None else fc2.bias
        fc1 = _linear(torch.zeros(1, fc2.out_features), torch.zeros(1))
        fc2 = _linear(torch.zeros(fc2.out_features, 1), bias)
    return SimpleNamespace(final_layer_norm=layer.final_layer_norm, fc1=fc1, fc2=fc2)


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    linear = nn.Linear(weight.size(1), weight.size(0), bias is not None, device="meta")
    linear.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        linear.bias = nn.Parameter(bias, requires_grad=False)
    return linear


def _padded(module: GatedMultiheadAttention, heads: int) -> dict[str, nn.Linear]:
    """Return the module's projections with all-zero heads appended."""
    key_width = module.kdim or module.embed_dim
    attention = with_inputs({name: p.detach() for name, p in module.state_dict().items()}, key_width)
    positions = [*range(module.num_heads), *[None] * (heads - module.num_heads)]
    padded = cut(attention, positions, module.head_dim)
    names = ("q_proj", "k_proj", "v_proj", "out_proj")
    return {name: _linear(padded[f"{name}.weight"], padded.get(f"{name}.bias")) for name in names}


def _pre_norm(settings: Any) -> bool:
    sides = [bool(getattr(settings, f"{side}_normalize_before", False)) for side in ("encoder", "decoder")]
    if sides[0] != sides[1]:
        raise ValueError("CTranslate2 wants encoder and decoder to place their layer norms alike (normalize_before)")
    return sides[0]


def _activation(settings: Any) -> Any:
    from ctranslate2.converters.fairseq import _SUPPORTED_ACTIVATIONS

    name = str(getattr(settings, "activation_fn", None) or "relu")
    if name not in _SUPPORTED_ACTIVATIONS:
        raise ValueError(
            f"CTranslate2 does not know the activation {name!r}; it knows {', '.join(_SUPPORTED_ACTIVATIONS)}"
        )
    return _SUPPORTED_ACTIVATIONS[name]
