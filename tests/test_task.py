"""``--task translation_headprune`` through fairseq's own programs."""

import json
import shutil

import pytest
import torch
from fairseq import checkpoint_utils
from logged import OURS, program, training
from tiny import DROPPED, SHAPE

from fairseq_headprune.files import sha256
from fairseq_headprune.modules.attach import find_gates
from fairseq_headprune.parts import Mask, Part

#: heads of each component that DROPPED leaves, counted by hand
ACTIVE = {"heads_enc_self": 3, "heads_enc_dec": 3, "heads_dec_self": 2}


def hypotheses(data, checkpoint, *arguments):
    """The H- lines (score and tokens of every hypothesis) of fairseq-generate, beam 5, in the order of the input."""
    _, text = program("generate", data, "--path", checkpoint, "--beam", "5", "--max-len-b", "12", *OURS, *arguments)
    return of_input_order(text)


def of_input_order(text):
    """Number, score and tokens of every H- line. Scores to 4 decimals: fairseq prints what float32 leaves."""
    rows = [line.split("\t") for line in text.splitlines() if line.startswith("H-")]
    return sorted((int(number[2:]), round(float(score), 4), tokens) for number, score, tokens in rows)


@pytest.fixture(scope="module")
def mask_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("mask") / "mask.json"
    Mask.full(SHAPE, {"why": "a test"}).without(DROPPED).save(path)
    return path


@pytest.fixture(scope="module")
def masked_run(trained_stock, mask_file, tmp_path_factory):
    """Fine-tuning a stock checkpoint as a gated model under a mask, 3 updates."""
    save = tmp_path_factory.mktemp("masked")
    start = ["--finetune-from-model", trained_stock["checkpoint"], "--arch", "transformer_gated_tiny"]
    lines, _ = training(trained_stock["data"], save, *start, "--head-mask", mask_file, "--max-update", "3")
    checkpoint = save / "checkpoint_last.pt"
    return {"data": trained_stock["data"], "checkpoint": checkpoint, "lines": lines, "parent": trained_stock}


def read(checkpoint):
    return checkpoint_utils.load_checkpoint_to_cpu(str(checkpoint))


def write_unmasked(run, folder):
    """The same weights without their mask."""
    state = read(run["checkpoint"])
    for name in [name for name in state["model"] if name.endswith("head_keep")]:
        del state["model"][name]
    torch.save(state, folder / "unmasked.pt")
    return folder / "unmasked.pt"


def kept_in(state):
    return {name: keep.tolist() for name, keep in state["model"].items() if name.endswith("head_keep")}


#: DROPPED as the checkpoint names it
STORED = {
    "encoder.layers.0.self_attn.head_keep": [True, False],
    "decoder.layers.1.encoder_attn.head_keep": [False, True],
    "decoder.layers.0.self_attn.head_keep": [False, False],
}


def logged(lines, key):
    """The values of one statistic in the JSON lines of a log, by the name that training or validation gives it."""
    stats = [json.loads(line) for line in lines if line.startswith('{"')]
    return [int(line[key]) for line in stats if key in line]


def test_the_checkpoint_stores_the_mask_and_its_origin(masked_run, mask_file):
    state = read(masked_run["checkpoint"])
    assert kept_in(state) == STORED
    origin = state["task_state"]["head_mask"]
    assert set(origin) == {"path", "sha256", "source", "heads"}
    assert origin["path"] == str(mask_file) and origin["sha256"] == sha256(mask_file)
    assert origin["source"] == {"why": "a test"} and origin["heads"] == Mask.load(mask_file).rows


def test_pruned_heads_do_not_train(masked_run):
    before, after = (read(run["checkpoint"])["model"] for run in (masked_run["parent"], masked_run))
    columns = {name: f"encoder.layers.0.self_attn.{name}.weight" for name in ("v_proj", "out_proj")}
    # Head 1 of 2, 32 wide: rows of the value projection, columns of the output projection.
    assert torch.equal(after[columns["v_proj"]][32:], before[columns["v_proj"]][32:])
    assert torch.equal(after[columns["out_proj"]][:, 32:], before[columns["out_proj"]][:, 32:])
    assert not torch.equal(after[columns["v_proj"]][:32], before[columns["v_proj"]][:32])
    assert not torch.equal(after[columns["out_proj"]][:, :32], before[columns["out_proj"]][:, :32])


@pytest.mark.parametrize("split", ["train_", "valid_", ""])
def test_active_heads_are_in_the_log(split, masked_run):
    # "" is the line of every update, "train_" and "valid_" those of an epoch.
    for name, count in ACTIVE.items():
        found = logged(masked_run["lines"], split + name)
        assert found and set(found) == {count}


def test_training_resumes_with_the_stored_mask(masked_run, mask_file, tmp_path):
    shutil.copy(masked_run["checkpoint"], tmp_path)
    again = ["--arch", "transformer_gated_tiny", "--max-update", "5"]
    lines, _ = training(masked_run["data"], tmp_path, *again)
    state = read(tmp_path / "checkpoint_last.pt")
    assert state["optimizer_history"][-1]["num_updates"] == 5 and kept_in(state) == STORED
    assert state["task_state"]["head_mask"]["sha256"] == sha256(mask_file)
    assert set(logged(lines, "heads_dec_self")) == {2}
    # "none" gives the heads back.
    shutil.copy(masked_run["checkpoint"], tmp_path)
    lines, _ = training(masked_run["data"], tmp_path, *again, "--head-mask", "none")
    state = read(tmp_path / "checkpoint_last.pt")
    assert kept_in(state) == {} and "head_mask" not in state["task_state"]
    assert set(logged(lines, "heads_dec_self")) == {4}


