"""Figures: what is drawn is read back from the SVG (labels, colours, positions) and from the PNG's pixels."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import matplotlib
import numpy
import pytest
from matplotlib.image import imread

from fairseq_headprune.report import drawing, figures
from fairseq_headprune.report.document import Curves, HeadMap, Histogram, Scatter, number_components
from fairseq_headprune.report.drawings import draw_figure

SVG = "{http://www.w3.org/2000/svg}"
# Ends of viridis (van der Walt and Smith 2015), and ends and middle of ColorBrewer's PuOr with 11 classes.
VIRIDIS = ("#440154", "#fde725")
PUOR = ("#7f3b08", "#f7f7f7", "#2d004b")
GREY = "#e6e6e6"

SCORES = {"enc_self": [[0.0, 0.5], [1.0, None]], "enc_dec": [[0.25], [0.75, 1.0]], "dec_self": []}


def group(path, name):
    """Return the elements below the SVG group with this id, or None."""
    return next((g for g in ET.parse(path).getroot().iter(f"{SVG}g") if g.get("id") == name), None)


def texts(element):
    return ["".join(text.itertext()).strip() for text in element.iter(f"{SVG}text")]


def all_texts(path):
    return texts(ET.parse(path).getroot())


def bounds(element):
    """Lowest x, highest x, lowest y, highest y of a path."""
    numbers = [float(n) for n in re.findall(r"-?[\d.]+", element.find(f"{SVG}path").get("d"))]
    return min(numbers[::2]), max(numbers[::2]), min(numbers[1::2]), max(numbers[1::2])


def fills(path, component):
    """Return the colours of a component's heads, in the order they are drawn: row by row."""
    patches = [g for g in group(path, f"map-{component}").findall(f"{SVG}g") if g.get("id").startswith("patch_")]
    found = [re.search(r"fill: (#\w+|url|none)", g.find(f"{SVG}path").get("style")).group(1) for g in patches]
    return found[1:-4]  # without the background and the four sides of the frame


def curve(scores, p=None, ci=0.0):
    step = 100 / (len(scores) - 1)
    points = [{"percent": i * step, "score": s, "p": p and p[i], "ci": None} for i, s in enumerate(scores)]
    return [{**point, "ci": [point["score"] - ci, point["score"] + ci]} if ci else point for point in points]


def head_map(scores, caption, stem, scale="importance", label="", marks=None, alpha=None):
    components = number_components(scores, scale)
    for part in components if marks else []:
        for row, its in zip(part["layers"], marks[part["component"]], strict=True):
            for cell, mark in zip(row, its, strict=True):
                cell["mark"] = mark
    return draw_figure(HeadMap(caption, scale, components, label, alpha=alpha), stem)


def pruning_curve(curves, measure, baseline, stem, alpha=0.01):
    drawn = [{"name": name, "points": points} for name, points in curves.items()]
    return draw_figure(Curves("", measure, baseline, drawn, alpha=alpha), stem)


def test_head_map_colours_run_from_the_lowest_score_to_the_highest(tmp_path):
    _, svg = head_map(SCORES, "importance of heads", tmp_path / "map")
    colours = fills(svg, "enc_self")
    assert (colours[0], colours[2]) == VIRIDIS
    # One scale for all components: enc_dec's highest score, 1.0, is as bright as enc_self's.
    assert fills(svg, "enc_dec")[3] == VIRIDIS[1]
    # The scale starts at the lowest score, not at 0, where scores of one size would all look alike.
    _, svg = head_map({"enc_self": [[0.9, 0.95, 1.0]]}, "t", tmp_path / "close")
    assert fills(svg, "enc_self") == [VIRIDIS[0], "#21908d", VIRIDIS[1]]


def test_head_map_hatches_pruned_and_absent_heads(tmp_path):
    _, svg = head_map(SCORES, "t", tmp_path / "map")
    assert [fill == "url" for fill in fills(svg, "enc_self")] == [False, False, False, True]
    assert [fill == "url" for fill in fills(svg, "enc_dec")] == [False, True, False, False]
    assert f'fill="{GREY}"' in svg.read_text() or f"fill: {GREY}" in svg.read_text()
    _, svg = head_map({"enc_self": [[1.0]]}, "t", tmp_path / "full")
    assert "hatched" not in svg.read_text()


