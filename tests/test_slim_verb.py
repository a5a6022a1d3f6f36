"""``headprune slim`` and what fairseq's commands do with its checkpoints. Reference: the masked model (--head-mask)."""

import argparse
import json
import os
import resource

import pytest
import tiny
import torch
from logged import program
from tiny import SHAPE
from verbs import generated, refused, run_json, write_lively

from fairseq_headprune.checkpoints import GatedSettings, read_state, saved_settings, stored_mask
from fairseq_headprune.cli import main
from fairseq_headprune.files import sha256
from fairseq_headprune.parts import Mask, Part

#: 7 heads go, each of 32 * (4 * 64 + 3) parameters (public report 33)
REMOVED = 7 * 32 * (4 * 64 + 3)


@pytest.fixture(scope="module")
def pruned(trained, trained_stock, tmp_path_factory):
    """Gated and stock checkpoints, the mask, and what was made of them with it."""
    folder = tmp_path_factory.mktemp("slim")
    tiny.FEW.save(folder / "mask.json")
    runs = {"data": trained["data"], "mask": folder / "mask.json", "folder": folder}
    for name, run in (("gated", trained), ("stock", trained_stock)):
        (folder / name).mkdir()
        runs[name] = write_lively(run, folder / name)["checkpoint"]
        for mode in ("slim", "bake"):
            output = folder / name / f"{mode}.pt"
            flags = ["--bake"] if mode == "bake" else []
            runs[f"{name} {mode} report"] = run_json("slim", runs[name], "--mask", runs["mask"], "-o", output, *flags)
            runs[f"{name} {mode}"] = output
    call = [runs["data"], "--path", runs["gated"], "--cpu", *tiny.TASK]
    runs["masked"] = generated("H", *call, "--head-mask", runs["mask"])
    runs["scores"] = scores_of(*call, "--head-mask", runs["mask"])
    assert runs["masked"] != generated("H", *call)
    return runs


def scores_of(*call):
    output = tiny.fairseq_here("generate", *call, "--required-batch-size-multiple", "1")
    return [float(line.split("\t")[1]) for line in sorted(output.splitlines()) if line.startswith("H-")]


def test_the_report(pruned):
    for name in ("gated", "stock"):
        report = pruned[f"{name} slim report"]
        assert report["config"] == {"ES": "01", "ED": "12", "DS": "10"}
        assert report["components"]["enc_dec"] == {"kept": 3, "total": 4} and report["removed"] == 7
        counts = report["parameters"]
        assert counts["before"] - counts["after"] == counts["by_formula"] == REMOVED
        for key in ("checkpoint", "output"):
            path = report[key]["path"]
            assert report[key] == {"path": path, "bytes": os.path.getsize(path), "sha256": sha256(path)}
        assert report["layout"]["kept"]["dec_self"] == [[0], []]
        # Four bytes a parameter: without its optimizer state the file is the weights and a few settings.
        weights = torch.load(pruned[f"{name} slim"], weights_only=False)["model"]
        assert report["output"]["bytes"] < 4 * counts["after"] + 60_000
        assert sum(v.numel() for n, v in weights.items() if "attn." in n) == 24 * 64 * 65 - REMOVED


def test_generation_with_path_and_user_dir_alone(pruned):
    call = [pruned["data"], "--path", pruned["gated slim"], "--cpu", *tiny.PLUGIN]
    assert scores_of(*call) == pytest.approx(pruned["scores"], abs=2e-4)
    assert generated("H", *call) == pruned["masked"]
    assert generated("H", *call, "--task", "translation_headprune") == pruned["masked"]


