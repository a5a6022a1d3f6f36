"""``compare-pruners --dry-run``: what is left, and its time. Sources: by hand; the model is a tiny one."""

import json
import shutil

import pytest
from test_compare_pruners import arguments, script
from tiny import SHAPE

from fairseq_headprune.files import read_lines
from fairseq_headprune.studies import outlook
from fairseq_headprune.studies.folder import StudyFolder
from fairseq_headprune.studies.pruners import outlook as comparison

pytestmark = pytest.mark.slow  # starts processes

#: trainings, and masks of the unpruned model
TRAINED = [f"{name}-1" for name in ("unpruned", "pipelined-dsp-5", "l0-5", "ste-5", "joint-dsp-5", "random-start-5")]
PLANNED = [*TRAINED, *(f"{name}-5-1" for name in ("michel", "michel-signed", "random-after"))]


def estimate(capsys, words, measure=None):
    """The document of a dry run whose training is not run: 2 s to begin and 0.05 s an update, 4 of them an epoch.

    An answer takes 0.1 s alone, 0.02 s together with others; ``measure`` is called with the session and the split.
    """

    def time_answers(session, split, size):
        if measure is not None:
            measure(session, split)
        return (0.1 if size == 1 else 0.02), 2**31, f"with {size}"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outlook, "time_training", lambda job: (3.0, 2.0, 0.05, 4, 2**30))
        patch.setattr(comparison, "time_answers", time_answers)
        assert script(*words, "--dry-run", "--json") == 0
    return json.loads(capsys.readouterr().out)


def test_dry_run_prints_the_commands(data_bin, tmp_path, capsys):
    value = estimate(capsys, arguments(data_bin, tmp_path))
    assert value["shape"] == SHAPE and not (tmp_path / "work").exists()
    # By hand: six trainings, and three masks of the unpruned model, on two splits of 8 pairs.
    assert (value["cells"], value["done"], value["answers"]) == (18, 0, 144)
    found = {training["name"]: training for training in value["jobs"]}
    assert value["trainings"] == len(found) == 6 and value["memory"] == 2**31
    assert list(found) == TRAINED
    pipelined = found["pipelined-dsp-5-1"]
    assert pipelined["after"] == "unpruned-1"
    assert pipelined["command"][-2:] == ["--finetune-from-model", "runs/unpruned-1/checkpoint_best.pt"]


def test_dry_run_adds_answers_as_long_as_the_references(data_bin, tmp_path, capsys):
    lengths = {}

    def measure(session, split):
        lengths[split] = {len(answer.split()) for answer in session.evaluator(split).answers()}

    words = [*arguments(data_bin, tmp_path), "--generate-flags", "--cpu --max-len-b 10 --post-process subword_nmt"]
    value = estimate(capsys, words, measure)
    # Trainings: five of 12 updates, pipelined DSP's of one epoch. Random heads share batches with the unpruned model;
    # either ranking and five trained models answer alone.
    trained, answers = 6 * 2 + 64 * 0.05, 2 * 8 * (7 * 0.1 + 2 * 0.02)
    assert value["seconds"] == pytest.approx(3 + trained + answers)
    # The mean of words in the text that tiny.write_data binarised.
    for split in ("test", "valid"):
        counts = [len(line.split()) for line in read_lines(data_bin.parent / f"{split}.yy")]
        mean = round(sum(counts) / len(counts))
        assert lengths[split] == {mean}
        assert f"with 2 ({split}, an untrained model of this size that writes {mean} tokens" in str(value["notes"])
    # Two processes: three of the six models each.
    assert estimate(capsys, [*words, "--jobs", "2"])["seconds"] == pytest.approx(3 + (trained + answers) / 2)


def test_dry_run_of_what_is_trained_measures_the_trained_model(trained, tmp_path, capsys):
    words, folder = arguments(trained["data"], tmp_path), tmp_path / "work"
    assert script(*words, "--stages", ",") == 0  # which makes the folder of the study
    for name in [job["name"] for job in estimate(capsys, words)["jobs"]]:
        (folder / "runs" / name).mkdir(parents=True)
        (folder / "runs" / name / "done.json").write_text("{}")
    best = folder / "runs" / "unpruned-1" / "checkpoint_best.pt"
    shutil.copy(trained["checkpoint"], best)
    opened, cells = [], (folder / "cells.jsonl").read_text()
    value = estimate(
        capsys, words, lambda session, split: opened.append((session.path, session.cfg.generation.max_len_b))
    )
    # By hand, as above, without the trainings; 10 is what the flags say.
    assert (value["cells"], value["trainings"]) == (18, 0)
    assert value["seconds"] == pytest.approx(2 * 8 * (7 * 0.1 + 2 * 0.02))
    assert opened == [(str(best), 10)] * 4 and value["notes"][0] == "with 1 (test, a trained model)"
    assert (folder / "cells.jsonl").read_text() == cells == ""
    for name in PLANNED:
        for split in ("test", "valid"):
            StudyFolder(folder).append({"id": f"{name}@{split}"})
    value = estimate(capsys, words)
    assert [value[name] for name in ("cells", "done", "answers", "seconds", "notes")] == [0, 18, 0, 0, []]