def test_head_map_of_differences_is_centred_on_zero(tmp_path):
    # -2 is the farthest from 0, so +2 would be the other end, and 1 lies half way there.
    _, svg = head_map({"enc_self": [[-2.0, 0.0, 2.0]]}, "t", tmp_path / "map", scale="delta", label="change in BLEU")
    low, middle, high = fills(svg, "enc_self")
    assert (low, high) == (PUOR[0], PUOR[2])
    # 256 steps have no middle one: the colour beside it differs by no more than 2 in 255.
    assert all(abs(int(middle[i : i + 2], 16) - int(PUOR[1][i : i + 2], 16)) <= 2 for i in (1, 3, 5))
    assert "change in BLEU" in all_texts(svg)


def test_head_map_is_labelled_as_the_papers_are(tmp_path):
    _, svg = head_map(SCORES, "a $title$ & more", tmp_path / "map")
    everything = all_texts(svg)
    # Components without heads (an encoder-only model, a language model) take no room.
    assert {"Enc-Enc", "Enc-Dec", "Head", "Layer", "a $title$ & more"} <= set(everything)
    assert "Dec-Dec" not in everything
    labels = texts(group(svg, "map-enc_self"))
    assert labels[:5] == ["1", "2", "Head", "1", "2"]  # heads, then layers, both from 1
    assert {"0.00", "0.50", "1.00"} <= set(labels)


