"""The result of a study as one document, from which every form of output is rendered.

The terminal, Markdown, LaTeX, the figures, the report page and the README's tables all render a :class:`Document`, so
captions, marks and legends are written once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fairseq_headprune.parts import PAPER_NAMES, Part
from fairseq_headprune.report.marks import marks_named
from fairseq_headprune.report.pictures import Picture
from fairseq_headprune.report.tables import Table, render_parts


@dataclass(frozen=True)
class HeadMap:
    """One number per head, drawn as one heat map per component.

    Attributes:
        caption: title of the figure.
        scale: the value that the colour shows: ``delta`` (0 in the middle) or ``importance``.
        components: list of ``{"component", "name", "layers": [[cell, …], …]}``; a cell has ``layer``, ``head`` and
            either the value (and ``id``, ``mark``, ``p``, …) or a ``state``: ``pruned`` or ``missing``.
        label: label of the colour bar.
        name: the figure is written to ``figures/NAME.png`` and ``.svg``; None for no figure.
        masked: how the report page names the outputs under a cell's mask.
        alpha: significance level of the marks; None without marks.
        split, against: the split whose outputs the page compares, and the cell they are compared with; None for none.
        sentences, measure: the page's example sentences by number, and how their change is measured.
    """

    caption: str
    scale: str
    components: list[dict[str, Any]]
    label: str = ""
    name: str | None = None
    masked: str = ""
    alpha: float | None = None
    split: str | None = None
    against: str | None = None
    sentences: dict[str, Any] = field(default_factory=dict)
    measure: dict[str, str] | None = None


def map_components(
    shape: Mapping[str, Sequence[int]], values: Callable[[Part], Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the ``components`` of a :class:`HeadMap`: the values of each part of this shape."""

    def cell(part: Part) -> dict[str, Any]:
        return {"layer": part.layer, "head": part.index, **values(part)}

    return [
        {
            "component": component,
            "name": PAPER_NAMES[component],
            "layers": [[cell(Part(component, n, i)) for i in range(count)] for n, count in enumerate(counts)],
        }
        for component, counts in shape.items()
    ]


def number_components(rows: Mapping[str, Sequence[Sequence[float | None]]], scale: str) -> list[dict[str, Any]]:
    """Return the ``components`` of a :class:`HeadMap` of numbers, one list per layer; None is a pruned head."""

    def values(part: Part) -> dict[str, Any]:
        number = rows[part.component][part.layer][part.index]
        return {"state": "pruned"} if number is None else {scale: number}

    return map_components({component: [*map(len, layers)] for component, layers in rows.items()}, values)


@dataclass(frozen=True)
class Curves:
    """Scores by the share of pruned heads.

    Attributes:
        caption, measure: title, and name of the score.
        baseline: score of the unpruned model.
        curves: list of ``{"name", "points"}``; a point has ``percent`` (0 to 100), ``score``, and perhaps ``ci`` (95%,
            drawn as a band), ``p``, ``pruned``, ….
        name: see :class:`HeadMap`.
        alpha: points with p below it are drawn hollow.
    """

    caption: str
    measure: str
    baseline: float
    curves: list[dict[str, Any]]
    name: str | None = None
    alpha: float = 0.01


@dataclass(frozen=True)
class EpochCurves:
    """Scores by epoch and by share of pruned heads, for one curve of a sweep over epochs.

    Attributes:
        caption, measure, name: see :class:`Curves`.
        title: which heads are pruned.
        epochs: list of ``{"epoch", "unpruned", "points"}``; points also have ``relative``.
        panel: epochs shown in the figure's right panel.
        alpha: see :class:`Curves`.
    """

    caption: str
    measure: str
    title: str
    epochs: list[dict[str, Any]]
    panel: list[int]
    name: str | None = None
    alpha: float = 0.01

    @property
    def drawable(self) -> bool:
        """Whether some epoch has an unpruned score above 0, so that relative scores exist."""
        return any(row["points"][0]["relative"] is not None for row in self.epochs)


@dataclass(frozen=True)
class Histogram:
    """A histogram of the scores with one head masked, with the unpruned model's score (``baseline``); figure only."""

    name: str
    measure: str
    scores: list[float]
    baseline: float


@dataclass(frozen=True)
class Scatter:
    """Scores of the same heads in two studies, one point per head; figure only.

    Attributes:
        name: see :class:`HeadMap`.
        caption, labels: title, and names of the two axes.
        points: component -> (first score, second score) of each head.
        baselines: scores of the unpruned model.
    """

    name: str
    caption: str
    labels: tuple[str, str]
    points: dict[str, list[tuple[float, float]]]
    baselines: tuple[float, float]


@dataclass
class Document:
    """The result of a finished or unfinished study.

    Attributes:
        title: what was done, such as "Every head masked alone, on test".
        tables: tables with their captions and notes.
        findings: the conclusions, one sentence each.
        missing: what is not done yet, one sentence each.
        notes: how to read the tables; ``{holm}`` and ``{raw}`` are placeholders for the two significance marks.
        maps, charts, histograms, scatters: the figures.
        panels: figures that the page shows as pictures.
        state: numbers for the page's overview: ``measure``, ``unpruned`` (a score or None), ``signature``, ``done``,
            ``planned`` (number of cells; None if unknown), ``comparisons`` (tests in Holm's correction).
        data: all numbers, as the verb prints them with ``--json``.
        provenance: ``settings``, ``runs`` and ``study`` (the folder).
    """

    title: str
    tables: list[Table] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    maps: list[HeadMap] = field(default_factory=list)
    charts: list[Curves | EpochCurves] = field(default_factory=list)
    histograms: list[Histogram] = field(default_factory=list)
    scatters: list[Scatter] = field(default_factory=list)
    panels: list[Picture] = field(default_factory=list)
    state: dict[str, Any] = field(
        default_factory=lambda: {"measure": "", "unpruned": None, "done": 1, "planned": 1}  # of what is no study
    )
    data: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)

    def parts(self, form: str = "text") -> list[str | Table]:
        """Return tables, captions and notes in reading order, with the significance marks of ``form``."""
        found: list[str | Table] = [*input_notes(self.provenance.get("settings", {}))]
        for table in self.tables:
            found += [*([table.caption] if table.caption else []), table, *table.notes]
        return [marks_named(part, form) if isinstance(part, str) else part for part in [*found, *self.notes]]

    def render(self, form: str = "text", figures: list[str] | None = None) -> str:
        """Return the document as ``text``, ``markdown``, ``latex`` or ``csv``: last the findings and where to look.

        Args:
            figures: paths of the drawn figures.
        """
        lines = [f"figure {path}" for path in figures or []]
        closing = []
        if study := self.provenance.get("study"):
            look = f"look at {figures[0]}, or" if figures else "see it with"
            closing = [f"study {study}: {look} headprune open {study}"]
        return render_parts([*self.parts(form), *lines, *self.missing, *self.findings, *closing], form)


def input_notes(settings: Mapping[str, Any]) -> list[str]:
    """Return notes on unusual inputs recorded in a study's settings (``study.json``), one line each; usually none."""
    notes = []
    count = (settings.get("data") or {}).get("sentences")
    if count:
        notes.append(
            f"{count['scored']} of {count['of']} sentences were scored: the others are longer than the model or "
            "--max-source-positions and --max-target-positions allow"
        )
    size = (settings.get("generation") or {}).get("prefix_size", 0)
    if size > 0:
        notes.append(f"the first {size} tokens of every reference were given to the search (--prefix-size {size})")
    return notes
