"""``headprune sweep-epochs`` on tiny checkpoints."""

import shutil
import threading
import time
from types import SimpleNamespace

import pytest
import torch
from verbs import BEAM, count_masks, refused, run_json, stopped
from verbs import cells as timeless

from fairseq_headprune.cli import main
from fairseq_headprune.cli import study as study_verbs
from fairseq_headprune.report.document import EpochCurves
from fairseq_headprune.report.drawings import draw_figure
from fairseq_headprune.studies import sweep as sweep_module
from fairseq_headprune.tasks.translation_headprune import TranslationHeadpruneTask

SETTINGS = [*BEAM, "--score-sentences", "20", "--resamples", "50", "--step", "50%"]


def write_epoch(source, path, epoch):
    """Write a checkpoint that differs from epoch to epoch."""
    state = torch.load(source, weights_only=False)
    generator = torch.Generator().manual_seed(epoch)
    for name, weight in state["model"].items():
        if weight.dim() == 2 and ".layers." in name:
            weight += 0.1 * torch.randn(weight.shape, generator=generator)
    torch.save(state, path)


@pytest.fixture(scope="module")
def run(lively, tmp_path_factory):
    """Checkpoints of the epochs 1, 2 and 4, and half of one of epoch 3."""
    folder = tmp_path_factory.mktemp("run")
    for epoch in (1, 2, 4):
        write_epoch(lively["checkpoint"], folder / f"checkpoint{epoch}.pt", epoch)
    whole = (folder / "checkpoint1.pt").read_bytes()
    (folder / "checkpoint3.pt").write_bytes(whole[:-1000])
    return folder


@pytest.fixture(scope="module")
def flags(lively):
    return [lively["data"], *SETTINGS]


@pytest.fixture(scope="module")
def swept(flags, run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("swept") / "study"
    loads, load = [], TranslationHeadpruneTask.load_dataset
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            TranslationHeadpruneTask, "load_dataset", lambda self, *a, **k: loads.append(a) or load(self, *a, **k)
        )
        document = run_json("sweep-epochs", *flags, "--checkpoints", run, "-o", folder)
    return {"folder": folder, "document": document, "loads": loads}


def test_each_epoch_is_the_study_of_its_checkpoint(swept, flags, run, tmp_path):
    # Source: headprune prune on that checkpoint.
    for epoch in (1, 4):
        single = tmp_path / str(epoch)
        document = run_json("prune", *flags, "--path", run / f"checkpoint{epoch}.pt", "-o", single)
        of_sweep = swept["folder"] / "epochs" / f"{epoch:03d}"
        assert timeless(of_sweep) == timeless(single)
        for name in ("scores.json", "masks/all-01.json"):
            texts = [(f / name).read_text().replace(str(run), "") for f in (of_sweep, single)]
            assert texts[0] == texts[1]
        row = next(row for row in swept["document"]["epochs"] if row["epoch"] == epoch)
        points = [{k: v for k, v in p.items() if k not in ("seconds", "relative")} for p in row["curves"]["all"]]
        assert points == [{k: v for k, v in p.items() if k != "seconds"} for p in document["curves"]["all"]]
        assert row["checkpoint"] == document["checkpoint"]["sha256"]


def test_gaps_and_half_written_checkpoints_are_reported_and_data_is_loaded_once(swept):
    document = swept["document"]
    assert [row["epoch"] for row in document["epochs"]] == [1, 2, 4]
    assert [skip["epoch"] for skip in document["skipped"]] == [3] and document["missing"] == []
    assert "truncated" in document["skipped"][0]["reason"]
    # Source: by hand: test and train, for three epochs.
    assert sorted(split for (split,) in swept["loads"]) == ["test", "train"]


def test_relative_scores_and_rankings(swept):
    document = swept["document"]
    for row in document["epochs"]:
        # Source: the definition.
        for point in row["curves"]["all"]:
            assert point["relative"] == pytest.approx(point["score"] / row["baseline"]["score"])
        kept = [p["percent"] for p in row["curves"]["all"] if p["relative"] >= 0.9]
        assert document["kept_within"]["all"][str(row["epoch"])] in kept
    ranking = document["ranking"]["all"]
    # 12 heads: a quarter, half and three quarters.
    assert [found["keep"] for found in ranking["sets"]] == [3, 6, 9] and ranking["epochs"] == [1, 2, 4]
    assert ranking["spearman"][2][2] == pytest.approx(1)
    names = {path.name for path in (swept["folder"] / "figures").iterdir()}
    assert names == {"epochs-all.png", "epochs-all.svg"} and len(document["figures"]) == 2


