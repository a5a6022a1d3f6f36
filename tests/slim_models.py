"""What the tests of removal share: models of many kinds, random masks, and every way to run a model."""

import copy
import random

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


def masked_and_slim(settings, tmp_path, seed=1, ffn=False):
    """The masked model, the same in slim, saved and read again, and the unpruned one."""
    full = lively(settings)
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


def beam_five(model, batch):
    generator = SequenceGenerator([model], tiny.make_dictionary(), beam_size=5, max_len_b=12)
    hypotheses = generator.generate([model], batch)
    return [(h["tokens"].tolist(), h["score"].item()) for sentence in hypotheses for h in sentence]
