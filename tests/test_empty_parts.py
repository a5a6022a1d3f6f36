"""Where a slim model has no heads or block its layers compute nothing for them, and no mean counts them."""

from collections import Counter

import pytest
import tiny
import torch
from slim_models import SETTINGS, lively, masked_and_slim, rebuild, same_on_every_path, state_of
from torch.utils._python_dispatch import TorchDispatchMode
from verbs import generated, run_json, write_lively

from fairseq_headprune.checkpoints import read_state
from fairseq_headprune.modules.attach import find_gates
from fairseq_headprune.modules.attention import counted_weights
from fairseq_headprune.parts import Mask, Part
from fairseq_headprune.removal.checkpoint import remove_heads

PRE = {"encoder_normalize_before": True, "decoder_normalize_before": True}
#: Of two layers a side one has everything. The other: no heads in the encoder and no units; no heads and no block.
MASK = {"enc_self": [[0, 0], [1, 1]], "enc_dec": [[1, 1], [0, 0]], "dec_self": [[1, 1], [0, 0]]}
FFN = {"enc_ffn": [[0] * 64, [1]], "dec_ffn": [[1], [0]]}
#: what is counted; projections are those with a bias, which all in layers have
NORM, PROJECT, ADD, CAT, SOFTMAX = "native_layer_norm", "addmm", "add", "cat", "_softmax"


class Calls(TorchDispatchMode):
    """Counts what is computed, tensors without elements left out."""

    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if not (torch.is_tensor(result) and not result.numel()):
            self.counts[function.overloadpacket.__name__] += 1
        return result


def slim(settings, heads=MASK, ffn=FFN):
    """A lively model without these parts, and the masked one as reference."""
    model = lively(settings)
    mask = Mask({**heads, **(ffn or {})})
    small = rebuild(remove_heads(state_of(model), mask, ffn=True).state)
    find_gates(model).set_mask(mask)
    return small, model


def counted(work):
    with torch.no_grad(), Calls() as calls:
        work()
    return [calls.counts[name] for name in (NORM, PROJECT, ADD, CAT, SOFTMAX)]


@pytest.mark.parametrize(
    "settings, encoder, step",
    [
        # Encoder: the whole layer's two norms and a final one; its q, k, v, out, fc1 and fc2. Decoder: three and a
        # final one; q, k, v and out, q and out (keys and values are cached), fc1 and fc2.
        (PRE, [2 + 1, 6], [3 + 1, 8]),
        # Post-norm: every sum is normalised, whatever was added; no final norm.
        ({}, [2 + 2, 6], [3 + 3, 8]),
    ],
)
def test_what_a_slim_model_computes_is_the_hand_count(settings, encoder, step, batch):
    model, _ = slim(settings)
    source = batch["net_input"]["src_tokens"], batch["net_input"]["src_lengths"]
    tokens = batch["net_input"]["prev_output_tokens"]
    model.make_generation_fast_()
    with torch.no_grad():
        encoded, state = model.encoder(*source), {}
        model.decoder(tokens[:, :1], encoder_out=encoded, incremental_state=state)
    assert counted(lambda: model.encoder(*source))[:2] == encoder
    norms, projections, added, *_ = counted(lambda: model.encoder.layers[0](encoded["encoder_out"][0], None))
    assert [norms, projections, added] == [0 if settings else 2, 0, 2]

    def decode():
        model.decoder(tokens[:, :2], encoder_out=encoded, incremental_state=state, alignment_layer=-1)

    assert counted(decode)[:2] == step
    assert len(state) == 2  # only the whole layer's two modules have a cache
    layer, x = model.decoder.layers[1], torch.randn(1, 3, 64)
    # Two biases are added; of the block that is gone nothing is.
    expected = [0 if settings else 3, 0, 2, 0, 0]
    assert counted(lambda: layer(x, encoded["encoder_out"][0], None, state)) == expected


@pytest.mark.parametrize("cross", [True, False])
def test_the_input_is_not_joined_with_the_encoders_output_for_nobody(cross, batch):
    settings = {"cross_self_attention": True, "no_cross_attention": True} if cross else {}
    heads = {key: rows for key, rows in MASK.items() if key != "enc_dec" or not cross}
    model, masked = slim(settings, heads)
    encoded = torch.randn(5, 3, 64)
    x = torch.randn(1, 3, 64)
    with torch.no_grad():
        state = {}
        assert counted(lambda: model.decoder.layers[1](x, encoded, None, state))[3] == 0 and not state
    same_on_every_path(model, masked, batch, unlike=lively(settings))


