"""The products of a decoder step and of the encoder, as the loop computes them and as a batch of many masks does.

Both compute them from equal inputs: the weights of the first layers, and random rows as they come out of a layer norm.
The loop's rows are the first of the batch's.
"""

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_headprune.modules.attention import apply_gate, attend, together
from fairseq_headprune.modules.cache import BeamCache
from fairseq_headprune.session import Session


def compare(session: Session, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Return for each product and number of sentences which share of the loop's rows differs, and by how much.

    ``half`` is the loop's product on half of its rows, None where there is one sentence.
    """
    with torch.no_grad():
        found = [
            [
                _compared(name, count, *product)
                for count in args.sentences
                for name, product in _products(session, args, count, seed).items()
            ]
            for seed in range(1, args.rounds + 1)
        ]
    return [_over_rounds(rows) for rows in zip(*found, strict=True)]


#: what the loop computes, what the batch does, and the rows of a batch (sentences, …)
_Product = tuple[Callable[..., Tensor], Callable[..., Tensor], tuple[Tensor, ...]]

#: shape -> random rows of all sentences of the batch, (sentences, *shape)
_Drawn = Callable[..., Tensor]


def _products(session: Session, args: argparse.Namespace, sentences: int, seed: int) -> dict[str, _Product]:
    """Return all products by name; inputs are drawn in this order."""
    drawn = _drawing(session, sentences * args.masks, seed)
    return {**_of_step(session, args, drawn), **_of_encoder(session, args, drawn)}


def _drawing(session: Session, count: int, seed: int) -> _Drawn:
    """Return what draws rows of so many sentences, of the model's precision."""
    generator = torch.Generator(session.device).manual_seed(seed)
    precision = session.model.decoder.embed_tokens.weight.dtype

    def drawn(*shape: int) -> Tensor:
        return torch.randn(count, *shape, generator=generator, device=session.device).to(precision)

    return drawn


def _linear_layers(session: Session) -> dict[str, Callable[[Tensor], Tensor]]:
    """Return the linear layers of a step by name: those of the first decoder layer, and the output layer."""
    layer = session.model.decoder.layers[0]
    own = layer.self_attn
    joined = together(own.q_proj, own.k_proj, own.v_proj)
    return {
        "queries, keys, values one by one": partial(_each, (own.q_proj, own.k_proj, own.v_proj)),
        "queries, keys, values in one": lambda x: F.linear(x, *joined),
        "output of attention": own.out_proj,
        "queries of encoder-decoder attention": layer.encoder_attn.q_proj,
        "feed-forward, first": layer.fc1,
        "feed-forward, second": layer.fc2,
        "vocabulary": session.model.decoder.output_layer,
    }


def _of_step(session: Session, args: argparse.Namespace, drawn: _Drawn) -> dict[str, _Product]:
    """Return the products of the first decoder layer and of the output layer, by name."""
    layer, linear = session.model.decoder.layers[0], _linear_layers(session)
    own, cross, beam = layer.self_attn, layer.encoder_attn, session.cfg.generation.beam
    heads, width, tokens = own.num_heads, own.head_dim, args.tokens

    def alike(module: Callable[[Tensor], Tensor], size: int) -> _Product:
        return module, module, (drawn(beam, size),)

    separate, rows = linear["queries, keys, values one by one"], drawn(beam, own.embed_dim)
    # In the batch the keys of all hypotheses stand in one list, of which each hypothesis sees its own.
    others = torch.ones(beam, beam, tokens, dtype=torch.bool, device=session.device)
    others[range(beam), range(beam)] = False
    blocked = others.flatten(1).expand(len(rows), -1, -1)
    shared = drawn(heads, beam, width), drawn(heads, beam * tokens, width), drawn(heads, beam * tokens, width)
    sources = shared[0], drawn(heads, tokens, width), drawn(heads, tokens, width)

    def mixed(mix: Callable[..., Tensor], q: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return mix(own, q, key, value, blocked[: len(q)])

    plain, beams = partial(mixed, by_hypothesis), partial(mixed, BeamCache._mix)
    return {
        "queries, keys, values one by one": (separate, separate, (rows,)),
        "queries, keys, values in one": (separate, linear["queries, keys, values in one"], (rows,)),
        "self-attention of each hypothesis": (plain, plain, shared),
        "self-attention, keys in one list": (plain, beams, shared),
        "encoder-decoder attention": (
            lambda *given: by_sentence(cross, *given, None),
            lambda *given: BeamCache._mix(cross, *given, None),
            sources,
        ),
        "output of attention": alike(linear["output of attention"], heads * width),
        "feed-forward, first": alike(linear["feed-forward, first"], own.embed_dim),
        "feed-forward, second": alike(linear["feed-forward, second"], layer.fc2.in_features),
        "layer norm": alike(layer.final_layer_norm, own.embed_dim),
        "vocabulary": alike(linear["vocabulary"], own.embed_dim),
        "log-softmax": alike(_log_probabilities, len(session.task.target_dictionary)),
    }


def _of_encoder(session: Session, args: argparse.Namespace, drawn: _Drawn) -> dict[str, _Product]:
    """Return the products of the first encoder layer, and of keys and values for encoder-decoder attention, by name.

    fairseq's embeddings are in memory by sentence, and layers are given a view of them by token. Where masks part, the
    batch copies the sentences, which are by token in memory then (see ``row_masks.branching``). On CUDA, heads that
    come out of attention may be in memory by sentence, too. Masked heads are a copy (see ``attention.apply_gate``): in
    the loop in the layer that a mask prunes, in the batch in each layer that one of its masks prunes. (It does not
    matter any more, since attention copies what it gives to linear layers; the layers alone still differ.)
    """
    layer, beam, tokens = session.model.encoder.layers[0], session.cfg.generation.beam, args.tokens
    own, cross = layer.self_attn, session.model.decoder.layers[0].encoder_attn
    keep = torch.ones(own.num_heads, dtype=torch.bool, device=session.device)
    # A token of padding: attention has other kernels where there is a mask.
    padded = torch.arange(tokens, device=session.device).view(1, 1, 1, -1).eq(0)

    def by_token(module: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        return module(x.transpose(0, 1)).transpose(0, 1)

    def alike(module: Any) -> _Product:
        return module, module, (drawn(tokens, module.in_features),)

    def heads_of(*given: Tensor) -> Tensor:
        q, k, v = (own._heads_first(x.transpose(0, 1).contiguous()) for x in given)
        return attend(q, k, v, own.scaling, ~padded.expand(len(q), -1, -1, -1), 0.0)

    def output(*given: Tensor) -> Tensor:
        return own._output(heads_of(*given)).transpose(0, 1)

    def masked(*given: Tensor) -> Tensor:
        return own._output(apply_gate(heads_of(*given), None, keep)).transpose(0, 1)

    def for_each_hypothesis(x: Tensor) -> Tensor:
        return projected(x.repeat_interleave(beam, 1))[:, ::beam]

    def once(x: Tensor) -> Tensor:
        return projected(F.pad(x, (0, 0, 0, 0, 0, -len(x) % 8)))[: len(x)]

    strided = partial(by_token, partial(_each, (own.q_proj, own.k_proj, own.v_proj)))
    copied = partial(by_token, lambda x: _each((own.q_proj, own.k_proj, own.v_proj), x.contiguous()))
    projected = partial(_each, (cross.k_proj, cross.v_proj))
    rows, of_heads = (drawn(tokens, own.embed_dim),), tuple(drawn(tokens, own.q_proj.out_features) for _ in range(3))
    return {
        "encoder: queries, keys, values": (strided, strided, rows),
        "encoder: the same, of a copy": (strided, copied, rows),
        "encoder: attention": (heads_of, heads_of, of_heads),
        "encoder: output of attention": (output, output, of_heads),
        "encoder: output of masked attention": (output, masked, of_heads),
        "encoder: feed-forward, first": alike(layer.fc1),
        "encoder: feed-forward, second": alike(layer.fc2),
        "keys, values of encoder outputs": (
            partial(by_token, for_each_hypothesis),
            partial(by_token, once),
            (drawn(tokens, cross.k_proj.in_features),),
        ),
    }


def _each(modules: Sequence[Callable[[Tensor], Tensor]], x: Tensor) -> Tensor:
    return torch.cat([module(x) for module in modules], -1)


def _log_probabilities(logits: Tensor) -> Tensor:
    return torch.log_softmax(logits, -1, dtype=torch.float32)


def by_hypothesis(module: Any, q: Tensor, key: Tensor, value: Tensor, blocked: Tensor) -> Tensor:
    """Compute :meth:`BeamCache._mix` as the loop does: each hypothesis attends to a copy of its own keys."""
    count, beam = blocked.shape[:2]
    places = (~blocked).nonzero()[:, 2].view(count, 1, -1, 1).expand(-1, q.size(1), -1, q.size(3))
    of_each = (x.gather(2, places).unflatten(2, (beam, -1)).transpose(1, 2).flatten(0, 1) for x in (key, value))
    queries = q.transpose(1, 2).flatten(0, 1)[:, :, None]
    return attend(queries, *of_each, module.scaling, None, 0.0).unflatten(0, (-1, beam)).squeeze(3).transpose(1, 2)


def by_sentence(module: Any, q: Tensor, key: Tensor, value: Tensor, blocked: Optional[Tensor]) -> Tensor:
    """Compute :meth:`BeamCache._mix` of encoder-decoder attention as the loop does."""
    return attend(q, key, value, module.scaling, None if blocked is None else ~blocked[:, None], 0.0)


def _compared(
    name: str, count: int, loop: Callable[..., Tensor], batch: Callable[..., Tensor], given: tuple[Tensor, ...]
) -> dict[str, Any]:
    """Compare a product of the loop's ``count`` sentences with those of the batch, and of half of the sentences."""
    mine, half = loop(*(x[:count].clone() for x in given)), count // 2
    return {
        "product": name,
        "sentences": count,
        "batch": _difference(batch(*given)[:count], mine),
        "half": _difference(loop(*(x[:half].clone() for x in given)), mine[:half]) if half else None,
    }


def _difference(found: Tensor, expected: Tensor) -> dict[str, float]:
    """Return which share of rows (…, d) differs in any bit, and the largest difference over the root mean square."""
    found, expected = found.float(), expected.float()
    size = expected.square().mean().sqrt()
    return {
        "differing_rows": float(found.ne(expected).any(-1).float().mean()),
        "largest": float((found - expected).abs().max() / size),
    }


def _over_rounds(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean share of rows that differ and the largest difference, of one product and number of sentences."""
    sides = {
        side: {
            "differing_rows": sum(row[side]["differing_rows"] for row in rows) / len(rows),
            "largest": max(row[side]["largest"] for row in rows),
        }
        for side in ("batch", "half")
        if rows[0][side] is not None
    }
    return {"product": rows[0]["product"], "sentences": rows[0]["sentences"], "half": None, **sides}


#: with fewer rows a linear layer may be computed by other kernels
LEAST_ROWS = 8192


def kernels(session: Session, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Return for each linear layer of a step at which numbers of sentences it rounds otherwise than of many rows.

    Tried are all numbers up to those of the batch, as long as they have less than ``LEAST_ROWS`` rows.
    """
    beam, drawn = session.cfg.generation.beam, _drawing(session, LEAST_ROWS, 1)
    layer = session.model.decoder.layers[0]
    most = min(LEAST_ROWS // beam, args.masks * max(args.sentences))
    found = []
    with torch.no_grad():
        for name, module in _linear_layers(session).items():
            rows = drawn(layer.self_attn.embed_dim if name != "feed-forward, second" else layer.fc2.in_features)
            whole = module(rows)
            differ = [module(rows[: n * beam]).ne(whole[: n * beam]).any() for n in range(1, most + 1)]
            places = (1 + torch.stack(differ).nonzero().view(-1)).tolist()
            found.append({"product": name, "tried": most, "differing_sentences": places})
    return found
