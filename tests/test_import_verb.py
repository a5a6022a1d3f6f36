"""``headprune import``: what it reads, what it refuses, and its check against transformers."""

import json
import random
import shlex
import shutil

import hugging_face as hf
import pytest
import sacrebleu
import safetensors.torch
import tiny
import torch
from imported_models import Imported, prepare
from learning import same
from verbs import generated, refused, run_json

from fairseq_headprune.checkpoints import read_state
from fairseq_headprune.cli import main
from fairseq_headprune.imports.pieces import Numbers
from fairseq_headprune.interchange import check as checking
from fairseq_headprune.modules.attach import find_gates

pytestmark = pytest.mark.slow  # builds models of transformers


@pytest.fixture(scope="module")
def marian(tmp_path_factory):
    return Imported("marian", tmp_path_factory.mktemp("one"))


def test_check_compares_with_transformers(marian, tmp_path):
    (tmp_path / "text").write_text("\n".join([*hf.corpus()[0][:10], *hf.HARD[:8]]), encoding="utf-8")
    found = run_json("import", marian.folder, "-o", tmp_path / "out", "--check", tmp_path / "text")["check"]
    assert (found["lines"], found["other_numbers"], found["other_translations"]) == (18, 0, 0)
    assert found["logits"] < 1e-4


def test_check_finds_another_model(marian):
    # The negative control: transformers computes without the bias of the logits.
    model, _ = hf.load(marian.folder)
    model.final_logits_bias.zero_()
    compared = marian.ours, model, marian.task, marian.rows, marian.numbers("target", hf.corpus()[1][:10])
    with torch.no_grad():
        assert checking.logit_difference(*compared) > 0.1


def test_bin_files_with_every_tie_are_read(marian, tmp_path):
    folder = hf.as_bin(shutil.copytree(marian.folder, tmp_path / "bin"))
    run_json("import", folder, "-o", tmp_path / "out")
    assert same(*(read_state(out / "model.pt")["model"] for out in (marian.out, tmp_path / "out")))


def change_weights(folder, change):
    """Change the weights of a folder by a function."""
    weights = {name: tensor.clone() for name, tensor in safetensors.torch.load_file(folder / NAME).items()}
    change(weights)
    safetensors.torch.save_file(weights, folder / NAME, {"format": "pt"})


NAME = "model.safetensors"
FC1 = "model.encoder.layers.0.fc1.weight"
REFUSED_CONFIGS = {
    "cannot be imported: its attention adds biases of relative positions": {"model_type": "t5"},
    "'llama' cannot be imported": {"model_type": "llama"},
    "mixtures of experts; the dense NLLB-200 models": {"model_type": "nllb-moe"},
    "quantised weights (gptq) are not supported": {"quantization_config": {"quant_method": "gptq"}},
    "encoder_layers is None": {"encoder_layers": None},
    "the activation 'quick_gelu' is not supported": {"activation_function": "quick_gelu"},
    "d_model 32 cannot be split into 5 encoder heads": {"encoder_attention_heads": 5},
    "normalize_before True is not supported": {"normalize_before": True},
    "missing: lm_head.weight": {"tie_word_embeddings": False},
    "contradicts share_encoder_decoder_embeddings": {"share_encoder_decoder_embeddings": False},
    "config.json says (56, 32)": {"encoder_ffn_dim": 56},
    "missing: model.encoder.layers.2.self_attn.k_proj.weight": {"encoder_layers": 3},
    "unknown: encoder.layers.1.fc1.bias": {"encoder_layers": 1},
    "MarianForCausalLM generates no text": {"architectures": ["MarianForCausalLM"]},
    "pad_token_id is 9999": {"pad_token_id": 9999},
}


@pytest.mark.parametrize("message", REFUSED_CONFIGS)
def test_configurations_are_refused_by_name(message, marian, tmp_path, capsys):
    folder = hf.edit_config(shutil.copytree(marian.folder, tmp_path / "folder"), **REFUSED_CONFIGS[message])
    assert message in refused(capsys, "import", folder, "-o", tmp_path / "out")
    assert not (tmp_path / "out").exists() and len(list(tmp_path.iterdir())) == 1


