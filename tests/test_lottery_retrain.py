"""``headprune lottery retrain``: what is trained under which ticket from which weights. Trainings run in-process."""

from dataclasses import replace

import pytest
import tiny
import torch
from glue_data import logits
from trainings import Here
from verbs import cells, generated, refused, run_json, write_lively

from fairseq_headprune.checkpoints import read_state, stored_mask
from fairseq_headprune.choosing.magnitude import load_weights, save_weights
from fairseq_headprune.cli import main
from fairseq_headprune.files import read_json, read_lines
from fairseq_headprune.jobs.train import initial_state, make_start
from fairseq_headprune.jobs.training import Run, TrainingJob
from fairseq_headprune.parts import Mask

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
    matrices = [name for name in read_state(lively["checkpoint"])["model"] if ".layers." in name]
    values = {name: read_state(lively["checkpoint"])["model"][name] for name in matrices}
    chance = torch.Generator().manual_seed(5)
    kept = {n: torch.rand(v.shape, generator=chance) < 0.7 for n, v in values.items() if v.dim() == 2}
    save_weights(kept, folder / "tickets" / "sparse.pt", {})
    model = [lively["data"], "--path", lively["checkpoint"], *BEAM, "--resamples", "50", "--train-flags", tiny.TRAIN]
    arguments = [*model, "--updates", "4", "--tickets", folder / "tickets", "--fresh-seed", "7", "--rewind", "2"]
    arguments += ["-o", folder / "s"]
    with Here().instead() as here:
        document = run_json("lottery", "retrain", *arguments)
    return {"folder": folder, "document": document, "arguments": arguments, "started": here.started}


def test_what_is_trained(study):
    settings = ("retrained", "rewound", "fresh")
    names = [f"{how}-{name}" for name in ("full", "good", "random", "sparse") for how in settings]
    assert sorted(study["started"]) == sorted([*names, "rewind"])
    found = {cell["id"]: cell for cell in cells(study["folder"] / "s")}
    assert set(found) == {"unpruned", "pruned-good", "pruned-random", "pruned-sparse", *names}
    assert found["pruned-good"]["kept"] == found["fresh-random"]["kept"] == {"heads": 9, "blocks": 3}
    runs = study["folder"] / "s" / "runs"
    for name in names:
        how, ticket = name.split("-")
        state, job = read_state(runs / name / "checkpoint_best.pt"), read_json(runs / name / "job.json")
        assert state["optimizer_history"][-1]["num_updates"] == 4
        if ticket in TICKETS:
            assert stored_mask(state) == TICKETS[ticket]
        begin = str(runs / "rewind" / "checkpoint_best.pt") if how == "rewound" else None
        assert (job["start"], job["seed"]) == (begin, 7 if how == "fresh" else 1)
    assert read_state(begin or runs / "rewind" / "checkpoint_best.pt")["optimizer_history"][-1]["num_updates"] == 2


def test_pruned_weights_are_zero_before_and_after_training(study, trained):
    folder = study["folder"]
    kept = load_weights(folder / "tickets" / "sparse.pt")[0]
    assert {cell["id"]: cell["kept"] for cell in cells(folder / "s")}["fresh-sparse"] == {
        "weights": sum(int(mask.sum()) for mask in kept.values())
    }
    for how in ("retrained", "rewound", "fresh"):
        model = read_state(folder / "s" / "runs" / f"{how}-sparse" / "checkpoint_best.pt")["model"]
        # Random initial values and four updates of Adam: of the other weights hardly one is exactly 0.
        assert all(torch.equal(model[name] != 0, mask) for name, mask in kept.items())
    state = read_state(folder / "lively.pt")
    state["model"] |= {name: state["model"][name] * mask for name, mask in kept.items()}
    torch.save(state, folder / "sparse-model.pt")
    expected = generated("D", trained["data"], "--path", folder / "sparse-model.pt", *tiny.TASK, *BEAM[:-1])
    assert read_lines(folder / "s" / "hyps" / "pruned-sparse.txt") == expected


