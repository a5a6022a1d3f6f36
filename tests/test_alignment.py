"""Whatever averages attention over heads leaves pruned ones out: a masked model aligns as the slim one does."""

import pytest
import tiny
import torch
from slim_models import SETTINGS, masked_and_slim
from verbs import run_json, write_lively

from fairseq_headprune.modules.attach import find_gates
from fairseq_headprune.modules.attention import counted_weights
from fairseq_headprune.parts import Mask, Part


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
    mask = Mask.full({"enc_self": [2, 2], "enc_dec": [2, 2], "dec_self": [2, 2]}).without(gone)
    mask.save(tmp_path / "mask.json")
    run_json("slim", run["checkpoint"], "--mask", tmp_path / "mask.json", "-o", tmp_path / "slim.pt")
    flags = [run["data"], "--user-dir", tiny.ROOT / "fairseq_headprune", "--task", "translation_headprune", "--cpu"]
    flags += ["--beam", "2", "--max-len-b", "8", "--print-alignment", "hard", "--path"]

    def alignments(*argv):
        lines = tiny.fairseq_here("generate", *flags, *argv).splitlines()
        return [line.split("\t")[1] for line in sorted(lines) if line.startswith("A-")]

    masked = alignments(run["checkpoint"], "--head-mask", tmp_path / "mask.json")
    assert masked == alignments(tmp_path / "slim.pt") and len(masked) == 8
    assert any(masked) == (last_layer == "one head") and masked != alignments(run["checkpoint"])
