"""The forms of fairseq's released checkpoints: read, or refused with the way out.

The key names are those of the released files: ``args`` of WMT14 and WMT16 models (fairseq 0.5 to 0.8, joined
projections), ``cfg`` as a tree of OmegaConf (0.10 and 0.11), ``model1.pt:model2.pt`` of WMT19, shards of FSDP,
and the tasks of M2M-100 and mBART.
"""

from argparse import Namespace

import pytest
import tiny
import torch
from omegaconf import OmegaConf
from verbs import BEAM, generated, refused, run_json, write_lively

from fairseq_headprune.checkpoints import allow_settings

#: what the ``args`` of transformer.wmt16.en-de hold besides the model's sizes
OLD = {"adam_betas": "(0.9, 0.98)", "adam_eps": 1e-08, "adaptive_softmax_cutoff": None, "attention_dropout": 0.1}
OLD |= {"clip_norm": 0.0, "criterion": "label_smoothed_cross_entropy", "ddp_backend": "c10d"}
OLD |= {"decoder_embed_path": None, "decoder_learned_pos": False, "decoder_normalize_before": False, "device_id": 0}
OLD |= {"distributed_backend": "nccl", "dropout": 0.3, "encoder_embed_path": None, "encoder_learned_pos": False}
OLD |= {"encoder_normalize_before": False, "fp16": True, "keep_interval_updates": -1, "label_smoothing": 0.1}
OLD |= {"left_pad_source": "True", "left_pad_target": "False", "lr": [0.001], "lr_scheduler": "inverse_sqrt"}
OLD |= {"max_epoch": 0, "max_sentences": None, "max_source_positions": 1024, "max_target_positions": 1024}
OLD |= {"max_tokens": 3584, "max_update": 300000, "min_lr": 1e-09, "optimizer": "adam", "relu_dropout": 0.0}
OLD |= {"restore_file": "checkpoint_last.pt", "seed": 2, "sentence_avg": False, "share_all_embeddings": True}
OLD |= {"share_decoder_input_output_embed": False, "source_lang": "xx", "target_lang": "yy", "train_subset": "train"}
OLD |= {"update_freq": [16], "upsample_primary": 1, "valid_subset": "valid", "warmup_init_lr": 1e-07}
OLD |= {"warmup_updates": 4000, "weight_decay": 0.0}
SIZES = ("embed_dim", "ffn_embed_dim", "layers", "attention_heads")


@pytest.fixture(scope="module")
def whole(trained_stock, tmp_path_factory):
    """A checkpoint of today's stock fairseq, whose translations depend on every mask, and its data."""
    allow_settings()
    lively = write_lively(trained_stock, tmp_path_factory.mktemp("whole"))
    return torch.load(lively["checkpoint"], weights_only=False), lively["data"]


def old_form(state, data):
    """The checkpoint as fairseq 0.5 would have saved it."""
    new = state["cfg"]["model"]
    sizes = {f"{s}_{n}": getattr(new, f"{s}_{n}") for s in ("encoder", "decoder") for n in SIZES}
    args = Namespace(arch="transformer_wmt_en_de", data=[str(data)], **OLD, **sizes)
    weights = dict(state["model"])
    weights.pop("decoder.output_projection.weight")
    for name in [name for name in weights if "q_proj." in name]:
        place, kind = name.rsplit("q_proj.", 1)
        joined = [weights.pop(f"{place}{part}_proj.{kind}") for part in "qkv"]
        weights[f"{place}in_proj_{kind}"] = torch.cat(joined)
    weights["encoder.embed_positions._float_tensor"] = torch.zeros(1)
    weights["decoder.embed_positions._float_tensor"] = torch.zeros(1)
    history = {"criterion_name": "LabelSmoothedCrossEntropyCriterion", "optimizer_name": "FairseqAdam"}
    return {
        "args": args,
        "model": weights,
        "optimizer_history": [{**history, "lr_scheduler_state": {"best": 4.0}, "num_updates": 5}],
        "extra_state": {"epoch": 1, "batch_offset": 0, "val_loss": 4.0},
        "last_optimizer_state": {},
    }


def tree_form(state, data):
    """The checkpoint with its settings as a tree of OmegaConf."""
    cfg = dict(state["cfg"])
    model = {"_name": cfg["model"].arch, **{k: v for k, v in vars(cfg["model"]).items() if is_plain(v)}}
    return {**state, "cfg": OmegaConf.create({**cfg, "model": model})}