def test_started_again_it_does_only_what_is_missing(swept, flags, run, tmp_path, monkeypatch, capsys):
    # Source: the sweep that was never stopped; epoch 4 and two cells of epoch 2 are lost.
    folder = stopped(swept["folder"], tmp_path / "study", 1)
    for epoch in ("002", "004"):
        shutil.rmtree(folder / "epochs" / epoch)
    stopped(swept["folder"] / "epochs" / "002", folder / "epochs" / "002", 1)
    count = count_masks(monkeypatch)
    argv = ["sweep-epochs", *map(str, flags), "--checkpoints", str(run), "-o", str(folder), "--format", "markdown"]
    assert main([*argv, "--panel", "1,4", "--keep", "2"]) == 0
    assert sum(count) == 2 + 3 and timeless(folder) == timeless(swept["folder"])
    out = capsys.readouterr().out
    assert (
        "| Epoch | 0% | 50% | 100% | 90% kept up to |" in out and "the final 2 heads are first reached at epoch" in out
    )
    assert "epoch 3 was skipped: " in out and "can go at epoch 4, " in out


def test_checkpoints_that_change_are_refused(swept, flags, run, tmp_path, capsys):
    other = tmp_path / "run"
    shutil.copytree(run, other)
    write_epoch(run / "checkpoint1.pt", other / "checkpoint2.pt", 9)
    line = refused(capsys, "sweep-epochs", *flags, "--checkpoints", other, "-o", swept["folder"])
    assert "epoch 2 of another training run" in line
    line = refused(capsys, "sweep-epochs", *flags, "--checkpoints", run, "-o", swept["folder"], "--gen-subset", "valid")
    assert "data.split" in line


def test_an_epoch_whose_study_is_gone_is_done_again(swept, flags, run, tmp_path, capsys):
    folder = shutil.copytree(swept["folder"], tmp_path / "s")
    shutil.rmtree(folder / "epochs" / "002")
    argv = ["sweep-epochs", *flags, "--checkpoints", run, "-o", folder]
    assert f"002/study.json is gone: put its folder back, or delete the line of epoch-002 in {folder}" in refused(
        capsys, *argv
    )
    lines = (folder / "cells.jsonl").read_text().splitlines(keepends=True)
    (folder / "cells.jsonl").write_text("".join(line for line in lines if "epoch-002" not in line))
    row = run_json(*argv)["epochs"][1]
    assert row["baseline"]["score"] == swept["document"]["epochs"][1]["baseline"]["score"]


def test_a_checkpoint_of_another_model_is_skipped(flags, run, tmp_path):
    for epoch in (1, 3):
        (tmp_path / f"checkpoint{epoch}.pt").write_bytes((run / "checkpoint1.pt").read_bytes())
    state = torch.load(run / "checkpoint1.pt", weights_only=False)
    state["cfg"]["model"].decoder_layers = 1
    state["model"] = {name: value for name, value in state["model"].items() if "decoder.layers.1." not in name}
    torch.save(state, tmp_path / "checkpoint2.pt")
    document = run_json("sweep-epochs", *flags, "--checkpoints", tmp_path, "-o", tmp_path / "s")
    assert [row["epoch"] for row in document["epochs"]] == [1, 3]
    [skip] = document["skipped"]
    assert skip["epoch"] == 2 and "heads.enc_dec is [2], and [2, 2] in the first checkpoint" in skip["reason"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--checkpoints", "nowhere"], "there is no such folder"),
        (["--epochs", "3"], "holds no checkpointN.pt of the epochs 3 that --epochs names that can be used; epoch 3: "),
        (["--epochs", "x"], "--epochs 'x'"),
        (["--path", "x.pt"], "--path names one checkpoint"),
        (["--until", "3"], "needs --follow"),
        (["--follow", "--until", "0"], "--until must be at least 1"),
        (["--idle", "0"], "--idle must be more than 0"),
        (["--follow", "--idle", "nan"], "--idle must be more than 0"),
        (["--panel", "a"], "--panel: 'a': give whole numbers as in 1,16"),
        (["--panel", "1,77"], "--panel 77: that epoch is not swept; name some of 1"),
        (["--epochs", "1,2", "--panel", "4"], "--panel 4: that epoch is not swept; name some of 1-2"),
        (["--keep", "5,12"], "--keep 12: the largest curve has 12 heads in play; name 1 to 11"),
        (["--keep", "0"], "--keep must be at least 1, got 0"),
        (["--order", "oracle:x"], "oracle"),
    ],
)
def test_wrong_input_is_refused_and_nothing_is_written(flags, run, wrong, message, tmp_path, capsys):
    argv = ["sweep-epochs", *flags, "--checkpoints", run, "-o", tmp_path / "s", *wrong]
    assert message in refused(capsys, *argv)
    assert not (tmp_path / "s").exists()