def test_validation(pruned):
    def loss(path, *flags):
        # fairseq-validate asks for a task, of stock models too.
        call = ["--path", path, "--cpu", *tiny.PLUGIN, *flags, "--valid-subset", "test", "--log-format", "json"]
        lines, _ = program("validate", pruned["data"], *call, "--batch-size", "8", "--num-workers", "0")
        return next(float(json.loads(line)["test_loss"]) for line in lines if line.startswith('{"'))

    masked = loss(pruned["gated"], "--task", "translation_headprune", "--head-mask", pruned["mask"])
    # fairseq prints three decimals.
    assert loss(pruned["gated slim"], "--task", "translation") == pytest.approx(masked, abs=2e-3)
    assert loss(pruned["gated"], "--task", "translation") != pytest.approx(masked, abs=1e-2)


def test_interactive_translation(pruned):
    source = (pruned["data"].parent / "test.xx").read_text()
    lines = pruned["folder"] / "test.xx"
    lines.write_text(source)
    call = [pruned["data"], "--path", pruned["gated slim"], "--cpu", *tiny.PLUGIN, "--input", lines]
    output = tiny.fairseq_here("interactive", *call, "--source-lang", "xx", "--target-lang", "yy")
    found = [line.split("\t")[2] for line in output.splitlines() if line.startswith("H-")]
    assert found == pruned["masked"]


def test_stock_checkpoints_become_the_masked_stock_model(pruned):
    call = [pruned["data"], "--path", pruned["stock"], "--cpu", *tiny.TASK]
    expected = generated("H", *call, "--head-mask", pruned["mask"])
    assert expected != generated("H", *call)
    assert generated("H", pruned["data"], "--path", pruned["stock slim"], "--cpu", *tiny.PLUGIN) == expected
    assert generated("H", pruned["data"], "--path", pruned["stock bake"], "--cpu") == expected
    assert saved_settings(read_state(pruned["stock slim"])).arch == "transformer_gated_tiny"
    assert type(saved_settings(read_state(pruned["stock slim"]))) is GatedSettings


def test_an_ensemble_with_the_unpruned_model(pruned):
    both = [f"{pruned['gated']}:{pruned[f'gated {mode}']}" for mode in ("slim", "bake")]
    slim, baked = (scores_of(pruned["data"], "--path", path, "--cpu", *tiny.PLUGIN) for path in both)
    assert slim == pytest.approx(baked, abs=1e-4) and slim != pytest.approx(pruned["scores"], abs=1e-3)


def test_baked_checkpoints_are_stock_ones(pruned):
    state = torch.load(pruned["gated bake"], weights_only=False)
    settings = state["cfg"]["model"]
    assert type(settings) is argparse.Namespace
    names = settings.arch, settings.task, state["cfg"]["task"]["_name"]
    assert names == ("transformer_tiny", "translation", "translation")
    assert not any("head_" in name for name in [*state["model"], *vars(settings)])
    assert generated("H", pruned["data"], "--path", pruned["gated bake"], "--cpu") == pruned["masked"]
    assert pruned["gated bake report"]["parameters"]["after"] == pruned["gated bake report"]["parameters"]["before"]
    assert any("saves nothing" in note for note in pruned["gated bake report"]["notes"])


def test_a_fresh_process(pruned):
    call = [pruned["data"], "--path", pruned["gated slim"], "--cpu", "--required-batch-size-multiple", "1"]
    done = tiny.fairseq_command("generate", *call, *tiny.PLUGIN)
    rows = sorted((line.split("\t") for line in done.stdout.splitlines() if line.startswith("H-")), key=lambda r: r[0])
    assert [row[2] for row in rows] == pruned["masked"], done.stderr[-2000:]


def test_fine_tuning_moves_every_weight_and_keeps_the_structure(pruned, tmp_path):
    arch = [*tiny.GATED]
    tiny.train(pruned["data"], tmp_path, *arch, "--finetune-from-model", pruned["gated slim"])
    before, after = (read_state(path) for path in (pruned["gated slim"], tmp_path / "checkpoint_last.pt"))
    assert saved_settings(after).head_layout == saved_settings(before).head_layout
    for name, weight in after["model"].items():
        old = before["model"][name]
        assert weight.shape == old.shape
        # A key's bias shifts all scores of a query alike, and so has no gradient.
        if weight.numel() > 1 and "k_proj.bias" not in name:
            assert not torch.equal(weight, old), name
    # Going on from there needs neither flag: the optimizer fits the structure again.
    tiny.train(pruned["data"], tmp_path, *arch, "--max-update", "8")
    assert read_state(tmp_path / "checkpoint_last.pt")["optimizer_history"][-1]["num_updates"] == 8
    assert len(generated("H", pruned["data"], "--path", tmp_path / "checkpoint_last.pt", "--cpu", *tiny.PLUGIN)) == 8