def test_weights_are_refused_by_name(marian, tmp_path, capsys):
    changes = {
        "missing: model.encoder.layers.0.fc1.weight": lambda weights: weights.pop(FC1),
        "unknown: encoder.extra.weight": lambda weights: weights.update({"model.encoder.extra.weight": torch.ones(2)}),
        "lm_head.weight and shared.weight differ": lambda weights: weights.update(
            {"lm_head.weight": weights["model.shared.weight"] + 1}
        ),
        "is int8; quantised weights": lambda weights: weights.update({FC1: weights[FC1].to(torch.int8)}),
    }
    for number, (message, change) in enumerate(changes.items()):
        folder = shutil.copytree(marian.folder, tmp_path / str(number))
        change_weights(folder, change)
        assert message in refused(capsys, "import", folder, "-o", tmp_path / "out")


def test_files_are_refused_by_name(marian, tmp_path, capsys):
    assert "there is no such folder" in refused(capsys, "import", tmp_path / "none", "-o", tmp_path / "out")
    for name in ("config.json", NAME, "vocab.json", "source.spm"):
        folder = shutil.copytree(marian.folder, tmp_path / name)
        (folder / name).unlink()
        if name != "source.spm":
            assert name in refused(capsys, "import", folder, "-o", tmp_path / "out")
    folder = shutil.copytree(marian.folder, tmp_path / "bomb")
    (folder / NAME).unlink()
    torch.save({"model": tiny.Bomb(tmp_path / "boom")}, folder / "pytorch_model.bin")
    assert "refused and not executed" in refused(capsys, "import", folder, "-o", tmp_path / "out")
    assert not (tmp_path / "boom").exists()
    assert "exists; name a new folder" in refused(capsys, "import", marian.folder, "-o", tmp_path)


def test_languages_are_checked(tmp_path, capsys):
    folder = hf.nllb(tmp_path / "nllb")
    assert "name it with --source-lang, one of ace_Arab" in refused(capsys, "import", folder, "-o", tmp_path / "out")
    languages = ["--source-lang", "deu_Latn", "--target-lang", "English"]
    assert "does not know the language 'English'" in refused(
        capsys, "import", folder, "-o", tmp_path / "out", *languages
    )


def test_slim_models_do_not_become_folders(marian, tmp_path, capsys):
    mask = find_gates(marian.ours).full()
    mask.without(mask.kept()[:1]).save(tmp_path / "mask.json")
    run_json("slim", marian.out / "model.pt", "--mask", tmp_path / "mask.json", "-o", tmp_path / "slim.pt")
    line = refused(capsys, "export", tmp_path / "slim.pt", "--to", "huggingface", tmp_path / "back")
    assert "1 heads were removed" in line and "go to ctranslate2 or onnx" in line
    assert "export --to huggingface writes zeros" in refused(
        capsys, "slim", marian.out / "model.pt", "--mask", tmp_path / "mask.json", "--bake", "-o", tmp_path / "b.pt"
    )


@pytest.mark.parametrize("make", [hf.mbart, lambda folder: hf.nllb(folder, fast=False)], ids=["mbart", "nllb"])
def test_without_a_tokenizer_file_numbers_are_those_of_sentencepiece(make, tmp_path):
    # Source: the number of a piece in sentencepiece, behind one more special symbol; <unk> is 3.
    folder, language = make(tmp_path / "folder"), "de_DE" if make is hf.mbart else "deu_Latn"
    other = "en_XX" if make is hf.mbart else "eng_Latn"
    report = run_json("import", folder, "-o", tmp_path / "out", "--source-lang", language, "--target-lang", other)
    _, task = checking.load_import(tmp_path / "out", report)
    model = hf.sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.bpe.model"))
    found = Numbers(tmp_path / "out", "target", task.target_dictionary, other)(hf.HARD)
    for line, row in zip(hf.HARD, found, strict=True):
        expected = [number + 1 if number else 3 for number in model.encode(line)]
        assert [number for number in row if number not in task.target_dictionary.special - {3}] == expected


