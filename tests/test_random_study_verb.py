"""``headprune random-study`` on a tiny checkpoint; trainings and translations run in this process."""

import json
import shutil
import statistics

import pytest
import sacrebleu
import tiny
import torch
from reports import hand_random, told
from trainings import Here
from verbs import BEAM, generated, refused, run_json, stopped

from fairseq_headprune.checkpoints import read_state, stored_mask
from fairseq_headprune.cli import main
from fairseq_headprune.cli.report import document
from fairseq_headprune.files import read_json, read_lines, write_json, write_text
from fairseq_headprune.jobs.claims import Claims
from fairseq_headprune.jobs.training import Run
from fairseq_headprune.parts import Mask
from fairseq_headprune.studies.folder import StudyFolder


@pytest.fixture(scope="module")
def flags(flags):
    return [*flags, "--train-flags", tiny.TRAIN, "--updates", "4"]


@pytest.fixture(scope="module")
def study(flags, tmp_path_factory):
    """Two samplings of one percentage, a configuration with its twin: {"folder", "document", "arguments"}."""
    folder = tmp_path_factory.mktemp("random") / "study"
    arguments = [*flags, "-o", folder, "--random", "50%", "--seeds", "0", "1"]
    with Here().instead():
        document = run_json("random-study", *arguments)
    return {"folder": folder, "document": document, "arguments": arguments}


def test_masks_are_drawn_trained_under_and_recorded(study):
    kept = set()
    for seed in (0, 1):
        name = f"random-50%-{seed}"
        mask = Mask.load(study["folder"] / "masks" / f"{name}.json")
        assert len(mask.kept()) == 6  # of 12
        assert mask.source["drawn"] == {"kind": "random", "text": "50%", "mirror": False, "seed": seed}
        state = read_state(study["folder"] / "runs" / name / "checkpoint_best.pt")
        assert stored_mask(state) == mask and state["optimizer_history"][-1]["num_updates"] == 4
        kept.add(tuple(mask.kept()))
    assert len(kept) == 2


def test_translations_are_those_of_the_tuned_models(study, trained):
    for seed in (0, 1):
        name = f"random-50%-{seed}"
        checkpoint = study["folder"] / "runs" / name / "checkpoint_best.pt"
        expected = generated("D", trained["data"], "--path", checkpoint, *tiny.TASK, *BEAM)
        assert read_lines(study["folder"] / "hyps" / f"{name}.txt") == expected


def test_mean_and_standard_deviation(study, trained):
    references = generated("T", trained["data"], *tiny.TASK, "--path", trained["checkpoint"], *BEAM)
    hypotheses = [read_lines(study["folder"] / "hyps" / f"random-50%-{seed}.txt") for seed in (0, 1)]
    scores = [sacrebleu.corpus_bleu(lines, [references]).score for lines in hypotheses]
    [item] = study["document"]["items"]
    assert item["scores"] == pytest.approx(scores)
    assert item["score"] == pytest.approx(statistics.mean(scores))
    assert item["sd"] == pytest.approx(statistics.stdev(scores)) and item["samplings"] == 2
    assert item["percent"] == 50.0 and item["pruned"] == 6
    assert item["delta"] == pytest.approx(statistics.mean(scores) - study["document"]["baseline"]["score"])
    assert [cell["score"] for cell in study["document"]["cells"]] == pytest.approx(scores)


