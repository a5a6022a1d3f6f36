"""Common code of the figures: a style independent of the user's settings, and byte-identical output files.

Inside :func:`for_paper` figures are as wide as a column or a page of a paper, with its size of type, and a PDF is
written as well.
"""

import io
import math
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from itertools import cycle
from pathlib import Path
from typing import Any, Literal

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text

from fairseq_headprune import files

# Text stays text in SVG (searchable, small); "$…$" is not parsed as maths, since file names may contain dollars.
_STYLE: dict[Any, Any] = {
    "font.family": ["DejaVu Sans", "sans-serif"], "font.size": 10, "axes.titlesize": 11, "axes.labelsize": 10.5,
    "xtick.labelsize": 9, "ytick.labelsize": 9, "legend.fontsize": 9.5, "hatch.linewidth": 0.6,
    "text.parse_math": False, "svg.fonttype": "none", "svg.hashsalt": "headprune",
    "pdf.fonttype": 42, "ps.fonttype": 42,  # TrueType, embedded: publishers refuse type 3
}  # fmt: skip

#: Width in inches of a column and of the text of a page, as in the style of ACL (7.7 and 16 cm).
WIDTHS = {"column": 3.03, "page": 6.3}

# At a paper's width: small, but not below the 6 points that publishers ask for.
_PAPER: dict[Any, Any] = {
    "font.size": 8, "axes.titlesize": 8, "axes.labelsize": 8, "xtick.labelsize": 7, "ytick.labelsize": 7,
    "legend.fontsize": 7, "lines.markersize": 4, "axes.linewidth": 0.6,
}  # fmt: skip

#: Smallest height of a figure in a paper, in inches.
_LOWEST = 1.7

#: Height of a line of a legend in a paper, in inches.
_LINE = 0.14

_paper: ContextVar[tuple[str | None, bool]] = ContextVar("paper", default=(None, False))


@contextmanager
def for_paper(width: str | None, pdf: bool = False) -> Iterator[None]:
    """Draw the figures of a block for a paper.

    Args:
        width: ``column`` or ``page``, and a PDF; None: as on a screen.
        pdf: write a PDF even so.
    """
    token = _paper.set((width, pdf or width is not None))
    try:
        yield
    finally:
        _paper.reset(token)


def paper_width() -> float | None:
    """Return the width of the figure in inches; None: the figure's own."""
    width = _paper.get()[0]
    return None if width is None else WIDTHS[width]


def in_column() -> bool:
    """Whether panels stand below each other, as a column of a paper is too narrow for two."""
    return _paper.get()[0] == "column"


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
DASHES = ((0, (3, 1.2)), "-", (0, (8, 2, 1.2, 2, 1.2, 2)))

_FORMS: dict[str, dict[str, Any]] = {
    "png": {"dpi": 160}, "svg": {"metadata": {"Date": None}}, "pdf": {"metadata": {"CreationDate": None}}
}  # fmt: skip


def spare_looks() -> Iterator[tuple]:
    """Yield (colour, marker, dashes) for labels that have no fixed style."""
    return zip(cycle(_COLOURS), cycle(_MARKERS), cycle(DASHES))


def style() -> AbstractContextManager:
    """Use matplotlib's defaults and our style for one figure, ignoring the user's configuration file.

    Some settings (fonts in SVG, the seed of its identifiers) exist only as rcParams; they are restored afterwards.
    """
    defaults = {k: v for k, v in matplotlib.rcParamsDefault.items() if not k.startswith("backend")}
    return matplotlib.rc_context({**defaults, **_STYLE, **(_PAPER if paper_width() else {})})


def panels(width: float, height: float, **options: Any) -> tuple[Figure, Sequence[Axes]]:
    """Return a figure of two panels beside each other; in the column of a paper, below each other.

    Args:
        width, height: in inches, on a screen.
        options: of ``Figure.subplots``, for panels beside each other.
    """
    if in_column():
        figure = Figure(figsize=(width / 2, 2 * height), layout="constrained")
        return figure, figure.subplots(2, 1)
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(1, 2, **options)