def test_png_shows_the_colours_at_the_right_place(tmp_path):
    png, _ = head_map({"enc_self": [[0.0, 1.0]]}, "t", tmp_path / "map")
    pixels = (imread(png)[:, :, :3] * 255).round().astype(int)
    height, width, _ = pixels.shape
    assert height > 200 and width > 300
    dark, bright = ([int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in VIRIDIS)
    # The colour bar below has these colours too, so look above it.
    above = pixels[: int(height * 0.45)]
    centre = {name: numpy.argwhere((above == c).all(axis=2)).mean(axis=0) for name, c in (("0", dark), ("1", bright))}
    assert centre["0"][1] < centre["1"][1]
    assert abs(centre["0"][0] - centre["1"][0]) < 5


def test_points_of_a_curve_are_where_their_numbers_say(tmp_path):
    _, svg = pruning_curve({"All": curve([30.0, 15.0, 0.0])}, "BLEU", 30.0, tmp_path / "curve")
    places = [(float(u.get("x")), float(u.get("y"))) for u in group(svg, "All:same").iter(f"{SVG}use")]
    (x0, y30), (x50, y15), (x100, y0) = places
    # Percentages 0, 50, 100 and scores 30, 15, 0 are evenly spaced on linear axes.
    assert x50 - x0 == pytest.approx(x100 - x50, abs=1e-3)
    assert y15 - y30 == pytest.approx(y0 - y15, abs=1e-3)
    # The y axis starts at 0: the lowest point lies on the axis, whose line ends there.
    frame = [p.get("d") for p in group(svg, "axes_1").iter(f"{SVG}path")][0]
    assert max(float(n) for n in re.findall(r"[ML] \S+ (\S+)", frame)) == pytest.approx(y0, abs=1e-3)


def test_filled_markers_are_the_points_that_do_not_differ(tmp_path):
    # p >= .01 is no difference: .01 itself is filled, .009 hollow; 0% is the unpruned model, filled without a test.
    points = curve([30.0, 29.0, 28.0, 10.0, 0.0], p=[None, 0.5, 0.01, 0.009, None])
    _, svg = pruning_curve({"Enc-Dec": points}, "BLEU", 30.0, tmp_path / "curve")
    counts = {s: len(list(group(svg, f"Enc-Dec:{s}").iter(f"{SVG}use"))) for s in ("same", "differs", "untested")}
    assert counts == {"same": 3, "differs": 1, "untested": 1}
    style = {s: next(group(svg, f"Enc-Dec:{s}").iter(f"{SVG}use")).get("style") for s in counts}
    assert "fill: #ffffff" in style["differs"] and "fill: #ffffff" not in style["same"]
    assert {"p ≥ 0.01", "p < 0.01 before Holm's correction", "not tested"} <= set(all_texts(svg))


def test_level_of_significance_is_the_callers(tmp_path):
    points = {"All": curve([30.0, 20.0], p=[None, 0.03])}
    _, svg = pruning_curve(points, "BLEU", 30.0, tmp_path / "curve", alpha=0.05)
    assert group(svg, "All:differs") is not None
    assert "p < 0.05 before Holm's correction" in all_texts(svg)


def test_nothing_tested_says_nothing_about_significance(tmp_path):
    _, svg = pruning_curve({"All": curve([30.0, 20.0])}, "chrF", 30.0, tmp_path / "curve")
    everything = all_texts(svg)
    assert not any(text.startswith("p ") for text in everything)
    assert {"All", "chrF", "Percentage pruned", "0%", "100%"} <= set(everything)


def test_curves_differ_in_colour_marker_and_dashes(tmp_path):
    names = ["All", "Enc-Enc", "Enc-Dec", "Dec-Dec", "random", "oracle"]
    curves = {name: curve([30.0 - i, 10.0 + i]) for i, name in enumerate(names)}
    _, svg = pruning_curve(curves, "BLEU", 36.05, tmp_path / "curve")
    assert {*names, "Unpruned (36.05)"} <= set(all_texts(svg))
    markers = {next(group(svg, f"{name}:same").iter(f"{SVG}path")).get("d") for name in names}
    colours = {next(group(svg, f"{name}:same").iter(f"{SVG}use")).get("style") for name in names}
    lines = [p.get("style") for p in group(svg, "axes_1").iter(f"{SVG}path") if p.get("style")]
    dashes = {re.search(r"stroke-dasharray: ([\d.,]+)", s).group(1) for s in lines if "dasharray: " in s}
    assert len(markers) == len(colours) == 6
    assert len(dashes) >= 4  # three components, "random", the baseline; "All" is solid


def test_confidence_band_spans_the_interval(tmp_path):
    _, svg = pruning_curve({"All": curve([30.0, 20.0], ci=2.0)}, "BLEU", 30.0, tmp_path / "curve")
    ys = [float(u.get("y")) for u in group(svg, "All:same").iter(f"{SVG}use")]
    band = next(p.get("d") for p in group(svg, "FillBetweenPolyCollection_1").iter(f"{SVG}path"))
    heights = [float(y) for y in re.findall(r"[ML] \S+ (-?[\d.]+)", band)]
    # The scores 30 and 20 are 10 apart, so the band (28 to 32, 18 to 22) reaches a fifth of that beyond each; from
    # 32 down to 18 are 14 tenths of it. SVG's y may be relative to the page, so compare lengths.
    assert max(heights) - min(heights) == pytest.approx(1.4 * (ys[1] - ys[0]), rel=1e-3)


def test_same_bytes_whatever_the_users_settings_and_settings_stay(tmp_path):
    def draw(name):
        written = head_map(SCORES, "t", tmp_path / f"{name}-map")
        written += pruning_curve({"All": curve([3.0, 1.0], ci=0.1)}, "BLEU", 3.0, tmp_path / f"{name}-curve")
        return [path.read_bytes() for path in written]

    first = draw("a")
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "svg.hashsalt": "other", "savefig.dpi": 50}):
        before = dict(matplotlib.rcParams)
        second = draw("b")
        assert dict(matplotlib.rcParams) == before
    assert first == second
    assert all(b"<dc:date>" not in data for data in first)
    assert [path.name for path in sorted(tmp_path.iterdir())] == sorted(
        f"{n}-{k}.{e}" for n in "ab" for k in ("map", "curve") for e in ("png", "svg")
    )


