"""``--task glue`` in fairseq's own programs. Reference: values by hand, and the model's own forward."""

import json
import re
import shutil
from argparse import Namespace

import bert_models
import numpy as np
import pytest
import tiny
import torch
from bert_models import hugging_face_folder
from fairseq import checkpoint_utils
from fairseq.criterions.sentence_prediction import SentencePredictionConfig, SentencePredictionCriterion
from fairseq.distributed import utils as distributed
from fairseq.logging import metrics
from glue_data import train, write_glue

from fairseq_headprune.checkpoints import head_shape, read_state, saved_settings
from fairseq_headprune.glue.catalogue import TASKS
from fairseq_headprune.glue.dataset import GlueDataset, Holdout, read
from fairseq_headprune.modules.attach import find_gates
from fairseq_headprune.parts import Mask
from fairseq_headprune.tasks.glue import GlueConfig, GlueSentencePredictionTask

BEST = ["--best-checkpoint-metric", "score", "--maximize-best-checkpoint-metric"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_glue(tmp_path_factory.mktemp("glue"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return hugging_face_folder(tmp_path_factory.mktemp("bert") / "hf")


@pytest.fixture(scope="module")
def run(data, folder, tmp_path_factory):
    """SST-2 fine-tuned from a folder that is gone afterwards: the save folder and the last validation."""
    save = tmp_path_factory.mktemp("run")
    gone = shutil.copytree(folder, save / "hf")
    printed = train(data, save, "SST-2", "--bert", gone, "--max-epoch", "8", "--log-format", "json", *BEST)
    shutil.rmtree(gone)
    return save, printed


def load(path):
    models, _, task = checkpoint_utils.load_model_ensemble_and_task([str(path)])
    return models[0].eval(), task


def test_a_batch_has_berts_own_ids_and_is_padded_on_the_right(tmp_path):
    """a is 5, cat is c ##a ##t (7, 31, 50), good 57, it's: i ' s; counted from PIECES."""
    vocabulary = bert_models.vocabulary(tmp_path)
    (tmp_path / "dev.tsv").write_text(
        "index\tsentence1\tsentence2\tlabel\n0\tcat\ta good\tentailment\n1\ta\tb\tnot_entailment\n"
    )
    found = read(tmp_path, TASKS["RTE"], "dev", vocabulary, 24, Holdout())
    dataset = GlueDataset(found, "dev", vocabulary.pad)
    sample = dataset.collater([dataset[1], dataset[0]])
    assert sample["net_input"]["src_tokens"].tolist() == [[2, 5, 3, 6, 3, 0, 0, 0], [2, 7, 31, 50, 3, 5, 57, 3]]
    assert sample["net_input"]["token_types"].tolist() == [[0, 0, 0, 1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 1, 1, 1]]
    assert sample["target"].tolist() == [1, 0] and sample["id"].tolist() == [1, 0]
    assert (sample["ntokens"], sample["nsentences"]) == (13, 2)
    assert sample["net_input"]["src_lengths"].tolist() == [5, 8]


def test_training_learns_and_the_best_checkpoint_has_the_best_score(run):
    """ "good" or "bad" decides the label; a linear model of the words would do."""
    save, _ = run
    state = read_state(save / "checkpoint_best.pt")
    assert state["extra_state"]["best"] == pytest.approx(100)
    assert head_shape(state) == {"enc_self": [4, 4, 4]} and saved_settings(state).bert_labels == ["0", "1"]


def test_a_checkpoint_needs_no_folder(run, data):
    """Built from the checkpoint alone; predictions by the model's own forward, one example at a time."""
    save, _ = run
    model, task = load(save / "checkpoint_best.pt")
    task.load_dataset("dev")
    dataset = task.dataset("dev")
    one_by_one = [model(**dataset.collater([i])["net_input"])[0].argmax().item() for i in range(len(dataset))]
    assert (np.array(one_by_one) == dataset.targets).mean() == 1.0
    assert find_gates(model).shape == {"enc_self": [4, 4, 4]}
    flags = [*tiny.PLUGIN, "--task", "glue", "--valid-subset", "dev", "--cpu"]
    path = ["--path", save / "checkpoint_best.pt", "--batch-size", "8"]
    printed = tiny.fairseq_here("validate", data, *flags, *path, "--log-format", "json")
    assert '"dev_accuracy": "100", "dev_score": "100"' in printed


def test_training_goes_on_without_the_folder(run, data, tmp_path):
    save, _ = run
    resumed = shutil.copytree(save, tmp_path / "resumed")
    train(data, resumed, "SST-2", "--bert", tmp_path / "gone", "--max-epoch", "9")
    before, after = (read_state(f / "checkpoint_last.pt") for f in (save, resumed))
    assert after["optimizer_history"][-1]["num_updates"] == before["optimizer_history"][-1]["num_updates"] * 9 // 8
    assert after["task_state"]["vocabulary"] == before["task_state"]["vocabulary"]


def test_fine_tuning_on_another_task_starts_a_classifier_of_its_own(run, data, tmp_path, caplog):
    save, _ = run
    train(data, tmp_path, "MNLI", "--finetune-from-model", save / "checkpoint_best.pt", "--max-epoch", "1")
    assert "the checkpoint's classifier is of another task" in caplog.text
    model, task = load(tmp_path / "checkpoint_last.pt")
    assert model.classification_heads[bert_models.HEAD].out_proj.weight.size(0) == 3
    assert task.labels == ["contradiction", "entailment", "neutral"]


def test_regression(data, folder, tmp_path, caplog):
    """The loss is the mean squared error, in the units fairseq logs (divided by log 2); without --regression-target."""
    train(data, tmp_path, "STS-B", "--bert", folder, "--max-epoch", "1", "--lr", "0", "--log-format", "json", *BEST)
    model, task = load(tmp_path / "checkpoint_last.pt")
    task.load_dataset("dev")
    sample = task.dataset("dev").collater(list(range(10)))
    with torch.no_grad():
        error = (model(**sample["net_input"])[0].view(-1) - sample["target"]).square().mean() / np.log(2)
    logged = json.loads(re.findall(r"\{.*valid_loss.*?\}", caplog.text)[-1])
    assert float(logged["valid_loss"]) == pytest.approx(float(error), abs=2e-3)
    assert {"valid_pearson", "valid_spearman", "valid_score"} <= logged.keys()


def test_a_mask_holds_in_training_and_is_saved(data, folder, tmp_path):
    mask = Mask({"enc_self": [[1, 0, 1, 1], [0] * 4, [1, 1, 1, 0]]})
    mask.save(tmp_path / "mask.json")
    train(data, tmp_path / "save", "SST-2", "--bert", folder, "--head-mask", tmp_path / "mask.json", "--max-epoch", "1")
    model, _ = load(tmp_path / "save" / "checkpoint_last.pt")
    assert find_gates(model).mask().rows == mask.rows
    start = bert_models.from_folder(folder)
    # Head 1 of layer 0 (columns 6 to 12) did not move.
    moved = (model.encoder.layers[0].self_attn.out_proj.weight - start.encoder.layers[0].self_attn.out_proj.weight) != 0
    assert moved[:, :6].any() and not moved[:, 6:12].any()


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"arch": "transformer_gated_tiny"}, "--arch transformer_gated_tiny: the task glue is for bert_gated"),
        ({"max_positions": 40}, "--max-positions 40: the model has 32 positions"),
        ({"max_positions": 3}, "--max-positions 3: examples need at least 8 pieces"),
        ({"metric": "bleu"}, "--metric bleu: SST-2 knows"),
        ({"glue_task": None}, "--glue-task is missing; known are CoLA"),
        ({"bert": "nowhere"}, "--bert nowhere: there is no such folder"),
        ({"bert": None, "arch": "bert_gated_mini"}, "no vocabulary: name a Hugging Face folder with --bert DIR"),
        ({"head_mask": "nowhere"}, "nowhere"),
    ],
)
def test_wrong_flags_are_refused(data, folder, changed, message):
    model = {"arch": "bert_gated", "bert": folder} | {n: v for n, v in changed.items() if n in ("arch", "bert")}
    config = {"glue_task": "SST-2", "max_positions": 24} | {n: v for n, v in changed.items() if n not in model}
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        GlueSentencePredictionTask(GlueConfig(data=str(data), **config)).build_model(Namespace(**model))


