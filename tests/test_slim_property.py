"""Property: masked = slim = saved and reloaded in a fresh process, for random models and masks, on every path."""

import random

import pytest
import tiny
import torch
from slim_models import beam_five, incremental, lively, state_of, uneven, with_ffn

from fairseq_headprune.modules.attach import find_gates
from fairseq_headprune.removal.checkpoint import remove_heads

CASES = 12

#: the fresh process knows the files, the dictionary and fairseq's own way to load: nothing of the masked model
RELOAD = """
import sys
sys.path.insert(0, sys.argv[1])
import tiny, torch
from fairseq import checkpoint_utils
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from slim_models import beam_five, incremental
torch.set_num_threads(1)
dictionary, found = tiny.make_dictionary(), []
for path in sys.argv[3:]:
    task = TranslationTask(TranslationConfig(), dictionary, dictionary)
    model = checkpoint_utils.load_model_ensemble([path], task=task)[0][0].eval()
    batch = tiny.make_batch()
    with torch.no_grad():
        logits = model(**batch["net_input"])[0]
        found.append((logits, incremental(model, batch), beam_five(model, batch)))
torch.save(found, sys.argv[2])
"""


def random_settings(seed):
    """Shapes, norms, positions, activations and sharing, all by chance."""
    draw = random.Random(seed)
    width = draw.choice([32, 48, 64])
    settings = {"seed": seed, "activation_fn": draw.choice(["relu", "gelu"])}
    for side in ("encoder", "decoder"):
        settings |= {
            f"{side}_embed_dim": width,
            f"{side}_layers": draw.choice([1, 2, 3]),
            f"{side}_attention_heads": draw.choice([2, 4, 8]),
            f"{side}_ffn_embed_dim": draw.choice([16, 40]),
            f"{side}_learned_pos": draw.random() < 0.5,
            f"{side}_normalize_before": draw.random() < 0.5,
        }
    sharing = draw.choice([{}, {"share_all_embeddings": True}, {"share_decoder_input_output_embed": True}])
    if sharing.get("share_all_embeddings"):
        settings["layernorm_embedding"] = draw.random() < 0.5
    if seed % 4 == 3:
        sharing = {"cross_self_attention": True, "no_cross_attention": True}
    return settings | sharing


def case(seed, folder):
    """A masked model, and its slim checkpoint in a file; every second one with feed-forward parts."""
    model = lively(random_settings(seed))
    mask = uneven(model, seed)
    if seed % 2:
        mask = with_ffn(model, mask, seed)
    torch.save(remove_heads(state_of(model), mask, ffn=True).state, folder / f"{seed}.pt")
    find_gates(model).set_mask(mask)
    return model


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """For each case the masked model and what the fresh process computed from the file."""
    folder = tmp_path_factory.mktemp("property")
    masked = [case(seed, folder) for seed in range(CASES)]
    files = [folder / f"{seed}.pt" for seed in range(CASES)]
    done = tiny.run_python("-c", RELOAD, tiny.ROOT / "tests", folder / "found.pt", *files)
    assert done.returncode == 0, done.stderr[-2000:]
    return list(zip(masked, torch.load(folder / "found.pt", weights_only=True), strict=True))


@pytest.mark.parametrize("seed", range(CASES))
def test_a_fresh_process_computes_what_the_masked_model_does(models, seed, batch):
    model, (logits, steps, hypotheses) = models[seed]
    with torch.no_grad():
        assert torch.allclose(logits, model(**batch["net_input"])[0], atol=1e-5, rtol=1e-5)
        assert torch.allclose(steps, incremental(model, batch), atol=1e-5, rtol=1e-5)
        expected = beam_five(model, batch)
        find_gates(model).set_mask(None)
        assert not torch.allclose(logits, model(**batch["net_input"])[0], atol=1e-2)
    assert [tokens for tokens, _ in hypotheses] == [tokens for tokens, _ in expected]
    assert [score for _, score in hypotheses] == pytest.approx([score for _, score in expected], abs=1e-5)
