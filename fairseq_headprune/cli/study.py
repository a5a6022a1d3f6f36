"""Common code of verbs that run a study: parse, check, open its folder, run cells or trainings, print the document."""

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import Any

from fairseq_headprune.cli.common import COMMAND, Parser, as_for_paper, check_least, emit
from fairseq_headprune.cli.model_flags import parse_model_flags
from fairseq_headprune.cli.scale_flags import (
    add_dry_run_flag,
    add_launcher_flags,
    check_launcher_flags,
    helpers,
    rank,
    take_place,
    trainings_at_once,
)
from fairseq_headprune.jobs.processes import visible_gpus
from fairseq_headprune.progress import Progress

#: Makes the study of a loaded model.
Make = Callable[[Any], Any]


def run_study(
    verb: str,
    argv: list[str],
    description: str,
    add_flags: Callable[[argparse.ArgumentParser], Any],
    prepare: Callable[[argparse.Namespace], Make],
) -> int:
    """Run a verb whose study has masks of one model as cells.

    Args:
        add_flags: adds the verb's flags.
        prepare: checks them before the model is loaded, and returns a function that makes the study of the model.
    """
    args = parse_model_flags(verb, argv, add_flags, description)
    from fairseq_headprune.session import Session

    make = prepare(args)
    take_place(args)
    study = make(Session(args))
    if args.dry_run:
        return show_outlooks([outlook(study, args)], args)
    run_opened(verb, argv, args, study)
    return 0 if args.worker else show(study, args)


def outlook(study: Any, args: argparse.Namespace, paths: Sequence[Any] = (), note: str = "") -> Any:
    """Check a study of masks, and return what it is going to do; see ``outlook.of_masks``.

    Args:
        paths: its folders, one for each model, the study's own first; none: ``args.output``.
    """
    from fairseq_headprune.studies.outlook import of_masks

    paths = paths or [args.output]
    check_for_dry_run(study, paths[0])
    return of_masks(study, paths, args.jobs, note)


def check_for_dry_run(study: Any, path: Any) -> None:
    """Check a study and its folder, which is not made, and print its warnings.

    Raises:
        ValueError: the study would be refused.
    """
    study.check()
    study.check_folder(path)
    warn(study)


def show_outlooks(found: Sequence[Any], args: argparse.Namespace) -> int:
    """Print what one study or several are going to do."""
    documents = [one.document() for one in found]
    emit(documents[0] if len(found) == 1 else {"studies": documents}, args.json, "\n".join(one.text() for one in found))
    return 0


def run_opened(
    verb: str,
    argv: list[str],
    args: argparse.Namespace,
    study: Any,
    work: Callable[[Any], Any] | None = None,
    trains: bool = False,
) -> None:
    """Check and run a study of a loaded model in the folder ``args.output``; ``trains``: its cells are trainings."""
    from fairseq_headprune.provenance import environment
    from fairseq_headprune.studies.masked import MaskWork
    from fairseq_headprune.studies.study import run

    study.check()
    folder = study.open(args.output, environment(args.headprune_command))
    warn(study)
    progress = Progress(verb, study.planned(), args.quiet or args.worker)
    with helpers(verb, argv, args, folder, trains):
        for cell in run(study, (work or MaskWork)(study), progress.begin):
            progress.cell(cell)
    progress.close()


def warn(study: Any) -> None:
    """Print the warnings of a study, and what was chosen for the user, to stderr."""
    for text in [*(f"warning: {text}" for text in study.warnings()), *study.notices()]:
        print(f"headprune {COMMAND[0] if COMMAND else study.name}: {text}", file=sys.stderr)


def show(study: Any, args: argparse.Namespace) -> int:
    """Draw the figures of a finished study and print its document in the requested form.

    With ``--json`` it has the origin of model and data, and the sentence statistics that its p values come from.
    """
    document = study.result(study.cells())
    if args.json and study.session is not None:
        document.data |= study.session.origin()
        try:
            document.data["statistics"] = study.sentence_statistics()
        except FileNotFoundError as error:
            print(f"headprune {study.name}: without the statistics of its p values: {error}", file=sys.stderr)
    return show_document(document, args, study.folder.figure_stem)


