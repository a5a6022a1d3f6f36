"""The report page: the documents of studies as one JSON document, in one self-contained HTML file."""

import base64
import hashlib
import html
import importlib.metadata
import json
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from string import Template
from typing import Any

from fairseq_headprune import __version__
from fairseq_headprune.json_lines import plain
from fairseq_headprune.provenance import git_commit
from fairseq_headprune.report.document import Curves, Document, EpochCurves
from fairseq_headprune.report.tables import Marked, Table

FORMAT = "headprune.report/1"

#: Settings that must agree for curves to share a plot.
_SAME = ("checkpoint", "start", "data", "generation", "metric", "tokenize")

#: Settings that only name a study or repeat others; the overview does not compare them.
_NOT_COMPARED = ("study", "start", "logs", "data.sha256", "select_data.sha256", "score_data.sha256")

#: Maximum number of characters of a value in the overview.
_SHORT = 24


def page_document(entries: list[dict[str, Any]], title: str) -> dict[str, Any]:
    """Return the page's content.

    Args:
        entries: what :func:`page_entry` returned for each study.
        title: title of the page.

    Returns:
        ``studies``: one entry per study, with numbers, tables and provenance; ``together``: charts of several studies.
    """
    _add_differences(entries)
    made = {"headprune": __version__, "git": git_commit(), "sacrebleu": importlib.metadata.version("sacrebleu")}
    return {"format": FORMAT, "title": title, "made_with": made, "studies": entries, "together": together(entries)}


def summary(value: dict[str, Any]) -> list[dict[str, Any]]:
    """Summarise each study of a page in a few numbers."""
    return [
        {
            **{name: study[name] for name in ("name", "path", "kind", "done", "planned", "missing", "found")},
            "split": study["provenance"]["settings"]["data"]["split"],
            "maps": len(study["maps"]),
            "charts": len(study["charts"]),
            "tables": sum("table" in part for part in study["parts"]),
            "examples": sum(len(cell.get("examples") or []) for cell in _map_cells(study)),
        }
        for study in value["studies"]
    ]


