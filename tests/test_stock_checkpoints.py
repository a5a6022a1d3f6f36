"""Whatever stock fairseq writes is read: by our verbs and, under --user-dir, by fairseq's own commands."""

import io
import pickle
import zipfile

import numpy as np
import pytest
import tiny
import torch
from fairseq.optim.composite import FairseqCompositeOptimizer
from omegaconf import OmegaConf
from verbs import run_json

from fairseq_headprune.checkpoints import allow_settings, read_state

STOCK = ["--arch", "transformer_tiny", "--task", "translation", *tiny.PLUGIN]
BLEU = ["--eval-bleu", "--eval-bleu-args", '{"beam": 1, "max_len_b": 5}', "--best-checkpoint-metric", "bleu"]

#: each optimizer, scheduler and criterion of the installed fairseq that can train this model on a CPU, at least once
#: (cpu_adam wants DeepSpeed, lamb apex, pass_through an optimizer with a schedule; manual has no flag that it reads)
RUNS = {
    "adam": "--lr-scheduler inverse_sqrt --warmup-updates 3",
    "adafactor": "--lr-scheduler fixed --criterion label_smoothed_cross_entropy --report-accuracy",
    "adadelta": "--lr-scheduler cosine --criterion label_smoothed_cross_entropy_with_rdrop",
    "adagrad": "--lr-scheduler polynomial_decay --total-num-update 9",
    "adamax": "--lr-scheduler reduce_lr_on_plateau",
    "nag": "--lr-scheduler tri_stage --phase-ratio [.1,.4,.5] --criterion label_smoothed_cross_entropy_with_alignment",
    "sgd": "--lr-scheduler triangular --max-lr 0.02 --momentum 0.9",
    "adam --use-old-adam": "--lr-scheduler step --store-ema --ema-fp32",
    "adam --use-bmuf": "--adaptive-softmax-cutoff 8,16 --criterion adaptive_loss --ddp-backend legacy_ddp",
}


@pytest.mark.parametrize("optimizer", RUNS)
def test_what_a_training_leaves_is_read_and_resumed(data_bin, tmp_path, optimizer):
    flags = [*STOCK, "--optimizer", *optimizer.split(), *RUNS[optimizer].split()]
    tiny.train(data_bin, tmp_path, *flags)
    first = read_state(tmp_path / "checkpoint_last.pt")
    assert first["optimizer_history"][-1]["num_updates"] == 5 and first["last_optimizer_state"]
    if "adaptive" in RUNS[optimizer]:
        return  # stock fairseq itself cannot load an adaptive softmax with shared embeddings again
    tiny.train(data_bin, tmp_path, *flags, "--max-update", "7")
    assert read_state(tmp_path / "checkpoint_last.pt")["optimizer_history"][-1]["num_updates"] == 7


@pytest.fixture(scope="module")
def with_bleu(data_bin, tmp_path_factory):
    save = tmp_path_factory.mktemp("bleu")
    tiny.train(data_bin, save, *STOCK, *BLEU)
    return data_bin, save / "checkpoint_last.pt"


def test_metrics_of_eval_bleu_are_data(with_bleu):
    data, path = with_bleu
    found = {key: meter for _, key, _, meter in read_state(path)["extra_state"]["metrics"]["valid"]}
    # Source: Python's own loader, which trusts the file.
    trusted = {key: m for _, key, _, m in torch.load(path, weights_only=False)["extra_state"]["metrics"]["valid"]}
    counts, expected = found["_bleu_counts"]["sum"], trusted["_bleu_counts"]["sum"]
    assert isinstance(counts, np.ndarray) and counts.dtype == expected.dtype
    assert counts.tolist() == expected.tolist() and found["_bleu_totals"]["sum"].shape == (4,)


def test_fairseqs_commands_and_our_verbs_read_it(with_bleu, tmp_path, monkeypatch):
    data, path = with_bleu
    plugin = [*tiny.PLUGIN, "--cpu", "--path", path]
    assert "D-0\t" in tiny.fairseq_here("generate", data, *plugin, "--beam", "1")
    tiny.fairseq_here(
        "validate", data, *plugin, "--task", "translation", "--valid-subset", "valid", "--batch-size", "8"
    )
    monkeypatch.setattr("sys.stdin", io.StringIO("w1 w2 w3\n"))
    assert "D-0\t" in tiny.fairseq_here("interactive", data, *plugin, "--source-lang", "xx", "--target-lang", "yy")
    assert run_json("score", data, *plugin, "--gen-subset", "valid")["format"]
    tiny.train(data, tmp_path, *STOCK, *BLEU, "--restore-file", path, "--max-update", "7")
    # What is saved again asks for nothing of ours: any program that reads fairseq's files reads this one.
    assert not any(b"stored.numpy_data" in member for member in _pickles(tmp_path / "checkpoint_last.pt"))


def _pickles(path):
    with zipfile.ZipFile(path) as file:
        return [file.read(name) for name in file.namelist() if name.endswith("data.pkl")]