def test_the_old_optimizer_is_refused_with_the_way_out(pruned, tmp_path):
    arch = [*tiny.GATED, "--restore-file", pruned["gated slim"]]
    with pytest.raises(AssertionError, match="please reset the optimizer .--reset-optimizer.. none .dropped when"):
        tiny.train(pruned["data"], tmp_path, *arch)
    resets = [f"--reset-{what}" for what in ("optimizer", "lr-scheduler", "dataloader", "meters")]
    tiny.train(pruned["data"], tmp_path, *arch, *resets)
    assert saved_settings(read_state(tmp_path / "checkpoint_last.pt")).head_layout


def test_the_other_verbs_know_slim_checkpoints(pruned, tmp_path):
    made = run_json("mask", "--like", pruned["gated slim"], "--drop", "A:2:1", "-o", tmp_path / "m.json")
    assert made["kept"] == 4 and made["total"] == 12
    fewer = Mask.load(tmp_path / "m.json")
    assert fewer == tiny.FEW.without([Part("enc_dec", 1, 0)])
    twice = run_json("slim", pruned["gated slim"], "--mask", tmp_path / "m.json", "-o", tmp_path / "twice.pt")
    once = run_json("slim", pruned["gated"], "--mask", tmp_path / "m.json", "-o", tmp_path / "once.pt")
    assert (twice["removed"], twice["removed_before"], once["removed"]) == (1, 7, 8)
    models = [read_state(tmp_path / f"{name}.pt")["model"] for name in ("twice", "once")]
    assert all(torch.equal(weight, models[1][name]) for name, weight in models[0].items())
    assert stored_mask(read_state(tmp_path / "twice.pt")) == fewer
    found = run_json("score", pruned["data"], "--path", pruned["gated slim"], "--cpu", "--quiet", "-o", tmp_path / "s")
    assert [[value is None for value in row] for row in found["scores"]["dec_self"]] == [[False, True], [True, True]]
    best = run_json(
        "mask", "--like", pruned["gated slim"], "--scores", tmp_path / "s", "--heads", 3, "-o", tmp_path / "b"
    )
    assert best["kept"] == 3
    study = [
        "prune", pruned["data"], "--path", pruned["gated slim"], "--cpu", "--quiet", "--step", "40%", "--beam", "2",
    ]  # fmt: skip
    study += ["--order", tmp_path / "s", "-o", tmp_path / "study", "--resamples", "10"]
    assert [point["pruned"] for point in run_json(*study)["curves"]["all"]] == [0, 2, 4, 5]
    found = generated("H", pruned["data"], "--path", tmp_path / "once.pt", "--cpu", *tiny.PLUGIN)
    call = [pruned["data"], "--path", pruned["gated slim"], "--cpu", *tiny.TASK]
    assert found == generated("H", *call, "--head-mask", tmp_path / "m.json") != generated("H", *call)


def test_the_mask_in_the_checkpoint_is_the_default(pruned, tmp_path):
    arch = [*tiny.GATED, "--finetune-from-model", pruned["gated"], "--head-mask", pruned["mask"]]
    tiny.train(pruned["data"], tmp_path, *arch)
    report = run_json("slim", tmp_path / "checkpoint_last.pt", "-o", tmp_path / "slim.pt")
    assert report["removed"] == 7 and report["mask"]["path"] == str(pruned["mask"])
    assert not any("head_keep" in name for name in read_state(tmp_path / "slim.pt")["model"])
    found = generated("H", pruned["data"], "--path", tmp_path / "slim.pt", "--cpu", *tiny.PLUGIN)
    call = [pruned["data"], "--path", tmp_path / "checkpoint_last.pt", "--cpu", *tiny.TASK]
    assert found == generated("H", *call) != generated("H", *call, "--head-mask", "none")


