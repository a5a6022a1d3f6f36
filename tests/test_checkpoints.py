"""Reading checkpoints: head counts and masks without the model, and nothing that would run code."""

import errno
import zipfile
from argparse import Namespace

import pytest
import tiny
import torch
from omegaconf import OmegaConf
from tiny import Bomb

from fairseq_headprune.checkpoints import head_shape, read_state, saved_settings, stored_mask, updates_of
from fairseq_headprune.modules.attach import find_gates
from fairseq_headprune.parts import Mask, Part


def settings(**values):
    return Namespace(**{"encoder_attention_heads": 2, "decoder_attention_heads": 2} | values)


def state_of(model, **values):
    return {"args": None, "cfg": {"model": settings(**values)}, "model": model.state_dict()}


def test_trained_checkpoints(trained, trained_stock):
    for checkpoint in (trained["checkpoint"], trained_stock["checkpoint"]):
        state = read_state(checkpoint)
        assert head_shape(state) == tiny.SHAPE
        assert stored_mask(state) is None
    assert saved_settings(state).arch == "transformer_tiny"


def test_shape_is_that_of_the_model(tmp_path):
    model = tiny.make_model(encoder_attention_heads=4, decoder_attention_heads=8, encoder_layers=3)
    torch.save(state_of(model, encoder_attention_heads=4, decoder_attention_heads=8), tmp_path / "c.pt")
    shape = head_shape(read_state(tmp_path / "c.pt"))
    assert shape == find_gates(model).shape == {"enc_self": [4] * 3, "enc_dec": [8] * 2, "dec_self": [8] * 2}


def test_layers_are_ordered_by_number():
    # 11 layers: as text, "10" comes before "2".
    model = tiny.make_model(encoder_layers=11)
    find_gates(model).set_mask(Mask.full(find_gates(model).shape).without([Part("enc_self", 10, 1)]))
    assert stored_mask(state_of(model)).dropped() == [("enc_self", 10, 1)]


@pytest.mark.parametrize(
    "parts",
    [
        {"args": settings(), "cfg": None},
        {"args": None, "cfg": {"model": settings()}},
        {"args": None, "cfg": OmegaConf.create({"model": vars(settings())})},
        {"cfg": OmegaConf.create({"model": settings()}, flags={"allow_objects": True})},
        {"cfg": {"model": {"encoder": {"attention_heads": 2}, "decoder": {"attention_heads": 2}}}},
    ],
)
def test_every_form_of_saved_settings(tiny_model, tmp_path, parts):
    torch.save({**parts, "model": tiny_model.state_dict()}, tmp_path / "c.pt")
    assert head_shape(read_state(tmp_path / "c.pt")) == tiny.SHAPE


def test_updates_are_those_of_the_last_training():
    # Source: fairseq's trainer, whose checkpoint of a fine-tuning lists the training before it first.
    history = [{"num_updates": 3300}, {"num_updates": 194}]
    assert updates_of({"optimizer_history": history}) == 194
    assert updates_of({"optimizer_history": []}) is None and updates_of({}) is None


def test_stored_mask_and_its_origin(tiny_model, tmp_path):
    mask = Mask.full(tiny.SHAPE).without([Part("enc_self", 1, 0), Part("dec_self", 0, 1)])
    find_gates(tiny_model).set_mask(mask)
    origin = {"path": "m.json", "sha256": "0" * 64, "source": {}, "heads": mask.rows}
    torch.save(state_of(tiny_model) | {"task_state": {"head_mask": origin}}, tmp_path / "c.pt")
    found = stored_mask(read_state(tmp_path / "c.pt"))
    assert found == mask
    assert found.source == {"path": "m.json", "sha256": "0" * 64, "source": {}}


def test_a_stored_mask_that_does_not_fit(tiny_model):
    state = state_of(tiny_model)
    state["model"]["encoder.layers.1.self_attn.head_keep"] = torch.tensor([True, False, True])
    with pytest.raises(ValueError, match="the mask has 3 heads in enc_self layer 1, the checkpoint has 2"):
        stored_mask(state)


def test_edited_head_counts_are_refused(tiny_model):
    with pytest.raises(ValueError, match="enc_dec layer 0: the weights were saved with 2 heads, .* settings say 4"):
        head_shape(state_of(tiny_model, decoder_attention_heads=4))
    stock = state_of(tiny.make_model("transformer_tiny"), encoder_attention_heads=3)  # width 64
    with pytest.raises(ValueError, match="enc_self layer 0: a width of 64 cannot be split into the 3 heads"):
        head_shape(stock)
    with pytest.raises(ValueError, match="do not tell the number of encoder heads .*None"):
        head_shape(state_of(tiny_model, encoder_attention_heads=None))