def finish(axes: Axes, grid: Literal["both", "x", "y"] = "both") -> None:
    """Put light grid lines behind a plot's contents, and leave its frame open above and on the right."""
    axes.grid(axis=grid, color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def legend(figure: Figure, *arguments: Any, loc: str = "outside lower center", **options: Any) -> None:
    """Add a legend outside the plot, where it hides no curve, in as many columns as fit; on a screen at most ``ncols``.

    In a paper it is below the plot.
    """
    options = {"loc": loc, "frameon": False, "handlelength": 3.2, "ncols": 1, **options}
    paper = paper_width()
    width, most = paper or figure.get_figwidth(), options["ncols"]
    if paper:
        options |= {"loc": "outside lower center", "ncols": 1, "handlelength": 2.6, "columnspacing": 1.0}
    first = figure.legend(*arguments, **options)
    # A handle with its spaces takes about half an inch.
    widths = [letter_width(_points(text)) * len(text.get_text()) + 0.5 for text in first.get_texts()]
    first.remove()
    most = len(widths) if paper else min(most, len(widths))
    options["ncols"] = next(n for n in range(most, 0, -1) if n == 1 or _columns_width(widths, n) <= width)
    shown = figure.legend(*arguments, **options)
    for text in shown.get_texts() if paper else []:
        text.set_text(folded(text.get_text(), width - 0.5, _points(text)))


def _columns_width(widths: Sequence[float], columns: int) -> float:
    """Return the width of a legend, which matplotlib fills column by column."""
    long, more = divmod(len(widths), columns)
    starts = [n * long + min(n, more) for n in range(columns + 1)]
    return sum(max(widths[a:b]) for a, b in zip(starts[:-1], starts[1:], strict=True))


def _fit(figure: Figure, width: float) -> None:
    """Give a figure the width of a paper: it keeps its shape, lines get thinner, and texts are folded."""
    before = figure.get_size_inches()
    rows = max(spec.get_gridspec().nrows for axes in figure.axes if (spec := axes.get_subplotspec()))
    height = max(before[1] * width / before[0], min(before[1], _LOWEST))
    height = min(height, 0.6 * width) if rows == 1 and width > before[0] else height
    # The legend comes below the plot, which keeps its size.
    height += sum(_LINE * math.ceil(len(entry.get_texts()) / vars(entry)["_ncols"]) for entry in figure.legends)
    figure.set_size_inches(width, height)
    across, down = figure.get_size_inches()
    rooms = [(text, across) for axes in figure.axes for text in (axes.title, axes.xaxis.label)]
    rooms += [(axes.yaxis.label, 0.8 * down / rows) for axes in figure.axes]
    for text, room in [*rooms, *((text, across) for text in figure.texts)]:
        text.set_fontsize(min(_points(text), 9))
        text.set_text(folded(text.get_text(), room, _points(text)))
    for line in figure.findobj(Line2D):
        line.set_markersize(0.65 * line.get_markersize())
        line.set_linewidth(0.7 * line.get_linewidth())


def _points(text: Text) -> float:
    return float(text.get_fontsize())


def letter_width(size: float) -> float:
    """Return the width in inches of a character of a size in points: DejaVu Sans takes about 0.6 of it."""
    return 0.6 * size / 72


def folded(text: str, room: float, size: float) -> str:
    """Fold a text of a size in points into lines of at most ``room`` inches."""
    letters = max(8, int(room / letter_width(size)))
    return "\n".join(textwrap.fill(line, letters) for line in text.split("\n"))


def save(figure: Figure, path_stem: files.PathLike) -> list[Path]:
    """Write a figure atomically to ``path_stem.png`` and ``.svg``, for a paper also ``.pdf``, and return the paths.

    Raises:
        FileNotFoundError: the folder does not exist.
    """
    folder = Path(path_stem).parent
    if not folder.is_dir():
        raise FileNotFoundError(f"cannot write a figure to {path_stem}: there is no folder {folder}; make it first")
    # A figure with a layout of its own has the width already.
    if (width := paper_width()) and figure.get_layout_engine():
        _fit(figure, width)
    written = []
    for kind in ("png", "svg", "pdf") if _paper.get()[1] else ("png", "svg"):
        written.append(Path(f"{path_stem}.{kind}"))
        files.write_bytes(written[-1], encoded(figure, kind))
    return written


def encoded(figure: Figure, kind: str) -> bytes:
    """Return a figure as ``png``, ``svg`` or ``pdf``."""
    stream = io.BytesIO()
    options = _FORMS[kind] | ({"dpi": 300} if kind == "png" and paper_width() else {})
    FigureCanvasAgg(figure).print_figure(stream, format=kind, **options)
    return stream.getvalue()
