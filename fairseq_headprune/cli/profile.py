"""``headprune profile``: measure the cost of heads on this machine, layer by layer."""

import argparse
from typing import TYPE_CHECKING

from fairseq_headprune.cli.bench import add_length_flag, add_timing_flags, check_timing, use_threads
from fairseq_headprune.cli.common import add_output_flags, check_outputs, emit, refuse_overwriting
from fairseq_headprune.cli.model_flags import parse_model_flags
from fairseq_headprune.report.tables import Table, render_parts

if TYPE_CHECKING:
    from fairseq_headprune.speed.profile import Profile

_DESCRIPTION = """Time the translation of the same sentences by the model and by copies of it with fewer heads (none,
one, half) in one component, at a fixed length, in turning order after a round to warm up; tell what an attention module
costs by its number of heads, and check the sum of these costs on whole masks. headprune mask --for-speed and
--for-latency need the file. fairseq-generate's flags hold: --batch-size (default: 16), --beam, --fp16, --cpu."""

_BATCH_SIZE = 16

#: relative error of a checked mask above which the text warns
_LARGE_ERROR = 0.1


def run(argv: list[str]) -> int:
    """Run the verb."""
    args = parse_model_flags("profile", argv, _add_flags, _DESCRIPTION)
    from fairseq_headprune.session import Session
    from fairseq_headprune.tasks.seam import task_class

    if not task_class(args.task).translates:
        raise ValueError(f"this verb is for translation models; the checkpoint is of the task {args.task}")
    _check(args)
    size = _BATCH_SIZE if args.batch_size is None else args.batch_size
    from fairseq_headprune.speed.variants import profile_session

    use_threads(args)
    how = (size, args.batches, args.beam, args.length, args.rounds, args.each_layer)
    profile = profile_session(Session(args), args.gen_subset, *how)
    profile.save(args.output)
    emit(profile.to_dict(), args.json, _text(profile, args.output, args.format))
    return 0


def _add_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("measurement")
    add = group.add_argument
    add("--batches", type=int, default=4, metavar="N", help="batches that are translated")
    add_length_flag(group)
    add_timing_flags(group, 5)
    add(
        "--each-layer",
        action="store_true",
        help="measure every layer by itself (default: layers of one component with equally many heads together, which "
        "is less noisy)",
    )
    group = parser.add_argument_group("output")
    group.add_argument("-o", "--output", metavar="FILE", required=True, help="the profile file to write")
    add_output_flags(group, "print the profile file's content")


def _check(args: argparse.Namespace) -> None:
    """Check before minutes of work that the numbers are valid and the output can be written.

    Raises:
        ValueError: a number is out of range, or the output is an input.
        FileNotFoundError: the output's folder does not exist.
    """
    check_timing(args, "batch-size", "batches", "beam")
    check_outputs(args.output)
    refuse_overwriting(args.output, args.path, args.head_mask)


def _text(profile: "Profile", path: str, form: str) -> str:
    costs = [
        [row["component"], _layers(row["layers"]), str(row["heads"]), *map(_ms, row["cost"].values())]
        for row in profile.measured
        if "cost" in row
    ]
    checks = [
        [c["mask"], _ms(c["predicted"]), *map(_ms, c["measured"].values()), f"{c['error']:+.1%}"]
        for c in profile.checks
    ]
    s = profile.settings
    whole, rest = _ms(profile.whole()), _ms(profile.rest)
    parts = [
        Table(["component", "layers", "heads", "ms", "min", "max"], costs),
        "",
        Table(["mask", "predicted ms", "measured ms", "min", "max", "error"], checks),
        "",
        f"milliseconds a batch; costs of one layer over none of its heads, median and range of {s['rounds']} rounds;",
        f"the whole model {whole}, without its attention {rest}",
        f"{s['gpu'] or s['device']}, {s['precision']}, {s['threads']} threads; {s['batch_size']} sentences a batch,",
        f"beam {s['beam']}, {s['length']} tokens; {s['batches']} batches",
        *_warnings(profile),
        f"written: {path}",
    ]
    return render_parts(parts, form)


def _warnings(profile: "Profile") -> list[str]:
    worst = profile.worst_error() or 0.0
    if worst <= _LARGE_ERROR:
        return []
    return [f"predictions are off by up to {worst:.0%}: measure on an idle machine, with more --rounds or --batches"]


def _layers(layers: list[int]) -> str:
    if len(layers) > 1 and layers == list(range(layers[0], layers[-1] + 1)):
        return f"{layers[0]}-{layers[-1]}"
    return ",".join(map(str, layers))


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.3f}"
