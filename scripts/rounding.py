"""Tell which products of a decoder step round differently when many masks share a batch, and what that does.

A step of the loop (one mask after the other, fairseq's generator) and a step of many masks in one batch compute the
same products, of matrices of other shapes or in another order of operations. Here both compute them from equal inputs:
the weights of the first decoder layer, and random rows as they come out of a layer norm. The loop's rows are the first
of the batch's. For each product the result says how many of the loop's rows differ in any bit, and by how much;
``half`` is the control: the loop's product on half of its rows. All this for several numbers of sentences, since few
are left in the last steps.

Then some masks are translated in several ways, from the loop's to many masks in one batch, which changes one thing at a
time: how self-attention and encoder-decoder attention are computed, and the number of rows. At last the same with rows
of zeros added wherever a linear layer gets few, in the loop as in the batch, so that none uses kernels for few rows.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Optional
from unittest.mock import patch

import bench_ablation
import benchmarks
import script_flags
import shown
import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_headprune.modules.attention import attend, together
from fairseq_headprune.modules.cache import BeamCache
from fairseq_headprune.session import Session, parse_generation_args


def main() -> None:
    """Compare the products and the translations, and print two tables."""
    args, flags = _arguments()
    session = Session(parse_generation_args("ablate", flags, lambda parser: None, str(__doc__)))
    with torch.no_grad():
        found = [
            [
                _compared(name, count, *product)
                for count in args.sentences
                for name, product in _products(session, args, count, seed).items()
            ]
            for seed in range(1, args.rounds + 1)
        ]
    result = benchmarks.write_document(
        args,
        "rounding",
        device=session.device.type,
        precision="fp16" if session.cfg.common.fp16 else "fp32",
        checkpoint=session.checkpoint["sha256"],
        data=session.data(session.cfg.dataset.gen_subset),
        sentences=args.sentences,
        masks=args.masks,
        beam=session.cfg.generation.beam,
        tokens=args.tokens,
        rows=[_over_rounds(rows) for rows in zip(*found, strict=True)],
        least_rows=_LEAST_ROWS,
        translated=_translations(session, args.translated_masks, args.sentences[0]),
    )
    shown.tell(shown.ROUNDING, result)
    shown.tell(shown.ROUNDED, result)


def _arguments() -> tuple[argparse.Namespace, list[str]]:
    """Return this script's flags, and the remaining ones, which are fairseq-generate's."""
    parser = bench_ablation.new_parser(__doc__)
    add = parser.add_argument
    text = "of a batch of the loop, 2 or more; the first number is translated in such batches"
    add("--sentences", type=int, nargs="+", default=[1000, 32, 4], help=text)
    add("--masks", type=int, default=16, help="in the batch of many masks")
    add("--tokens", type=int, default=20, help="length of the hypotheses and of the sources")
    add("--translated-masks", type=int, default=8, help="translate under this many masks of the ablation grid")
    script_flags.add_run_flags(parser, rounds=3, what="draws of the random rows")
    args, flags = parser.parse_known_args()
    if min(args.sentences) < 2:
        raise ValueError(f"--sentences {min(args.sentences)}: it must be at least 2")
    script_flags.check(args, "masks", "tokens", "rounds", "translated_masks")
    return args, flags


#: what the loop computes, what the batch does, and the rows of a batch (sentences, …)
_Product = tuple[Callable[..., Tensor], Callable[..., Tensor], tuple[Tensor, ...]]


def _products(session: Session, args: argparse.Namespace, sentences: int, seed: int) -> dict[str, _Product]:
    """Return the products of the first decoder layer and of the output layer, by name."""
    layer, decoder = session.model.decoder.layers[0], session.model.decoder
    own, cross, beam = layer.self_attn, layer.encoder_attn, session.cfg.generation.beam
    generator = torch.Generator(session.device).manual_seed(seed)
    count, heads, width, tokens = sentences * args.masks, own.num_heads, own.head_dim, args.tokens

    def drawn(*shape: int) -> Tensor:
        found = torch.randn(count, *shape, generator=generator, device=session.device)
        return found.to(own.q_proj.weight.dtype)

    def alike(module: Callable[[Tensor], Tensor], size: int) -> _Product:
        return module, module, (drawn(beam, size),)

    def separate(x: Tensor) -> Tensor:
        return torch.cat([module(x) for module in (own.q_proj, own.k_proj, own.v_proj)], -1)

    joined, rows = together(own.q_proj, own.k_proj, own.v_proj), drawn(beam, own.embed_dim)
    # In the batch the keys of all hypotheses stand in one list, of which each hypothesis sees its own.
    others = torch.ones(beam, beam, tokens, dtype=torch.bool, device=session.device)
    others[range(beam), range(beam)] = False
    blocked = others.flatten(1).expand(count, -1, -1)
    shared = drawn(heads, beam, width), drawn(heads, beam * tokens, width), drawn(heads, beam * tokens, width)
    sources = shared[0], drawn(heads, tokens, width), drawn(heads, tokens, width)

    def mixed(mix: Callable[..., Tensor], q: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return mix(own, q, key, value, blocked[: len(q)])

    plain, beams = partial(mixed, _by_hypothesis), partial(mixed, BeamCache._mix)
    return {
        "queries, keys, values one by one": (separate, separate, (rows,)),
        "queries, keys, values in one": (separate, lambda x: F.linear(x, *joined), (rows,)),
        "self-attention of each hypothesis": (plain, plain, shared),
        "self-attention, keys in one list": (plain, beams, shared),
        "encoder-decoder attention": (
            lambda *given: _by_sentence(cross, *given, None),
            lambda *given: BeamCache._mix(cross, *given, None),
            sources,
        ),
        "output of attention": alike(own.out_proj, heads * width),
        "feed-forward, first": alike(layer.fc1, layer.fc1.in_features),
        "feed-forward, second": alike(layer.fc2, layer.fc2.in_features),
        "layer norm": alike(layer.final_layer_norm, own.embed_dim),
        "vocabulary": alike(decoder.output_layer, own.embed_dim),
        "log-softmax": alike(_log_probabilities, len(session.task.target_dictionary)),
    }


def _log_probabilities(logits: Tensor) -> Tensor:
    return torch.log_softmax(logits, -1, dtype=torch.float32)


def _by_hypothesis(module: Any, q: Tensor, key: Tensor, value: Tensor, blocked: Tensor) -> Tensor:
    """Compute :meth:`BeamCache._mix` as the loop does: each hypothesis attends to a copy of its own keys."""
    count, beam = blocked.shape[:2]
    places = (~blocked).nonzero()[:, 2].view(count, 1, -1, 1).expand(-1, q.size(1), -1, q.size(3))
    of_each = (x.gather(2, places).unflatten(2, (beam, -1)).transpose(1, 2).flatten(0, 1) for x in (key, value))
    queries = q.transpose(1, 2).flatten(0, 1)[:, :, None]
    return attend(queries, *of_each, module.scaling, None, 0.0).unflatten(0, (-1, beam)).squeeze(3).transpose(1, 2)


def _by_sentence(module: Any, q: Tensor, key: Tensor, value: Tensor, blocked: Optional[Tensor]) -> Tensor:
    """Compute :meth:`BeamCache._mix` of encoder-decoder attention as the loop does."""
    return attend(q, key, value, module.scaling, None if blocked is None else ~blocked[:, None], 0.0)


#: whether self-attention and encoder-decoder attention are computed as in the loop -> what is said of it
_ATTENTION = {
    (True, True): "all attention",
    (False, True): "encoder-decoder attention",
    (True, False): "self-attention",
    (False, False): "no attention",
}


@contextmanager
def _attending(own: bool, cross: bool) -> Iterator[None]:
    """Context manager: many masks attend as the loop does, in self-attention, encoder-decoder attention, or both."""
    mix = BeamCache._mix

    def chosen(module: Any, q: Tensor, key: Tensor, value: Tensor, blocked: Optional[Tensor]) -> Tensor:
        if own and module.self_attention and blocked is not None:
            return _by_hypothesis(module, q, key, value, blocked)
        if cross and not module.self_attention:
            return _by_sentence(module, q, key, value, blocked)
        return mix(module, q, key, value, blocked)

    with patch.object(BeamCache, "_mix", staticmethod(chosen)):
        yield


#: with fewer rows a linear layer may be computed by other kernels
_LEAST_ROWS = 8192


@contextmanager
def _many_rows() -> Iterator[None]:
    """Context manager: linear layers get ``_LEAST_ROWS`` rows or more, of zeros after their own."""
    linear = F.linear

    def padded(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None) -> Tensor:
        rows = x.reshape(-1, x.size(-1))
        more = F.pad(rows, (0, 0, 0, max(0, _LEAST_ROWS - len(rows))))
        return linear(more, weight, bias)[: len(rows)].view(*x.shape[:-1], -1)

    with patch.object(F, "linear", padded):
        yield


def _translations(session: Session, wanted: int, size: int) -> list[dict[str, Any]]:
    """Return how many translations differ from the loop's, of each way to translate some masks of the ablation grid."""
    split, masks = session.cfg.dataset.gen_subset, bench_ablation.grid(session, wanted)
    loop, half = (bench_ablation.translator_of(session, split, None, count) for count in (size, size // 2))
    many = bench_ablation.translator_of(session, split, None, size)
    many._many._recorder = None  # what the loop does waits for the device

    def ways(kinds: Sequence[tuple[bool, bool]], after: str) -> Iterator[dict[str, Any]]:
        expected = bench_ablation.one_by_one(session, loop, masks)
        found = {"the loop, half a batch": bench_ablation.one_by_one(session, half, masks)}
        for kind in kinds:
            with _attending(*kind):
                for rows, count in (("a mask in a batch", 1), ("all masks in a batch", 0)):
                    name = f"{rows}, {_ATTENTION[kind]} as in the loop"
                    found[name] = bench_ablation.in_packs(many, masks, count)
        for name, way in found.items():
            yield {"way": name + after, "masks": len(masks), **bench_ablation.agreement(way, expected)}

    rows = list(ways(list(_ATTENTION), ""))
    with _many_rows():
        return rows + list(ways([(True, True), (False, False)], "; many rows"))


def _compared(
    name: str, count: int, loop: Callable[..., Tensor], batch: Callable[..., Tensor], given: tuple[Tensor, ...]
) -> dict[str, Any]:
    """Compare a product of the loop's ``count`` sentences with those of the batch, and of half of the sentences."""
    mine = loop(*(x[:count].clone() for x in given))
    half = loop(*(x[: count // 2].clone() for x in given))
    return {
        "product": name,
        "sentences": count,
        "batch": _difference(batch(*given)[:count], mine),
        "half": _difference(half, mine[: count // 2]),
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
    }
    return {"product": rows[0]["product"], "sentences": rows[0]["sentences"], **sides}


if __name__ == "__main__":
    script_flags.run(main)