def test_the_control_of_the_same_seeds_as_baseline(flags, trained, tmp_path, capsys):
    references = generated("T", trained["data"], *tiny.TASK, "--path", trained["checkpoint"], *BEAM)
    #: sentences that the "tuned" model of a cell gets wrong
    wrong = {"control-0": 1, "control-1": 2, "random-50%-0": 4, "random-50%-1": 6}
    bleu = {}

    def tune(command):
        run = Run(tmp_path / "study", f"runs/{command.name}")
        lines = ["nothing right"] * wrong[command.name] + references[wrong[command.name] :]
        write_text(run.answers, "".join(f"{line}\n" for line in lines))
        write_json(run.facts, {"updates": 4})
        bleu[command.name] = sacrebleu.corpus_bleu(lines, [references]).score

    arguments = [*flags, "-o", tmp_path / "study", "--random", "50%", "--seeds", "0", "1", "--control"]
    with Here(tune).instead():
        document = run_json("random-study", *arguments, "--baseline", "control")
    assert main(["random-study", *map(str, arguments), "--baseline", "control"]) == 0
    text = capsys.readouterr().out
    assert "difference from control" in text and "differs from control" in text and "from unpruned" not in text
    # Source: sacrebleu on each text; the baseline is the mean of the two controls.
    control, pruned = ((bleu[f"{name}-0"] + bleu[f"{name}-1"]) / 2 for name in ("control", "random-50%"))
    assert document["baseline"]["id"] == "control" and document["baseline"]["score"] == pytest.approx(control)
    [item] = document["items"]
    assert item["item"] == "random-50%" and item["delta"] == pytest.approx(pruned - control) and pruned < control
    # What is wrong in the control is wrong in the other one, too: no sampling of sentences or seeds is better.
    assert item["difference"]["test"] == "paired t" and item["difference"]["n"] == 2
    assert item["both_levels"]["difference"] == pytest.approx(item["delta"]) and item["both_levels"]["ci"][1] <= 0
    for cell in document["cells"]:
        assert cell["delta"] == pytest.approx(bleu[cell["id"]] - bleu[f"control-{cell['seed']}"])
    # Against the unpruned model, which gets nothing right, the same samplings win; nothing is tuned again.
    other = run_json("random-study", *arguments)
    assert [entry["item"] for entry in other["items"]] == ["control", "random-50%"]
    assert other["items"][1]["score"] == item["score"] and other["items"][1]["both_levels"]["difference"] > 0
    assert other["items"][1]["difference"]["test"] == "one-sample t"
    arguments.remove("--control")
    assert "--baseline control needs --control" in refused(capsys, "random-study", *arguments, "--baseline", "control")


def test_what_is_done_is_not_done_again_but_shown(study, capsys):
    with Here().instead() as here:
        again = run_json("random-study", *study["arguments"], "--jobs", "7")
        assert again["items"] == study["document"]["items"]
        assert main(["random-study", *map(str, study["arguments"])]) == 0 and here.started == []
    out = capsys.readouterr().out
    assert "% Pruning" in out and "0 (Baseline)" in out and "mean of 2 samplings (seeds 0, 1)" in out
    assert (study["folder"] / "figures" / "random.svg").exists()


def test_the_rest_is_done_after_a_failure(study, tmp_path, capsys):
    def fail(command):
        raise RuntimeError("1 failed (random-50%-0)")

    arguments = [str(word) for word in study["arguments"]]
    arguments[arguments.index("-o") + 1] = str(tmp_path / "study")
    with Here(fail).instead():
        assert main(["random-study", *arguments]) == 1
    assert "1 failed (random-50%-0)" in capsys.readouterr().err
    # Killed after a training, before its cell was listed: it is taken over, not done again.
    shutil.copytree(study["folder"] / "runs" / "random-50%-1", tmp_path / "study" / "runs" / "random-50%-1")
    with Here().instead() as here:
        document = run_json("random-study", *arguments)
    assert here.started == ["random-50%-0"]
    # The same seeds give the same masks, training and translations.
    assert document["items"][0]["scores"] == study["document"]["items"][0]["scores"]


def test_what_another_process_trains_is_waited_for(study, tmp_path, monkeypatch):
    """The other one has claimed a sampling, and finishes it while this one waits."""
    folder = stopped(study["folder"], tmp_path / "study", 2)
    lines = (study["folder"] / "cells.jsonl").read_text().splitlines()
    last = json.loads(lines[2])["id"]
    (folder / "runs" / last / "done.json").unlink()
    other = StudyFolder(folder)
    assert other.claims.take([last], tuple) == [last]
    monkeypatch.setattr(Claims, "pause", lambda self: other.append(json.loads(lines[2])))
    arguments = [folder if word == study["folder"] else word for word in study["arguments"]]
    with Here().instead() as here:
        document = run_json("random-study", *arguments)
    assert here.started == [] and document["items"] == study["document"]["items"]


