"""Drawing the figures of a document."""

from collections.abc import Callable
from pathlib import Path

from fairseq_headprune.report.ablation_figures import ablation_scatter, score_histogram
from fairseq_headprune.report.document import Curves, Document, EpochCurves, HeadMap
from fairseq_headprune.report.epochs import epoch_figure
from fairseq_headprune.report.figures import pruning_curve
from fairseq_headprune.report.head_maps import head_map
from fairseq_headprune.report.panels import draw_panel


def draw(document: Document, stem: Callable[[str], Path]) -> list[Path]:
    """Draw every figure of a document that has a name and data, and return the files.

    Args:
        stem: maps a figure's name to its path without extension.
    """
    drawn: list[Path] = []
    for histogram in document.histograms:
        drawn += score_histogram(histogram.scores, histogram.baseline, histogram.measure, stem(histogram.name))
    for plot in document.scatters:
        drawn += ablation_scatter(plot.points, plot.baselines, plot.labels, plot.caption, stem(plot.name))
    for panel in document.panels:
        drawn += draw_panel(panel, stem(panel.name))
    for chart in document.charts:
        drawn += _chart(chart, stem(chart.name)) if chart.name else []
    for entry in document.maps:
        drawn += _head_map(entry, stem(entry.name)) if entry.name else []
    return drawn


def _chart(chart: Curves | EpochCurves, stem: Path) -> list[Path]:
    if isinstance(chart, Curves):
        curves = {curve["name"]: curve["points"] for curve in chart.curves}
        return pruning_curve(curves, chart.measure, chart.baseline, stem, chart.alpha)
    epochs = {row["epoch"]: row["points"] for row in chart.epochs}
    if not chart.drawable:
        return []
    return epoch_figure(epochs, chart.panel, stem, chart.title, chart.measure)


def _head_map(entry: HeadMap, stem: Path) -> list[Path]:
    layers = {part["component"]: part["layers"] for part in entry.components}
    values = {c: [[cell.get(entry.scale) for cell in row] for row in rows] for c, rows in layers.items()}
    marks = {c: [[cell.get("mark", "") for cell in row] for row in rows] for c, rows in layers.items()}
    if entry.alpha is None:
        return head_map(values, entry.caption, stem, entry.scale, entry.label)
    return head_map(values, entry.caption, stem, entry.scale, entry.label, marks, entry.alpha)
