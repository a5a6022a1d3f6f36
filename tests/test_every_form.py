"""Every task, criterion, data form and architecture flag of fairseq's translation models: works, or one line says why.

Models are built from fairseq-train's flags and saved untrained. What works is scored, pruned, masked and slimmed; the
slim model scores as the masked one does.
"""

import argparse

import pytest
import tiny
from fairseq.models import MODEL_REGISTRY
from untrained import write_checkpoint
from verbs import refused, run_json

from fairseq_headprune.cli import main

GATED = "--arch transformer_gated_tiny --task translation_headprune"
STOCK = "--arch transformer_tiny --task translation"
SMALL = " ".join(
    f"--{side}-{name} {value}"
    for side in ("encoder", "decoder")
    for name, value in (("layers", 2), ("embed-dim", 32), ("attention-heads", 2), ("ffn-embed-dim", 32))
)
SEARCH = "--beam 1 --max-len-b 8 --resamples 10 --order random --step 1"
PAIR = "--lang-pairs xx-yy"

#: flags of the architecture: each group alone makes another model
ARCHITECTURE = {
    "activation": "--activation-fn gelu",
    "adaptive softmax": "--adaptive-softmax-cutoff 8,16 --adaptive-softmax-factor 2 "
    "--adaptive-softmax-dropout 0.1 --criterion adaptive_loss --ddp-backend legacy_ddp",
    "other sizes": "--encoder-embed-dim 32 --encoder-ffn-embed-dim 24 --encoder-layers 3 --encoder-attention-heads 4 "
    "--decoder-embed-dim 16 --decoder-ffn-embed-dim 40 --decoder-layers 1 --decoder-attention-heads 2",
    "norms": "--encoder-normalize-before --decoder-normalize-before --no-decoder-final-norm --layernorm-embedding",
    "positions": "--encoder-learned-pos --decoder-learned-pos --max-source-positions 20 --max-target-positions 30",
    "no positions": "--no-token-positional-embeddings --no-scale-embedding",
    "layer drop": "--encoder-layerdrop 0.5 --decoder-layerdrop 0.5 --relu-dropout 0.1",
    "output width": "--decoder-output-dim 24",
    "shared with output": "--share-decoder-input-output-embed",
    "all shared": "--share-all-embeddings",
    "merged": "--merge-src-tgt-embed",
    "recomputed": "--checkpoint-activations",
    "offloaded": "--offload-activations --min-params-to-wrap 10",
    "joined attention": "--cross-self-attention",
    "joined attention only": "--cross-self-attention --no-cross-attention",
    "without effect": "--adaptive-input --char-inputs --export --base-sublayers 1 --base-shuffle 1",
}

#: flags of fairseq's transformer that make no other model here, and why
NOT_TRIED = {
    **dict.fromkeys(("--dropout", "--attention-dropout", "--activation-dropout"), "training only"),
    **dict.fromkeys(("--encoder-embed-path", "--decoder-embed-path"), "values of embeddings at the start"),
    **dict.fromkeys(("--encoder-xformers-att-config", "--decoder-xformers-att-config"), "wants xFormers; see attach"),
    **dict.fromkeys(("--tie-adaptive-weights", "--tie-adaptive-proj"), "fairseq builds them with adaptive input only"),
    **dict.fromkeys(("--encoder-layers-to-keep", "--decoder-layers-to-keep"), "fairseq-train cannot read them"),
    **dict.fromkeys(("-h", "--help"), "no setting"),
}


def not_for(name, **more):
    """What score and prune say of a flag or task, and other verbs of what else is wrong."""
    return dict.fromkeys(("score", "prune"), f"{name} is not supported") | more


#: flags -> what each verb says of them; the verbs that are not named work
REFUSED = {
    f"{STOCK} --no-cross-attention": dict.fromkeys(("score", "prune"), "--no-cross-attention"),
    f"{STOCK} --quant-noise-pq 0.1 --quant-noise-pq-block-size 8": {"slim": "quant_noise_pq"},
    f"{STOCK} --quant-noise-scalar 0.1": not_for("--quant-noise-scalar", slim="quant_noise_scalar"),
    f"--arch transformer_tiny --task translation_multi_simple_epoch --langs xx,yy {PAIR}":
        not_for("the task translation_multi_simple_epoch"),
    "--arch transformer_tiny --task translation_from_pretrained_bart --langs xx,yy":
        not_for("the task translation_from_pretrained_bart"),
    f"--arch multilingual_transformer --task multilingual_translation {PAIR} {SMALL}":
        not_for("the task multilingual_translation", slim="the architecture 'multilingual_transformer'"),
    f"--arch levenshtein_transformer --task translation_lev --criterion nat_loss {SMALL}":
        not_for("the task translation_lev", slim="the architecture 'levenshtein_transformer'"),
    **{f"--arch {arch} --task translation": {
        "mask": "holds no attention weights", "score": "nothing to gate", "prune": "nothing to gate",
    } for arch in ("lstm", "fconv_iwslt_de_en")},
    **{f"--arch {arch} --task translation {sizes}": {"slim": f"the architecture '{arch}'"}
       for arch, sizes in (("lightconv_iwslt_de_en", ""), ("transformer_align", SMALL), ("bart_base", SMALL))},
}  # fmt: skip

