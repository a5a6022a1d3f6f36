"""Common code of the verbs: a parser with one-line errors, checks of output files, and printing of results."""

import argparse
import contextlib
import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, NoReturn, TypeVar

from fairseq_headprune.errors import one_line_error
from fairseq_headprune.files import check_output, same_file
from fairseq_headprune.parts.components import FFN_PARTS
from fairseq_headprune.report.tables import FORMS

Content = TypeVar("Content")


#: what fairseq-train needs at least
_TRAIN = "--arch transformer_gated_iwslt_de_en --optimizer adam --lr 1e-4 --max-tokens 4096"
#: verb -> what follows ``headprune VERB`` in the example at the end of its ``--help``
EXAMPLES = {
    "make-corpus": "corpus --binarise",
    "mask": "--like checkpoint_best.pt --scores scores.json --heads 24 -o mask.json",
    "score": "data-bin --path checkpoint_best.pt --score-sentences 1000 -o scores.json",
    "evaluate": "data --path checkpoint_best.pt --gen-subset dev --predictions predictions.json",
    "prune": "data-bin --path checkpoint_best.pt --beam 5 --remove-bpe sentencepiece --step 10% -o pruned",
    "ablate": "data-bin --path checkpoint_best.pt --beam 5 --remove-bpe sentencepiece -o ablated",
    "keep-one": "data-bin --path checkpoint_best.pt --beam 5 --remove-bpe sentencepiece -o kept",
    "attention": "data-bin --path checkpoint_best.pt --gen-subset valid --sentence 12 -o sentence-12",
    "lottery": "find data-bin --path checkpoint_best.pt --mode both -o ticket",
    "lottery find": "data-bin --path checkpoint_best.pt --mode both -o ticket",
    "lottery tickets": "seed1/ticket seed2/ticket seed3/ticket -o tickets",
    "lottery survival": "tickets-heads tickets-blocks tickets-both -o survival",
    "lottery retrain": f"data-bin --path best.pt --tickets tickets/1 --updates 1000 --train-flags '{_TRAIN}' -o again",
    "lottery patterns": "data --path seed1/checkpoint_best.pt --gen-subset dev --tickets tickets -o patterns",
    "lottery table": "seed1/retrain seed2/retrain seed3/retrain --format markdown",
    "random-study": f"data-bin --path best.pt --random 50% --updates 1000 --train-flags '{_TRAIN}' -o random",
    "compare-pruners": "data-bin --work study --out results/pruners --counts 16,8 --seeds 1,2,3",
    "weight-change": "before.pt after.pt --figure change",
    "sweep-epochs": "data-bin --checkpoints checkpoints --epochs 1-10 --beam 5 -o sweep",
    "correlate": "ablated-in-domain ablated-out-of-domain --figure correlation",
    "report": "ablated pruned -o report.html",
    "open": "pruned",
    "dynamics": "checkpoints/gates.jsonl -o dynamics",
    "slim": "checkpoint_best.pt --mask mask.json -o slim.pt",
    "bench": "data-bin --path checkpoint_best.pt --models slim.pt --batch-sizes 1,16",
    "bench-heads": "data --path checkpoint_best.pt --heads 72,36,12 -o speed.json",
    "profile": "data-bin --path checkpoint_best.pt --batch-size 16 -o profile.json",
    "import": "opus-mt-de-en -o opus --check raw/test.de",
    "average": "checkpoint8.pt checkpoint9.pt checkpoint10.pt -o average.pt",
    "export": "slim.pt --to ctranslate2 folder --data data-bin",
    "compare": "reference.txt baseline.txt pruned.txt",
    "completion": "bash",
}


class Help(argparse.ArgumentDefaultsHelpFormatter):
    """Ends each flag's text with its default, or that it is required, unless the text names a default itself."""

    def _get_help_string(self, action: argparse.Action) -> str:
        text = action.help or ""
        if action.required and action.option_strings:
            return text if "(required" in text else f"{text} (required)"
        if "default" in text or "required" in text or action.default == argparse.SUPPRESS or not action.option_strings:
            return text
        if action.default is False or action.default in (None, []):
            return f"{text} (default: {'off' if action.default is False else 'none'})"
        return super()._get_help_string(action) or ""


class Parser(argparse.ArgumentParser):
    """An argument parser that reports errors in one line (exit status 2) and does not accept abbreviated flags."""

    _collected: ClassVar[list["Parser"] | None] = None
    _given: Sequence[str] = ()

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("allow_abbrev", False)
        kwargs.setdefault("formatter_class", Help)
        super().__init__(**kwargs)

    def format_help(self) -> str:
        """Return the help, which ends with an example of the verb."""
        verb = self.prog.removeprefix("headprune ")
        example = f"\nexample:\n  {self.prog} {EXAMPLES[verb]}\n" if verb in EXAMPLES else ""
        return super().format_help() + example

    def print_help(self, file: Any = None) -> None:
        """Print the help, or only collect the parser."""
        if Parser._collected is None:
            super().print_help(file)
        else:
            Parser._collected.append(self)

    @classmethod
    @contextlib.contextmanager
    def collecting(cls, found: list["Parser"]) -> Iterator[None]:
        """Collect the parsers whose help is asked for, instead of printing it."""
        Parser._collected = found
        try:
            yield
        finally:
            Parser._collected = None

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, and keep the words for what an error says."""
        self._given = list(args or ())
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Exit with status 2 and one line on stderr."""
        one_line_error(self, message, self._given)


