"""``headprune score``: how important is each head? And ``headprune attention``: what does it attend to?"""

import argparse
from typing import Any

from fairseq_headprune.cli.common import (
    add_ffn_flag,
    add_figure_flag,
    add_output_flags,
    as_for_paper,
    check_outputs,
    emit,
    refuse_overwriting,
)
from fairseq_headprune.cli.model_flags import parse_model_flags
from fairseq_headprune.cli.scale_flags import rank, use_local_rank
from fairseq_headprune.cli.study import show_stored
from fairseq_headprune.cli.study_flags import add_scoring_flags, scoring_settings
from fairseq_headprune.parts import FFN, HEADS, PAPER_NAMES
from fairseq_headprune.parts.scores import Scores
from fairseq_headprune.report.tables import paper_head_table

_DESCRIPTION = """Estimate the importance of every attention head (Michel et al. 2019, eq. 2) on a seeded subset of
train, or on the split named by --score-subset or --gen-subset. All flags of fairseq-generate are known. Under torchrun
its ranks divide the sentences."""

_ATTENTION = """Draw the attention maps of every head for one sentence of --gen-subset, layers down and heads across;
pruned heads are marked. The decoder reads the reference. headprune report shows the folder on its page, beside
studies."""


def run(argv: list[str]) -> int:
    """Run the verb."""
    args = parse_model_flags("score", argv, _add_flags, _DESCRIPTION)
    from fairseq_headprune.importance.ranks import process_group
    from fairseq_headprune.provenance import environment
    from fairseq_headprune.session import Session
    from fairseq_headprune.studies.estimates import estimate_scores

    settings = scoring_settings(args, args.gen_subset)
    check_outputs(args.output, args.figure)
    if args.output:
        refuse_overwriting(args.output, args.path, args.head_mask)
    number, ranks = rank()
    use_local_rank(args.cpu)
    args.quiet |= number > 0  # one rank tells
    session = Session(args)
    with process_group(ranks):
        scores = estimate_scores(session, settings)
    if number:
        return 0
    scores.environment, scores.origin = environment(args.headprune_command), session.origin()
    if args.output:
        scores.save(args.output)
    figures = []
    if args.figure:
        from fairseq_headprune.report.drawings import draw_figure
        from fairseq_headprune.studies.prune import importance_map

        with as_for_paper(args):
            figures = draw_figure(importance_map(scores.to_dict()), args.figure)
    emit(scores.to_dict(), args.json, _text(scores, [args.output, *figures]))
    return 0


def _add_flags(parser: argparse.ArgumentParser) -> None:
    add_scoring_flags(parser)
    add_ffn_flag(parser, "score feed-forward blocks, or their units, too, by the same estimate (default: heads only)")
    group = parser.add_argument_group("output")
    group.add_argument("-o", "--output", metavar="FILE", help="write the score file here (default: not written)")
    add_figure_flag(group)
    group.add_argument("--json", action="store_true", help="print the score file's content to stdout")
    parser.set_defaults(gen_subset="train")


def _ffn_text(scores: Scores) -> list[str]:
    lines = []
    for component, rows in scores.only(FFN).rows.items():
        if any(len(row) > 1 for row in rows):
            lines.append(f"feed-forward units ({component}): {', '.join(str(len(row)) for row in rows)} scores a layer")
        else:
            values = "  ".join("-" if value is None else f"{value:.4g}" for [value] in rows)
            lines.append(f"feed-forward blocks ({component}), layer 1 first: {values}")
    return lines


def _text(scores: Scores, files: list) -> str:
    parts = []
    for component, rows in scores.only(HEADS).rows.items():
        parts += [
            f"{PAPER_NAMES[component]} ({component}); layers and heads from 1",
            paper_head_table(rows, fmt=".3f").render(),
        ]
    parts += _ffn_text(scores)
    settings = ", ".join(f"{name} {value}" for name, value in scores.details["settings"].items())
    where = f"{scores.precision}; checkpoint {scores.checkpoint['sha256'][:12]}"
    parts.append(f"{scores.sentences} sentences; {settings}; {where}")
    parts += [f"wrote {name}" for name in files if name]
    return "\n".join(parts)


def attention(argv: list[str]) -> int:
    """Run ``headprune attention``: what every head attends to in one sentence."""
    args = parse_model_flags("attention", argv, _add_attention_flags, _ATTENTION)
    from fairseq_headprune.session import Session
    from fairseq_headprune.studies.attention_maps import attention_maps

    def make() -> Any:
        return attention_maps(Session(args), args.gen_subset, args.sentence, args.normed)

    return show_stored(make, "attention", args)


def _add_attention_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("attention")
    add = group.add_argument
    add("-o", "--output", metavar="DIR", required=True, help="folder of the result and its figures")
    add("--sentence", type=int, default=1, metavar="N", help="number of the sentence in the split, from 1")
    add(
        "--normed",
        action="store_true",
        help="weight attention by the norms of what is attended to (Kobayashi et al. 2020)",
    )
    add_output_flags(group)