def is_plain(value):
    return value is None or isinstance(value, (bool, int, float, str))


@pytest.mark.parametrize("form", [old_form, tree_form])
def test_old_forms_are_read(form, whole, tmp_path):
    state, data = whole
    torch.save(form(state, data), tmp_path / "old.pt")
    torch.save(state, tmp_path / "new.pt")
    flags = {name: [data, "--path", tmp_path / f"{name}.pt", *BEAM] for name in ("old", "new")}
    old, new = (run_json("score", *flags[name], "--score-sentences", "8") for name in flags)
    assert old["scores"] == new["scores"]
    masked = run_json("ablate", *flags["old"], "--components", "dec_self", "-o", tmp_path / "study")
    assert len(masked["cells"]) == 5
    mask = tmp_path / "study" / "masks" / "dec_self-0-0.json"
    run_json("slim", tmp_path / "old.pt", "--mask", mask, "-o", tmp_path / "slim.pt")
    task = [*tiny.TASK, *BEAM]
    under_mask = generated("H", *flags["old"], *task, "--head-mask", mask)
    assert under_mask == generated("H", data, "--path", tmp_path / "slim.pt", *task)
    assert under_mask != generated("H", *flags["old"], *task)


def test_an_ensemble_is_read_by_fairseq_and_refused_by_studies(whole, tmp_path, capsys):
    state, data = whole
    for name in ("model1.pt", "model2.pt"):
        torch.save(old_form(state, data), tmp_path / name)
    both = f"{tmp_path / 'model1.pt'}:{tmp_path / 'model2.pt'}"
    line = refused(capsys, "score", data, "--path", both, "--cpu")
    assert "one checkpoint is wanted here, not an ensemble of 2" in line
    task = [*tiny.TASK, *BEAM]
    assert generated("H", data, "--path", both, *task) == generated("H", data, "--path", tmp_path / "model1.pt", *task)


def test_parts_of_a_model_are_refused_with_the_way_out(whole, tmp_path, capsys):
    state, data = whole
    part = {**state, "model": {"encoder.flat_param_0": torch.zeros(5)}, "fsdp_metadata": {"param_metadata": []}}
    for number in (0, 1):
        torch.save(part, tmp_path / f"checkpoint_best-shard{number}.pt")
    for name in ("checkpoint_best.pt", "checkpoint_best-shard0.pt"):
        line = refused(capsys, "score", data, "--path", tmp_path / name, "--cpu")
        assert "several parts, of which checkpoint_best-shard0.pt is one" in line and "headprune import" in line
    torch.save(state, tmp_path / "checkpoint_last-model_part-0.pt")
    line = refused(capsys, "score", data, "--path", tmp_path / "checkpoint_last-model_part-0.pt", "--cpu")
    assert "several parts" in line


@pytest.mark.parametrize("task", ["translation_multi_simple_epoch", "translation_from_pretrained_bart"])
def test_tasks_with_symbols_of_their_own_are_refused(task, whole, tmp_path, capsys):
    # M2M-100: lang_pairs, langs, decoder_langtok and encoder_langtok are in its args; mBART: langs, prepend_bos.
    old = old_form(*whole)
    old["args"].task, old["args"].langs, old["args"].decoder_langtok = task, "af,am,ar", True
    torch.save(old, tmp_path / "model.pt")
    line = refused(capsys, "score", whole[1], "--path", tmp_path / "model.pt", "--cpu")
    assert f"the task {task} is not supported" in line and "facebook/m" in line


@pytest.mark.parametrize("flags", [["--tokenizer", "moses"], ["--bpe", "fastbpe", "--bpe-codes"]])
def test_packages_that_released_models_need_are_named(flags, whole, tmp_path, capsys):
    # fastBPE and Moses, as the README of fairseq's WMT19 models says.
    torch.save(whole[0], tmp_path / "model.pt")
    (tmp_path / "bpecodes").write_text("")
    flags = (
        [*flags, "--source-lang", "xx", "--target-lang", "yy"] if len(flags) < 3 else [*flags, tmp_path / "bpecodes"]
    )
    line = refused(capsys, "ablate", whole[1], "--path", tmp_path / "model.pt", "--cpu", *flags, "-o", tmp_path / "s")
    assert flags[0] in line and "pip install" in line


def test_a_state_of_the_tests_is_complete(whole):
    # The negative control of the forms above: nothing of today's form is left in the old one.
    assert "cfg" not in old_form(*whole) and not any("q_proj" in name for name in old_form(*whole)["model"])