def test_slim_models_in_processes_of_their_own(study, flags, tmp_path):
    folder = tmp_path / "slim"
    what = ["--config", "ES=11 ED=21 DS=10", "--mirror", "--seeds", "1", "--slim", "--jobs", "2"]
    document = run_json("random-study", *flags, "-o", folder, *what)
    configs = [item["config"] for item in document["items"]]
    assert configs == [{"ES": "11", "ED": "21", "DS": "10"}, {"ES": "11", "ED": "12", "DS": "01"}]
    for cell in document["cells"]:
        weights = read_state(folder / cell["tuned"]["checkpoint"])["model"]
        layer = cell["config"]["DS"].index("0")
        assert weights[f"decoder.layers.{layer}.self_attn.out_proj.weight"].shape == torch.Size([64, 0])
    assert read_json(folder / "study.json")["settings"]["fine_tuning"]["slim"] is True


def test_processes_of_torchrun_are_refused(flags, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    line = refused(capsys, "random-study", *flags, "-o", tmp_path / "new", "--random", "50%")
    assert "torchrun has started 2 processes; start random-study once, with --jobs 2" in line
    assert not (tmp_path / "new").exists()


def test_wrong_input(flags, study, tmp_path, capsys):
    def line(*words):
        return refused(capsys, "random-study", *flags, "-o", tmp_path / "new", *words)

    assert "nothing to sample" in line()
    assert "names 3 layers, the model has 2" in line("--config", "ES=111")
    assert "not both" in line("--random", "50%", "--epochs", "3")
    assert "--head-mask is not supported" in line("--random", "50%", "--head-mask", "none")
    assert "--seeds must be at least 0" in line("--random", "50%", "--seeds", "-1")
    assert "at least 1" in line("--random", "50%", "--jobs", "0")
    assert "--mirror needs --config" in line("--random", "50%", "--mirror")
    for flag in ("--seed 7", "--save-dir=elsewhere", "--disable-validation"):
        words = ["--random", "50%", "--train-flags", f"{tiny.TRAIN} {flag}"]
        assert f"--train-flags: {flag.split()[0].split('=')[0]} is set for each sampling" in line(*words)
    words = ["--random", "50%", "--train-flags", f"{tiny.TRAIN} --optimizer magic"]
    assert "fairseq-train would refuse its flags: argument --optimizer: invalid choice: 'magic'" in line(*words)
    for given, read in (('{"beam":2}', "{beam:2}"), ("[2]", "[2]")):  # as a shell reads words: without the quotes
        words = ["--random", "50%", "--train-flags", f"{tiny.TRAIN} --eval-bleu --eval-bleu-args {given}"]
        assert f"--eval-bleu-args '{read}' is no JSON object" in line(*words)
    words = ["--random", "50%", "--train-flags", f"{tiny.TRAIN} --valid-subset valid,none"]
    assert "has no split 'none', which fairseq-train reads" in line(*words)
    missing = {"--fp16": "--arch", "--arch transformer_gated": "--optimizer"}
    missing["--arch transformer_gated --optimizer adam"] = "--max-tokens or --batch-size"
    for given, flag in missing.items():
        said = f"fairseq-train would refuse its flags: {flag} is missing"
        assert said in line("--random", "50%", f"--train-flags={given}")
    assert not (tmp_path / "new").exists()
    other = refused(capsys, "random-study", *flags, "-o", study["folder"], "--random", "25%")
    assert "other settings: items" in other


def test_random_studies_show_means_and_what_differs(tmp_path):
    # Source: by hand. Holm over nine: p of 0 and 0.0005 become 0 and 0.004, 0.04 becomes 0.28.
    [study] = document([hand_random(tmp_path / "done", metric="accuracy", resamples=2000)], "title")["studies"]
    assert study["measure"] == "accuracy" and study["planned"] == study["done"] == 10 and not study["missing"]
    [table] = list(told(study))
    assert [line.split() for line in table.splitlines()[2:]] == [
        ["0%", "all", "(unpruned)", "30.00", "-", "-", "-", "-"],
        ["0%", "all,", "fine-tuned", "32.00", "+2.00", "[-0.48,", "+4.48]", "1.00", "3", "0", "/", "1"],
        ["60%", "random", "28.00", "-2.00", "[-4.48,", "+0.48]", "1.00", "3", "1", "/", "0"],
        ["20%", "random", "30.00", "+0.00", "[-1.24,", "+1.24]", "0.50", "3", "0", "/", "0"],
    ]
    assert study["parts"][-1]["text"].endswith("one method against another, 2000 resamples, seed 12345)")
    assert study["found"] == [
        "Random heads: up to 20% pruned no sampling is significantly worse than the unpruned model."
    ]
    [chart] = study["charts"]
    points = chart["curves"][0]["points"]
    assert [(point["percent"], point["score"]) for point in points] == [(0.0, 30.0), (20.0, 30.0), (60.0, 28.0)]
    # Source: Student's t with 2 degrees of freedom, 4.3027 (a table): mean -+ 4.3027 sd / sqrt(3).
    assert points[0]["ci"] == [29.0, 31.0] and points[1]["ci"] == pytest.approx([28.758, 31.242], abs=1e-3)
    assert points[2]["ci"] == pytest.approx([25.516, 30.484], abs=1e-3)
    assert points[1]["seeds"] == [1, 2, 3] and points[1]["sd"] == 0.5 and "seeds" not in points[0]

    # 9 x 2 / 1000 is above alpha.
    [study] = document([hand_random(tmp_path / "coarse")], "title")["studies"]
    assert " 0 / 0" in list(told(study))[0] and " 1 / 0" not in list(told(study))[0]
    assert study["parts"][-1]["text"].endswith("for 9 tests it takes 1800 or more (--resamples)")
    assert study["found"][0].endswith("; 1000 resamples are too few to call that significant.")


def test_unfinished_random_studies(tmp_path):
    [study] = document([hand_random(tmp_path / "half", done=4)], "title")["studies"]
    assert study["missing"] == ["5 of 10 cells are done: run headprune random-study again with its settings"]
    # One sampling has no deviation; its point is that of its cell.
    assert list(told(study))[0].splitlines()[-1].split() == "60% random 29.00 -1.00 - 1 0 / 0".split()
    point = study["charts"][0]["curves"][0]["points"][-1]
    assert (point["p"], point["p_holm"], point["ci"]) == (0.5, 1.0, [28.0, 30.0]) and not study["found"]
    [study] = document([hand_random(tmp_path / "begun", done=0)], "title")["studies"]
    assert (study["done"], study["charts"], study["parts"]) == (1, [], [])
    (tmp_path / "begun" / "cells.jsonl").write_text("")
    [study] = document([tmp_path / "begun"], "title")["studies"]
    assert study["done"] == 0 and study["unpruned"] is None


def test_an_encoder_before_fine_tuning_is_no_finding(tmp_path):
    data = {"split": "dev", "task": "SST-2"}
    [study] = document([hand_random(tmp_path / "study", metric="accuracy", data=data)], "title")["studies"]
    assert not study["missing"] and study["found"] == [] and "--baseline control" in study["parts"][-1]["text"]


def test_an_empty_split_is_told_before_the_study(flags, trained, tmp_path, capsys):
    data = shutil.copytree(trained["data"], tmp_path / "data")
    (tmp_path / "nothing.xx").write_text("")
    (tmp_path / "nothing.yy").write_text("")
    words = ["--source-lang=xx", "--target-lang=yy", f"--destdir={data}", f"--validpref={tmp_path / 'nothing'}"]
    words += [f"--{side}dict={data / f'dict.{name}.txt'}" for side, name in (("src", "xx"), ("tgt", "yy"))]
    tiny.fairseq_here("preprocess", *words)
    study = ["random-study", data, *flags[1:], "-o", tmp_path / "new", "--random", "50%"]
    # Source: fairseq-train fails on such a split in the constructor of its data.
    line = refused(capsys, *study)
    assert "the split 'valid' of " in line and line.endswith("valid.xx-yy.xx.idx holds no sentences")
    assert not (tmp_path / "new").exists()
