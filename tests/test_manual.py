"""Every command in the README and the manual is one that its program takes, and the README's tour runs.

Source: the programs' own parsers; by hand.
"""

import itertools
import re
import shlex
import sys
import types
from pathlib import Path

import pytest
import tiny
from fairseq import options

from fairseq_headprune import cli, generation_flags
from fairseq_headprune.cli.common import Parser
from fairseq_headprune.cli.lottery import PARTS
from fairseq_headprune.files import read_json
from fairseq_headprune.parts import Mask
from fairseq_headprune.report.marks import Family
from fairseq_headprune.studies.curves import curve_table

PAGES = [
    tiny.ROOT / "README.md",
    *sorted(tiny.ROOT.glob("docs/**/*.md")),
    *sorted(tiny.ROOT.glob("examples/*/README.md")),
]
PARSERS = {"fairseq-train": options.get_training_parser, "fairseq-preprocess": options.get_preprocessing_parser}
PARSERS |= dict.fromkeys(("fairseq-generate", "fairseq-validate"), options.get_generation_parser)
PARSERS |= {"fairseq-interactive": lambda: options.get_interactive_generation_parser()}


class Parsed(BaseException):
    """Takes the place of a verb's work once its flags are read."""


def commands(text):
    """Yield the words of each command of our programs in the bash blocks of a page, variables filled in."""
    for block in re.findall(r"```bash\n(.*?)```", text, flags=re.DOTALL):
        block = block.replace("\\\n", " ")
        for name, value in re.findall(r'^(\w+)="(.*)"$', block, flags=re.MULTILINE):
            block = block.replace(f"${name}", value)
        for line in block.splitlines():
            words = [word for word in shlex.split(line, comments=True) if word != "…"]
            words = list(itertools.takewhile(lambda word: word not in (">", "|", "&&", ">>"), words))
            if "fairseq_headprune" in words and words[0] == "torchrun":
                words = ["headprune", *words[words.index("fairseq_headprune") + 1 :]]
            # Several models are looked for before flags are read: the first one stands for them.
            if "--paths" in words:
                place = words.index("--paths")
                more = list(itertools.takewhile(lambda word: not word.startswith("-"), words[place + 1 :]))
                words[place : place + 1 + len(more)] = ["--path", more[0]]
            if words and (words[0] == "headprune" or words[0] in PARSERS):
                yield words


def parse(words, task, monkeypatch):
    """Read a command's flags as its program does, and nothing else."""
    program, *flags = words
    if program != "headprune":
        parser = PARSERS[program]()
        monkeypatch.setattr(sys, "argv", words)
        monkeypatch.setattr(parser, "error", refuse)
        options.parse_args_and_arch(parser, flags)
        return
    read, shown = generation_flags.parse_generation_args, Parser.parse_args

    def parse_args(parser, *args, **more):
        found = shown(parser, *args, **more)
        if parser.prog != "headprune lottery":
            raise Parsed
        return found

    def parse_generation_args(*args):
        read(*args)
        raise Parsed

    monkeypatch.setattr(Parser, "parse_args", parse_args)
    monkeypatch.setattr(generation_flags, "parse_generation_args", parse_generation_args)
    monkeypatch.setattr(generation_flags, "read_state", lambda path: {"cfg": {"task": {"_name": task}}})
    with pytest.raises(Parsed):
        assert cli.main(flags) == 0


def refuse(message):
    raise AssertionError(message)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(tiny.ROOT)))
def test_commands_are_taken_by_their_programs(page, capsys):
    text = page.read_text()
    assert not re.findall(r"```\n(?:\$ )?(?:headprune|fairseq-\w+|bash|pip|make) ", text), "a block without ```bash"
    for words in commands(text):
        # fairseq would import the folder of the package a second time, under another name.
        kept = [w for before, w in zip(["", *words], words, strict=False) if "--user-dir" not in (before, w)]
        with pytest.MonkeyPatch.context() as patch:
            try:
                parse(kept, "glue" if "GLUE" in words or "glue" in words else "translation_headprune", patch)
            except (SystemExit, AssertionError, pytest.fail.Exception) as error:
                raise AssertionError(f"{shlex.join(words)}\n{capsys.readouterr().err}{error}") from None


def test_results_that_the_manual_names_are_there():
    named = {name for page in PAGES for name in re.findall(r"`(examples/\w+/results/[\w./-]+\.\w+)`", page.read_text())}
    assert len(named) > 5 and all((tiny.ROOT / name).is_file() for name in named), named


@pytest.mark.parametrize("command", ["headprune slim a.pt --nosuch", "headprune score d --path a.pt --nosuch"])
def test_a_wrong_flag_is_told(command, monkeypatch):
    with pytest.raises(SystemExit):
        parse(command.split(), "translation_headprune", monkeypatch)


