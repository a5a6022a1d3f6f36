"""How commands report what is wrong: one line on stderr."""

import argparse
import sys
from typing import NoReturn


def one_line_error(parser: argparse.ArgumentParser, message: str) -> NoReturn:
    """Leave with status 2 and one line on stderr that ends with the way to the help."""
    # A line break in the message would come from a value that was given.
    sys.stderr.write(f"{parser.prog}: {' '.join(message.split())} (see {parser.prog} --help)\n")
    sys.exit(2)
