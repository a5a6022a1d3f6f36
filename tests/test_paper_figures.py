"""Figures for papers: their width, their type, and that nothing is cut off; drawn from the results of examples/."""

import re
import xml.etree.ElementTree as ET

import draw_results
import pytest
import tiny
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from fairseq_headprune.cli.common import Parser, add_figure_flag, as_for_paper
from fairseq_headprune.report import drawing
from fairseq_headprune.report.document import HeadMap, number_components
from fairseq_headprune.report.drawing import DASHES, LOOKS, WIDTHS, for_paper, spare_looks
from fairseq_headprune.report.drawings import draw_figure
from fairseq_headprune.report.pictures import Distribution, Shares, TicketScores

RESULTS = (
    "multi30k/results/scores.json", "multi30k/results/prune-each.json",
    pytest.param("questions/results/multi30k-narrow-4.json", marks=pytest.mark.slow),  # many figures
    "multi30k/results/studies/effects.json", "multi30k/results/studies/sweep.json",
    "multi30k/results/learned/dynamics-6.json", "multi30k/results/learned/lambda.json",
    "glue/results/SST-2/ablate-dev.json", "glue/results/speed-by-heads-cpu.json",
)  # fmt: skip


@pytest.fixture
def drawn(monkeypatch):
    """The figures that are drawn from now on; they are laid out and not written."""
    figures = []

    class Canvas(FigureCanvasAgg):
        def print_figure(self, stream, format, **options):
            if format == "png":
                self.figure.draw_without_rendering()
                figures.append(self.figure)

    monkeypatch.setattr(drawing, "FigureCanvasAgg", Canvas)
    return figures


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", RESULTS)
def test_a_figure_has_the_width_of_the_paper_and_nothing_is_cut_off(drawn, tmp_path, name, width):
    with for_paper(width):
        for _, draw in draw_results.drawable([tiny.ROOT / "examples" / name]):
            draw(tmp_path / "f")
    check_all_fits(drawn, width)


@pytest.mark.parametrize("width", WIDTHS)
def test_figures_of_lottery_tickets_have_it_too(drawn, tmp_path, width):
    points = [
        {"ticket": t, "how": h, "mean": 70, "sd": 2} for t in ("full", "good", "bad") for h in ("pruned", "alone")
    ]
    task = {"measure": "accuracy", "line": 80.0, "baseline": 50.0, "points": points}
    tasks = [task | {"task": name} for name in ("MRPC", "CoLA", "SST-2", "RTE")]
    with for_paper(width):
        draw_figure(TicketScores("t", "Mean and one standard deviation over seeds", tasks), tmp_path / "t")
        draw_figure(Shares("s", "Patterns", ["vertical+diagonal", "block"], {"all heads": [0.2, 0.8]}), tmp_path / "s")
        draw_figure(
            Distribution("d", "Before", "Importance", {"Heads": [0, 1], "Feed-forward blocks": [2]}), tmp_path / "d"
        )
    check_all_fits(drawn, width)


def check_all_fits(figures, width):
    assert figures
    for figure in figures:
        box = figure.get_tightbbox(figure.canvas.get_renderer())  # in inches; a line of text has some room below
        (across, down), room = figure.get_size_inches(), 0.06
        assert across == WIDTHS[width]
        assert min(box.x0, box.y0) >= -room and box.x1 <= across + room and box.y1 <= down + room, box
        assert min(text.get_fontsize() for text in figure.findobj(Text) if text.get_text().strip()) >= 6


def test_looks_differ_without_their_colours():
    looks = [*LOOKS.values(), *(look for look, _ in zip(spare_looks(), range(9), strict=False))]
    assert len({look[1:] for look in looks}) == len(looks) and len(set(DASHES)) == 3


def head_map(rows, stem, scale="importance"):
    return draw_figure(HeadMap("t", scale, number_components(rows, scale)), stem)


def test_losses_are_marked_where_a_map_has_no_numbers(tmp_path):
    # PuOr is as dark at both ends; 9 heads are too many for numbers, and only the first of them is below 0.
    deltas = {"enc_self": [[-1.0, *[1.0] * 8]]}
    texts = [text.text for text in ET.parse(head_map(deltas, tmp_path / "m", "delta")[1]).iter() if text.text]
    assert texts.count("−") == 1 and "delta (−: below 0)" in texts
    texts = [text.text for text in ET.parse(head_map(deltas, tmp_path / "m")[1]).iter() if text.text]
    assert "−" not in texts


@pytest.mark.parametrize(
    ("words", "written"),
    [
        ("--figure m.pdf", ["m.pdf", "m.png", "m.svg"]),
        ("--figure m.svg", ["m.png", "m.svg"]),
        ("--figure m --width column", ["m.pdf", "m.png", "m.svg"]),
    ],
)
def test_which_files_the_flags_ask_for(tmp_path, monkeypatch, words, written):
    monkeypatch.chdir(tmp_path)
    parser = Parser()
    add_figure_flag(parser)
    args = parser.parse_args(words.split())
    with as_for_paper(args):
        head_map({"enc_self": [[1.0, 2.0]]}, args.figure)
    assert sorted(path.name for path in tmp_path.iterdir()) == written
    [size] = re.findall(r'<svg [^>]*width="([\d.]+)pt"', (tmp_path / "m.svg").read_text())
    assert (float(size) == pytest.approx(72 * 3.03, abs=0.5)) == ("column" in words)
    content = (tmp_path / "m.svg").read_text() + "".join(f.read_text("latin-1") for f in tmp_path.glob("*.pdf"))
    assert "<text" in content and "/Type3" not in content and "/CreationDate" not in content
    assert ("/FontFile2" in content) == ("m.pdf" in written)
