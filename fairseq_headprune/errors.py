"""How errors name what they are about, and how commands report them: one line on stderr."""

import argparse
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import NoReturn


def one_line_error(parser: argparse.ArgumentParser, message: str, given: Iterable[str] = ()) -> NoReturn:
    """Exit with status 2 and one line on stderr that ends with a pointer to the help.

    Args:
        given: the words of the command line; if a flag is missing, it may be among them, misspelt.
    """
    missing = message.startswith("the following arguments are required:")
    unknown = message.split()[2:] if message.startswith("unrecognized arguments:") else given if missing else ()
    flags = [flag for action in parser._actions for flag in action.option_strings]
    names = (word.split("=")[0] for word in unknown if word.startswith("--"))
    hints = [hint for name in names if name not in flags and (hint := nearest(name, flags))]
    # A line break in the message can only come from a user's value.
    sys.stderr.write(f"{parser.prog}: {' '.join([*message.split(), *hints])} (see {parser.prog} --help)\n")
    sys.exit(2)


@contextmanager
def errors_of(what: object) -> Iterator[None]:
    """Begin the message of a ValueError in the block with what it is about, such as a file.

    Raises:
        ValueError: the block raised one.
    """
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from error


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a "did you mean" question with the known word nearest to a misspelt one; empty if none is near."""
    found = get_close_matches(word, known, n=1)
    return f"(did you mean {found[0]}?)" if found else ""