def test_a_mask_that_keeps_everything(pruned, tmp_path, capsys):
    Mask.full(SHAPE).save(tmp_path / "full.json")
    assert (
        main(["slim", str(pruned["gated"]), "--mask", str(tmp_path / "full.json"), "-o", str(tmp_path / "o.pt")]) == 0
    )
    output = capsys.readouterr().out
    assert "heads kept   ES=22 ED=22 DS=22" in output and "no head was removed" in output
    models = [read_state(path)["model"] for path in (tmp_path / "o.pt", pruned["gated"])]
    assert models[0].keys() == models[1].keys()
    assert all(torch.equal(weight, models[0][name]) for name, weight in models[1].items())


def test_wrong_input_is_one_line(pruned, tmp_path, capsys):
    output = tmp_path / "o.pt"
    Mask.full({"enc_self": [2, 2], "enc_dec": [4, 2], "dec_self": [2, 2]}).save(tmp_path / "wide.json")
    Mask.full(SHAPE).save(tmp_path / "full.json")
    gated, mask = pruned["gated"], pruned["mask"]
    os.link(gated, tmp_path / "same.pt")
    for call, message in (
        ([gated, "-o", output], "the checkpoint holds no mask; say which heads are kept with --mask FILE"),
        ([gated, "--mask", tmp_path / "wide.json", "-o", output], "the mask has 4 heads in enc_dec layer 0"),
        ([gated, "--mask", mask, "-o", gated], "is the input; choose another name"),
        ([gated, "--mask", mask, "-o", tmp_path / "same.pt"], "is the input; choose another name"),
        ([gated, "--mask", mask, "-o", tmp_path / "none" / "o.pt"], "there is no folder"),
        ([mask, "--mask", mask, "-o", output], "not a checkpoint"),
        ([tmp_path / "gone.pt", "--mask", mask, "-o", output], "there is no such checkpoint"),
        ([gated, "--mask", tmp_path / "gone.json", "-o", output], "gone.json"),
        ([pruned["gated slim"], "--mask", tmp_path / "full.json", "-o", output], "they cannot come back"),
        ([pruned["gated slim"], "-o", output], "the checkpoint holds no mask"),
    ):
        assert message in refused(capsys, "slim", *call)
        assert not output.exists()


def test_a_full_disk_leaves_nothing_behind(pruned, tmp_path, capsys):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        line = refused(capsys, "slim", pruned["gated"], "--mask", pruned["mask"], "-o", tmp_path / "o.pt")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "File too large" in line and str(tmp_path / "o.pt") in line
    assert not list(tmp_path.iterdir())


def test_no_verb_writes_over_what_it_reads(pruned, tmp_path, capsys):
    """The files stay as they were, whatever name leads to them."""
    path, mask, link = tmp_path / "model.pt", tmp_path / "mask.json", tmp_path / "link"
    path.write_bytes(pruned["gated"].read_bytes())
    tiny.FEW.save(mask)
    before = sha256(path), sha256(mask)
    link.symlink_to(path)
    profile = ["profile", pruned["data"], "--path", path, "--cpu"]
    for call, output in (
        (["slim", path, "--mask", mask], path),
        (["slim", path, "--mask", mask], link),
        (["slim", path, "--mask", mask], mask),
        (["mask", "--like", path], link),
        (["mask", "--from-checkpoint", path], path),
        (["mask", "--like", path, "--complement", mask], mask),
        (profile, link),
    ):
        assert "is the input" in refused(capsys, *call, "-o", output)
        assert (sha256(path), sha256(mask)) == before
    # One mask may take the place of another.
    assert run_json("mask", "--like", mask, "-o", mask)["kept"] == 5
