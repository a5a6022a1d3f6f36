"""``headprune dynamics``: what the logs of trainings tell, by hand counts."""

import base64
import json
import re

import pytest
from reports import told
from verbs import refused

from fairseq_headprune.cli import main
from fairseq_headprune.cli.open import version
from fairseq_headprune.cli.report import document
from fairseq_headprune.files import sha256
from fairseq_headprune.gates import log
from fairseq_headprune.parts import Part
from fairseq_headprune.report.drawings import draw_figure, svg_of
from fairseq_headprune.report.pictures import GateCurves, HeadsByPenalty

#: two layers of two heads in the encoder, one layer of two in the decoder
HEADS = [["enc_self", layer, head] for layer in (0, 1) for head in (0, 1)] + [["dec_self", 0, 0], ["dec_self", 0, 1]]
#: update -> set: the final one (enc_self 0.0, 1.1; dec_self 0.1) is there at 10, gone at 20, back from 30 on
SETS = {
    10: {"enc_self": ["10", "01"], "dec_self": ["01"]},
    20: {"enc_self": ["11", "00"], "dec_self": ["10"]},
    30: {"enc_self": ["10", "01"], "dec_self": ["01"]},
    40: {"enc_self": ["10", "01"], "dec_self": ["01"]},
}


def write_run(folder, sets=SETS, **description):
    """Write a log of DSP, or as the description says."""
    folder.mkdir()
    kind = {"version": 1, "kind": "dsp", "heads_kept": 3, "tau_start": 1.0, "tau_end": 1e-8, "tau_updates": 20}
    lines = [{"gates": {**kind, "heads": HEADS, **description}}]
    lines += [{"update": n, "temperature": 10.0 ** (-n / 10), "kept": kept} for n, kept in sets.items()]
    lines[-1]["sampled_as_learned"] = 0.25
    lines.append({"update": 40, "valid": {"loss": 4.5, "nll_loss": 2.5}})
    (folder / "gates.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_overlap_and_settling(tmp_path):
    run = log.read_run(write_run(tmp_path / "run"))
    assert run.final == {Part("enc_self", 0, 0), Part("enc_self", 1, 1), Part("dec_self", 0, 1)}
    # At 20 one of the three (enc_self 0.0) is a final one.
    assert [log.overlap_at(run, n) for n in (5, 10, 25, 40)] == [None, 100.0, pytest.approx(100 / 3), 100.0]
    assert log.settled(run) == (30, 20)
    assert log.layer_counts(run) == {"enc_self": [1, 1], "dec_self": [1]}
    assert log.scores(run, "nll_loss") == [(40, 2.5)]


def test_logs_are_read_up_to_an_update(tmp_path, capsys):
    run = log.read_run(write_run(tmp_path / "run"), until=20)
    final = {Part("enc_self", 0, 0), Part("enc_self", 0, 1), Part("dec_self", 0, 0)}
    assert run.last_update == 20 and run.final == final
    assert main(["dynamics", str(tmp_path / "run"), "--until", "30", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["final_set_of_update"] == 30
    assert main(["dynamics", str(tmp_path / "run"), "--until", "9"]) == 2
    assert "no update is logged until 9" in capsys.readouterr().err


def test_runs_of_several_penalties_and_counts(tmp_path):
    few = {40: {"enc_self": ["00", "00"], "dec_self": ["01"]}}
    runs = [
        log.read_run(write_run(tmp_path / name, sets, kind="l0", penalty=penalty))
        for name, sets, penalty in (("a", few, 0.1), ("b", SETS, 0.01), ("c", SETS, 0.02))
    ]
    assert log.heads_by_penalty(runs) == [(0.01, 3), (0.02, 3), (0.1, 1)]
    assert log.distribution(runs) == {
        1: {"enc_self": [0.0, 0.0], "dec_self": [1.0]},
        3: {"enc_self": [1.0, 1.0], "dec_self": [1.0]},
    }


@pytest.mark.slow
def test_the_verb_draws_one_run_and_many(tmp_path, capsys):
    one, other = write_run(tmp_path / "one"), write_run(tmp_path / "two", kind="l0", penalty=0.5)
    assert main(["dynamics", str(one), "-o", str(tmp_path / "figures"), "--at", "20", "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["runs"][0]["sampled_as_learned"] == 0.25
    assert value["by_update"]["sampled_as_learned"] == [{"update": 40, "value": 0.25}]
    assert value["runs"][0]["overlap"] == [{"update": 20, "percent": pytest.approx(100 / 3)}]
    assert value["runs"][0]["settled"] == {"from_update": 30, "other_at_update": 20}
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {"dynamics.png", "dynamics.svg"}
    assert main(["dynamics", str(one), str(other), "-o", str(tmp_path / "many")]) == 0
    text = capsys.readouterr().out
    assert "heads kept" in text and "0.5" in text
    names = {path.stem for path in (tmp_path / "many").iterdir()}
    assert names == {"heads-against-lambda", "distribution-dsp", "distribution-l0"}


@pytest.mark.parametrize(
    "at, message",
    [("9,x", "--at: '9,x': give whole numbers as in 1,16"), ("-1", "--at must be at least 0, got -1")],
)
def test_wrong_updates_are_refused(capsys, at, message):
    assert message in refused(capsys, "dynamics", "run", f"--at={at}")


def drawn(panel):
    """The names of the curves in a picture."""
    return set(re.findall(r'<g id="(score|overlap|sampled|kept)"', base64.b64decode(svg_of(panel)).decode()))


def test_curves_are_drawn_where_there_is_something_to_show():
    # By hand: three heads all along are no curve, and STE has no share and no temperature.
    overlap = [(10, 50.0), (20, 100.0)]
    assert drawn(GateCurves("g", "t", "BLEU", overlap, kept=[(10, 50.0), (20, 50.0)])) == {"overlap"}
    full = GateCurves("g", "t", "BLEU", overlap, [(20, 30.0)], [(0, 1.0), (20, 0.1)], [(10, 90.0), (20, 50.0)], overlap)
    assert drawn(full) == {"score", "overlap", "sampled", "kept"}
    with pytest.raises(ValueError, match="not finite"):
        svg_of(GateCurves("g", "t", "BLEU", overlap, sampled=[(20, float("nan"))]))


def test_the_report_page_shows_what_the_verb_tells(tmp_path, capsys):
    # Source: the verb's own tables, and its JSON document.
    one, other = write_run(tmp_path / "one"), write_run(tmp_path / "two", kind="l0", penalty=0.5)
    assert main(["dynamics", str(one), str(other), "--json"]) == 0
    (tmp_path / "both.json").write_text(capsys.readouterr().out)
    page = document([one, other / "gates.jsonl", tmp_path / "both.json"], "title")
    assert [(study["name"], study["kind"], study["heading"]) for study in page["studies"]] == [
        (name, "dynamics", "How gates were learned") for name in ("one", "gates.jsonl", "both.json")
    ]
    assert [len(study["pictures"]) for study in page["studies"]] == [1, 1, 3]
    assert main(["dynamics", str(one)]) == 0
    assert [*told(page["studies"][0])][0] in capsys.readouterr().out
    logs = page["studies"][0]["provenance"]["settings"]["logs"][str(one / "gates.jsonl")]
    assert logs["sha256"] == sha256(one / "gates.jsonl") and logs["tau_updates"] == 20 and "heads" not in logs
    [made] = page["studies"][2]["provenance"]["runs"]
    assert made["command"].startswith("headprune dynamics")
    assert main(["report", str(one), str(tmp_path / "both.json"), "-o", str(tmp_path / "page.html")]) == 0
    assert "one: dynamics on valid, 1 of 1 cells, 0 maps, 0 charts, 2 tables" in capsys.readouterr().out
    first = version([str(one), str(tmp_path / "both.json")])
    with open(one / "gates.jsonl", "a") as stream:
        stream.write(json.dumps({"update": 50, "kept": SETS[40]}) + "\n")
    assert version([str(one), str(tmp_path / "both.json")]) != first


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"curves": {}}', "is not what headprune dynamics --json prints"),
        ('{"resamples": 9}', "without sentence statistics, as here, its p cannot be computed again"),
        ('{"runs": [{}], "distribution": {}, "score": null}', "is damaged"),
        ("[", "not a JSON file"),
    ],
)
def test_other_json_on_the_report_page_is_refused(tmp_path, capsys, text, message):
    (tmp_path / "x.json").write_text(text)
    assert message in refused(capsys, "report", tmp_path / "x.json", "-o", tmp_path / "page.html")


@pytest.mark.parametrize("points", [[(0.001, 9), (0.02, 3)], [(0.0, 12), (0.001, 9), (0.02, 3)]])
def test_lambdas_are_written_as_numbers(tmp_path, points):
    # As text in the picture: a formula would stand there as it is written.
    draw_figure(HeadsByPenalty("lambda", "title", points, 12), tmp_path / "figure")
    found = re.findall(r"<text[^>]*>([^<]+)</text>", (tmp_path / "figure.svg").read_text())
    assert {"0.001", "0.01", "All heads (12)"} <= set(found) and not [text for text in found if "$" in text]


@pytest.mark.parametrize("words", [["nowhere"], ["run", "--score", "bleu"]])
def test_wrong_input_is_one_line_and_status_2(tmp_path, capsys, monkeypatch, words):
    write_run(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    assert main(["dynamics", *words]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_target_expected_and_real_number_are_told_together(tmp_path, capsys):
    run = write_run(tmp_path / "run", kind="l0", heads_kept={"enc_self": 1, "dec_self": 1}, beta=0.33)
    text = (run / "gates.jsonl").read_text().splitlines()
    # Of two lines at 40 the last one counts: 2.25 + 0.5.
    line = {"update": 40, "kept": SETS[40], "expected": {"enc_self": 2.25, "dec_self": 0.5}}
    (run / "gates.jsonl").write_text("\n".join([*text, json.dumps(line)]) + "\n")
    assert main(["dynamics", str(run), "--json"]) == 0
    [found] = json.loads(capsys.readouterr().out)["runs"]
    assert (found["target"], found["expected"], found["kept"]) == ({"enc_self": 1, "dec_self": 1}, 2.75, 3)
    assert main(["dynamics", str(run)]) == 0
    header, _, row, *_ = capsys.readouterr().out.splitlines()
    assert re.search(r"target +expected +kept", header) and re.search(r" 2 +2\.8 +3 +6 ", row)
