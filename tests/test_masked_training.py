"""Training under a fixed mask: pruned heads stay as they are, and the curve is the slim model's."""

import pytest
import torch
from fairseq import checkpoint_utils
from logged import training
from slim_models import SETTINGS, lively, rebuild, state_of, uneven
from tiny import DROPPED, SHAPE
from verbs import refused

from fairseq_headprune.checkpoints import read_state
from fairseq_headprune.cli import main
from fairseq_headprune.modules.attach import find_gates
from fairseq_headprune.modules.shrink import PrunedWeights
from fairseq_headprune.parts import Mask, Part
from fairseq_headprune.removal.checkpoint import remove_heads
from fairseq_headprune.tasks.translation_headprune import TranslationHeadpruneTask

#: the width of a head of transformer_tiny
WIDTH = 32
GATED = ["--arch", "transformer_gated_tiny"]


@pytest.fixture(scope="module")
def mask_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("mask") / "mask.json"
    Mask.full(SHAPE).without(DROPPED).save(path)
    return path


def place(head):
    """Where a head's weights are in a checkpoint, written by hand: prefix, first and last row."""
    side = "encoder" if head.component == "enc_self" else "decoder"
    attention = "encoder_attn" if head.component == "enc_dec" else "self_attn"
    return f"{side}.layers.{head.layer}.{attention}", head.index * WIDTH, (head.index + 1) * WIDTH


def weights_of(checkpoint, head):
    prefix, first, last = place(head)
    weights = read_state(checkpoint)["model"]
    rows = [weights[f"{prefix}.{p}_proj.{kind}"][first:last] for p in "qkv" for kind in ("weight", "bias")]
    return torch.cat([row.flatten() for row in [*rows, weights[f"{prefix}.out_proj.weight"][:, first:last]]])


@pytest.fixture
def losses(monkeypatch):
    """The list to which every update's loss a token is added, unrounded."""
    found = []
    original = TranslationHeadpruneTask.train_step

    def train_step(self, *arguments, **named):
        result = original(self, *arguments, **named)
        found.append(float(result[0]) / result[1])
        return result

    monkeypatch.setattr(TranslationHeadpruneTask, "train_step", train_step)
    return found


# When it is resumed, all moments of the optimizer's 5 updates without a mask are above 0.
@pytest.mark.parametrize("start", ["--weight-decay 0.1 --max-update 3 --finetune-from-model", "--restore-file"])
def test_neither_weight_decay_nor_momentum_moves_pruned_heads(start, trained, mask_file, tmp_path):
    flags = ["--head-mask", mask_file, "--max-update", "8", *start.split(), trained["checkpoint"]]
    training(trained["data"], tmp_path, *GATED, *flags)
    for head in Mask.full(SHAPE).kept():
        before, after = (weights_of(path, head) for path in (trained["checkpoint"], tmp_path / "checkpoint_last.pt"))
        assert torch.equal(before, after) == (head in DROPPED)


def test_a_checkpoint_keeps_its_mask_when_the_file_holds_another(trained, mask_file, tmp_path):
    """One file for one mask after the other: fairseq-validate takes the task's settings from the checkpoint."""
    copy = tmp_path / "mask.json"
    copy.write_bytes(mask_file.read_bytes())
    training(trained["data"], tmp_path, *GATED, "--head-mask", copy, "--max-update", "1")
    Mask.full(SHAPE).save(copy)
    path, overrides = str(tmp_path / "checkpoint_last.pt"), {"data": str(trained["data"])}
    (model,), *_ = checkpoint_utils.load_model_ensemble_and_task([path], overrides)
    assert find_gates(model).mask().dropped() == DROPPED


@pytest.mark.parametrize("half", [False, True])
def test_held_under_any_optimizer(half, tiny_model):
    model = tiny_model.half() if half else tiny_model
    gates = find_gates(model)
    gates.set_mask(Mask.full(gates.shape).without([Part("enc_dec", 1, 0)]))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    pruned = PrunedWeights(gates)
    for _ in range(2):
        with pruned.held(), torch.no_grad():
            for parameter in model.parameters():
                parameter += 1
    moved = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert moved == {name for name, _ in model.named_parameters()}
    prefix = "decoder.layers.1.encoder_attn"
    for part in ("q_proj.weight", "k_proj.bias", "v_proj.weight"):
        old, new = before[f"{prefix}.{part}"], model.state_dict()[f"{prefix}.{part}"]
        assert torch.equal(new[:WIDTH], old[:WIDTH]) and torch.equal(new[WIDTH:], old[WIDTH:] + 1 + 1)
    old, new = before[f"{prefix}.out_proj.weight"], model.state_dict()[f"{prefix}.out_proj.weight"]
    assert torch.equal(new[:, :WIDTH], old[:, :WIDTH]) and torch.equal(new[:, WIDTH:], old[:, WIDTH:] + 1 + 1)


