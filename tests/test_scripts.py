"""Scripts that stand for verbs, their search for a Python, and the code of CONTRIBUTING's examples."""

import re
import runpy
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import tiny
import torch
from verbs import refused_script

from fairseq_headprune import cli
from fairseq_headprune.importance import part_weights, settings
from fairseq_headprune.modules.attach import find_gates
from fairseq_headprune.parts import Mask, Part

SCRIPTS = Path(__file__).parents[1] / "scripts"
ENVIRONMENT = SCRIPTS / "environment.sh"


# Source: the list in the README.
@pytest.mark.parametrize("script, verb", [
    ("score_heads", "score"), ("ablate_heads", "ablate"), ("prune_components", "prune"),
    ("sweep_epochs", "sweep-epochs"), ("bootstrap", "compare"), ("bench_speed", "bench"),
    ("speed_by_heads", "bench-heads"),
])  # fmt: skip
def test_a_script_is_its_verb_from_the_clone(script, verb, monkeypatch):
    calls = []
    monkeypatch.setattr(cli, "main", lambda argv: calls.append((argv, sys.path[0])) or 7)
    monkeypatch.setattr(sys, "path", ["elsewhere", *sys.path])
    monkeypatch.setattr(sys, "argv", [f"{script}.py", "data", "--json"])
    with pytest.raises(SystemExit) as leave:
        runpy.run_path(str(SCRIPTS / f"{script}.py"), run_name="__main__")
    assert (leave.value.code, calls) == (7, [([verb, "data", "--json"], str(SCRIPTS.parent))])


