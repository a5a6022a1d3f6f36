"""Rendering the report page: template, style sheet, scripts and JSON document in one self-contained HTML file."""

import base64
import hashlib
import html
import json
from itertools import islice
from pathlib import Path
from string import Template
from typing import Any

import matplotlib
from matplotlib.colors import to_hex

from fairseq_headprune.report.drawing import LOOKS, spare_looks
from fairseq_headprune.report.head_maps import MAPS

_STATIC = Path(__file__).with_name("static")

#: The scripts, in order of their dependencies.
_SCRIPTS = ("elements", "words", "headmap", "chart", "curves", "page")

#: Number of colours of a palette; odd, so that 0 has its own.
_SHADES = 41


def render(document: dict[str, Any]) -> str:
    """Return the page that shows a document of :func:`~fairseq_headprune.report.page.document.document`.

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
    names = {**MAPS, "epochs": "viridis"}
    return {
        "palettes": {name: [_shade(scale, k) for k in range(_SHADES)] for name, scale in names.items()},
        "named": {name: _look(look) for name, look in LOOKS.items()},
        "spare": [_look(look) for look in islice(spare_looks(), 20)],
    }


def _shade(scale: str, number: int) -> str:
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