def follow(flags, run, folder, *more):
    argv = ["sweep-epochs", *flags, "--checkpoints", folder, "-o", folder / "s", "--follow", "--step", "1", *more]
    return [row["epoch"] for row in run_json(*argv)["epochs"]]


@pytest.mark.parametrize(
    ("more", "comes", "expected"),
    [
        ([], True, [1, 2]),  # checkpoint_last.pt says that training has ended
        (["--until", "2"], False, [1, 2]),
        (["--epochs", "1,2"], False, [1, 2]),
        (["--idle", "0.3"], False, [1, 2]),
    ],
)
def test_new_checkpoints_are_picked_up_while_training_runs(flags, run, tmp_path, monkeypatch, more, comes, expected):
    # A checkpoint that is copied in two halves, as over a slow network, and the last one of a run that ended.
    monkeypatch.setattr(sweep_module, "LOOK", 0.05)
    folder, whole = tmp_path, (run / "checkpoint2.pt").read_bytes()
    compute, done = sweep_module.EpochWork.compute, []

    def write_the_next():
        with open(folder / "checkpoint2.pt", "wb") as out:
            out.write(whole[:9000])
            out.flush()
            threading.Event().wait(0.12)
            out.write(whole[9000:])
        if comes:
            (folder / "checkpoint_last.pt").write_bytes((run / "checkpoint1.pt").read_bytes())

    def and_then_another(self, cells):
        yield from compute(self, cells)
        done.append(cells[0].job)
        if cells[0].job == 1:
            threading.Thread(target=write_the_next).start()

    monkeypatch.setattr(sweep_module.EpochWork, "compute", and_then_another)
    (folder / "checkpoint1.pt").write_bytes((run / "checkpoint1.pt").read_bytes())
    assert follow(flags, run, folder, *more) == expected == done


def test_nothing_is_waited_for_when_all_epochs_that_were_named_are_done(swept, flags, run, tmp_path, monkeypatch):
    def sleep(seconds):
        raise AssertionError("it waits")

    # Not the module time itself, whose sleep others call.
    clock = SimpleNamespace(monotonic=time.monotonic, perf_counter=time.perf_counter, sleep=sleep)
    monkeypatch.setattr(sweep_module, "time", clock)
    folder = shutil.copytree(swept["folder"], tmp_path / "s")
    argv = [*flags, "--checkpoints", run, "-o", folder, "--epochs", "1,2", "--follow", "--until", "9"]
    assert run_json("sweep-epochs", *argv)["missing"] == []


def point(percent, score, base):
    return {"percent": percent, "score": score, "relative": score / base if base else None}


def test_the_figure(tmp_path):
    epochs = {
        epoch: [point(percent, base * (1 - percent / 100), base) for percent in range(0, 101, 10)]
        for epoch, base in ((1, 3.0), (2, 6.2), (39, 34.8), (40, 34.9), (3, 0.0))
    }
    drawn = [{"epoch": epoch, "points": points} for epoch, points in epochs.items()]
    paths = draw_figure(EpochCurves("", "BLEU", "Heads pruned: all", drawn, [1, 40]), tmp_path / "f")
    svg = (tmp_path / "f.svg").read_text()
    # Source: Michel et al. (2019), Figure 5: a line for each share up to 90%, the unpruned BLEU in brackets.
    assert [p.name for p in paths] == ["f.png", "f.svg"]
    assert all(f'id="pruned-{share}"' in svg for share in range(0, 100, 10)) and 'id="pruned-100"' not in svg
    assert 'id="epoch-1"' in svg and 'id="epoch-40"' in svg and 'id="epoch-2"' not in svg
    assert all(text in svg for text in ("[3.0]", "[6.2]", "[34.9]", "Percentage of unpruned BLEU"))
    # 39 is too near to 40 for two labels; epoch 3 has no BLEU to relate to.
    assert "[34.8]" not in svg and "[0.0]" not in svg
    assert (tmp_path / "f.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(ValueError, match="score is 0 in every epoch"):
        draw_figure(EpochCurves("", "BLEU", "t", drawn[-1:], [3]), tmp_path / "g")


def test_a_warning_names_the_verb_and_not_the_study_of_each_epoch(monkeypatch, capsys):
    monkeypatch.setattr(study_verbs, "COMMAND", ["sweep-epochs", "data-bin"])
    study_verbs.warn(SimpleNamespace(name="prune", warnings=lambda: ["all alike"], notices=lambda: []))
    assert capsys.readouterr().err == "headprune sweep-epochs: warning: all alike\n"
