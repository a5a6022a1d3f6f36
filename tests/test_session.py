"""Loading model, task and data from fairseq-generate's flags, and what is refused."""

import os
import shutil
from argparse import Namespace

import numpy as np
import pytest
import tiny
import torch
from verbs import refused, run_json, session

import fairseq_headprune
from fairseq_headprune.checkpoints import read_state
from fairseq_headprune.evaluation.translate import Translator
from fairseq_headprune.models.starting import refuse_other_heads
from fairseq_headprune.session import parse_generation_args, sample_indices

FEW = ["--cpu", "--estimator", "weight-norm"]


def flags(run):
    return [str(run["data"]), "--path", str(run["checkpoint"]), "--cpu"]


def test_sample_indices():
    # Source: the definition: distinct, sorted, within range; 0 and too many mean all.
    found = sample_indices(100, 10, seed=0)
    assert len(set(found.tolist())) == 10 and found.tolist() == sorted(found) and 0 <= found[0] and found[-1] < 100
    assert found.tolist() == sample_indices(100, 10, seed=0).tolist() != sample_indices(100, 10, seed=1).tolist()
    for count in (0, 7, 8):
        assert sample_indices(7, count, seed=1).tolist() == list(range(7))
    with pytest.raises(ValueError, match="cannot draw -1 sentences"):
        sample_indices(7, -1, seed=1)


def test_every_sentence_draws_a_place_in_equal_measure():
    # Source: binomial; 2,000 draws of 2 of 10, 400 +- 5 standard deviations (18) each.
    counts = np.zeros(10)
    for seed in range(2000):
        counts[sample_indices(10, 2, seed)] += 1
    assert (abs(counts - 400) < 90).all()


def test_a_session_is_ready(trained, trained_stock):
    for run in (trained_stock, trained):
        loaded = session(run)
        assert not loaded.model.training
        assert loaded.gates.shape == {"enc_self": [2, 2], "enc_dec": [2, 2], "dec_self": [2, 2]}
    assert set(loaded.checkpoint) == {"path", "sha256"} and len(loaded.checkpoint["sha256"]) == 64
    found = loaded.data("test")
    assert found["split"] == "test"
    names = {f"test.xx-yy.{side}.{end}" for side in ("xx", "yy") for end in ("bin", "idx")}
    assert set(found["sha256"]) == names | {"dict.xx.txt", "dict.yy.txt"}


def test_a_model_trained_with_checkpointed_activations_is_scored(trained, tmp_path):
    """The scores are those of the same weights without the setting."""
    state = read_state(trained["checkpoint"])
    state["cfg"]["model"].checkpoint_activations = True
    torch.save(state, tmp_path / "recomputing.pt")
    runs = [trained, {**trained, "checkpoint": tmp_path / "recomputing.pt"}]
    plain, recomputing = (run_json("score", *flags(run))["scores"] for run in runs)
    assert plain == recomputing


@pytest.mark.parametrize("form", ["cached", "lazy"])
def test_data_in_fairseqs_older_forms(trained, form, tmp_path):
    data = tmp_path / "data-bin"
    words = [f"--{split}pref={trained['data'].parent / split}" for split in ("train", "test")]
    words += ["--srcdict", trained["data"] / "dict.xx.txt", "--joined-dictionary", "--dataset-impl", form]
    tiny.fairseq_here("preprocess", "--source-lang", "xx", "--target-lang", "yy", "--destdir", data, *words)
    older, mapped = ({**trained, "data": folder} for folder in (data, trained["data"]))
    assert run_json("score", *flags(older))["scores"] == run_json("score", *flags(mapped))["scores"]
    assert Translator(session(older), "test").answers() == Translator(session(mapped), "test").answers()


def test_fairseqs_own_task_may_be_named_and_others_are_refused(trained_stock, tmp_path, capsys):
    plain = run_json("score", *flags(trained_stock), *FEW)
    assert run_json("score", *flags(trained_stock), *FEW, "--task", "translation")["scores"] == plain["scores"]
    state = torch.load(trained_stock["checkpoint"], weights_only=False)
    state["cfg"]["task"]["_name"] = "multilingual_translation"
    torch.save(state, tmp_path / "many.pt")
    line = refused(capsys, "score", trained_stock["data"], "--path", tmp_path / "many.pt")
    assert "many.pt: the task multilingual_translation is not supported" in line
    assert "trained with the task multilingual_translation" in refused(
        capsys, "score", trained_stock["data"], "--path", tmp_path / "many.pt", "--task", "translation"
    )