CRITERIONS = (
    "label_smoothed_cross_entropy", "label_smoothed_cross_entropy_with_alignment",
    "label_smoothed_cross_entropy_with_rdrop", "label_smoothed_cross_entropy_l0", "label_smoothed_cross_entropy_dsp",
)  # fmt: skip


class Tried:
    """The verbs on one checkpoint."""

    def __init__(self, data, folder, flags):
        self.path = write_checkpoint(data, folder / "c.pt", *flags.split(), *map(str, tiny.PLUGIN))
        here = [data, "--cpu", "--path"]
        self.argv = {
            "mask": ["mask", "--like", self.path, "--random", "50%", "--at-least-one", "-o", folder / "m.json"],
            "score": ["score", *here, self.path, "--gen-subset", "valid", "--head-mask", folder / "m.json"],
            "prune": ["prune", *here, self.path, *SEARCH.split(), "-o", folder / "study"],
            "slim": ["slim", self.path, "--mask", folder / "m.json", "-o", folder / "s.pt"],
            "again": ["score", *here, folder / "s.pt", "--gen-subset", "valid"],
        }

    def statuses(self, *verbs):
        """The exit statuses of these verbs."""
        return {verb: main([*map(str, self.argv[verb])]) for verb in verbs}

    def scores(self, verb):
        """What ``score`` says of the heads that are there, each by its place."""
        found = run_json(*self.argv[verb])["scores"]
        rows = {(component, i): row for component, layers in found.items() for i, row in enumerate(layers)}
        return {(*place, i): value for place, row in rows.items() for i, value in enumerate(row) if value is not None}


WORK = {"mask": 0, "prune": 0, "slim": 0}


def as_masked(scores):
    """The scores of a masked model, which those of the slim one equal but for rounding."""
    return pytest.approx(scores, rel=1e-3, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("model", [GATED, STOCK], ids=["gated", "stock"])
@pytest.mark.parametrize("group", ARCHITECTURE)
def test_flags_of_the_architecture(data_bin, tmp_path, group, model):
    tried = Tried(data_bin, tmp_path, f"{model} {ARCHITECTURE[group]}")
    assert tried.statuses(*WORK) == WORK
    assert tried.scores("again") == as_masked(tried.scores("score"))


def test_no_flag_of_the_architecture_is_forgotten():
    # Source: fairseq's own list.
    parser = argparse.ArgumentParser()
    MODEL_REGISTRY["transformer"].add_args(parser)
    known = {flag for action in parser._actions for flag in action.option_strings}
    texts = [*ARCHITECTURE.values(), *REFUSED, "--base-layers"]
    tried = {word for text in texts for word in text.split() if word.startswith("--")}
    assert known - tried == set(NOT_TRIED)


@pytest.mark.slow
@pytest.mark.parametrize("flags", REFUSED)
def test_what_is_refused_is_named(data_bin, tmp_path, capsys, flags):
    tried, said = Tried(data_bin, tmp_path, flags), REFUSED[flags]
    for verb in ("mask", "score", "prune", "slim"):
        argv = tried.argv[verb]
        if verb == "score" and "mask" in said:
            argv = argv[:-2]  # without a mask where there can be none
        if verb in said:
            assert said[verb] in refused(capsys, *argv)
        elif verb != "slim" or "mask" not in said:
            assert main([*map(str, argv)]) == 0, verb


@pytest.mark.parametrize("flags", ["--quant-noise-scalar 0.1", "--base-layers 1"])
@pytest.mark.parametrize("task", ["translation", "translation_headprune"])
def test_a_gated_model_is_not_built_where_it_could_not_be_gated(data_bin, tmp_path, flags, task):
    with pytest.raises(ValueError, match=f"{flags.split()[0]} is not supported"):
        write_checkpoint(data_bin, tmp_path / "c.pt", *f"--arch transformer_gated_tiny --task {task} {flags}".split())


@pytest.mark.slow
@pytest.mark.parametrize("criterion", CRITERIONS)
def test_criterions(data_bin, tmp_path, criterion):
    tried = Tried(data_bin, tmp_path, f"{GATED} --criterion {criterion}")
    assert tried.statuses(*WORK) == WORK
    assert tried.scores("again") == as_masked(tried.scores("score"))


def test_plain_text_is_read_by_its_flag(tmp_path, capsys):
    """The other forms (cached, lazy; fairseq-preprocess writes no Huffman code): test_session.py."""
    tiny.write_data(tmp_path)
    words = ["--source-lang=xx", "--target-lang=yy", "--joined-dictionary", "--dataset-impl=raw"]
    splits = [f"--{split}pref={tmp_path / split}" for split in ("train", "valid", "test")]
    tiny.fairseq_here("preprocess", *words, *splits, f"--destdir={tmp_path / 'raw'}")
    tried = Tried(tmp_path / "raw", tmp_path, f"{GATED} --dataset-impl raw")
    assert tried.statuses("mask") == {"mask": 0}
    assert "plain texts, which --dataset-impl raw reads" in refused(capsys, *tried.argv["score"])
    assert run_json(*tried.argv["score"], "--dataset-impl", "raw")["sentences"] == 8
