"""The command ``headprune``: exit statuses, one line on stderr, and no waiting for fairseq."""

import json
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import tiny
from ablations import SHAPE, write_ablation
from reports import COMPARISON
from test_dynamics import write_run

from fairseq_headprune import __version__, cli
from fairseq_headprune.cli.common import EXAMPLES, Parser, emit
from fairseq_headprune.parts import Mask


@pytest.fixture
def verb(monkeypatch):
    """The function that makes a verb ``make-it`` of a function; main runs it."""

    def make(run):
        module = type(sys)("fairseq_headprune.cli.make_it")
        module.run = run
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setitem(cli.VERBS, "make-it", "a verb of the tests")
        monkeypatch.delenv("HEADPRUNE_DEBUG", raising=False)

    return make


def raising(error):
    def run(argv):
        raise error

    return run


def test_a_verb_gets_its_arguments_and_gives_the_status(verb):
    seen = []
    verb(lambda argv: seen.append(argv) or 0)
    assert cli.main(["make-it", "a", "--b"]) == 0
    assert seen == [["a", "--b"]]


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (ValueError("K is 0, give 1 or more"), 2, "headprune make-it: K is 0, give 1 or more"),
        (KeyError("unknown component 'x'"), 2, "headprune make-it: unknown component 'x'"),
        (FileNotFoundError(2, "No such file", "a.pt"), 2, "headprune make-it: a.pt: there is no such file or folder"),
        (OSError(28, "No space left on device", "out"), 2, "headprune make-it: out: No space left on device"),
        (PermissionError(13, "cannot write to a"), 2, "headprune make-it: cannot write to a"),
        (RuntimeError("two\nlines"), 1, "headprune make-it: two lines"),
        (ZeroDivisionError(), 1, "headprune make-it: ZeroDivisionError"),
        (KeyError(), 2, "headprune make-it: KeyError"),
        (KeyboardInterrupt(), 1, "headprune make-it: interrupted"),
    ],
)
def test_errors_become_one_line_and_a_status(verb, capsys, error, status, line):
    verb(raising(error))
    assert cli.main(["make-it"]) == status
    assert capsys.readouterr() == ("", line + "\n")


def test_tracebacks_on_request(verb, monkeypatch):
    verb(raising(ValueError("x")))
    monkeypatch.setenv("HEADPRUNE_DEBUG", "1")
    with pytest.raises(ValueError, match="x"):
        cli.main(["make-it"])


def test_the_version_is_that_of_the_package(monkeypatch):
    given = {}
    monkeypatch.setattr("setuptools.setup", lambda **settings: given.update(settings))
    runpy.run_path(str(tiny.ROOT / "setup.py"))
    assert given["version"] == __version__
    # What repeats it, by hand.
    assert f"\nversion: {__version__}\n" in (tiny.ROOT / "CITATION.cff").read_text()
    assert f"version = {{{__version__}}}" in (tiny.ROOT / "docs" / "cite.md").read_text()
    assert f"\n## {__version__}" in (tiny.ROOT / "CHANGELOG.md").read_text()


