"""``headprune lottery retrain``: what is trained under which ticket from which weights. Trainings run in-process."""

import pytest
import tiny
import torch
from glue_data import logits
from trainings import Here
from verbs import cells, generated, refused, run_json, write_lively

from fairseq_headprune.checkpoints import read_state, stored_mask
from fairseq_headprune.cli import main
from fairseq_headprune.files import read_json, read_lines
from fairseq_headprune.parts import Mask

TRAIN = "--arch transformer_gated_tiny --share-all-embeddings --optimizer adam --lr 0.01 --batch-size 16 --cpu "
TRAIN += "--num-workers 0"
BEAM = ["--beam", "2", "--max-len-b", "10", "--cpu", "--quiet"]
SHAPE = {"enc_self": [2, 2], "enc_dec": [2, 2], "dec_self": [2, 2], "enc_ffn": [1, 1], "dec_ffn": [1, 1]}
FULL = Mask.full(SHAPE)
TICKETS = {
    "good": FULL.without([*FULL.kept(["enc_self"])[:3], *FULL.kept(["dec_ffn"])[:1]]),
    "random": FULL.without([*FULL.kept(["dec_self"])[:3], *FULL.kept(["enc_ffn"])[:1]]),
}


@pytest.fixture(scope="module")
def study(trained, tmp_path_factory):
    """Two tickets of a model, trained alone and from other weights: {"folder", "document", "arguments"}."""
    folder = tmp_path_factory.mktemp("retrain")
    lively = write_lively(trained, folder)
    (folder / "tickets").mkdir()
    for name, mask in TICKETS.items():
        mask.save(folder / "tickets" / f"{name}.json")
    model = [lively["data"], "--path", lively["checkpoint"], *BEAM, "--resamples", "50", "--train-flags", TRAIN]
    arguments = [*model, "--updates", "4", "--tickets", folder / "tickets", "--fresh-seed", "7", "-o", folder / "s"]
    with Here().instead() as here:
        document = run_json("lottery", "retrain", *arguments)
    return {"folder": folder, "document": document, "arguments": arguments, "started": here.started}


def test_what_is_trained(study):
    names = [f"{how}-{name}" for name in ("full", "good", "random") for how in ("retrained", "fresh")]
    assert sorted(study["started"]) == sorted(names)
    found = {cell["id"]: cell for cell in cells(study["folder"] / "s")}
    assert set(found) == {"unpruned", "pruned-good", "pruned-random", *names}
    assert found["pruned-good"]["kept"] == found["fresh-random"]["kept"] == {"heads": 9, "blocks": 3}
    for name in names:
        state = read_state(study["folder"] / "s" / "runs" / name / "checkpoint_best.pt")
        assert state["optimizer_history"][-1]["num_updates"] == 4
        if "full" not in name:
            assert stored_mask(state) == TICKETS[name.split("-")[1]]
        job = read_json(study["folder"] / "s" / "runs" / name / "job.json")
        assert job["start"] is None and job["seed"] == (7 if name.startswith("fresh") else 1)


def test_answers_are_those_of_the_trained_models(study, trained):
    task = ["--user-dir", "fairseq_headprune", "--task", "translation_headprune"]
    for name in ("retrained-good", "fresh-random"):
        checkpoint = study["folder"] / "s" / "runs" / name / "checkpoint_best.pt"
        expected = generated("D", trained["data"], "--path", checkpoint, *task, *BEAM[:-1])
        assert read_lines(study["folder"] / "s" / "hyps" / f"{name}.txt") == expected


def test_tables_and_resuming(study, capsys, tmp_path):
    before = cells(study["folder"] / "s")
    with Here().instead() as here:
        capsys.readouterr()
        assert main([*map(str, ["lottery", "retrain", *study["arguments"]])]) == 0
    text = lines = capsys.readouterr().out
    assert not here.started and cells(study["folder"] / "s") == before
    rows = {line.split()[0]: line.split() for line in text.splitlines() if line.startswith(("full", "good", "random"))}
    assert rows["good"][1:3] == ["9", "3"] and rows["full"][1:3] == ["12", "4"]
    score = {cell["id"]: cell["score"] for cell in before}
    assert [text.strip("*") for text in rows["good"][3:]] == [
        f"{score[how + '-good']:.2f}" for how in ("pruned", "retrained", "fresh")
    ]
    best = max(("good", "random"), key=lambda name: score[f"retrained-{name}"])
    difference = score[f"retrained-{best}"] - score["retrained-full"]
    text = f"best ticket trained again: {best}, BLEU {score[f'retrained-{best}']:.2f}, {difference:+.2f} from the full"
    assert text in lines
    assert main(["report", str(study["folder"] / "s"), "-o", str(tmp_path / "page.html")]) == 0