def show_document(document: Any, args: argparse.Namespace, stem: Callable[[str], Any] | None) -> int:
    """Draw a document's figures and print it with ``--json`` or in the form of ``--format``.

    Args:
        stem: maps a figure's name to its path without extension; None: draw no figures.
    """
    figures: list[str] = []
    if stem is not None:
        from fairseq_headprune.report.drawings import draw  # matplotlib: not for --help

        with as_for_paper(args):
            figures = [str(path) for path in draw(document, stem)]
    emit(document.data | {"figures": figures}, args.json, document.render(args.format, figures))
    return 0


def show_stored(make: Callable[[], Any], kind: str, args: argparse.Namespace) -> int:
    """Store a document that is not a study in the folder ``--output``, draw its figures there, and print it.

    Args:
        make: makes the document, once the folder is checked.
        kind: the verb.
    """
    from fairseq_headprune.provenance import environment
    from fairseq_headprune.studies.stored import check_folder, store

    folder, document = check_folder(args.output), make()
    document.provenance["runs"] = [environment(getattr(args, "headprune_command", None))]
    store(document, kind, folder)
    return show_document(document, args, lambda name: folder / name)


def add_training_flags(group: Any) -> None:
    """Add the flags that set how each training is run, how many at once, and where."""
    add = group.add_argument
    add(
        "--train-flags",
        required=True,
        metavar="FLAGS",
        help="flags of fairseq-train as one word: --arch, --optimizer, --lr, --max-tokens, …",
    )
    add("--updates", type=int, metavar="N", help="updates of fine-tuning (this or --epochs is required)")
    add(
        "--epochs",
        type=int,
        metavar="N",
        help="epochs of fine-tuning; the paper's are 30 (this or --updates is required)",
    )
    add("--slim", action="store_true", help="remove the heads first, fine-tune the smaller model")
    add("--jobs", type=int, metavar="N", help="fine-tunings at the same time (default: one a GPU)")
    add_launcher_flags(group)
    add_dry_run_flag(group)


def check_training_flags(verb: str, args: argparse.Namespace) -> None:
    """Check the training flags.

    Raises:
        ValueError: numbers out of range, incompatible flags, or several torchrun processes.
    """
    _, processes = rank()
    if processes > 1:
        raise ValueError(f"torchrun has started {processes} processes; start {verb} once, with --jobs {processes}")
    if args.head_mask is not None:
        raise ValueError("--head-mask is not supported here: the study draws its own masks; slim the checkpoint first")
    if (args.updates is None) == (args.epochs is None):
        raise ValueError("say how long to fine-tune: --updates N or --epochs N, and not both")
    check_least(1, args, "updates", "epochs", "jobs")
    check_launcher_flags(args)


def fine_tuning(args: argparse.Namespace) -> Any:
    """Return the :class:`~fairseq_headprune.studies.fine_tuning.FineTuning` that the flags describe."""
    from fairseq_headprune.studies.fine_tuning import FineTuning

    limit = ["--max-update", str(args.updates)] if args.updates else ["--max-epoch", str(args.epochs)]
    how = FineTuning(shlex.split(args.train_flags), limit, args.slim)
    how.check()
    return how


def generation_flags(argv: list[str], add_flags: Callable[[argparse.ArgumentParser], Any]) -> list[str]:
    """Return the data folder and fairseq-generate's flags, without the verb's own."""
    own = Parser(add_help=False)
    add_flags(own)
    return own.parse_known_args(argv)[1]


def run_training_study(verb: str, argv: list[str], args: argparse.Namespace, study: Any, masks: Any = None) -> int:
    """Run a study that trains and print its document; ``masks`` makes what computes cells without a training."""
    from fairseq_headprune.studies.masked import TrainWork
    from fairseq_headprune.studies.outlook import of_trainings

    args.jobs = args.jobs or len(visible_gpus())
    at_once = trainings_at_once(args)
    if args.dry_run:
        check_for_dry_run(study, args.output)
        return show_outlooks([of_trainings(study, args.output, at_once)], args)

    def work(study: Any) -> TrainWork:
        return TrainWork(study, at_once, masks and masks(study))

    run_opened(verb, argv, args, study, work, trains=True)
    return 0 if args.worker else show(study, args)