def test_tables_and_resuming(study, capsys, tmp_path):
    before = cells(study["folder"] / "s")
    with Here().instead() as here:
        capsys.readouterr()
        assert main([*map(str, ["lottery", "retrain", *study["arguments"]])]) == 0
    text = lines = capsys.readouterr().out
    assert not here.started and cells(study["folder"] / "s") == before
    rows = {line.split()[0]: line.split() for line in text.splitlines() if line.startswith(("full", "good", "random"))}
    assert rows["good"][1:3] == ["9", "3"] and rows["full"][1:3] == ["12", "4"]
    assert "rewound: from the weights of update 2, trained again up to it" in text
    score = {cell["id"]: cell["score"] for cell in before}
    assert [text.strip("*") for text in rows["good"][-4:]] == [
        f"{score[how + '-good']:.2f}" for how in ("pruned", "retrained", "rewound", "fresh")
    ]
    best = max(("good", "random"), key=lambda name: score[f"retrained-{name}"])
    difference = score[f"retrained-{best}"] - score["retrained-full"]
    text = f"best ticket trained again: {best}, BLEU {score[f'retrained-{best}']:.2f}, {difference:+.2f} from the full"
    assert text in lines
    assert main(["report", str(study["folder"] / "s"), "-o", str(tmp_path / "page.html")]) == 0


def test_a_training_of_the_whole_model_is_that_of_the_model(trained, tmp_path):
    """The seed of a checkpoint and its flags give its own weights again: what tickets are trained from, and how."""
    flags = [*tiny.TRAIN.split(), "--max-update", "4", "--seed", "3", *tiny.PLUGIN]
    tiny.fairseq_here("train", trained["data"], "--save-dir", tmp_path / "m", "--task", "translation_headprune", *flags)
    FULL.save(tmp_path / "all.json")
    path = tmp_path / "m" / "checkpoint_best.pt"
    call = [trained["data"], "--path", path, *BEAM, "--resamples", "20", "--train-flags", tiny.TRAIN, "--updates", "4"]
    with Here().instead():
        run_json("lottery", "retrain", *call, "--tickets", tmp_path / "all.json", "-o", tmp_path / "s")
    again = read_state(tmp_path / "s" / "runs" / "retrained-full" / "checkpoint_best.pt")["model"]
    assert all(torch.equal(value, again[name]) for name, value in read_state(path)["model"].items())


BERT = "--arch bert_gated --criterion sentence_prediction --optimizer adam --lr 0.003 --batch-size 16 --cpu "
BERT += "--num-workers 0 --dropout 0 --best-checkpoint-metric score --maximize-best-checkpoint-metric"


def test_bert_and_rewinding(tuned, tmp_path):
    """From another checkpoint's weights, or those of --bert; and what the most frequent label of train scores."""
    path = tuned / "SST-2" / "checkpoint_last.pt"
    shape = {"enc_self": [4, 4, 4], "enc_ffn": [1, 1, 1]}
    Mask.full(shape).without(Mask.full(shape).kept(["enc_ffn"])[:2]).save(tmp_path / "bad.json")
    call = [tuned / "glue", "--path", path, "--cpu", "--quiet", "--resamples", "20", "--epochs", "1"]
    call += ["--train-flags", f"{BERT} --bert {tuned / 'hf'}", "--tickets", tmp_path / "bad.json"]
    with Here().instead():
        found = run_json("lottery", "retrain", *call, "--rewind", path, "-o", tmp_path / "s")
    job = {how: read_json(tmp_path / "s" / "runs" / f"{how}-bad" / "job.json") for how in ("rewound", "retrained")}
    assert [job["rewound"]["start"], job["rewound"]["embeddings"]] == [str(path), None]
    assert [job["retrained"]["start"], job["retrained"]["embeddings"]] == [None, str(path)]
    assert [cell["id"] for cell in found["cells"]] == [
        "retrained-full", "rewound-full", "pruned-bad", "retrained-bad", "rewound-bad"
    ]  # fmt: skip
    train, dev = (logits(path, split)[1].tolist() for split in ("train", "dev"))
    label = min(set(train), key=lambda number: (-train.count(number), number))
    assert found["majority"] == {"label": str(label), "score": pytest.approx(100 * dev.count(label) / len(dev))}