@pytest.mark.parametrize("script, flags, message", [
    ("bench_ablation", "none --path none.pt --cpu", "none.pt: there is no such checkpoint"),
    ("bench_ablation", "none --path none.pt --masks 1", "--masks and --sentences must be at least 2"),
    ("bench_bootstrap", "--text none", "none: there is no such file or folder"),
    ("bench_bootstrap", "--systems 2", "--pairs 2: it must be less than --systems, 2"),
    ("bench_find", "none --paths none.pt --mode both", "none.pt: there is no such file or folder"),
    ("bench_finetune", "none SST-2 --device cpu -o new.json", "none: neither SST-2/train.tsv nor train.tsv is there"),
    ("bench_host", "--sides walk", "--sides: walk: known are fairseq, no gates, l0"),
    ("bench_score", "--data none --cpu", "none/dict.de.txt: there is no such file or folder"),
    ("bench_score", "--synthetic --cpu --output none/new.json", "none/new.json: there is no folder none; make it"),
    ("bench_train", "--synthetic --variants stock,walk", "unknown variant 'walk': stock, or gated with mask, ones"),
    ("bench_train", "--data none --cpu", "none/dict.de.txt: there is no such file or folder"),
    ("bench_start", "--rounds 0", "--rounds 0: it must be at least 1"),
    ("bench_sweep", "none --checkpoints none --epochs 1 --cpu", "none/checkpoint1.pt: there is no such checkpoint"),
    ("check_graphs", "--cases walk", "--cases: walk: known are fp32"),
    ("draw_results", "none", "none: there is no such file or folder"),
    ("rounding", "none --path none.pt --sentences 1 8", "--sentences 1: the first number must be at least 2, since"),
    ("rounding", "none --path none.pt --sentences 8 0", "--sentences 0: it must be at least 1"),
    ("rounding", "none --path none.pt --tokens 0", "--tokens 0: it must be at least 1"),
    ("tables", "--write none", "none: there is no such file or folder"),
    ("type_1_errors", "--output none/new.json", "none/new.json: there is no folder none; make it first"),
])  # fmt: skip
def test_a_script_refuses_wrong_input_in_one_line(script, flags, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert message in refused_script(capsys, script, *flags.split())
    assert not any(tmp_path.iterdir())


@pytest.fixture
def find(tmp_path):
    """A function that runs the search where the named programs exist with the given bodies."""

    def run(settings=(), **programs):
        for name, body in programs.items():
            path = tmp_path / name.replace("_", ".")
            path.write_text(f"#!/bin/sh\n{body}\n")
            path.chmod(0o755)
        # Only cat is needed besides: the machine's own Pythons must not be seen.
        (tmp_path / "cat").symlink_to("/bin/cat")
        (tmp_path / "dirname").symlink_to("/usr/bin/dirname")
        return subprocess.run(
            ["/bin/bash", "-c", f"source '{ENVIRONMENT}'; headprune_find_python"],
            env={"PATH": str(tmp_path), **dict(settings)},
            capture_output=True,
            text=True,
        )

    return run


# A version manager's shim for a version that is not active prints a message and exits 127.
SHIM = "echo 'python3.12: command not found' >&2; exit 127"


@pytest.mark.parametrize("programs, taken", [
    ({"python3_12": "exit 0", "python3_11": "exit 0", "python3": "exit 0"}, "python3.12"),
    ({"python3_12": SHIM, "python3_11": "exit 0"}, "python3.11"),
    ({"python3_12": SHIM, "python3": "exit 0"}, "python3"),
])  # fmt: skip
def test_the_newest_supported_python_that_runs_is_taken(find, programs, taken):
    assert find(**programs).stdout == f"{taken}\n"


@pytest.mark.parametrize("version, taken", [("3, 10, 9", ""), ("3, 11, 0", "python3\n"), ("3, 13, 0", "")])
def test_only_3_11_and_3_12_are_supported(find, version, taken):
    # The interpreter of the tests, made to believe that it is of another version.
    body = f"""exec "{sys.executable}" -c 'import sys; sys.version_info = ({version}); exec(sys.argv[1])' "$2" """
    assert find(python3=body).stdout == taken


def test_a_named_python_comes_first(find, tmp_path):
    done = find({"HEADPRUNE_PYTHON": str(tmp_path / "mine")}.items(), mine="exit 0", python3_12="exit 0")
    assert done.stdout == f"{tmp_path}/mine\n"


def test_none_found_says_how_to_get_one(find):
    done = find(python3="exit 1")
    assert done.returncode == 2 and done.stdout == ""
    assert "no Python 3.11 or 3.12 found" in done.stderr and "apt install" in done.stderr


TEXT = (tiny.ROOT / "CONTRIBUTING.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
RULE, ESTIMATOR = (textwrap.dedent(f"   {block}" if block.startswith("def") else block) for block in BLOCKS)


def names_of(code, **names):
    exec(code, names)
    return names


def test_the_pruning_rule():
    prune = names_of(RULE)["prune_top_down"]
    mask = Mask.full({"enc_self": [3, 2]})
    assert prune(mask, 3).kept() == [Part("enc_self", 0, 1), Part("enc_self", 0, 2)]
    with pytest.raises(ValueError, match="--top-down 6: 5 heads are kept, so give 0 to 5"):
        prune(mask, 6)


def test_the_estimator(tiny_model):
    gates = find_gates(tiny_model)
    values = names_of(ESTIMATOR, **vars(part_weights))["value_norm"](gates)
    assert {name: [len(row) for row in rows] for name, rows in values.items()} == gates.shape
    module = dict(((c, layer), module) for c, layer, module in gates.items())["enc_dec", 1]
    width = module.v_proj.weight.size(0) // module.num_heads
    second = module.v_proj.weight[width : 2 * width].double().pow(2).sum().sqrt()
    assert values["enc_dec"][1][1] == pytest.approx(float(second))
    assert not torch.equal(module.v_proj.weight[:width], module.v_proj.weight[width : 2 * width])
    assert "value-norm" not in settings.ESTIMATORS


FILES = sorted(set(re.findall(r"`((?:fairseq_headprune|tests|cli)/[\w/]+\.py)`", TEXT)))


@pytest.mark.parametrize("path", FILES)
def test_every_file_that_is_named_is_there(path):
    root = tiny.ROOT / "fairseq_headprune" if path.startswith("cli/") else tiny.ROOT
    if "top_down" not in path and "NAME" not in path:
        assert (root / path).exists()
