"""``headprune average``: the mean of checkpoints with the same heads."""

from fairseq_headprune.cli.common import Parser, emit

_DESCRIPTION = """Average the weights of checkpoints that have the same structure, heads and precision, slim ones too.
Optimizer state is dropped, and learned gates are left out (the masks they chose stay)."""


def run(argv: list[str]) -> int:
    """Run the verb."""
    parser = Parser(prog="headprune average", description=_DESCRIPTION)
    parser.add_argument("checkpoints", metavar="CKPT", nargs="+", help="fairseq checkpoints (.pt), at least two")
    parser.add_argument("-o", "--output", metavar="CKPT", required=True, help="the checkpoint to write")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    args = parser.parse_args(argv)
    from fairseq_headprune.removal.average import average_checkpoints  # torch: not for --help

    value = average_checkpoints(args.checkpoints, args.output)
    output = value["output"]
    text = f"mean of {len(args.checkpoints)} checkpoints: {output['path']}, sha256 {output['sha256']}\n"
    text += f"weights in {value['precision']}, as in the checkpoints; averaged in float64"
    emit(value, args.json, text)
    return 0