def test_pretrained_weights_and_the_embeddings_of_the_model(tuned, tmp_path):
    """The start of a training: all as --bert and the seed make it, but the embeddings, and without what is pruned."""
    path = tuned / "SST-2" / "checkpoint_last.pt"
    state = read_state(path)
    state["model"] = {name: value + 1 for name, value in state["model"].items()}
    torch.save(state, tmp_path / "other.pt")
    shape = {"enc_self": [4, 4, 4], "enc_ffn": [1, 1, 1]}
    mask = Mask.full(shape).without([*Mask.full(shape).kept(["enc_self"])[:2], *Mask.full(shape).kept(["enc_ffn"])[:1]])
    flags = [
        "--task", "glue", "--glue-task", "SST-2", "--max-positions", "20", *BERT.split(), "--bert", str(tuned / "hf"),
    ]  # fmt: skip
    job = TrainingJob("a", str(tuned / "glue"), flags, 1, mask=mask.to_dict(), embeddings=str(tmp_path / "other.pt"))
    start = initial_state(job)["model"]
    fresh = initial_state(replace(job, flags=[*flags, "--random-weights"]))["model"]
    same = [
        name for name, value in fresh.items() if value.shape == start[name].shape and torch.equal(value, start[name])
    ]
    # Norms, biases and the classifier of the seed; no matrix is that of --bert.
    assert list(fresh) == list(start) and all(fresh[n].dim() == 1 or n.startswith("classification_h") for n in same)
    # The model of the fixture began in the same way and has learned nothing, but for its classifier.
    for name, value in read_state(path)["model"].items():
        assert torch.equal(start[name], value) or "classification" in name
    for slim in (False, True):
        made, run = replace(job, slim=slim), Run(tmp_path, f"runs/{slim}")
        run.prepare(made)
        make_start(made, run)
        found = read_state(run.start)["model"]
        for name, value in found.items():
            ours = state["model"] if name.startswith(("encoder.embed_", "encoder.layernorm_embedding")) else start
            assert value.shape != ours[name].shape or torch.equal(value, ours[name])
        name = "encoder.layers.0.self_attn.q_proj.weight"
        assert (found[name].shape == start[name].shape) is not slim


def test_slim_models_are_trained_like_masked_ones(trained, tmp_path):
    """Without dropout, which draws a number for every head and unit: the same losses but for rounding."""
    (tmp_path / "tickets").mkdir()
    TICKETS["good"].save(tmp_path / "tickets" / "good.json")
    call = [trained["data"], "--path", trained["checkpoint"], *BEAM, "--resamples", "20", "--updates", "4"]
    call += ["--train-flags", f"{tiny.TRAIN} --dropout 0 --attention-dropout 0", "--tickets", tmp_path / "tickets"]
    losses = []
    for more in ([], ["--slim"]):
        with Here().instead():
            run_json("lottery", "retrain", *call, *more, "-o", tmp_path / f"s{len(more)}")
        done = read_json(tmp_path / f"s{len(more)}" / "runs" / "retrained-good" / "done.json")
        losses.append(done["valid_loss"])
    state = read_state(tmp_path / "s1" / "runs" / "retrained-good" / "checkpoint_best.pt")
    assert stored_mask(state) == TICKETS["good"] and "decoder.layers.0.fc1.weight" not in state["model"]
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)


def test_wrong_input_is_one_line(study, tmp_path, capsys):
    call, tickets = ["lottery", "retrain", *study["arguments"][:-2], "-o", tmp_path / "o"], tmp_path / "t"
    tickets.mkdir()
    Mask.full({**SHAPE, "dec_self": [2, 3]}).save(tickets / "large.json")
    Mask(FULL.rows, {"checkpoints": ["0" * 64]}).save(tmp_path / "other.json")
    (tmp_path / "none").mkdir()
    save_weights({"encoder.layers.0.fc1.weight": torch.ones(2, 2).bool()}, tmp_path / "other.pt", {})
    kept, _ = load_weights(study["folder"] / "tickets" / "sparse.pt")
    save_weights(kept, tmp_path / "foreign.pt", {"checkpoints": ["0" * 64]})
    for more, message in (
        (["--tickets", tickets], "the mask has 3 heads in dec_self layer 1"),
        (["--tickets", tmp_path / "other.json"], "the ticket other was found in another checkpoint than "),
        (["--tickets", tmp_path / "none"], "has no tickets"),
        (["--tickets", tmp_path / "other.pt"], "other is of another model than "),
        (["--tickets", tmp_path / "foreign.pt"], "the ticket foreign was found in another checkpoint than "),
        (["--tickets", study["folder"] / "lively.pt"], "not a ticket of weights"),
        (["--reset-embeddings"], "--reset-embeddings is for BERT"),
        (["--rewind", "0"], "--rewind 0: give an update from 1 on"),
        (["--rewind", "nowhere.pt"], "--rewind nowhere.pt: give an update, or a checkpoint"),
        (["--epochs", "2"], "--updates N or --epochs N, and not both"),
        (["--train-flags", f"{tiny.TRAIN} --magic"], "fairseq-train would refuse its flags: unrecognized arguments"),
    ):
        assert message in refused(capsys, *call, *more)
        assert not (tmp_path / "o").exists()