def test_what_changes_the_input_is_part_of_the_identity(trained, tmp_path, capsys):
    plain = session(trained).data("test")
    assert set(plain) == {"split", "sha256"}  # as in studies that are stored
    cut = session(trained, "--truncate-source", "--max-source-positions", "4").data("test")
    assert cut == {**plain, "settings": {"max_source_positions": 4, "truncate_source": True}}
    turned = session(trained, "--source-lang", "yy", "--target-lang", "xx").data("test")
    assert turned == {**plain, "settings": {"direction": "yy-xx"}}
    # Source: the lengths of the text, and an end of sentence.
    lines = (trained["data"].parent / "test.xx").read_text().splitlines()
    short = sum(len(line.split()) + 1 <= 6 for line in lines)
    some = ["--max-source-positions", "6", "--max-target-positions", "6", "--skip-invalid-size-inputs-valid-test"]
    assert session(trained, *some).data("test")["sentences"] == {"scored": short, "of": 8} and 0 < short < 8
    for irrelevant in (["--dataset-impl", "mmap"], ["--log-interval", "7"], ["--print-step"], ["--batch-size", "3"]):
        same = session(trained, *irrelevant)
        assert same.data("test") == plain and same.answering() == session(trained).answering(), irrelevant
    study = ["ablate", *flags(trained), "-o", tmp_path / "s", "--resamples", "20", "--quiet"]
    run_json(*study, "--components", "dec_self")
    line = refused(capsys, *study, "--components", "dec_self", "--truncate-source", "--max-source-positions", "4")
    assert "settings" in line


def test_other_numbers_of_heads_are_refused(trained, trained_stock, capsys):
    for run in (trained, trained_stock):
        argv = [*flags(run), *FEW, "--model-overrides", "{'decoder_attention_heads': 4}"]
        line = refused(capsys, "score", *argv)
        assert "decoder_attention_heads 4: the checkpoint was trained with 2 heads a layer" in line
        assert line.endswith("take it out of --model-overrides")


@pytest.mark.parametrize("part", [dict, lambda **heads: Namespace(**heads)])
def test_numbers_of_heads_of_fairseqs_nested_settings_are_compared(part):
    # Both forms of fairseq-hydra-train: as it is configured, and as it is saved.
    asked = Namespace(encoder=part(attention_heads=4), decoder=part(attention_heads=2))
    with pytest.raises(
        ValueError, match="encoder_attention_heads 4: .* with 2 heads .*give --encoder-attention-heads 2"
    ):
        refuse_other_heads(asked, Namespace(encoder={"attention_heads": 2}))
    refuse_other_heads(asked, Namespace(encoder={"attention_heads": 4}, decoder_attention_heads=2))


@pytest.mark.parametrize("flag, name", [("", "fp32"), ("--fp16", "fp16"), ("--bf16", "bf16")])
def test_precision(trained, flag, name):
    loaded = session(trained, *flag.split())
    dtype = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[name]
    assert loaded.precision == name and {weight.dtype for weight in loaded.model.parameters()} == {dtype}
    assert len(Translator(loaded, "test").answers()) == 8


@pytest.mark.parametrize("verb", ["score", "evaluate", "prune"])
def test_a_checkpoint_that_is_not_there_is_what_is_told(tuned, verb, tmp_path, capsys):
    more = ["-o", tmp_path / "s"] if verb == "prune" else []
    line = refused(capsys, verb, tuned / "glue", "--path", tmp_path / "none.pt", "--cpu", *more)
    assert "none.pt: there is no such checkpoint" in line


def test_batches_hold_each_asked_sentence_once(trained):
    loaded = session(trained, "--batch-size", "4")
    batches = loaded.batches("train", np.array([3, 30, 7, 59, 11, 2]))
    assert len(batches) == 2
    samples = list(batches)
    assert sorted(i for sample in samples for i in sample["id"].tolist()) == [2, 3, 7, 11, 30, 59]
    assert [len(sample["id"]) for sample in samples] == [4, 2]
    # Source: the words of the text; similar lengths share a batch.
    lines = (trained["data"].parent / "train.xx").read_text().splitlines()
    lengths = [[len(lines[i].split()) for i in sample["id"].tolist()] for sample in samples]
    assert max(lengths[0]) <= min(lengths[1])


def test_too_long_sentences_are_refused_or_skipped(trained):
    # Source: the words of the text and an end of sentence.
    lines = (trained["data"].parent / "train.xx").read_text().splitlines()
    fitting = [i for i, line in enumerate(lines) if len(line.split()) + 1 <= 6]
    assert 0 < len(fitting) < 60
    loaded = session(trained, "--max-source-positions", "6", "--max-target-positions", "6")
    with pytest.raises(ValueError, match="--skip-invalid-size-inputs-valid-test"):
        loaded.batches("train")
    with pytest.raises(ValueError, match="train: .*--max-tokens"):
        session(trained, "--max-tokens", "5").batches("train")
    loaded.cfg.dataset.skip_invalid_size_inputs_valid_test = True
    batches = loaded.batches("train")
    assert sorted(i for sample in batches for i in sample["id"].tolist()) == fitting


PACKAGE = fairseq_headprune.__path__[0]