#: The command line of this process, without the program.
COMMAND: list[str] = []


def made_by() -> dict[str, Any]:
    """Return the command and the software that make a result, for its JSON document."""
    from fairseq_headprune.provenance import software

    return {"command": shlex.join(["headprune", *COMMAND]), **software()}


def emit(value: dict, as_json: bool, text: str) -> None:
    """Print a verb's result to stdout, as one JSON document, whose ``made_by`` says how it was made, or as text."""
    if as_json:
        # What is also a file of its own, such as scores, has the environment with the command.
        value = value if "environment" in value else {**value, "made_by": made_by()}
        print(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False))
    else:
        print(text)


def refuse_overwriting(output: str, *inputs: str | None) -> None:
    """Check that the output file is not one of the input files, links resolved.

    Raises:
        ValueError: it is an input.
    """
    for path in inputs:
        if path and same_file(path, output):
            raise ValueError(f"the output {output} is the input {path}; choose another name")


def named(systems: Iterable[tuple[str, Content]]) -> dict[str, Content]:
    """Return systems by path; one given twice (compared with itself) gets a distinct name."""
    by_name: dict[str, Content] = {}
    for path, system in systems:
        name, again = path, 2
        while name in by_name:
            name, again = f"{path} ({again})", again + 1
        by_name[name] = system
    return by_name


class _Figure(argparse.Action):
    """Stores the name of a figure without its extension, and whether it is to be a PDF too."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: Any = None) -> None:
        path = Path(values)
        namespace.figure = str(path.with_suffix("")) if path.suffix in (".png", ".svg", ".pdf") else values
        namespace.pdf = path.suffix == ".pdf"


def add_figure_flag(parser: Any) -> None:
    """Add ``--figure STEM`` and ``--width`` to a parser or group; the stem may have an extension."""
    text = "draw STEM.png and STEM.svg; named STEM.pdf, that too (default: no figure)"
    parser.add_argument("--figure", metavar="STEM", action=_Figure, help=text)
    add_width_flag(parser)


def add_width_flag(parser: Any) -> None:
    """Add ``--width`` to a parser or group."""
    text = (
        "draw figures for a paper, as wide as its column (7.7 cm) or page (16 cm), as PDF too (default: for a screen)"
    )
    parser.add_argument("--width", choices=("column", "page"), help=text)


def as_for_paper(args: argparse.Namespace) -> contextlib.AbstractContextManager:
    """Return the context in which the figures that the flags describe are drawn."""
    from fairseq_headprune.report.drawing import for_paper  # matplotlib: not for --help

    return for_paper(getattr(args, "width", None), getattr(args, "pdf", False))


def add_output_flags(group: Any, what: str = "print one JSON document") -> None:
    """Add the mutually exclusive flags ``--json`` (help text ``what``) and ``--format`` to a parser or group."""
    output = group.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help=what)
    output.add_argument("--format", choices=FORMS, default="text", help="form of the tables")


def add_ffn_flag(parser: Any, what: str | None = None) -> None:
    """Add ``--ffn``, which sets what a part of a feed-forward component is; ``what`` is the help text of a verb."""
    text = "what a part of enc_ffn and dec_ffn is, where --components names them (default: blocks)"
    parser.add_argument("--ffn", choices=FFN_PARTS, help=what or text)


def check_outputs(output: str | None, figure: str | None = None) -> None:
    """Check, before work that may take long, that the output files can be written.

    Raises:
        ValueError, FileNotFoundError: see :func:`fairseq_headprune.files.check_output`.
    """
    for path in ([output] if output else []) + ([f"{figure}.png", f"{figure}.svg"] if figure else []):
        check_output(path)


def numbers(text: str, kind: Callable[[str], Any] = int, may_be_empty: bool = False) -> list:
    """Parse comma-separated numbers (``kind``: int or float), for argparse; empty items are skipped.

    Raises:
        argparse.ArgumentTypeError: an item is no such number, or there is none.
    """
    form = "whole numbers as in 1,16" if kind is int else "numbers as in 0.01,0.1"
    wrong = argparse.ArgumentTypeError(f"{text!r}: give {form}")
    try:
        found = [kind(part) for part in text.split(",") if part]
    except ValueError:
        raise wrong from None
    if not found and not may_be_empty:
        raise wrong
    return found


def check_least(least: int, args: argparse.Namespace, *flags: str) -> None:
    """Check that the numbers of these flags, single ones or lists, are not below ``least``; None is not checked.

    Raises:
        ValueError: names the flag and the number.
    """
    for flag in flags:
        value = getattr(args, flag.replace("-", "_"))
        for number in value if isinstance(value, list) else [value]:
            if number is not None and number < least:
                raise ValueError(f"--{flag} must be at least {least}, got {number}")


def check_alpha(args: argparse.Namespace) -> None:
    """Check ``--alpha``; raises ValueError if it is not between 0 and 1."""
    if not 0 < args.alpha < 1:
        raise ValueError(f"--alpha must be between 0 and 1, got {args.alpha}")


def check_once(args: argparse.Namespace, *flags: str) -> None:
    """Check that no value of these flags is given twice.

    Raises:
        ValueError: names the flag and the value.
    """
    for flag in flags:
        values = getattr(args, flag.replace("-", "_"))
        twice = [value for value in values if values.count(value) > 1]
        if twice:
            raise ValueError(f"--{flag}: {twice[0]} is given twice")