def together(studies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return joint charts of the curves of pruning studies with the same model, data and settings.

    Args:
        studies: entries of the page's document; those without a pruning order or a chart are ignored.
    """
    groups: list[list[dict[str, Any]]] = []
    for study in studies:
        if "order" not in study or not study["charts"]:
            continue
        same = (g for g in groups if all(_setting(g[0], name) == _setting(study, name) for name in _SAME))
        group = next(same, None)
        groups.append([study]) if group is None else group.append(study)
    return [_joined(group) for group in groups if len(group) > 1]


def page_entry(name: str, kind: str, document: Document) -> dict[str, Any]:
    """Return what the page shows of one document: numbers, tables, figures, provenance; ``kind`` is the verb."""
    from fairseq_headprune.report.drawings import svg_of  # matplotlib: not for --help

    where, kinds = document.provenance, {Curves: "pruning", EpochCurves: "epochs"}
    entry = {
        **document.state,
        "name": name,
        "path": where["study"],
        "kind": kind,
        "heading": document.title,
        "found": document.findings,
        "missing": document.missing,
        "parts": [_part(part) for part in document.parts()],
        "maps": [asdict(head_map) for head_map in document.maps],
        "charts": [{"kind": kinds[type(chart)], **asdict(chart)} for chart in document.charts],
        "pictures": [{"caption": panel.caption, "svg": svg_of(panel)} for panel in document.panels],
        "provenance": {key: where[key] for key in ("settings", "runs")},
    }
    return plain(entry, where["study"])


def _part(part: str | Table) -> dict[str, Any]:
    if isinstance(part, str):
        return {"text": part}
    rows = [[_cell(cell) for cell in row] for row in part.rows]
    return {"table": {"header": list(part.header), "align": part.align, "rows": rows}}


def _cell(cell: Any) -> dict[str, str]:
    return {"text": "-" if cell is None else str(cell), "mark": cell.mark if isinstance(cell, Marked) else ""}


def _add_differences(entries: list[dict[str, Any]]) -> None:
    """Add to each study the settings, as strings, in which it differs from another study of its kind."""
    for entry in entries:
        mine = dict(_flat(entry["provenance"]["settings"]))
        others = [dict(_flat(o["provenance"]["settings"])) for o in entries if o["kind"] == entry["kind"]]
        names = dict.fromkeys(name for other in others for name in other)
        entry["differs"] = [
            f"{name} {_short(mine[name])}"
            for name in names
            if name in mine and not name.startswith(_NOT_COMPARED) and any(o.get(name) != mine[name] for o in others)
        ]


def _flat(value: Any, name: str = "") -> list[tuple[str, Any]]:
    if not isinstance(value, dict):
        return [(name, value)]
    return [pair for key, item in value.items() for pair in _flat(item, f"{name}.{key}" if name else key)]


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 1]}…"


def _setting(study: dict[str, Any], name: str) -> Any:
    return study["provenance"]["settings"].get(name)


def _joined(group: list[dict[str, Any]]) -> dict[str, Any]:
    named = [
        (f"{curve['name']} ({study['order']})", study, curve)
        for study in group
        for curve in study["charts"][0]["curves"]
    ]
    names = [name for name, _, _ in named]
    curves = [
        {**curve, "comparisons": study["comparisons"]}
        | {"name": name if names.count(name) == 1 else f"{name}, {study['name']}"}
        for name, study, curve in named
    ]
    first = group[0]
    return {
        **{name: first[name] for name in ("measure", "alpha", "resamples")},
        "kind": "pruning",
        "caption": f"{first['charts'][0]['caption']}, several studies",
        "baseline": first["charts"][0]["baseline"],
        "curves": curves,
        "studies": [study["name"] for study in group],
    }


def _map_cells(study: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        cell for head_map in study["maps"] for part in head_map["components"] for row in part["layers"] for cell in row
    ]


_STATIC = Path(__file__).with_name("static")

#: The scripts, in order of their dependencies.
_SCRIPTS = ("elements", "words", "headmap", "chart", "curves", "page")

#: Number of colours of a palette; odd, so that 0 has its own.
_SHADES = 41


def render(document: dict[str, Any]) -> str:
    """Return the page that shows what :func:`page_document` returned.

    The page's content security policy lists the hashes of style and scripts: a browser runs nothing else and loads
    nothing from outside.
    """
    style = _read("page.css")
    # One scope, so that other scripts (browser extensions) see none of our names.
    script = '(() => {\n"use strict";\n\n' + "\n".join(_read(f"{name}.js") for name in _SCRIPTS) + "})();\n"
    return Template(_read("page.html")).substitute(
        title=html.escape(document["title"]),
        style=style,
        style_hash=_hash(style),
        script=script,
        script_hash=_hash(script),
        document=_json(document),
        looks=_json(_looks()),
    )


def _json(value: Any) -> str:
    """Return JSON that is safe inside a script element: ``<`` is escaped, so that no text can end the element."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _looks() -> dict[str, Any]:
    """Return the colours, markers and dashes of the figures."""
    from fairseq_headprune.report.drawing import LOOKS, spare_looks
    from fairseq_headprune.report.head_maps import MAPS

    names = {**MAPS, "epochs": "viridis"}
    return {
        "palettes": {name: [_shade(scale, k) for k in range(_SHADES)] for name, scale in names.items()},
        "named": {name: _look(look) for name, look in LOOKS.items()},
        "spare": [_look(look) for look in islice(spare_looks(), 20)],
    }


def _shade(scale: str, number: int) -> str:
    import matplotlib
    from matplotlib.colors import to_hex

    return to_hex(matplotlib.colormaps[scale](number / (_SHADES - 1)))


def _look(look: tuple) -> dict[str, Any]:
    colour, marker, dashes = look
    # Black becomes the text colour, also on dark pages; matplotlib measures dashes in line widths.
    colour = "currentColor" if colour == "#000000" else colour
    return {"colour": colour, "marker": marker, "dash": None if dashes == "-" else " ".join(map(str, dashes[1]))}


def _read(name: str) -> str:
    return (_STATIC / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
