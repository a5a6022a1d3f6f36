"""``headprune ablate`` on a tiny checkpoint, and the oracle order it gives ``headprune prune``."""

import json

import pytest
import sacrebleu
import tiny
import torch
from tiny import SHAPE
from verbs import BEAM, count_masks, generated, holm_by_hand, refused, run_json, session, stopped
from verbs import cells as timeless

from fairseq_headprune.cli import main
from fairseq_headprune.evaluation.significance import paired_bootstrap
from fairseq_headprune.evaluation.translate import Translator
from fairseq_headprune.files import read_lines
from fairseq_headprune.parts import Mask, Part, all_heads
from fairseq_headprune.parts.scores import Scores
from fairseq_headprune.report.marks import Family
from fairseq_headprune.studies.ablate import count


@pytest.fixture(scope="module")
def translator(lively):
    return Translator(session(lively, *BEAM), "test")


def hypotheses(ablated, cell):
    return read_lines(ablated["folder"] / "hyps" / f"{cell['id']}.txt")


def lines(folder):
    return (folder / "cells.jsonl").read_text().splitlines(keepends=True)


def test_one_cell_a_head_after_the_unpruned_one(ablated):
    cells = ablated["document"]["cells"]
    heads = [(cell["component"], cell["layer"], cell["head"]) for cell in cells]
    # Source: by hand: 12 heads in the fixed order.
    assert heads == [(None, None, None), *map(tuple, all_heads(SHAPE))]
    assert all({"score", "delta", "p", "p_holm", "signature"} <= set(cell) for cell in cells)
    assert (cells[0]["delta"], cells[0]["p"], cells[0]["p_holm"]) == (0.0, 1.0, 1.0)
    for cell in cells[1:]:
        mask = Mask.load(ablated["folder"] / "masks" / f"{cell['id']}.json")
        assert mask.dropped() == [Part(cell["component"], cell["layer"], cell["head"])]
    figures = {f"{stem}.{end}" for stem in ("histogram", "deltas") for end in ("png", "svg")}
    assert {path.name for path in (ablated["folder"] / "figures").iterdir()} == figures
    document = ablated["document"]
    assert document["data"]["split"] == "test" and len(document["checkpoint"]["sha256"]) == 64
    assert (document["resamples"], document["seed"], document["alpha"]) == (50, 12345, 0.01)


def test_hypotheses_are_those_under_the_mask_of_one_head(ablated, translator, lively):
    # Source: the model itself under that mask, and fairseq-generate with --head-mask for one head.
    gates, changed = translator._session.gates, 0
    base = hypotheses(ablated, ablated["document"]["cells"][0])
    for cell in ablated["document"]["cells"][1:]:
        head = Part(cell["component"], cell["layer"], cell["head"])
        with gates.masked(Mask.full(SHAPE).without([head])):
            assert hypotheses(ablated, cell) == translator.answers()
        changed += hypotheses(ablated, cell) != base
    assert changed >= 6
    argv = [lively["data"], "--path", lively["checkpoint"], *BEAM, "--task", "translation_headprune", "--head-mask"]
    found = read_lines(ablated["folder"] / "hyps" / "enc_dec-1-0.txt")
    assert found == generated("D", *argv, ablated["folder"] / "masks" / "enc_dec-1-0.json") != base


def test_differences_and_p(ablated, translator):
    # Source: sacrebleu's corpus BLEU, and our paired bootstrap of two systems by themselves.
    cells = ablated["document"]["cells"]
    base = hypotheses(ablated, cells[0])

    def bleu(lines):
        return sacrebleu.corpus_bleu(lines, [translator.references]).score

    for cell in cells[1:]:
        expected = bleu(hypotheses(ablated, cell)) - bleu(base)
        assert cell["delta"] == pytest.approx(expected, abs=1e-9)
        systems = {"base": base, "masked": hypotheses(ablated, cell)}
        assert cell["p"] == paired_bootstrap("bleu", translator.references, systems, 50)[1].p
    assert any(cell["delta"] > 0 for cell in cells) and any(cell["delta"] < 0 for cell in cells)
    # Holm's correction is over the heads.
    assert [cell["p_holm"] for cell in cells[1:]] == pytest.approx(holm_by_hand([cell["p"] for cell in cells[1:]]))


HAND = [
    {"component": "dec_self", "layer": 0, "head": 0, "delta": -2.0, "p": 0.0, "p_holm": 0.0},
    {"component": "dec_self", "layer": 0, "head": 2, "delta": 0.5, "p": 0.002, "p_holm": 0.008},
    {"component": "dec_self", "layer": 1, "head": 0, "delta": 0.2, "p": 0.004, "p_holm": 0.012},
    {"component": "dec_self", "layer": 1, "head": 1, "delta": -0.1, "p": 0.5, "p_holm": 1.0},
]