def test_another_mask_lets_go_of_the_first(tiny_model):
    gates = find_gates(tiny_model)
    pruned = PrunedWeights(gates)
    full = Mask.full(gates.shape)
    weight = gates.modules["enc_self"][0].q_proj.weight
    for head in (0, 1):
        gates.set_mask(full.without([Part("enc_self", 0, head)]))
        before = weight.detach().clone()
        with pruned.held(), torch.no_grad():
            weight += 1
        moved = (weight != before).any(dim=1)
        assert moved.tolist() == [head == 1] * WIDTH + [head == 0] * WIDTH


@pytest.mark.parametrize("dropout", ["0", "0.3"])
def test_slim_and_masked_have_one_loss_curve(dropout, trained, mask_file, tmp_path, losses):
    # Attention dropout is off: it draws a number for every head, so fewer heads would get other numbers.
    slim = tmp_path / "slim.pt"
    assert main(["slim", str(trained["checkpoint"]), "--mask", str(mask_file), "-o", str(slim)]) == 0
    common = [*GATED, "--dropout", dropout, "--attention-dropout", "0", "--max-update", "12", "--weight-decay", "0.01"]
    masked = ["--finetune-from-model", trained["checkpoint"], "--head-mask", mask_file]
    training(trained["data"], tmp_path / "masked", *common, *masked)
    training(trained["data"], tmp_path / "slim", *common, "--finetune-from-model", slim)
    assert len(losses) == 24 and losses[0] != losses[11]
    assert losses[:12] == pytest.approx(losses[12:], abs=1e-4)


def test_slim_with_its_optimizer_trains_on_as_the_masked_model(trained, mask_file, tmp_path, losses):
    """Reference: the masked model resumed with its whole optimizer."""
    common = [*GATED, "--dropout", "0"]
    training(trained["data"], tmp_path / "first", *common, "--head-mask", mask_file, "--max-update", "4")
    full, slim = tmp_path / "first" / "checkpoint_last.pt", tmp_path / "slim.pt"
    assert main(["slim", str(full), "-o", str(slim), "--keep-optimizer"]) == 0
    losses.clear()
    for path in (full, slim):
        training(trained["data"], tmp_path / path.stem, *common, "--restore-file", path, "--max-update", "10")
    masked, slimmed = losses[:6], losses[6:]
    assert len(masked) == len(slimmed) == 6
    assert slimmed == pytest.approx(masked, abs=1e-4)


def test_an_optimizer_that_is_not_there_is_named(trained, mask_file, tmp_path, capsys):
    training(trained["data"], tmp_path, *GATED, "--max-update", "1", "--no-save-optimizer-state")
    words = ["slim", tmp_path / "checkpoint_last.pt", "--mask", mask_file, "-o", tmp_path / "slim.pt"]
    assert "--keep-optimizer" in refused(capsys, *words, "--keep-optimizer")
    assert not (tmp_path / "slim.pt").exists()


@pytest.mark.parametrize("settings", SETTINGS[1:3])
def test_a_flat_optimizer_is_cut_as_one_of_single_parameters(settings):
    """--fp16 keeps the moments of all parameters in one vector: cut, it is the vector of the cut moments."""
    model = lively(settings)
    state, mask = state_of(model), uneven(model, 3)
    generator = torch.Generator().manual_seed(5)
    moments = [torch.rand(parameter.shape, generator=generator) for parameter in model.parameters()]
    group = {"lr": 0.1, "params": list(range(len(moments)))}
    single = {"state": {n: {"step": 7, "exp_avg": m} for n, m in enumerate(moments)}, "param_groups": [group]}
    vector = torch.cat([m.flatten() for m in moments])
    flat = {"state": {0: {"step": 7, "exp_avg": vector}}, "param_groups": [{**group, "params": [0]}], "loss_scale": 2.0}
    cut = []
    for optimizer in (single, flat):
        slim = remove_heads({**state, "last_optimizer_state": optimizer}, mask, keep_optimizer=True).state
        cut.append(slim["last_optimizer_state"])
    # Layer norms before modules without heads (in settings 2) are not trained any more.
    shapes = [p.shape for p in rebuild(slim).parameters() if p.requires_grad]
    assert [e["exp_avg"].shape for e in cut[0]["state"].values()] == shapes
    again = remove_heads({**slim, "last_optimizer_state": cut[1]}, mask, keep_optimizer=True).state
    assert torch.equal(again["last_optimizer_state"]["state"][0]["exp_avg"], cut[1]["state"][0]["exp_avg"])
    joined = torch.cat([entry["exp_avg"].flatten() for entry in cut[0]["state"].values()])
    assert torch.equal(cut[1]["state"][0]["exp_avg"], joined)
    assert (cut[1]["loss_scale"], cut[1]["state"][0]["step"], cut[1]["param_groups"][0]["params"]) == (2.0, 7, [0])
    with pytest.raises(ValueError, match="entries"):
        flat["state"][0]["exp_avg"] = vector[1:]
        remove_heads({**state, "last_optimizer_state": flat}, mask, keep_optimizer=True)