def test_nobody_asks_an_empty_layer_for_attention_weights(batch):
    model, masked = slim({}, MASK | {"enc_dec": [[0, 0], [1, 1]]}, None)
    encoded, x = torch.randn(5, 3, 64), torch.randn(2, 3, 64)
    with torch.no_grad():
        assert model.decoder.layers[0](x, encoded)[1] is None
        assert masked.decoder.layers[0](x, encoded)[1].shape == (3, 2, 5)
        # The last layer's are asked for by the decoder, with or without heads.
        found, expected = (m(**batch["net_input"])[1]["attn"][0] for m in (model, masked))
    assert torch.allclose(found, expected, atol=1e-5)
    without, _ = slim({}, MASK, None)
    with torch.no_grad():
        weights = without(**batch["net_input"])[1]["attn"][0]
    assert weights.shape == expected.shape and not weights.any()


def test_unread_norms_stay_in_the_checkpoint_and_are_not_trained(batch, tmp_path):
    """fairseq's default for several GPUs is DistributedDataParallel, which fails if a parameter has no gradient."""
    model, masked = slim(PRE)
    names = ["encoder.layers.0.self_attn_layer_norm", "encoder.layers.0.final_layer_norm"]
    names += [f"decoder.layers.1.{part}_layer_norm" for part in ("self_attn", "encoder_attn", "final")]
    frozen = {f"{name}.{kind}" for name in names for kind in ("weight", "bias")}
    assert {name for name, p in model.named_parameters() if not p.requires_grad} == frozen
    model.train()(**batch["net_input"])[0].sum().backward()
    assert {name for name, p in model.named_parameters() if p.grad is None} == frozen
    torch.save(state_of(model.eval()), tmp_path / "again.pt")
    again = read_state(tmp_path / "again.pt")
    assert frozen < again["model"].keys()
    same_on_every_path(rebuild(again), masked, batch, unlike=lively(PRE))


def test_a_removed_block_draws_dropout_like_a_masked_one(batch):
    outputs = []
    for model in slim({}, {key: [[1, 1]] * 2 for key in MASK}, {"enc_ffn": [[0], [1]], "dec_ffn": [[1], [0]]}):
        for layer in (*model.encoder.layers, *model.decoder.layers):
            layer.dropout_module.p = 0.5
        torch.manual_seed(1)
        outputs.append(model.train()(**batch["net_input"])[0])
    assert torch.allclose(*outputs, atol=1e-5)


@pytest.mark.parametrize("settings", SETTINGS[:2])
def test_alignment_of_masked_and_slim_models(settings, tmp_path, batch):
    masked, slim, full, mask = masked_and_slim(settings, tmp_path)
    last = len(masked.decoder.layers) - 1
    module = find_gates(full).modules["enc_dec"][last]
    per_head = []
    forward = type(module).forward
    module.forward = lambda *a, **k: per_head.append(forward(module, *a, **k)) or per_head[-1]
    with torch.no_grad():
        found, expected = (m.eval()(**batch["net_input"], alignment_layer=last)[1]["attn"][0] for m in (masked, slim))
        full.eval()(**batch["net_input"], alignment_layer=last)
    assert torch.allclose(found, expected, atol=1e-6)
    assert not torch.allclose(found, per_head[0][1].mean(dim=0), atol=1e-3)


def test_the_mean_by_hand():
    weights = torch.rand(2, 3, 4, 5, generator=torch.Generator().manual_seed(1))
    some = counted_weights(weights, torch.tensor([True, False, True])).mean(dim=1)
    assert torch.allclose(some, (weights[:, 0] + weights[:, 2]) / 2)
    assert torch.equal(counted_weights(weights, torch.zeros(3, dtype=torch.bool)), torch.zeros(2, 1, 4, 5))
    rows = counted_weights(weights, torch.tensor([[False, True, False], [False, False, False]])).mean(dim=1)
    assert torch.allclose(rows[0], weights[0, 1]) and not rows[1].any()


@pytest.mark.parametrize("last_layer", ["one head", "no head"])
def test_generation_prints_the_same_alignments(trained, tmp_path, last_layer):
    run = write_lively(trained, tmp_path)
    gone = [Part("enc_dec", 1, 0), *([Part("enc_dec", 1, 1)] if last_layer == "no head" else [])]
    mask = Mask.full(tiny.SHAPE).without(gone)
    mask.save(tmp_path / "mask.json")
    run_json("slim", run["checkpoint"], "--mask", tmp_path / "mask.json", "-o", tmp_path / "slim.pt")
    flags = [run["data"], *tiny.TASK, "--cpu"]
    flags += ["--beam", "2", "--max-len-b", "8", "--print-alignment", "hard", "--path"]
    masked = generated("A", *flags, run["checkpoint"], "--head-mask", tmp_path / "mask.json")
    assert masked == generated("A", *flags, tmp_path / "slim.pt") and len(masked) == 8
    assert any(masked) == (last_layer == "one head") and masked != generated("A", *flags, run["checkpoint"])