def test_variables_continued_lines_and_placeholders():
    text = '```bash\nrun="headprune score DATA"\n$run --path a.pt \\\n    --fp16 … > out.txt  # why\nmake test\n```\n'
    assert list(commands(text)) == ["headprune score DATA --path a.pt --fp16".split()]


def test_the_tour_of_the_readme_runs(data_bin, tmp_path, monkeypatch):
    # A model of the tour's shape, 24 heads, after 5 updates; numbers of heads: the mask's 18, by hand.
    heads = ["--encoder-attention-heads", "4", "--decoder-attention-heads", "4"]
    tiny.train(data_bin, tmp_path, *tiny.GATED, *heads)
    monkeypatch.chdir(tmp_path)
    Path("checkpoint_last.pt").rename("checkpoint_best.pt")
    Path("data-bin").symlink_to(data_bin)
    tour = (tiny.ROOT / "README.md").read_text().split("## Five minutes")[1].split("\n## ")[0]
    run = [words for words in commands(tour) if words[0] == "headprune" or "--path" in words]
    assert [words[0] for words in run].count("fairseq-generate") == 1 and len(run) == 6
    for program, *flags in run:
        if program == "headprune":
            assert cli.main(flags) == 0, flags
        else:
            package = {"fairseq_headprune": tiny.ROOT / "fairseq_headprune"}
            tiny.fairseq_here("generate", *[package.get(word, word) for word in flags])
    assert len(Mask.load("mask.json").kept()) == 18 and Path("ct2-model/model.bin").is_file()
    # A long one is planned.
    studies = commands((tiny.ROOT / "docs" / "papers" / "michel2019.md").read_text())
    flags = next(words[1:] for words in studies if "keep-one" in words)
    assert cli.main([*flags, "--dry-run"]) == 0 and not Path("one-head").exists()


def test_the_readme_is_short_and_names_every_verb():
    text = (tiny.ROOT / "README.md").read_text()
    named = re.findall(r"`([a-z -]+)`", text.split("## The verbs")[1].split("\n## ")[0])
    parts = {f"lottery {part}" if f"lottery {part}" in named else part for part in PARTS}
    assert set(named) == {*cli.VERBS, *parts} - {"lottery"} and len(text.splitlines()) <= 200


def test_the_tour_shows_what_the_results_hold():
    text, results = (tiny.ROOT / "README.md").read_text(), tiny.ROOT / "examples" / "quickstart" / "results"
    study = read_json(results / "prune.json")
    family = Family(
        study["alpha"], study["resamples"], study["seed"], sum(len(c) - 1 for c in study["curves"].values())
    )
    for point in (point for points in study["curves"].values() for point in points):
        point.pop("chrf", None)
    assert curve_table(study["curves"], family).render() in text
    rows = read_json(results / "scores.json")["scores"]["enc_dec"]
    for layer, scores in enumerate(rows, 1):
        assert f"{layer:>10}  " + "  ".join(f"{score:.3f}" for score in scores) in text


@pytest.fixture
def manual():
    pytest.importorskip("mkdocs"), pytest.importorskip("latex2mathml")
    import manual

    return manual


def test_the_reference_has_every_verb_and_flag(manual):
    text = manual.verbs()
    assert {f"headprune {verb}" for verb in cli.VERBS if verb != "lottery"} <= set(re.findall("^## (.+)$", text, re.M))
    for verb in ("mask", "lottery find"):
        flags = [flag for action in manual.parser_of(verb)._actions for flag in action.option_strings]
        assert all(flag in text for flag in flags) and len(flags) > 10


def test_messages_and_equations(manual):
    text = manual.messages()
    assert "- `the output … is the input …; choose another name`" in text
    html = '<span class="arithmatex">\\(a &lt; b\\)</span> :meth:<code>~a.b</code>'
    found = manual.on_page_content(html)
    assert found.startswith("<math") and "<mi>b</mi>" in found and found.endswith("</math> <code>a.b</code>")


@pytest.mark.parametrize(
    "page, before, after",
    [
        ("gates.md", "[a](../examples/glue/README.md)", "[a](examples/glue/README.md)"),
        ("papers/x.md", "![a](../../examples/glue/x.png)", "![a](../examples/glue/x.png)"),
        ("examples/glue/README.md", "[a](../../docs/papers/x.md)", "[a](../../papers/x.md)"),
        ("CHANGELOG.md", "[a](docs/import.md)", "[a](import.md)"),
    ],
)
def test_links_hold_in_the_repository_and_in_the_manual(manual, page, before, after):
    place = types.SimpleNamespace(file=types.SimpleNamespace(src_uri=page))
    assert manual.on_page_markdown(before, page=place) == after