def test_what_was_found_is_counted():
    # Source: by hand.
    counts = {"heads": 4, "significant": 2, "improve": 1, "significant_raw": 3, "improve_raw": 2}
    assert count(HAND, Family(0.01, 1000, 1, 4)) == counts
    # 400 resamples show no p below 0.005, times 4 tests 0.02: none of them is significant after correction at 0.01.
    few = {"heads": 4, "significant": 0, "improve": 0, "significant_raw": 3, "improve_raw": 2}
    assert count(HAND, Family(0.01, 400, 1, 4)) == few


def test_the_text_ends_with_what_was_found(ablated, flags, capsys):
    assert main(["ablate", *map(str, flags), "-o", str(ablated["folder"]), "--format", "markdown"]) == 0
    out = capsys.readouterr().out
    count = ablated["document"]["found"]
    assert f"\n{count['significant']} of 12 heads change BLEU significantly; " in out
    assert "Enc-Dec (enc_dec)" in out and "| Layer/Head | 1 | 2 |" in out
    # Source: the document; layer 2, head 1 of enc_self.
    delta = next(cell["delta"] for cell in ablated["document"]["cells"] if cell["id"] == "enc_self-1-0")
    assert f"| 2 | {delta:+.2f}" in out


def test_a_stopped_study_repeats_nothing(ablated, flags, tmp_path, monkeypatch):
    # Source: the study that was never stopped; 12 + 1 cells, 5 of them done.
    folder, kept = stopped(ablated["folder"], tmp_path / "study", 5, 30), lines(ablated["folder"])
    packs = count_masks(monkeypatch)
    document = run_json("ablate", *flags, "-o", folder, "--masks-at-once", "5")
    assert packs == [5, 3] and lines(folder)[:5] == kept[:5]
    assert timeless(folder) == timeless(ablated["folder"])
    run_json("ablate", *flags, "-o", folder)
    assert packs == [5, 3] and document["found"] == ablated["document"]["found"]


def test_settings_that_need_fairseqs_generator_go_one_by_one(flags, tmp_path, monkeypatch, caplog):
    packs = count_masks(monkeypatch)
    argv = ["ablate", *flags, "-o", tmp_path / "s", "--components", "dec_self", "--no-repeat-ngram-size", "2"]
    assert len(run_json(*argv, "--masks-at-once", "4")["cells"]) == 5
    assert packs == [] and caplog.text.count("--masks-at-once 4: one by one instead, since --match") == 1


def test_pruned_heads_are_passed_over(flags, tmp_path, capsys):
    mask = Mask.full(SHAPE).without([Part("dec_self", 0, 1), Part("dec_self", 1, 0)])
    mask.save(tmp_path / "mask.json")
    argv = ["ablate", *map(str, flags), "-o", str(tmp_path / "s"), "--components", "dec_self"]
    assert main([*argv, "--head-mask", str(tmp_path / "mask.json")]) == 0
    rows = capsys.readouterr().out.splitlines()
    found = timeless(tmp_path / "s")
    # Source: by hand: two of four heads are left, and their masks prune three.
    assert [cell["id"] for cell in found] == ["unpruned", "dec_self-0-0", "dec_self-1-1"]
    assert len(Mask.load(tmp_path / "s" / "masks" / "dec_self-0-0.json").dropped()) == 3
    assert rows[3].split()[0] == "1" and rows[3].split()[2] == "-" == rows[4].split()[1]


def one_sentence(data, folder):
    """Write and binarise a test set of one sentence with the dictionary of other data."""
    for side in ("xx", "yy"):
        (folder / f"one.{side}").write_text("w1 w2 w3\n")
    languages = ["--source-lang=xx", "--target-lang=yy", "--joined-dictionary", f"--destdir={folder / 'bin'}"]
    tiny.fairseq_here("preprocess", *languages, f"--srcdict={data / 'dict.xx.txt'}", f"--testpref={folder / 'one'}")
    return folder / "bin"


def test_wrong_input_is_refused_and_nothing_is_written(flags, lively, tmp_path, capsys):
    target = ["-o", tmp_path / "s"]
    for wrong, message in (
        (["--components", "encoder"], "unknown component 'encoder'"),
        (["--alpha", "0"], "--alpha must be between 0 and 1"),
        (["--masks-at-once", "0"], "--masks-at-once: must be a whole number from 1 on, got 0"),
        (["--gen-subset", "dev"], "has no split 'dev'; there are: test, train, valid"),
        (["--retain-dropout"], "--retain-dropout gives another translation each time"),
    ):
        assert message in refused(capsys, "ablate", *flags, *target, *wrong)
    data = one_sentence(lively["data"], tmp_path)
    assert "p is not defined" in refused(capsys, "ablate", data, *flags[1:], *target)
    assert not (tmp_path / "s").exists()


