"""Figures of single heads: what is drawn is read back from the SVG."""

import re
import xml.etree.ElementTree as ET

import pytest

from fairseq_headprune.report.figures import head_map
from fairseq_headprune.report.histogram import score_histogram
from fairseq_headprune.report.scatter import ablation_scatter

SVG = "{http://www.w3.org/2000/svg}"


def groups(path):
    return {g.get("id"): g for g in ET.parse(path).getroot().iter(f"{SVG}g")}


def texts(path):
    return ["".join(text.itertext()).strip() for text in ET.parse(path).getroot().iter(f"{SVG}text")]


def bounds(element):
    """Lowest x, highest x, lowest y, highest y of a path."""
    numbers = [float(n) for n in re.findall(r"-?[\d.]+", element.find(f"{SVG}path").get("d"))]
    return min(numbers[::2]), max(numbers[::2]), min(numbers[1::2]), max(numbers[1::2])


def test_significant_heads_are_framed(tmp_path):
    deltas = {"enc_self": [[-2.0, 0.1], [0.5, None]], "dec_self": [[0.0]]}
    marks = {"enc_self": [["holm", ""], ["raw", ""]], "dec_self": [[""]]}
    png, svg = head_map(deltas, "t", tmp_path / "map", "delta", "difference", marks=marks, alpha=0.05)
    found = groups(svg)
    # Layers and heads from 1: layer 1 head 1, and layer 2 head 1 below it.
    frames = {name for name in found if re.fullmatch(r"(holm|raw)-\d-\d", name or "")}
    assert frames == {"holm-1-1", "raw-2-1"} and png.exists()
    first, second = bounds(found["holm-1-1"]), bounds(found["raw-2-1"])
    assert first[:2] == pytest.approx(second[:2]) and first[3] < second[2]
    assert "stroke-dasharray" in found["raw-2-1"].find(f"{SVG}path").get("style")
    assert "stroke-dasharray" not in found["holm-1-1"].find(f"{SVG}path").get("style")
    assert "framed: p < 0.05 after Holm's correction; dashed: only before it" in texts(svg)


def test_histogram_counts_heads(tmp_path):
    # By hand: of two equal intervals from 1 to 3, the first holds 1 and 1.5, the second 2.5, 2.9 and 3.
    _, svg = score_histogram([1.0, 1.5, 2.5, 2.9, 3.0], 2.0, "BLEU", tmp_path / "h", bins=2)
    drawn = ET.parse(svg).getroot()
    bars = [bounds(g) for g in drawn.iter(f"{SVG}g") if g.get("id") == "heads"]
    assert len(bars) == 2
    heights = [high - low for _, _, low, high in bars]
    assert heights[1] / heights[0] == pytest.approx(3 / 2)
    # The baseline, 2, is where the two bars meet.
    assert bounds(groups(svg)["baseline"])[0] == pytest.approx(bars[0][1], abs=1e-3)
    assert {"BLEU", "Number of heads", "Baseline BLEU (2.00)"} <= set(texts(svg))
    with pytest.raises(ValueError, match="no scores"):
        score_histogram([], 2.0, "BLEU", tmp_path / "h")
    with pytest.raises(ValueError, match="no finite number"):
        score_histogram([float("nan")], 2.0, "BLEU", tmp_path / "h")


def test_scatter_has_the_unpruned_scores_as_lines(tmp_path):
    # By hand: the only head has the unpruned scores, so both lines run through its marker.
    points = {"enc_dec": [(30.0, 20.0)], "dec_self": [(29.0, 21.0)]}
    _, svg = ablation_scatter(points, (30.0, 20.0), ("x", "y"), "c", tmp_path / "s")
    found = groups(svg)
    marker = next(found["heads-enc_dec"].iter(f"{SVG}use"))
    assert float(marker.get("x")) == pytest.approx(bounds(found["baseline-x"])[0], abs=1e-3)
    assert float(marker.get("y")) == pytest.approx(bounds(found["baseline-y"])[2], abs=1e-3)
    with pytest.raises(ValueError, match="no heads"):
        ablation_scatter({}, (1.0, 1.0), ("x", "y"), "c", tmp_path / "s")
    with pytest.raises(ValueError, match="no finite number"):
        ablation_scatter({"enc_dec": [(1.0, float("inf"))]}, (1.0, 1.0), ("x", "y"), "c", tmp_path / "s")
