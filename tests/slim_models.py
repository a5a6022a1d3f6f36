"""What the tests of masks and of removal share: models of many kinds, random masks, and every way to run a model."""

import copy
import random

import pytest
import tiny
import torch
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from fairseq_headprune.checkpoints import read_state, saved_settings
from fairseq_headprune.modules.attach import find_gates
from fairseq_headprune.parts import Mask
from fairseq_headprune.removal.checkpoint import remove_heads

SETTINGS = [
    {"encoder_attention_heads": 4, "decoder_attention_heads": 4},
    {"encoder_attention_heads": 4, "decoder_attention_heads": 8, "share_all_embeddings": True, "seed": 2},
    {"encoder_normalize_before": True, "decoder_normalize_before": True, "encoder_attention_heads": 8, "seed": 3},
    {"encoder_embed_dim": 32, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "seed": 4},
    {"cross_self_attention": True, "no_cross_attention": True, "decoder_attention_heads": 4, "seed": 5},
]


def random_settings(seed):
    """Shapes, norms, positions, activations and sharing, all by chance."""
    draw = random.Random(seed)
    width = draw.choice([32, 48, 64])
    settings = {"seed": seed, "activation_fn": draw.choice(["relu", "gelu"])}
    for side in ("encoder", "decoder"):
        layers, heads, ffn = draw.choice([1, 2, 3]), draw.choice([2, 4, 8]), draw.choice([16, 40])
        settings |= {f"{side}_embed_dim": width, f"{side}_layers": layers, f"{side}_attention_heads": heads}
        settings |= {f"{side}_ffn_embed_dim": ffn, f"{side}_learned_pos": draw.random() < 0.5}
        settings[f"{side}_normalize_before"] = draw.random() < 0.5
    sharing = draw.choice([{}, {"share_all_embeddings": True}, {"share_decoder_input_output_embed": True}])
    if sharing.get("share_all_embeddings"):
        settings["layernorm_embedding"] = draw.random() < 0.5
    if seed % 4 == 3:
        sharing = {"cross_self_attention": True, "no_cross_attention": True}
    return settings | sharing


def lively(settings):
    """A gated model whose biases and weights are all large enough to matter."""
    model = tiny.make_model(**settings)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".layers." in name:
                parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    return model


def uneven(model, seed):
    """A random mask of another density in each layer; the first layer of every component loses all heads."""
    draw = random.Random(seed)
    heads = {}
    for component, counts in find_gates(model).shape.items():
        heads[component] = [
            [int(draw.random() < (draw.random() if i else 0)) for _ in range(n)] for i, n in enumerate(counts)
        ]
    return Mask(heads, {"command": "test"})


def state_of(model):
    """What fairseq-train would save: the settings, the weights, and a history of training without its state."""
    history = {"optimizer_name": "Adam", "lr_scheduler_state": {}, "num_updates": 1}
    return {
        "args": None, "cfg": {"model": copy.copy(model.settings)}, "model": model.state_dict(),
        "optimizer_history": [history], "extra_state": {"train_iterator": {"epoch": 1}},
    }  # fmt: skip


def rebuild(state):
    """What fairseq does with a checkpoint: build from its settings, load strictly."""
    settings = copy.copy(saved_settings(state))
    dictionary = tiny.make_dictionary()
    task = TranslationTask(TranslationConfig(), dictionary, dictionary)
    model = ARCH_MODEL_REGISTRY[settings.arch].build_model(settings, task)
    model.load_state_dict(state["model"], strict=True)
    model.settings = settings
    return model.eval()


def with_ffn(model, mask, seed):
    """The mask with random feed-forward parts: of each side one block is gone, one has no unit, others some."""
    draw = random.Random(seed)
    for component, modules in find_gates(model).ffn.items():
        rows = [[int(draw.random() < 0.4) for _ in range(m.in_features)] for m in modules]
        places = draw.sample(range(len(rows)), len(rows))
        mask.rows[component] = rows
        rows[places[0]] = [0] if component == "enc_ffn" else [0] * len(rows[places[0]])
        if len(rows) > 2:
            rows[places[1]] = [1]
    return mask


def masked_and_slim(settings, tmp_path, ffn=False):
    """The masked model, the same in slim, saved and read again, and the unpruned one."""
    full, seed = lively(settings), settings.get("seed", 1)
    mask = uneven(full, seed)
    if ffn:
        mask = with_ffn(full, mask, seed)
    torch.save(remove_heads(state_of(full), mask, ffn=ffn).state, tmp_path / "slim.pt")
    masked = copy.deepcopy(full)
    find_gates(masked).set_mask(mask)
    return masked, rebuild(read_state(tmp_path / "slim.pt")), full, mask


def incremental(model, batch):
    """Log-probabilities of decoding step by step, the hypotheses reordered after each step."""
    tokens = batch["net_input"]["prev_output_tokens"][:, :5]
    encoded = model.encoder(batch["net_input"]["src_tokens"], batch["net_input"]["src_lengths"])
    order, state, steps = torch.tensor([1, 0, 0]), {}, []
    for length in range(1, tokens.size(1) + 1):
        output = model.decoder(tokens[:, :length], encoder_out=encoded, incremental_state=state)
        steps.append(output[0][:, -1].log_softmax(dim=-1))
        tokens = tokens[order]
        encoded = model.encoder.reorder_encoder_out(encoded, order)
        model.decoder.reorder_incremental_state_scripting(state, order)
    return torch.stack(steps)


def search(models, batch, beam=5, **settings):
    """Tokens, and scores, of all hypotheses of fairseq's own search."""
    generator = SequenceGenerator(models, tiny.make_dictionary(), beam_size=beam, max_len_b=12, **settings)
    found = [hypothesis for sentence in generator.generate(models, batch) for hypothesis in sentence]
    return [h["tokens"].tolist() for h in found], [h["score"].item() for h in found]


def logits(model, batch):
    """The logits of the real target positions."""
    return model(**batch["net_input"])[0][batch["target"].ne(1)]


def same_on_every_path(model, reference, batch, unlike):
    """Assert that two models compute the same: in training (dropout is 0) and not, step by step, and in searches.

    Args:
        unlike: a model, such as the unpruned one, that computes something else on each of these ways.
    """
    with torch.no_grad():
        for training in (True, False):
            _same(*(logits(m.train(training), batch) for m in (model, reference, unlike)))
        _same(*(incremental(m, batch) for m in (model, reference, unlike)))
        for beam in (1, 5):
            (tokens, scores), (same, expected) = (search([m], batch, beam) for m in (model, reference))
            assert tokens == same and scores == pytest.approx(expected, abs=1e-5)


def _same(found, expected, other):
    assert torch.allclose(found, expected, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(found, other, atol=1e-2)