def test_a_model_that_is_not_finite_is_refused_with_the_head(lively, tmp_path, capsys):
    state = torch.load(lively["checkpoint"], weights_only=False)
    bad = tmp_path / "bad.pt"
    state["model"]["encoder.layers.0.self_attn.v_proj.weight"][0, 0] = float("nan")
    torch.save(state, bad)
    argv = [lively["data"], "--path", bad, *BEAM]
    for at_once in ("1", "8"):
        line = refused(capsys, "ablate", *argv, "--masks-at-once", at_once, "-o", tmp_path / "study")
        assert "NaN or infinity in the weights of enc_self layer 0 head 0: take an earlier checkpoint" in line
    # Where that head is pruned the model is finite.
    Mask.full(SHAPE).without([Part("enc_self", 0, 0)]).save(tmp_path / "mask.json")
    masked = ["--head-mask", tmp_path / "mask.json", "--components", "dec_self", "--resamples", "50"]
    assert len(run_json("ablate", *argv, *masked, "-o", tmp_path / "masked")["cells"]) == 5
    # A search that ends without a hypothesis, since something else is broken.
    state["model"]["encoder.layers.0.self_attn.v_proj.weight"][0, 0] = 0.0
    state["model"]["decoder.layers.0.fc1.bias"][:] = float("nan")
    torch.save(state, bad)
    assert main(["ablate", *map(str, argv), "--masks-at-once", "1", "-o", str(tmp_path / "other")]) == 1
    assert "fairseq's search found no translation" in capsys.readouterr().err.splitlines()[-1]


def test_a_folder_of_another_study_is_refused(ablated, flags, trained, capsys):
    before = lines(ablated["folder"])
    for argv, name in (
        ([*flags, "--gen-subset", "valid"], "data.split"),
        ([*flags, "--lenpen", "2"], "generation.lenpen"),
        ([*flags, "--components", "enc_dec"], "components"),
        ([*flags[:2], trained["checkpoint"], *flags[3:]], "checkpoint is"),
    ):
        line = refused(capsys, "ablate", *argv, "-o", ablated["folder"])
        assert "other settings" in line and name in line
    assert lines(ablated["folder"]) == before


def test_the_oracle_order_leads_the_pruning(ablated, flags, tmp_path, capsys):
    order = ["--order", f"oracle:{ablated['folder']}", "--step", "25%"]
    document = run_json("prune", *flags, "-o", tmp_path / "p", *order)
    # Source: the differences, by hand: the highest goes first, of equal ones the highest index.
    cells = sorted(reversed(ablated["document"]["cells"][1:]), key=lambda cell: cell["delta"], reverse=True)
    order = [Part(cell["component"], cell["layer"], cell["head"]) for cell in cells]
    for step in (1, 2, 3, 4):
        mask = Mask.load(tmp_path / "p" / "masks" / f"all-{step:02d}.json")
        assert set(mask.dropped()) == set(order[: 3 * step])
    assert "importance and results both come from test" in capsys.readouterr().err
    assert document["score_data"]["split"] == "test"
    stored = Scores.load(tmp_path / "p" / "scores.json")
    assert stored.estimator == "oracle" and stored.details["study"] == str(ablated["folder"])
    settings = json.loads((tmp_path / "p" / "study.json").read_text())["settings"]
    assert settings["order"] == "oracle" and settings["score_data"] is None and len(settings["order_file"]) == 64


def test_an_oracle_of_another_model_or_of_too_few_heads_is_refused(ablated, flags, lively, trained, tmp_path, capsys):
    argv = [lively["data"], "--path", trained["checkpoint"], *BEAM, "-o", tmp_path / "p", "--order", ablated["folder"]]
    line = refused(capsys, "prune", *argv)
    # Source: the study's own record of its checkpoint.
    assert "another checkpoint" in line and ablated["document"]["checkpoint"]["sha256"] in line
    part = tmp_path / "part"
    run_json("ablate", *flags, "-o", part, "--components", "enc_self", "--gen-subset", "valid")
    capsys.readouterr()
    assert "do not rank" in refused(capsys, "prune", *flags, "-o", tmp_path / "p", "--order", f"oracle:{part}")
    assert "no such folder" in refused(capsys, "prune", *flags, "-o", tmp_path / "p", "--order", "oracle:nowhere")
    line = refused(capsys, "prune", *flags, "-o", tmp_path / "p", "--order", f"oracle:{part}", "--reestimate")
    assert "--reestimate needs estimated importance" in line
    assert not (tmp_path / "p").exists()
    run_json("prune", *flags, "-o", tmp_path / "p", "--order", part, "--components", "enc_self", "--step", "1")
    assert "both come from" not in capsys.readouterr().err