def test_the_composite_optimizer(tmp_path):
    one = OmegaConf.create({"lr": [0.1], "lr_scheduler": {"_name": "fixed", "lr": [0.1]}, "lr_float": None})
    one.optimizer = {"_name": "sgd", "lr": [0.1], "momentum": 0.9, "weight_decay": 0.0}
    groups = {"default": one, "second": one}
    weights = [torch.nn.Parameter(torch.ones(2)) for _ in groups]
    for weight, group in zip(weights, groups, strict=True):
        weight.param_group = group
    cfg = OmegaConf.create({"groups": groups, "dynamic_groups": False, "optimizer_overrides": {}})
    optimizer = FairseqCompositeOptimizer(cfg, weights)
    sum(weight.sum() for weight in weights).backward()
    optimizer.step()
    torch.save({"model": {}, "last_optimizer_state": optimizer.state_dict()}, tmp_path / "c.pt")
    found = read_state(tmp_path / "c.pt")["last_optimizer_state"]
    assert found["second"]["state"][0]["momentum_buffer"].tolist() == [1.0, 1.0]


PLAIN = [
    np.array([1, 2, 3]), np.arange(6.0, dtype=">f4").reshape(2, 3),
    np.asfortranarray(np.arange(6, dtype="u1").reshape(2, 3)), np.array(2.5), np.zeros((0, 3)), np.array(["ü", "ab"]),
    np.array([b"x", b"yz"]), np.array([True, False]), np.array([1 + 2j]), np.array(["2026-11-29"], dtype="M8[D]"),
    np.array([5], dtype="m8[10ms]"), np.float64(0.1), np.float16(0.5), np.int32(-3), np.bool_(True), np.str_("ü"),
    np.str_(""),
]  # fmt: skip


@pytest.mark.parametrize("value", PLAIN, ids=repr)
@pytest.mark.parametrize("module", ["numpy._core", "numpy.core"])
def test_numpy_values_come_back(value, module):
    found = _loaded(_saved(value).replace(b"numpy._core.multi", f"{module}.multi".encode()))
    # Source: Python's own loader (which turns an array of another byte order into one of the machine's).
    expected = pickle.loads(pickle.dumps(value, 2))
    assert (found.dtype, found.shape, found.tolist()) == (expected.dtype, expected.shape, expected.tolist())
    assert type(found) is type(value) or isinstance(value, np.ndarray)
    again = pickle.loads(pickle.dumps(found))
    assert type(again) is type(value) and again.tolist() == value.tolist()


@pytest.mark.parametrize("name", ["f8", ">i4", "U7", "M8[3h]", "?"])
def test_numpy_dtypes_come_back(name):
    found = _loaded(_saved(np.dtype(name)))
    assert found == np.dtype(name) and np.zeros(2, found).dtype == np.dtype(name)
    assert pickle.loads(pickle.dumps(found)) == np.dtype(name)


class Calls:
    """Pickles as a call with these arguments, and a state that is set afterwards."""

    def __init__(self, *how):
        self.how = how

    def __reduce__(self):
        return self.how


# A dtype of objects whose flags deny it: numpy's own loader would follow the addresses in the content.
LYING = Calls(np.dtype, ("O", False, True), (3, "|", None, None, None, 8, 8, 0))
RECONSTRUCT = np.zeros(1).__reduce__()[0]


@pytest.mark.parametrize(
    "value",
    [
        np.array([{"a": 1}], dtype=object),
        np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
        np.dtype("O"),
        np.dtype([("a", "i4")]),
        Calls(RECONSTRUCT, (np.ndarray, (0,), b"b"), (1, (1,), LYING, False, b"\x08" * 8)),
        Calls(RECONSTRUCT, (np.ndarray, (0,), b"b"), (1, (2,), np.dtype("f8"), False, b"\x08" * 8)),
        Calls(RECONSTRUCT, (np.ndarray, (0,), b"b"), (1, (-1,), np.dtype("f8"), False, b"")),
        Calls(RECONSTRUCT, (np.ndarray, (0,), b"b"), (1, (1,), np.dtype("f8"), False, [1.0])),
        Calls(RECONSTRUCT, (np.ndarray, (0,), b"b"), 3),
        Calls(RECONSTRUCT, (np.matrix, (0,), b"b"), (1, (1,), np.dtype("f8"), False, b"\x08" * 8)),
        Calls(np.ndarray, ((2,), "O")),
        Calls(np.frombuffer, (b"1234", "f4")),
    ],
)
def test_objects_of_python_and_what_lies_about_itself_are_refused(tmp_path, value):
    torch.save({"model": {}, "extra_state": {"a": value}}, tmp_path / "c.pt")
    with pytest.raises(ValueError, match=r"c\.pt: refused and not executed: it holds .*numpy"):
        read_state(tmp_path / "c.pt")


def _saved(value):
    stream = io.BytesIO()
    torch.save(value, stream, _use_new_zipfile_serialization=False)
    return stream.getvalue()


def _loaded(content):
    allow_settings()
    return torch.load(io.BytesIO(content), weights_only=True)