def test_an_output_layer_of_its_own_is_imported(tmp_path):
    # tie_word_embeddings false, as fine-tuned models may have it.
    folder = hf.marian(tmp_path / "folder", tie_word_embeddings=False)
    report = run_json("import", folder, "-o", tmp_path / "out")
    ours, task = checking.load_import(tmp_path / "out", report)
    rows = Numbers(tmp_path / "out", "source", task.source_dictionary, "de")(hf.corpus()[0][:5])
    targets = Numbers(tmp_path / "out", "target", task.target_dictionary, "en")(hf.corpus()[1][:5])
    with torch.no_grad():
        assert checking.logit_difference(ours, hf.load(folder)[0], task, rows, targets) < 1e-4
    run_json("export", tmp_path / "out" / "model.pt", "--to", "huggingface", tmp_path / "back")
    with torch.no_grad():
        assert checking.logit_difference(ours, hf.load(tmp_path / "back")[0], task, rows, targets) < 1e-4


def test_a_model_of_full_size_takes_little_memory_and_time(tmp_path):
    # 6+6 layers, d 512, 8 heads and 58,101 symbols, as opus-mt-de-en: 298 MB.
    folder = hf.marian(tmp_path / "folder", symbols=58101, learn=False, **hf.FULL)
    size, out = (folder / NAME).stat().st_size, tmp_path / "out"
    program = "import resource, sys; from fairseq_headprune.cli import main; import torch, fairseq\n"
    program += "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
    program += f"main(['import', {str(folder)!r}, '-o', {str(out)!r}])\n"
    program += "print('KiB', before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    done = tiny.run_python("-c", program)
    assert done.returncode == 0, done.stderr
    before, after = map(int, done.stdout.split("KiB")[1].split())
    assert size > 2.9e8 and (after - before) * 1024 < 3 * size
    ours, task = checking.load_import(out, {"source_lang": "de", "target_lang": "en"})
    rows = Numbers(out, "source", task.source_dictionary, "de")(hf.corpus()[0][:5])
    targets = Numbers(out, "target", task.target_dictionary, "en")(hf.corpus()[1][:5])
    with torch.no_grad():
        assert checking.logit_difference(ours, hf.load(folder)[0], task, rows, targets) < 1e-4


def test_the_six_commands_of_the_manual(tmp_path, monkeypatch):
    manual = (tiny.ROOT / "docs" / "import.md").read_text(encoding="utf-8")
    commands = manual.split("```bash\n")[1].split("```")[0].splitlines()
    hf.marian(tmp_path / "opus-mt-de-en")
    (tmp_path / "raw").mkdir()
    for split, part in {"valid": slice(8), "test": slice(8, 16)}.items():
        for language, lines in zip(("de", "en"), hf.corpus(), strict=True):
            text = "".join(f"{line}\n" for line in lines[part])
            (tmp_path / "raw" / f"{split}.{language}").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert len(commands) == 6
    for command in commands:
        words = shlex.split(command)
        if words[0] == "headprune":
            assert main(words[1:]) == 0, command
        else:
            prepare(tmp_path / "opus", tmp_path / "data-bin", *words[2:-2])
    assert (tmp_path / "heads.png").exists() and (tmp_path / "opus-ct2" / "model.bin").exists()


def test_a_model_trained_here_translates_alike_in_transformers(tmp_path):
    # A made-up language whose words stand for English ones, one by one: learned in a minute.
    german, english = ([w for w in dict.fromkeys(" ".join(side).split()) if w.isalpha()] for side in hf.corpus())
    words, draws = list(zip(german, english, strict=False))[:24], random.Random(2)
    for split, count in (("train", 800), ("valid", 20), ("test", 20)):
        chosen = [[draws.choice(words) for _ in range(draws.randint(2, 5))] for _ in range(count)]
        for side, language in enumerate(("de", "en")):
            text = "".join(" ".join(pair[side] for pair in line) + "\n" for line in chosen)
            (tmp_path / f"{split}.{language}").write_text(text, encoding="utf-8")
    sizes = {"d_model": 64, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "init_std": 0.05}
    folder, out, data = hf.marian(tmp_path / "folder", size=1500, learn=False, **sizes), tmp_path / "o", tmp_path / "d"
    run_json("import", folder, "-o", out)
    prepare(out, data, *[f"--{split}pref={tmp_path / split}" for split in ("train", "valid", "test")])
    plugin = [*tiny.TASK, "--cpu"]
    flags = "--arch marian_gated --optimizer adam --lr 0.003 --lr-scheduler inverse_sqrt --warmup-updates 50 --seed 1 "
    flags += "--max-tokens 600 --max-update 250 --no-epoch-checkpoints --no-progress-bar --num-workers 0 --dropout 0"
    flags += " --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --disable-validation"
    start = ["--finetune-from-model", out / "model.pt", "--save-dir", tmp_path / "run"]
    tiny.fairseq_here("train", data, *plugin, *flags.split(), *start)
    trained, search = tmp_path / "run" / "checkpoint_last.pt", ["--beam", "4", "--max-len-b", "60", "--min-len", "0"]
    here = generated("D", data, "--path", trained, *plugin, *search, "--post-process", "sentencepiece")
    references = (tmp_path / "test.en").read_text(encoding="utf-8").splitlines()
    assert sacrebleu.corpus_bleu(here, [references]).score > 50
    run_json("export", trained, "--to", "huggingface", tmp_path / "back", "--data", out)
    model, tokenizer = hf.load(tmp_path / "back")
    text = tokenizer((tmp_path / "test.de").read_text(encoding="utf-8").splitlines(), return_tensors="pt", padding=True)
    there = model.generate(**text, num_beams=4, early_stopping=True, max_length=62, renormalize_logits=False)
    assert [line.strip() for line in tokenizer.batch_decode(there, skip_special_tokens=True)] == here
    run_json("import", tmp_path / "back", "-o", tmp_path / "again")
    before, after = read_state(trained)["model"], read_state(tmp_path / "again" / "model.pt")["model"]
    assert all(torch.equal(tensor, before[name]) for name, tensor in after.items())


