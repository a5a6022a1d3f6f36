"""A hook of MkDocs: the reference of verbs and messages, pages of the repository outside docs/, equations as MathML."""

import argparse
import ast
import os
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

from fairseq_headprune import cli
from fairseq_headprune.cli.common import EXAMPLES
from fairseq_headprune.cli.completion import parser_of
from fairseq_headprune.cli.lottery import PARTS

_ROOT = Path(__file__).resolve().parents[1]
_OUTSIDE = ["CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "examples/*/README.md", "examples/*/results/**/*.png"]


def on_config(config: Any) -> None:
    """List the READMEs of all examples in the navigation."""
    [entry] = (entry for entry in config.nav if "Examples" in entry)
    entry["Examples"] = [path.relative_to(_ROOT).as_posix() for path in sorted(_ROOT.glob("examples/*/README.md"))]


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages and the files outside docs/, under the paths that they have in the repository."""
    files.append(File.generated(config, "reference/verbs.md", content=verbs()))
    files.append(File.generated(config, "reference/messages.md", content=messages()))
    for path in sorted(found for pattern in _OUTSIDE for found in _ROOT.glob(pattern)):
        name = path.relative_to(_ROOT).as_posix()
        files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links that hold in the repository hold in the manual, whose root is docs/."""
    if not page.file.src_uri.startswith("examples/"):
        markdown = re.sub(r"(\]\()\.\./((?:\.\./)*(?:examples/|[A-Z]+\.md))", r"\1\2", markdown)
    return re.sub(r"(\]\((?:\.\./)*)docs/", r"\1", markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Turn equations into MathML, which a browser shows without a network."""
    for tag, ends, display in (("span", (r"\\\(", r"\\\)"), "inline"), ("div", (r"\\\[", r"\\\]"), "block")):
        found = rf'<{tag} class="arithmatex">{ends[0]}(.*?){ends[1]}</{tag}>'
        html = re.sub(found, lambda match, display=display: _mathml(match[1], display), html, flags=re.DOTALL)
    # Docstrings have Sphinx's roles.
    return re.sub(r":\w+:<code>[~.]*", "<code>", html)


def _mathml(latex: str, display: str) -> str:
    return convert(latex.replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">"), display=display)


def verbs() -> str:
    """Return the reference of all verbs in Markdown."""
    os.environ["COLUMNS"] = "90"
    names = [
        name for verb in cli.VERBS for name in ([f"lottery {part}" for part in PARTS] if verb == "lottery" else [verb])
    ]
    lines = ["# Verbs", "", "| verb | what it does |", "|---|---|"]
    texts = cli.VERBS | {f"lottery {part}": text for part, text in PARTS.items()}
    lines += [f"| [`headprune {name}`](#headprune-{name.replace(' ', '-')}) | {texts[name]} |" for name in names]
    lines += ["", _COMMON]
    for name in names:
        lines += ["", f"## headprune {name}", "", *_reference(parser_of(name))]
    return "\n".join(lines) + "\n"


_COMMON = """Verbs that load a model take all flags of `fairseq-generate`, too; `headprune VERB --help-fairseq` lists
them. Results go to stdout, progress to stderr; the exit status is 0 (done), 1 (failed) or 2 (wrong input, one line says
what). This page is made from the programs' own `--help`."""


def _reference(parser: argparse.ArgumentParser) -> list[str]:
    usage = parser.format_usage().removeprefix("usage: ").rstrip()
    lines = [parser.description or "", "", "```text", usage, "```"]
    for group in parser._action_groups:
        actions = [
            action for action in group._group_actions if action.help != argparse.SUPPRESS and action.dest != "help"
        ]
        if actions:
            lines += ["", f"**{group.title or ''}**", "", *filter(None, [group.description, ""])]
            lines += ["| flag | meaning |", "|---|---|"]
            lines += [f"| {_flag(action)} | {_meaning(parser, action)} |" for action in actions]
    return lines + ["", *_example(parser)]


def _flag(action: argparse.Action) -> str:
    value = action.metavar or (action.dest if not action.option_strings else action.dest.upper())
    if action.choices is not None and action.metavar is None:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    value = " ".join(value) if isinstance(value, tuple) else value
    several = " …" if action.nargs in ("+", "*") else ""
    names = ", ".join(action.option_strings)
    text = names if action.nargs == 0 else f"{names} {value}{several}".strip()
    return f"`{text}`"


def _meaning(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    text = parser._get_formatter()._expand_help(action) if action.help else ""
    return re.sub(r"([|<*_`\[])", r"\\\1", " ".join(text.split()))


def _example(parser: argparse.ArgumentParser) -> list[str]:
    verb = parser.prog.removeprefix("headprune ")
    return ["For example:", "", "```bash", f"{parser.prog} {EXAMPLES[verb]}", "```"] if verb in EXAMPLES else []


#: words and signs of a message that names the way out
_WAY_OUT = re.compile(
    r"; |\b(give|name|choose|use|take|run|make|leave|omit|say|ask|copy|save|raise|train|needs?|must|known|missing)\b"
)


def messages() -> str:
    """Return every message with a way out that the package raises, by package, from its source."""
    lines = [
        "# Messages",
        "",
        "What the programs say when they refuse an input, as far as a line names the way out. `…` stands",
    ]
    lines += ["for a file, a value or a limit.", ""]
    for folder in sorted({path.parent for path in (_ROOT / "fairseq_headprune").rglob("*.py")}):
        trees = [ast.parse(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.py"))]
        nodes = [node.exc for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Raise)]
        texts = {_text(node.args[0]) for node in nodes if isinstance(node, ast.Call) and node.args}
        if found := sorted(text for text in texts if _WAY_OUT.search(text)):
            lines += ["", f"## {'.'.join(folder.relative_to(_ROOT).parts)}", "", *(f"- `{text}`" for text in found)]
    return "\n".join(lines) + "\n"


def _text(node: ast.expr) -> str:
    """Return a message as its source has it, with `…` for what is filled in."""
    if isinstance(node, ast.Constant):
        return re.sub(r"\s+", " ", str(node.value))
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) for part in node.values)
    return "…"