@pytest.mark.parametrize("spelling", [
    ["--user-dir", "fairseq_headprune"], ["--user-dir=fairseq_headprune"], ["--user-dir", PACKAGE],
    [f"--user-dir={PACKAGE}/"], ["--user-dir", os.path.relpath(PACKAGE)],
    ["--user-dir", os.path.join(PACKAGE, "..", "fairseq_headprune")],
])  # fmt: skip
def test_our_own_user_dir_is_accepted_in_any_spelling(trained, spelling):
    args = parse_generation_args("score", [*spelling, *flags(trained)], lambda parser: None, "a test")
    assert args.user_dir is None and args.task == "translation_headprune"


def test_our_own_user_dir_through_a_link(trained, tmp_path):
    (tmp_path / "with a blank").symlink_to(PACKAGE)
    found = run_json("score", *flags(trained), *FEW, "--user-dir", tmp_path / "with a blank")
    assert found["estimator"] == "weight-norm"


def test_a_second_copy_and_a_missing_user_dir_are_refused(trained, tmp_path, capsys):
    (tmp_path / "fairseq_headprune").mkdir()
    (tmp_path / "fairseq_headprune" / "__init__.py").write_text("")
    for name, said in (("fairseq_headprune", "not globally unique"), ("nothing-here", "nothing-here")):
        assert said in refused(capsys, "score", *flags(trained), *FEW, "--user-dir", tmp_path / name)


@pytest.fixture
def copied(trained, tmp_path):
    """A copy of the data, and the arguments that name it and the checkpoint."""
    data = shutil.copytree(trained["data"], tmp_path / "data")
    return data, [data, "--path", trained["checkpoint"], "--cpu"]


def test_wrong_input_is_one_line(trained, tmp_path, capsys):
    data, path, broken = trained["data"], trained["checkpoint"], tmp_path / "broken.pt"
    broken.write_bytes(path.read_bytes()[: os.path.getsize(path) // 2])
    for call, message in (
        ([data, "--path", path, "--no-such-flag"], "unrecognized arguments: --no-such-flag"),
        ([data], "--path CHECKPOINT is required"),
        (["--path", path], "required: data"),
        ([data, "--path", path, "--estimator", "x"], "invalid choice: 'x'"),
        ([data, "--path", "nowhere.pt"], "no such checkpoint"),
        ([tmp_path, "--path", path], "Could not infer language pair"),
        ([tmp_path / "no-such-folder", "--path", path], "no-such-folder"),
        ([*flags(trained), "--score-subset", "dev2010"], "has no split 'dev2010'; there are: test, train, valid"),
        ([data, "--path", broken], "damaged or truncated"),
    ):
        assert message in refused(capsys, "score", *call)


def test_a_checkpoint_that_does_not_fit_its_settings(trained, tmp_path, capsys):
    state = torch.load(trained["checkpoint"], weights_only=False)
    del state["model"]["encoder.layers.0.fc1.weight"]
    torch.save(state, tmp_path / "less.pt")
    line = refused(capsys, "score", trained["data"], "--path", tmp_path / "less.pt")
    assert "less.pt does not fit" in line and "encoder.layers.0.fc1.weight" in line
    del state["cfg"]
    torch.save(state, tmp_path / "bare.pt")
    line = refused(capsys, "score", trained["data"], "--path", tmp_path / "bare.pt")
    assert "bare.pt: the checkpoint holds no model settings" in line


def test_a_dictionary_of_another_size(trained, copied, capsys):
    data, argv = copied
    for name in ("dict.xx.txt", "dict.yy.txt"):
        with open(data / name, "a") as stream:
            stream.write("more 1\n")
    size = 4 + len((trained["data"] / "dict.xx.txt").read_text().splitlines())
    line = refused(capsys, "score", *argv)
    assert f"has {size} embeddings" in line and f"has {size + 1} entries" in line


def test_sides_of_another_length_and_a_missing_side(copied, capsys):
    data, argv = copied
    for end in ("bin", "idx"):
        shutil.copy(data / f"test.xx-yy.xx.{end}", data / f"train.xx-yy.xx.{end}")
        os.remove(data / f"valid.xx-yy.yy.{end}")
    assert "same number of examples" in refused(capsys, "score", *argv)
    assert "no target side" in refused(capsys, "score", *argv, "--score-subset", "valid")


def test_an_empty_split(copied, tmp_path, capsys):
    data, argv = copied
    for side in ("xx", "yy"):
        (tmp_path / f"empty.{side}").write_text("")
    flags = ["--srcdict", data / "dict.xx.txt", "--tgtdict", data / "dict.yy.txt", "--destdir", data]
    tiny.fairseq_here("preprocess", *flags, "--testpref", tmp_path / "empty", "-s", "xx", "-t", "yy")
    line = refused(capsys, "score", *argv, "--score-subset", "test")
    assert "'test'" in line and "empty" in line