def test_one_import_serves_other_languages_of_the_model(tmp_path):
    folder, out, data = hf.nllb(tmp_path / "folder"), tmp_path / "out", tmp_path / "data-bin"
    run_json("import", folder, "-o", out, "--source-lang", "deu_Latn", "--target-lang", "eng_Latn")
    for language, lines in zip(("fra_Latn", "deu_Latn"), hf.corpus(), strict=True):
        (tmp_path / f"test.{language}").write_text("".join(f"{line}\n" for line in lines[:6]), encoding="utf-8")
    other = ["--source-lang", "fra_Latn", "--target-lang", "deu_Latn"]
    prepare(out, data, "--testpref", tmp_path / "test", *other)
    plugin = [*tiny.TASK, "--cpu"]
    found = generated("H", data, "--path", out / "model.pt", *plugin, *other, "--max-len-b", "40")
    model, tokenizer = hf.load(folder)
    tokenizer.src_lang = "fra_Latn"
    text = tokenizer(hf.corpus()[0][:6], return_tensors="pt", padding=True)
    assert len(found) == 6 and not any("_Latn" in line for line in found)
    forced, pad = tokenizer.convert_tokens_to_ids("deu_Latn"), model.config.pad_token_id
    how = {"num_beams": 5, "early_stopping": True, "max_length": 42, "min_length": 2, "bad_words_ids": [[pad]]}
    there = model.generate(**text, forced_bos_token_id=forced, forced_eos_token_id=2, **how)
    expected = [" ".join(tokenizer.convert_ids_to_tokens(row, skip_special_tokens=True)) for row in there]
    ended = [number for number, row in enumerate(there) if 2 in row[1:40].tolist()]
    assert ended and all(found[number].replace("<unk> ", "") == expected[number] for number in ended)


def test_weights_in_several_files_and_in_half_precision(marian, tmp_path):
    halves = hf.edit_config(shutil.copytree(marian.folder, tmp_path / "halves"), torch_dtype="float16")
    before = {name: t.half() for name, t in safetensors.torch.load_file(halves / NAME).items()}
    (halves / NAME).unlink()
    first = dict(list(before.items())[:20])
    safetensors.torch.save_file(first, halves / "model-00001-of-00002.safetensors")
    safetensors.torch.save_file(
        {name: t for name, t in before.items() if name not in first}, halves / "model-00002-of-00002.safetensors"
    )
    parts = {name: f"model-0000{1 if name in first else 2}-of-00002.safetensors" for name in before}
    (halves / f"{NAME}.index.json").write_text(json.dumps({"weight_map": parts}))
    run_json("import", halves, "-o", tmp_path / "out")
    assert {t.dtype for t in read_state(tmp_path / "out" / "model.pt")["model"].values()} == {torch.float32}
    run_json("export", tmp_path / "out" / "model.pt", "--to", "huggingface", tmp_path / "back")
    assert same(before, safetensors.torch.load_file(tmp_path / "back" / NAME))
