"""Tell which products round differently when many masks share a batch, and what that does to translations.

A step of the loop (one mask after the other, fairseq's generator) and a step of many masks in one batch compute the
same products, of matrices of other shapes or layouts or in another order of operations. First, for each product of a
decoder step and of the encoder and for several numbers of sentences, since few are left in the last steps: how many of
the loop's rows differ in any bit, and by how much, and as a control the same of the loop on half of its rows
(``rounding_products.py``). Then, for every number of sentences, whether a linear layer rounds as it does for many rows.

Of three masks it is told which linear layers get inputs that are not contiguous (``linear_inputs.py`` says why that
matters). One of them prunes a head of the first encoder layer.

At last some masks are translated in several ways, from the loop's to many masks in one batch, which changes one thing
at a time: how self-attention and encoder-decoder attention are computed, and the number of rows. Then the same where
linear layers get contiguous rows, in the loop as in the batch, and with rows of zeros added as well wherever a linear
layer gets few, so that none uses kernels for few rows.
"""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Optional
from unittest.mock import patch

import bench_ablation
import benchmarks
import linear_inputs
import rounding_products
import script_flags
import shown
import shown_rounding
from torch import Tensor

from fairseq_headprune.evaluation.translate import Translator
from fairseq_headprune.modules.cache import BeamCache
from fairseq_headprune.parts import Mask
from fairseq_headprune.session import Session, parse_generation_args


def main() -> None:
    """Compare the products and the translations, and print the tables."""
    args, flags = _arguments()
    session = Session(parse_generation_args("ablate", flags, lambda parser: None, str(__doc__)))
    split, masks = session.cfg.dataset.gen_subset, bench_ablation.grid(session, args.translated_masks)
    loop, half, many = (
        bench_ablation.translator_of(session, split, None, args.sentences[0] // part) for part in (1, 2, 1)
    )
    many._many._recorder = None  # what the loop does waits for the device
    some = [*bench_ablation.grid(session)[:2], *masks[1:2]]
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
        rows=rounding_products.compare(session, args),
        kernels=rounding_products.kernels(session, args),
        least_rows=rounding_products.LEAST_ROWS,
        layouts=linear_inputs.layouts(session.model, _three_ways(session, loop, many, some)),
        translated=list(_translations(session, loop, half, many, masks)),
    )
    for described in shown_rounding.ALL:
        shown.tell(described, result)


def _arguments() -> tuple[argparse.Namespace, list[str]]:
    """Return this script's flags, and the remaining ones, which are fairseq-generate's."""
    parser = bench_ablation.new_parser(__doc__)
    add = parser.add_argument
    text = "of a batch of the loop; the first number, 2 or more, is translated in such batches"
    add("--sentences", type=int, nargs="+", default=[1000, 32, 4, 1], help=text)
    add("--masks", type=int, default=16, help="in the batch of many masks")
    add("--tokens", type=int, default=20, help="length of the hypotheses and of the sources")
    add("--translated-masks", type=int, default=8, help="translate under this many masks of the ablation grid")
    script_flags.add_run_flags(parser, rounds=3, what="draws of the random rows")
    args, flags = parser.parse_known_args()
    first, least = args.sentences[0], min(args.sentences)
    if first < 2:
        raise ValueError(
            f"--sentences {first}: the first number must be at least 2, since half of it is translated, too"
        )
    if least < 1:
        raise ValueError(f"--sentences {least}: it must be at least 1")
    script_flags.check(args, "masks", "tokens", "rounds", "translated_masks")
    return args, flags


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
            return rounding_products.by_hypothesis(module, q, key, value, blocked)
        if cross and not module.self_attention:
            return rounding_products.by_sentence(module, q, key, value, blocked)
        return mix(module, q, key, value, blocked)

    with patch.object(BeamCache, "_mix", staticmethod(chosen)):
        yield


def _three_ways(session: Session, loop: Translator, many: Translator, masks: Sequence[Mask]) -> dict[str, Any]:
    return {
        "the loop": lambda: bench_ablation.one_by_one(session, loop, masks),
        "a mask in a batch": lambda: bench_ablation.in_packs(many, masks, 1),
        "all masks in a batch": lambda: bench_ablation.in_packs(many, masks, 0),
    }


def _translations(
    session: Session, loop: Translator, half: Translator, many: Translator, masks: Sequence[Mask]
) -> Iterator[dict[str, Any]]:
    """Yield how many translations under some masks differ from the loop's, for each way to translate."""

    def ways(kinds: Sequence[tuple[bool, bool]], after: str, control: bool = True) -> Iterator[dict[str, Any]]:
        first, *others = _three_ways(session, loop, many, masks).items()
        expected = first[1]()
        found = {}
        if control:
            found["the loop, half a batch"] = bench_ablation.one_by_one(session, half, masks)
        for kind in kinds:
            with _attending(*kind):
                for name, way in others:
                    found[f"{name}, {_ATTENTION[kind]} as in the loop"] = way()
        for name, answers in found.items():
            yield {"way": name + after, "masks": len(masks), **bench_ablation.agreement(answers, expected)}

    yield from ways(list(_ATTENTION), "")
    both = [(True, True), (False, False)]
    with linear_inputs.flattened():
        # The loop's layouts are the same in half a batch.
        yield from ways(both, "; flattened", control=False)
    with linear_inputs.flattened(rounding_products.LEAST_ROWS):
        yield from ways(both, "; many rows")


if __name__ == "__main__":
    script_flags.run(main)