def test_models_without_attention_or_settings(tiny_model):
    with pytest.raises(ValueError, match="holds no attention weights"):
        head_shape({"args": settings(), "model": {"lstm.weight": torch.zeros(1)}})
    with pytest.raises(ValueError, match="holds no model settings"):
        head_shape({"args": None, "cfg": None, "model": tiny_model.state_dict()})


def test_code_in_a_pickle_is_not_executed(tmp_path):
    bomb = Bomb(tmp_path / "proof")
    for name, zipped in (("new.pt", True), ("old.pt", False)):
        torch.save({"cfg": {"model": bomb}, "model": {}}, tmp_path / name, _use_new_zipfile_serialization=zipped)
        with pytest.raises(ValueError, match=rf"{name}: refused and not executed: it holds (posix|os)\.mkdir"):
            read_state(tmp_path / name)
    assert not (tmp_path / "proof").exists()
    # The bomb is live: Python's own loader, which is not used, would have set it off.
    torch.load(tmp_path / "new.pt", weights_only=False)
    assert (tmp_path / "proof").exists()


def test_damaged_files(trained, tmp_path):
    whole = trained["checkpoint"].read_bytes()
    contents = {
        "empty.pt": b"", "text.pt": b"no checkpoint\n", "zip.pt": b"PK\x03\x04", "half.pt": whole[: len(whole) // 2],
    }  # fmt: skip
    contents |= {"almost.pt": whole[:-10], "old.pt": b"\x80\x02}q\x00X"}
    # A block in the middle was never written: torch reads the weights there as zeros.
    quarter = len(whole) // 4
    contents["hole.pt"] = whole[: 2 * quarter] + bytes(quarter) + whole[3 * quarter :]
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=f"{name}: a damaged or truncated file, or not a checkpoint"):
            read_state(tmp_path / name)


# From 4 to 60 kB torch's loader is sent to places before the start of the file.
@pytest.mark.parametrize("length", [1, 100, 1000, 4188, 5000, 20_000, 40_000, 60_000, 100_000])
def test_truncated_files(trained, tmp_path, length):
    with open(trained["checkpoint"], "rb") as stream:
        (tmp_path / "cut.pt").write_bytes(stream.read(length))
    with pytest.raises(ValueError, match=r"cut\.pt: a damaged or truncated file, or not a checkpoint"):
        read_state(tmp_path / "cut.pt")


def test_a_disk_that_cannot_be_read_is_no_damage(trained, monkeypatch):
    def fail(*args, **settings):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(torch, "load", fail)
    with pytest.raises(OSError, match=r"Input/output error: '.*checkpoint_last\.pt'"):
        read_state(trained["checkpoint"])