def test_an_untrained_model_takes_a_vocabulary(data, folder):
    """BERT-mini's shape (Turc et al. 2019) with 61 pieces: embeddings, 4 layers, pooler and classifier by hand."""
    task = GlueSentencePredictionTask(GlueConfig(data=str(data), glue_task="SST-2"))
    model = task.build_model(Namespace(arch="bert_gated_mini", vocabulary=str(folder / "vocab.txt")))
    layer = 4 * (256 * 256 + 256) + 2 * 256 * 1024 + 1024 + 256 + 4 * 256
    expected = (61 + 512 + 2 + 2) * 256 + 4 * layer + 256 * 256 + 256 + 2 * 256 + 2
    assert sum(p.numel() for p in model.parameters()) == expected
    assert find_gates(model).shape == {"enc_self": [4] * 4}


def test_every_epoch_of_training_has_batches_of_its_own(data, tmp_path):
    vocabulary = bert_models.vocabulary(tmp_path)
    dataset = GlueDataset(read(data, TASKS["SST-2"], "train", vocabulary, 24, Holdout()), "train", 0, True)
    np.random.seed(1)
    orders = [dataset.ordered_indices().tolist() for _ in range(2)]
    assert orders[0] != orders[1] and sorted(orders[0]) == list(range(56))


def test_a_score_is_of_the_batches_of_all_ranks(run, monkeypatch):
    """A second rank that has predicted 1, 1, 0 where 1, 0, 0 is right; and one whose batch was a dummy."""
    save, _ = run
    model, task = load(save / "checkpoint_best.pt")
    criterion = SentencePredictionCriterion(SentencePredictionConfig(), task)
    task.load_dataset("dev")
    task.load_dataset("train")
    batch, dummy = (task.dataset(split).collater(list(range(4))) for split in ("dev", "train"))
    other = (torch.tensor([1, 1, 0]), torch.tensor([1, 0, 0]))

    def gather(found, mine, group):
        found[:] = [mine, other]

    monkeypatch.setattr(distributed, "get_data_parallel_world_size", lambda: 2)
    monkeypatch.setattr(distributed, "get_data_parallel_group", lambda: None)
    monkeypatch.setattr(torch.distributed, "all_gather_object", gather)
    for sample, right, total in ((batch, 4 + 2, 7), (dummy, 2, 3)):
        with metrics.aggregate(new_root=True) as found:
            _, _, logged = task.valid_step(sample, model, criterion)
            task.reduce_metrics([logged], criterion)
        assert found.get_smoothed_values()["score"] == pytest.approx(100 * right / total)