def test_unknown_verbs(capsys):
    assert cli.main(["prunes"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("headprune: unknown verb 'prunes'; known are make-corpus, mask, score")
    assert len(err.splitlines()) == 1


def test_help_and_version(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"headprune {__version__}\n"
    assert cli.main(["--help"]) == 0
    out, err = capsys.readouterr()
    assert err == "" and all(verb in out for verb in cli.VERBS)
    assert cli.main([]) == 2
    assert capsys.readouterr().out == ""


HELP_OF_ALL = """
import contextlib, io, json, sys
from fairseq_headprune import cli
from fairseq_headprune.cli.common import EXAMPLES
from fairseq_headprune.parts import Mask
texts = {}
for verb in EXAMPLES:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        cli.main([*verb.split(), "--help"])
    texts[verb] = [out.getvalue(), sorted({"fairseq", "matplotlib", "torch"} & set(sys.modules))]
print(json.dumps(texts))
"""


def test_help_of_every_verb_loads_neither_fairseq_nor_torch_nor_matplotlib():
    done = tiny.run_python("-c", HELP_OF_ALL)
    texts = json.loads(done.stdout)
    assert {verb.split()[0] for verb in texts} == set(cli.VERBS)
    assert {verb: loaded for verb, (_, loaded) in texts.items() if loaded} == {}
    for verb, (text, _) in texts.items():
        assert text.startswith(f"usage: headprune {verb}"), verb
        assert text.endswith(f"\nexample:\n  headprune {verb} {EXAMPLES[verb]}\n"), verb
    for flag in ("--estimator", "--score-sentences", "--components", "--resamples", "--jobs"):
        assert flag in texts["prune"][0]
    for verb in ("score", "prune", "ablate", "keep-one", "random-study", "sweep-epochs", "bench", "profile"):
        text = " ".join(texts[verb][0].split())
        for flag in ("--gen-subset", "--beam", "--batch-size", "--fp16", "--remove-bpe", "--help-fairseq"):
            assert flag in text, (verb, flag)
        assert ("--path" in text) == (verb != "sweep-epochs")
        assert "--max-len-a" not in text
    studies = "prune, ablate, keep-one, random-study, sweep-epochs, compare-pruners, lottery find, lottery retrain"
    assert all("--dry-run" in texts[verb][0] for verb in studies.split(", "))
    for verb, values in {"score": "2000 sum train gradient", "make-corpus": "14000 1000 True"}.items():
        text = " ".join(texts[verb][0].split())
        assert all(f"default: {value}" in text for value in values.split()), verb
    # The normaliser: see examples/normalizers; a search for tickets has its paper's (Prasanna et al. 2020).
    for verb, value in {"score": "none", "prune": "none", "sweep-epochs": "none", "lottery find": "layer"}.items():
        assert f"minmax (default: {value})" in " ".join(texts[verb][0].split()), verb


VERBS_WITHOUT_A_MODEL = """
import contextlib, io, json, sys
from fairseq_headprune import cli
found = {}
for line in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()):
        status = cli.main(line)
    found[" ".join(line[:1])] = [status, sorted({"fairseq", "torch"} & set(sys.modules))]
print(json.dumps(found))
"""


def test_verbs_that_need_no_model_load_neither_fairseq_nor_torch(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Mask.full(SHAPE).save("mask.json")
    Path("reference.txt").write_text("a house\na dog\n")
    Path("system.txt").write_text("a house\na cat\n")
    for name in ("a", "b"):
        write_ablation(tmp_path / name, [0.1, -0.5, 0.3, -2.0, 0.05], name, **COMPARISON)
    write_run(tmp_path / "run")
    lines = [
        "mask --like mask.json --random 50% --seed 1 -o half.json", "compare reference.txt system.txt system.txt",
        "correlate a b", "dynamics run", "report a b -o page.html", "--help", "completion bash", "nothing",
    ]  # fmt: skip
    done = tiny.run_python("-c", VERBS_WITHOUT_A_MODEL, json.dumps([line.split() for line in lines]))
    assert json.loads(done.stdout) == {line.split()[0]: [2 * (line == "nothing"), []] for line in lines}, done.stderr


@pytest.mark.parametrize("verb", [verb for verb in EXAMPLES if verb != "lottery"])
def test_examples_are_right(verb, monkeypatch):
    parsers = []
    monkeypatch.setattr(Parser, "print_help", lambda self: parsers.append(self))
    with pytest.raises(SystemExit) as leave:
        cli.main([*verb.split(), "--help"])
    assert leave.value.code == 0
    unknown = parsers[0].parse_known_args(shlex.split(EXAMPLES[verb]))[1]
    assert not unknown or unknown[0] in ("data", "data-bin") and "--help-fairseq" in parsers[0].format_help()


def test_bash_completes_verbs_flags_choices_and_files(capsys, tmp_path):
    (tmp_path / "checkpoint_best.pt").touch()
    assert cli.main(["completion", "bash"]) == 0
    script = (
        capsys.readouterr().out
        + """
try() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _shtab_headprune; echo "${COMPREPLY[*]}"; }
try headprune pru; try headprune lottery re; try headprune prune --ord; try headprune ablate --pa
try headprune compare --engine comp; try headprune score data-bin --path check
"""
    )
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    expected = ["prune", "retrain", "--order --order-seeds", "--partition --path", "compare-mt", "checkpoint_best.pt"]
    assert done.stdout.splitlines() == expected


def test_help_of_all_flags(capsys):
    with pytest.raises(SystemExit) as leave:
        cli.main(["ablate", "--help-fairseq"])
    text = capsys.readouterr().out
    assert leave.value.code == 0 and "--max-len-a" in text and "--masks-at-once" in text


def test_a_typo_names_the_nearest(capsys):
    assert cli.main(["scor"]) == 2
    assert capsys.readouterr().err.endswith("(did you mean score?)\n")
    with pytest.raises(SystemExit):
        cli.main(["report", "study", "-o", "x.html", "--titel=a"])
    assert "--titel=a (did you mean --title?)" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["ablate", "data", "--path", "x.pt", "-o", "x", "--resample", "3"])
    assert "--resample 3 (did you mean --resamples?)" in capsys.readouterr().err
    # The misspelt flag may be the one that is required.
    for argv in (["mask", "--ouput", "m.json"], ["ablate", "data", "--path", "x.pt", "--ouput=x", "--beam", "5"]):
        with pytest.raises(SystemExit):
            cli.main(argv)
        line = capsys.readouterr().err
        assert "required: -o/--output (did you mean --output?) (see" in line and len(line.splitlines()) == 1


def test_parser_errors_are_one_line_and_nothing_is_abbreviated(capsys):
    parser = Parser(prog="headprune x")
    parser.add_argument("--heads", type=int, default=3, help="how many")
    assert "how many (default: 3)" in parser.format_help()
    for arguments in (["--head", "1"], ["--heads", "two\nlines"], ["more\nlines"]):
        with pytest.raises(SystemExit) as leave:
            parser.parse_args(arguments)
        err = capsys.readouterr().err
        assert leave.value.code == 2 and len(err.splitlines()) == 1
        assert err.startswith("headprune x: ") and err.endswith("(see headprune x --help)\n")


def test_emit(capsys):
    emit({"ü": 1}, True, "text")
    out = capsys.readouterr().out
    assert out.startswith('{\n "ü": 1,\n "made_by": {\n  "command": "headprune') and '"git": ' in out
    emit({"ü": 1}, False, "text")
    assert capsys.readouterr().out == "text\n"
    with pytest.raises(ValueError, match="JSON"):
        emit({"x": float("nan")}, True, "")


def test_a_reader_that_goes_away_is_no_traceback():
    code = f"{sys.executable} -m fairseq_headprune --help | true"
    done = subprocess.run(["bash", "-c", code], cwd=tiny.ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and "Traceback" not in done.stderr