def test_missing_files_folders_and_other_content(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no\.pt: there is no such checkpoint"):
        read_state(tmp_path / "no.pt")
    with pytest.raises(ValueError, match="a folder, not a checkpoint"):
        read_state(tmp_path)
    for number, value in enumerate(([1], {"weights": 1}, {"model": 3}, torch.zeros(2))):
        torch.save(value, tmp_path / f"{number}.pt")
        with pytest.raises(ValueError, match='not a fairseq checkpoint .*no "model"'):
            read_state(tmp_path / f"{number}.pt")


def changed(path, folder, change):
    """Save a checkpoint again after a change to it."""
    state = torch.load(path, weights_only=False)
    change(state)
    torch.save(state, folder / "damaged.pt")
    return folder / "damaged.pt"


BIAS = "encoder.layers.0.self_attn.q_proj.bias"
WEIGHT = "encoder.layers.0.self_attn.q_proj.weight"

#: what is put where, and the part that the message names
DAMAGES = {
    "extra_state list": (lambda s: s.update(extra_state=[1]), '"extra_state" is a list'),
    "iterator": (lambda s: s["extra_state"].update(train_iterator=[1]), '"train_iterator" of "extra_state" is a list'),
    "epoch": (lambda s: s["extra_state"]["train_iterator"].update(epoch="1"), '"epoch" of "train_iterator" is a text'),
    "extra_state number": (lambda s: s.update(extra_state=3), '"extra_state" is a number'),
    "task_state text": (lambda s: s.update(task_state="x"), '"task_state" is a text'),
    "dictionaries": (lambda s: s.update(task_state={"dictionaries": [1]}), '"dictionaries" of "task_state" is a list'),
    "dictionary": (lambda s: s.update(task_state={"dictionaries": {"source": 1}}), '"dictionaries" of "task_state"'),
    "mask": (lambda s: s.update(task_state={"head_mask": "m"}), '"head_mask" of "task_state" is a text'),
    "history": (lambda s: s.update(optimizer_history={}), '"optimizer_history" is a dictionary'),
    "history entry": (lambda s: s.update(optimizer_history=[1]), 'an entry of "optimizer_history" is a number'),
    "updates": (lambda s: s.update(optimizer_history=[{"num_updates": "x"}]), '"num_updates" .* is a text'),
    "args": (lambda s: s.update(args="x"), '"args" is a text'),
    "cfg": (lambda s: s.update(cfg=[1]), '"cfg" is a list'),
    "settings": (lambda s: s["cfg"].update(model=7), '"model" of "cfg" is a number'),
    "task": (lambda s: s["cfg"].update(task="x"), '"task" of "cfg" is a text'),
    "text tensor": (lambda s: s["model"].update({BIAS: "x"}), f"{BIAS} is no tensor but a text"),
    "list tensor": (lambda s: s["model"].update({BIAS: [1.0]}), f"{BIAS} is no tensor but a list"),
    "number name": (lambda s: s["model"].update({3: torch.ones(1)}), '"model" holds 3 among its names'),
    "meta": (lambda s: s["model"].update({BIAS: torch.empty(64, device="meta")}), f"{BIAS} is a tensor without its"),
    "sparse": (lambda s: s["model"].update({BIAS: torch.ones(64).to_sparse()}), f"{BIAS} is a tensor without its"),
    "shape": (lambda s: s["model"].update({BIAS: torch.ones(1, 64)}), rf"{BIAS} has the shape \(1, 64\) .* \(64,\)"),
    "length": (lambda s: s["model"].update({BIAS: torch.ones(32)}), rf"{BIAS} has the shape \(32,\) .* \(64,\)"),
    "setting": (lambda s: setattr(s["cfg"]["model"], "arch", torch.ones(2)), 'arch in "model" of "cfg" is a tensor'),
    "no matrix": (lambda s: s["model"].update({WEIGHT: torch.ones(64)}), rf"{WEIGHT} has the shape \(64,\) in place"),
    "rows": (lambda s: s["model"].update({WEIGHT: torch.ones(32, 64), BIAS: torch.ones(32)}), ".*64 columns for 32"),
    "notes": (lambda s: setattr(s["model"], "_metadata", [1]), 'the notes of "model" is a list'),
    "note": (lambda s: s["model"]._metadata.update(encoder=1), "the notes of encoder is a number"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_has_another_form_is_named(trained, tmp_path, damage):
    change, part = DAMAGES[damage]
    with pytest.raises(ValueError, match=rf"damaged\.pt: damaged: {part}"):
        read_state(changed(trained["checkpoint"], tmp_path, change))


def test_a_nested_or_endless_state_is_no_error_of_its_own(trained, tmp_path):
    def nest(state):
        state["extra_state"]["endless"] = endless = []
        endless.append(endless)

    assert read_state(changed(trained["checkpoint"], tmp_path, nest))["model"]


@pytest.mark.parametrize("size", [60, 68, 100_000])
def test_a_storage_of_another_length(tmp_path, size):
    torch.save({"model": {"a": torch.ones(16), "b": torch.zeros(16)}}, tmp_path / "whole.pt")
    with zipfile.ZipFile(tmp_path / "whole.pt") as whole, zipfile.ZipFile(tmp_path / "c.pt", "w") as damaged:
        for name in whole.namelist():
            damaged.writestr(name, whole.read(name) if not name.endswith("data/0") else b"\0" * size)
    with pytest.raises(ValueError, match=r"c\.pt: damaged: model\.a needs 64 bytes, which are not stored"):
        read_state(tmp_path / "c.pt")


def test_head_counts_that_are_said_twice_agree(tiny_model):
    state = state_of(tiny_model) | {"args": settings()}
    assert head_shape(state) == tiny.SHAPE
    state["cfg"]["model"].encoder_attention_heads = 1
    with pytest.raises(ValueError, match='the encoder has 2 heads a layer by "args", 1 by "cfg": one was edited'):
        head_shape(state)


def test_an_ensemble_is_told_from_a_file_that_is_not_there(trained):
    path = trained["checkpoint"]
    with pytest.raises(FileNotFoundError, match="one checkpoint is wanted here, not an ensemble of 2"):
        read_state(f"{path}:{path}")
