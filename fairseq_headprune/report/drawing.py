"""Common code of the figures: a style independent of the user's settings, and byte-identical output files."""

import io
from collections.abc import Iterator
from contextlib import AbstractContextManager
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from fairseq_headprune import files

# Text stays text in SVG (searchable, small); "$…$" is not parsed as maths, since file names may contain dollars.
_STYLE: dict[Any, Any] = {
    "font.family": ["DejaVu Sans", "sans-serif"], "font.size": 10, "axes.titlesize": 11, "axes.labelsize": 10.5,
    "xtick.labelsize": 9, "ytick.labelsize": 9, "legend.fontsize": 9.5, "hatch.linewidth": 0.6,
    "text.parse_math": False, "svg.fonttype": "none", "svg.hashsalt": "headprune",
}  # fmt: skip

# Okabe and Ito's colours; components differ in colour, marker and dashes, so they are distinct in grey print as well.
LOOKS = {
    "All": ("#0072B2", "o", "-"),
    "Enc-Enc": ("#E69F00", "s", (0, (6, 2))),
    "Enc-Dec": ("#D55E00", "^", (0, (1.2, 1.4))),
    "Dec-Dec": ("#009E73", "D", (0, (6, 2, 1.2, 2))),
}

# Other labels: four colours, five markers and three kinds of dashes give 60 combinations before they repeat.
_COLOURS = ("#CC79A7", "#000000", "#56B4E9", "#7F7F7F")
_MARKERS = ("v", "p", "<", "h", ">")
_DASHES = ((0, (3, 1.2)), "-", (0, (8, 2, 1.2, 2, 1.2, 2)))

_FORMS: dict[str, dict[str, Any]] = {"png": {"dpi": 160}, "svg": {"metadata": {"Date": None}}}


def spare_looks() -> Iterator[tuple]:
    """Yield (colour, marker, dashes) for labels that have no fixed style."""
    return zip(cycle(_COLOURS), cycle(_MARKERS), cycle(_DASHES))


def style() -> AbstractContextManager:
    """Use matplotlib's defaults and our style for one figure, ignoring the user's configuration file.

    Some settings (fonts in SVG, the seed of its identifiers) exist only as rcParams; they are restored afterwards.
    """
    defaults = {k: v for k, v in matplotlib.rcParamsDefault.items() if not k.startswith("backend")}
    return matplotlib.rc_context({**defaults, **_STYLE})


def save(figure: Figure, path_stem: files.PathLike) -> list[Path]:
    """Write a figure atomically to ``path_stem.png`` and ``path_stem.svg``, and return the paths.

    Raises:
        FileNotFoundError: the folder does not exist.
    """
    folder = Path(path_stem).parent
    if not folder.is_dir():
        raise FileNotFoundError(f"cannot write a figure to {path_stem}: there is no folder {folder}; make it first")
    written = []
    for kind in _FORMS:
        written.append(Path(f"{path_stem}.{kind}"))
        files.write_bytes(written[-1], encoded(figure, kind))
    return written


def encoded(figure: Figure, kind: str) -> bytes:
    """Return a figure as ``png`` or ``svg``."""
    stream = io.BytesIO()
    FigureCanvasAgg(figure).print_figure(stream, format=kind, **_FORMS[kind])
    return stream.getvalue()