def test_drawing_needs_no_pyplot_and_no_display(tmp_path):
    # A process of its own, since other tests may have imported pyplot; named as the command, it does not load fairseq.
    code = (
        "import sys; sys.argv = ['headprune']\n"
        "from fairseq_headprune.report.document import HeadMap, number_components\n"
        "from fairseq_headprune.report.drawings import draw_figure\n"
        "drawn = HeadMap('t', 'importance', number_components({'enc_self': [[1.0]]}, 'importance'))\n"
        f"draw_figure(drawn, {str(tmp_path / 'map')!r})\n"
        "assert 'matplotlib.pyplot' not in sys.modules and 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert (tmp_path / "map.svg").exists()


def test_wrong_input_is_named(tmp_path):
    with pytest.raises(ValueError, match="no heads to draw"):
        head_map({"enc_self": [[], []]}, "t", tmp_path / "map")
    assert not list(tmp_path.iterdir())
    with pytest.raises(FileNotFoundError, match="there is no folder .*nowhere"):
        head_map(SCORES, "t", tmp_path / "nowhere" / "map")


def test_significant_heads_are_framed(tmp_path):
    deltas = {"enc_self": [[-2.0, 0.1], [0.5, None]], "dec_self": [[0.0]]}
    marks = {"enc_self": [["holm", ""], ["raw", ""]], "dec_self": [[""]]}
    png, svg = head_map(deltas, "t", tmp_path / "map", "delta", "difference", marks=marks, alpha=0.05)
    # Layers and heads from 1: layer 1 head 1, and layer 2 head 1 below it.
    frames = {name for name in re.findall(r'id="([^"]+)"', svg.read_text()) if re.fullmatch(r"(holm|raw)-\d-\d", name)}
    assert frames == {"holm-1-1", "raw-2-1"} and png.exists()
    first, second = bounds(group(svg, "holm-1-1")), bounds(group(svg, "raw-2-1"))
    assert first[:2] == pytest.approx(second[:2]) and first[3] < second[2]
    assert "stroke-dasharray" in group(svg, "raw-2-1").find(f"{SVG}path").get("style")
    assert "stroke-dasharray" not in group(svg, "holm-1-1").find(f"{SVG}path").get("style")
    assert "framed: p < 0.05 after Holm's correction; dashed: only before it" in all_texts(svg)


def test_histogram_counts_heads(tmp_path):
    # By hand: of 20 equal intervals from 1 to 3, the first holds 1 and 1.05, the last 2.95, 2.98 and 3.
    _, svg = draw_figure(Histogram("h", "BLEU", [1.0, 1.05, 2.95, 2.98, 3.0], 2.0), tmp_path / "h")
    drawn = ET.parse(svg).getroot()
    bars = [bounds(g) for g in drawn.iter(f"{SVG}g") if g.get("id") == "heads"]
    assert len(bars) == 20
    heights = [high - low for _, _, low, high in bars]
    assert heights[-1] / heights[0] == pytest.approx(3 / 2) and not any(heights[1:-1])
    # The baseline, 2, is where the tenth and the next bar meet.
    assert bounds(group(svg, "baseline"))[0] == pytest.approx(bars[9][1], abs=1e-3)
    assert {"BLEU", "Number of heads", "Baseline BLEU (2.00)"} <= set(all_texts(svg))


def test_scatter_has_the_unpruned_scores_as_lines(tmp_path):
    # By hand: the only head has the unpruned scores, so both lines run through its marker.
    points = {"enc_dec": [(30.0, 20.0)], "dec_self": [(29.0, 21.0)]}
    _, svg = draw_figure(Scatter("s", "c", ("x", "y"), points, (30.0, 20.0)), tmp_path / "s")
    marker = next(group(svg, "heads-enc_dec").iter(f"{SVG}use"))
    assert float(marker.get("x")) == pytest.approx(bounds(group(svg, "baseline-x"))[0], abs=1e-3)
    assert float(marker.get("y")) == pytest.approx(bounds(group(svg, "baseline-y"))[2], abs=1e-3)


def test_a_legend_is_no_wider_than_its_figure():
    # Source: matplotlib's own layout.
    points = [{"percent": x, "score": 40.0 - x / 10, "p": p, "ci": [30.0, 41.0]} for x, p in ((0, 1.0), (50, 0.001))]
    with drawing.style():
        curves = [{"name": name, "points": points} for name in ("Enc-Enc", "Enc-Dec", "Dec-Dec")]
        drawn = figures.pruning_curve(Curves("", "BLEU", 40.0, curves))
        drawing.encoded(drawn, "png")
        box = drawn.legends[0].get_window_extent()
    assert 0 <= box.x0 and box.x1 <= drawn.bbox.x1
