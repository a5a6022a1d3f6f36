"""scripts/check_gpu.py with programs that are made up, on a machine without a GPU. Source: by hand."""

import json
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace

import check_gpu
import check_graphs
import pytest
import tiny
from fairseq import options
from verbs import refused_script

from fairseq_headprune.cli import main
from fairseq_headprune.session import Session


@pytest.fixture
def check(tmp_path, monkeypatch, capsys):
    """A function that runs the script where each program prints what a function of its name says, or fails at None."""

    def check(printed, verbs="score,prune,bench"):
        def run(commands, jobs, prepare):
            failed = []
            for command in commands:
                text = printed(command.name)
                if text is None:
                    failed.append(command.name)
                    if "/" in command.name:
                        command.log.write_text("loading\nheadprune score: no memory\n")
                    continue
                command.output.parent.mkdir(exist_ok=True)
                command.output.write_text(json.dumps(text))
                yield command.name
            if failed:
                raise RuntimeError(f"failed: {', '.join(failed)}")

        monkeypatch.setattr(check_gpu, "run_commands", run)
        monkeypatch.setattr(check_gpu, "make_corpus", lambda *_, **__: None)
        monkeypatch.setattr(check_gpu.benchmarks, "environment", lambda *_: {"gpu": "made up"})
        status = tiny.run_main(check_gpu, "--work", tmp_path / "work", "--verbs", verbs, "--json")
        return status, {c["name"]: c for c in json.loads(capsys.readouterr().out)["checks"]}

    return check


def scores(name):
    """Importance 1 and 0.5, and 20 and 10 BLEU; half precision has one of each 0.02 or 2 higher."""
    more = "fp16" in name
    if name.endswith("score"):
        return {"scores": {"enc_self": [[1.0, 0.5 + 0.02 * more]]}, "sentences": 500 + more}
    return {"baseline": {"score": 20.0}, "cells": [{"score": 10.0 + 2 * more, "seconds": 1.0 + more}]}


def test_numbers_of_a_document_in_their_order():
    value = {"score": 1, "cells": [{"score": 2.5, "p": 0.5}, {"score": {"deep": [3, None, True]}}]}
    assert list(check_gpu.numbers(value, "score")) == [1.0, 2.5, 3.0]


def test_each_side_is_compared_with_the_cpu(check):
    status, found = check(scores)
    assert status == 0 and all(value["ok"] for value in found.values())
    assert found["score gpu-fp16"]["difference"] == pytest.approx(0.02) and found["score gpu-fp16"]["limit"] == 0.05
    assert (found["prune gpu-fp16"]["difference"], found["prune gpu-fp32"]["difference"]) == (2.0, 0.0)
    # Times are not compared, and the CPU is compared with nothing.
    assert found["bench gpu-fp16"]["why"] == found["prune cpu"]["why"] == "ran"


def test_a_difference_beyond_the_limit_fails(check):
    # In float32 half a BLEU is the limit.
    status, found = check(lambda name: scores("fp16" if name == "gpu-fp32/prune" else name))
    assert status == 1 and [name for name, value in found.items() if not value["ok"]] == ["prune gpu-fp32"]
    assert "2 numbers, largest difference 2 (limit 0.5)" in found["prune gpu-fp32"]["why"]


def test_what_does_not_run_is_named_and_the_rest_goes_on(check):
    status, found = check(lambda name: None if name in ("train-dsp", "gpu-fp32/score") else scores(name))
    assert status == 1 and {n for n, v in found.items() if not v["ok"]} == {"train-dsp", "score gpu-fp32"}
    assert "difference" in found["score gpu-fp16"]
    assert found["train-dsp"]["why"] == "did not run: it was not started"
    assert found["score gpu-fp32"]["why"] == "did not run: headprune score: no memory"


def test_nothing_is_compared_with_what_the_cpu_did_not_print(check):
    status, found = check(lambda name: {"cells": []} if name == "gpu-fp16/prune" else scores(name))
    assert status == 1 and found["prune gpu-fp16"]["why"] == "0 numbers, the CPU printed 2"


class Opened(Exception):
    """What is raised instead of loading a model: the verb has taken all its flags."""


@pytest.fixture
def work(trained, tuned, tmp_path, monkeypatch):
    """The folder of the script as its trainings leave it, with other models; here no model is loaded again."""
    files = {"model/checkpoint_best.pt": trained["checkpoint"], "model/checkpoint1.pt": trained["checkpoint"]}
    files |= {"bert/checkpoint_best.pt": tuned / "SST-2" / "checkpoint_last.pt", "slim.pt": trained["checkpoint"]}
    for name, target in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).symlink_to(target)
    (tmp_path / "glue").symlink_to(tuned / "glue")
    rows = {name: [[1.0, 2.0]] * 2 for name in ("enc_self", "enc_dec", "dec_self")}
    scores = {"format": "headprune.scores/1", "scores": rows, "estimator": "gradient", "settings": {}}
    (tmp_path / "file.json").write_text(json.dumps(scores))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADPRUNE_DEBUG", "1")

    def opened(*_, **__):
        raise Opened

    monkeypatch.setattr(Session, "__init__", opened)


@pytest.mark.parametrize("side", check_gpu.SIDES)
@pytest.mark.parametrize("name", check_gpu.COMPARED | check_gpu.RUN)
def test_every_verb_takes_the_flags_that_it_is_given(work, name, side):
    line = check_gpu.words_of((check_gpu.COMPARED | check_gpu.RUN)[name], check_gpu.SIDES[side], "own")
    with pytest.raises(Opened):
        main([*shlex.split(line), "--json"])


def test_trainings_and_what_is_made_of_them_take_their_flags(work, tmp_path, monkeypatch):
    found = {}

    def run(commands, jobs, prepare):
        found.update({command.name: command.words[1:] for command in commands})
        yield from [command.name for command in commands]

    monkeypatch.setattr(check_gpu, "run_commands", run)
    monkeypatch.setattr(check_gpu, "make_corpus", lambda *_, **__: None)
    made = SimpleNamespace(epochs=1, jobs=1, verbs=[check_gpu.GRAPHS])
    assert check_gpu._run(tmp_path / "script", made) == []
    for name in ("train", "train-bert", "train-l0", "train-dsp", "train-ste"):
        module, words = found[name][:2], found[name][2:]
        with tiny.called("fairseq-train", *words):
            assert options.parse_args_and_arch(options.get_training_parser(), words)
        assert module == ["-m", "fairseq_cli.train"]
    words = found["train"]
    assert json.loads(words[words.index("--eval-bleu-args") + 1])["beam"] == 2
    Path("slim.pt").unlink()
    for name in ("mask", "slim"):  # after each other
        assert found[name][:2] == ["-m", "fairseq_headprune"] and main(found[name][2:]) == 0
    with pytest.raises(Opened):
        main(found["order"][2:])
    with tiny.called(*found[check_gpu.GRAPHS]):
        assert Path(sys.argv[0]).is_file() and check_graphs._arguments().json


def test_wrong_input_in_one_line(capsys, tmp_path):
    (tmp_path / "old").touch()
    for flags, message in ((["--verbs", "walk"], "walk: known are score"), (["--work", tmp_path], "not empty")):
        assert message in refused_script(capsys, "check_gpu", *flags)