def test_generation_uses_the_stored_mask(masked_run, mask_file, tmp_path):
    data, unmasked = masked_run["data"], write_unmasked(masked_run, tmp_path)
    stored = hypotheses(data, masked_run["checkpoint"])
    assert len(stored) == 8
    assert hypotheses(data, unmasked, "--head-mask", mask_file) == stored
    full = hypotheses(data, unmasked)
    assert full != stored
    assert hypotheses(data, masked_run["checkpoint"], "--head-mask", "none") == full
    other = tmp_path / "other.json"
    Mask.full(SHAPE).without([Part("enc_self", 1, 0)]).save(other)
    replaced = hypotheses(data, masked_run["checkpoint"], "--head-mask", other)
    assert replaced == hypotheses(data, unmasked, "--head-mask", other) and replaced not in (stored, full)


def test_no_sentence_is_missing_from_a_score(masked_run):
    # 8 sentences in batches of 3, 3 and 2: fairseq drops the last batch (2 is no multiple of 8), see the control.
    arguments = [masked_run["data"], masked_run["parent"]["checkpoint"], "--batch-size", "3"]
    assert len(hypotheses(*arguments)) == 8
    assert len(hypotheses(*arguments, "--task", "translation")) == 6
    # Of the training set, too: 60 sentences.
    assert len(hypotheses(*arguments, "--gen-subset", "train", "--max-len-b", "5")) == 60


def test_other_dictionaries_of_the_same_size_are_refused(masked_run, tmp_path):
    other = shutil.copytree(masked_run["data"], tmp_path / "other")
    for path in other.glob("dict.*.txt"):
        first, *rest = path.read_text().splitlines()
        path.write_text("\n".join([*rest, first]) + "\n")
    with pytest.raises(ValueError, match="the source and target dictionary in .*other differs"):
        hypotheses(other, masked_run["checkpoint"])


def test_validation_sees_the_mask(masked_run):
    def loss(checkpoint, *arguments):
        call = ["--path", checkpoint, "--batch-size", "8", "--log-format", "json", *OURS, *arguments]
        lines, _ = program("validate", masked_run["data"], *call)
        return next(json.loads(line)["valid_loss"] for line in lines if line.startswith('{"'))

    stored = loss(masked_run["checkpoint"])
    # Source: the loss that training itself reported for these weights.
    assert stored == [json.loads(x)["valid_loss"] for x in masked_run["lines"] if '"valid_loss"' in x][-1]
    assert loss(masked_run["checkpoint"], "--head-mask", "none") != stored


def test_interactive_translation_sees_the_mask(masked_run, tmp_path):
    # The test split as text, from the S- lines that fairseq-generate prints.
    call = ["--path", masked_run["checkpoint"], "--beam", "5", "--max-len-b", "12", *OURS]
    _, text = program("generate", masked_run["data"], *call)
    sources = sorted((int(s.split("\t")[0][2:]), s.split("\t")[1]) for s in text.splitlines() if s.startswith("S-"))
    (tmp_path / "input").write_text("".join(f"{words}\n" for _, words in sources))
    languages = ["--source-lang", "xx", "--target-lang", "yy", "--input", tmp_path / "input", "--buffer-size", "8"]
    _, found = program("interactive", masked_run["data"], *call, *languages, "--batch-size", "8")
    assert of_input_order(found) == of_input_order(text)
    _, full = program("interactive", masked_run["data"], *call, *languages, "--head-mask", "none")
    assert of_input_order(full) != of_input_order(text)


def test_stock_checkpoints_of_a_stock_architecture(trained_stock, mask_file):
    data, checkpoint = trained_stock["data"], trained_stock["checkpoint"]
    _, text = program("generate", data, "--path", checkpoint, "--beam", "5", "--max-len-b", "12", *OURS[2:])
    plain = of_input_order(text)  # fairseq's own task and attention
    ours = hypotheses(data, checkpoint)
    assert [row[::2] for row in ours] == [row[::2] for row in plain]
    assert [row[1] for row in ours] == pytest.approx([row[1] for row in plain], abs=2e-4)
    assert hypotheses(data, checkpoint, "--head-mask", mask_file) != ours


def test_a_checkpoint_alone_rebuilds_its_mask_when_the_file_is_gone(masked_run, mask_file, tmp_path):
    state = read(masked_run["checkpoint"])
    state["cfg"]["task"]["head_mask"] = str(tmp_path / "gone.json")
    torch.save(state, tmp_path / "moved.pt")
    overrides = {"data": str(masked_run["data"])}
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(tmp_path / "moved.pt")], overrides)
    assert find_gates(model).mask() == Mask.load(mask_file)
    assert task.state_dict()["head_mask"]["sha256"] == sha256(mask_file)


@pytest.mark.parametrize(
    "content, error, message",
    [
        (Mask.full({**SHAPE, "enc_dec": [2, 4]}), ValueError, "4 heads in enc_dec layer 1, the model has 2"),
        (Mask.full({**SHAPE, "enc_self": [2] * 6}), ValueError, "6 layers of enc_self, the model has 2"),
        (None, FileNotFoundError, "mask.json"),
    ],
)
def test_a_mask_that_does_not_fit_is_refused(content, error, message, trained_stock, tmp_path):
    path = tmp_path / "mask.json"
    if content is not None:
        content.save(path)
    with pytest.raises(error, match=message):
        hypotheses(trained_stock["data"], trained_stock["checkpoint"], "--head-mask", path)
    with pytest.raises(error, match=message):
        more = ["--arch", "transformer_tiny", "--head-mask", path, "--max-update", "1"]
        training(trained_stock["data"], tmp_path / "run", *more)