def test_a_training_of_the_whole_model_is_that_of_the_model(trained, tmp_path):
    """The seed of a checkpoint and its flags give its own weights again: what tickets are trained from, and how."""
    flags = [*TRAIN.split(), "--max-update", "4", "--seed", "3", "--user-dir", tiny.ROOT / "fairseq_headprune"]
    tiny.fairseq_here("train", trained["data"], "--save-dir", tmp_path / "m", "--task", "translation_headprune", *flags)
    FULL.save(tmp_path / "all.json")
    path = tmp_path / "m" / "checkpoint_best.pt"
    call = [trained["data"], "--path", path, *BEAM, "--resamples", "20", "--train-flags", TRAIN, "--updates", "4"]
    with Here().instead():
        run_json("lottery", "retrain", *call, "--tickets", tmp_path / "all.json", "-o", tmp_path / "s")
    again = read_state(tmp_path / "s" / "runs" / "retrained-full" / "checkpoint_best.pt")["model"]
    assert all(torch.equal(value, again[name]) for name, value in read_state(path)["model"].items())


def test_bert_and_rewinding(tuned, tmp_path):
    """From another checkpoint's weights; and what the most frequent label of train scores."""
    path = tuned / "SST-2" / "checkpoint_last.pt"
    shape = {"enc_self": [4, 4, 4], "enc_ffn": [1, 1, 1]}
    Mask.full(shape).without(Mask.full(shape).kept(["enc_ffn"])[:2]).save(tmp_path / "bad.json")
    flags = "--arch bert_gated --criterion sentence_prediction --optimizer adam --lr 0.003 --batch-size 16 --cpu "
    flags += "--num-workers 0 --dropout 0 --best-checkpoint-metric score --maximize-best-checkpoint-metric"
    call = [tuned / "glue", "--path", path, "--cpu", "--quiet", "--resamples", "20", "--train-flags", flags]
    with Here().instead():
        more = ["--epochs", "1", "--tickets", tmp_path / "bad.json", "--rewind", path, "-o", tmp_path / "s"]
        found = run_json("lottery", "retrain", *call, *more)
    job = read_json(tmp_path / "s" / "runs" / "retrained-bad" / "job.json")
    assert job["start"] == str(path) and [cell["id"] for cell in found["cells"]] == [
        "retrained-full", "pruned-bad", "retrained-bad"
    ]  # fmt: skip
    train, dev = (logits(path, split)[1].tolist() for split in ("train", "dev"))
    label = min(set(train), key=lambda number: (-train.count(number), number))
    assert found["majority"] == {"label": str(label), "score": pytest.approx(100 * dev.count(label) / len(dev))}


def test_wrong_input_is_one_line(study, tmp_path, capsys):
    call, tickets = ["lottery", "retrain", *study["arguments"][:-2], "-o", tmp_path / "o"], tmp_path / "t"
    tickets.mkdir()
    Mask.full({**SHAPE, "dec_self": [2, 3]}).save(tickets / "large.json")
    Mask(FULL.rows, {"checkpoints": ["0" * 64]}).save(tmp_path / "other.json")
    for more, message in (
        (["--tickets", tickets], "the mask has 3 heads in dec_self layer 1"),
        (["--tickets", tmp_path / "other.json"], "the ticket other was found in another checkpoint than "),
        (["--tickets", study["folder"]], "has no mask files"),
        (["--slim"], "--slim needs --rewind"),
        (["--fresh-flags", "--bert x"], "--fresh-seed: --bert loads pretrained weights"),
        (["--epochs", "2"], "--updates N or --epochs N, and not both"),
    ):
        assert message in refused(capsys, *call, *more)
        assert not (tmp_path / "o").exists()
