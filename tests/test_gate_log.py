"""The log of learned gates, and what of them is shown: made-up learners, lines and counts by hand."""

import json
from types import SimpleNamespace

import pytest
import torch

from fairseq_headprune.gates.log import GateLog, gate_metrics, read_log
from fairseq_headprune.parts import Part

HEADS = [Part("enc_self", 0, 0), Part("enc_self", 0, 1), Part("enc_self", 1, 0), Part("dec_self", 0, 0)]


def learner(updates=3, penalty=None, stats=None):
    """Looks like a GateLearner: heads 0 and 3 are kept."""
    return SimpleNamespace(
        heads=HEADS, updates=updates, rule=SimpleNamespace(penalty=penalty),
        hard=lambda: torch.tensor([True, False, False, True]), expected=lambda: torch.tensor([0.9, 0.25, 0.125, 0.5]),
        penalty=lambda: 0.0355, stats=lambda: dict(stats or {"temperature": 0.05, "gate_gradient": 0.5}),
    )  # fmt: skip


def test_metrics_are_counts_temperature_and_of_l0_the_expected_counts():
    counts = {"heads_enc_self": 1, "heads_dec_self": 1}
    assert gate_metrics(learner()) == {**counts, "temperature": 0.05, "gate_gradient": 0.5}
    # 0.9 + 0.25 + 0.125 = 1.275
    expected = {"expected_enc_self": 1.275, "expected_dec_self": 0.5, "gate_penalty": 0.0355, "multiplier": 2.0}
    assert gate_metrics(learner(penalty="any", stats={"multiplier": 2.0})) == {**counts, **expected}


def test_lines_are_what_the_gates_are(tmp_path):
    log = GateLog(tmp_path / "run")
    log.start({"kind": "dsp"}, 0)
    log.update(learner(3))
    log.validation(4, {"loss": 2.5, "wps": 1000.0, "bleu": 30.0})
    lines = [json.loads(line) for line in (tmp_path / "run" / "gates.jsonl").read_text().splitlines()]
    assert lines[0] == {"gates": {"kind": "dsp"}}
    assert lines[1]["update"] == 3 and lines[1]["temperature"] == 0.05
    # One string a layer, one digit a head.
    assert lines[1]["kept"] == {"enc_self": ["10", "0"], "dec_self": ["1"]}
    assert lines[1]["expected"] == {"enc_self": 1.275, "dec_self": 0.5}
    assert lines[2] == {"update": 4, "valid": {"loss": 2.5, "bleu": 30.0}}
    assert read_log(log.path) == (lines[0]["gates"], lines[1:])


def test_a_resumed_run_drops_what_came_after_its_checkpoint(tmp_path):
    log = GateLog(tmp_path)
    log.start({"kind": "dsp"}, 0)
    for update in (10, 20, 30):
        log.update(learner(update))
        log.validation(update, {"loss": 1.0})
    with open(log.path, "a") as stream:
        stream.write('{"update": 40, "temp')  # killed while it was writing
    GateLog(tmp_path).start({"kind": "dsp", "more": 1}, 20)
    description, lines = read_log(log.path)
    assert description == {"kind": "dsp", "more": 1}
    assert [(line["update"], "valid" in line) for line in lines] == [(10, False), (10, True), (20, False), (20, True)]
    # A run that starts from the beginning has nothing to keep.
    GateLog(tmp_path).start({"kind": "ste"}, 0)
    assert read_log(log.path) == ({"kind": "ste"}, [])


HEADER = '{"gates": {}}\n'


def test_a_line_that_is_still_being_written_is_left_out(tmp_path):
    path = tmp_path / "gates.jsonl"
    for tail in ('{"update": 9, "te', '{"update": 9}', '{"update": 9, "t": "\xc3'):
        path.write_bytes((HEADER + '{"update": 5}\n' + tail).encode("latin-1"))
        assert read_log(path)[1] == [{"update": 5}]


@pytest.mark.parametrize("damage", ['{"update": 5, "te', "[5]", '{"valid": {}}', '{"update": "5"}', "", "\xff\x00"])
def test_a_damaged_line_is_named(tmp_path, damage):
    path = tmp_path / "gates.jsonl"
    path.write_bytes((HEADER + '{"update": 1}\n' + damage + '\n{"update": 9}\n').encode("latin-1"))
    with pytest.raises(ValueError, match="gates.jsonl, line 3: damaged"):
        read_log(path)


@pytest.mark.parametrize("text", ["", '{"update": 1}\n', '{"gates"'])
def test_another_file_is_no_log(tmp_path, text):
    (tmp_path / "gates.jsonl").write_text(text)
    with pytest.raises(ValueError, match="not a log of learned gates"):
        read_log(tmp_path / "gates.jsonl")
