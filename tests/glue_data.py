"""Small GLUE folders, made on the spot, and runs of fairseq-train on them."""

import gzip
import random

import tiny
import torch
from bert_models import HEAD, hugging_face_folder
from fairseq import checkpoint_utils

from fairseq_headprune.modules.attach import find_gates
from fairseq_headprune.parts import Mask

#: of a model of bert_models: uneven; the second layer is empty
MASK = Mask({"enc_self": [[1, 0, 1, 1], [0] * 4, [0, 0, 0, 1]]}, {"command": "test"})

WORDS = ["good", "bad", "a", "b", "cat", "dog", "of", "it's"]

FLAGS = "--cpu --optimizer adam --lr 0.003 --batch-size 16 --seed 1 --num-workers 0 --no-progress-bar --max-epoch 2 "
FLAGS += "--no-epoch-checkpoints --max-positions 24 --arch bert_gated --dropout 0 --attention-dropout 0 "
FLAGS += "--pooler-dropout 0"


def sentence(draw, *more):
    return " ".join([*more, *draw.choices(WORDS[2:], k=draw.randint(1, 3))])


def write_glue(folder):
    """Write SST-2 (a sentence with "good" is 1), RTE, STS-B and MNLI; dev of SST-2 is packed."""
    draw = random.Random(2)
    sst = [(number % 2, sentence(draw, WORDS[1 - number % 2])) for number in range(80)]
    _write(folder / "SST-2", "train", "sentence\tlabel", [f"{text}\t{label}" for label, text in sst[:56]])
    _write(folder / "SST-2", "dev", "sentence\tlabel", [f"{text}\t{label}" for label, text in sst[56:68]], packed=True)
    _write(folder / "SST-2", "test", "index\tsentence", [f"{i}\t{text}" for i, (_, text) in enumerate(sst[68:])])
    pair = lambda i: f"{i}\t{sentence(draw)}\t{sentence(draw)}"  # noqa: E731
    names = ("not_entailment", "entailment")
    for split, count in (("train", 32), ("dev", 10), ("test", 6)):
        label = [f"\t{names[i % 2]}" if split != "test" else "" for i in range(count)]
        head = "index\tsentence1\tsentence2" + ("\tlabel" if split != "test" else "")
        _write(folder / "RTE", split, head, [pair(i) + label[i] for i in range(count)])
        score = [f"\t{(i % 11) / 2}" if split != "test" else "" for i in range(count)]
        head = "index\tgenre\tsentence1\tsentence2" + ("\tscore" if split != "test" else "")
        rows = [pair(i).replace("\t", "\tx\t", 1) + score[i] for i in range(count)]
        _write(folder / "STS-B", split, head, rows)
    names = ("neutral", "entailment", "contradiction")
    for split in ("train", "dev_matched", "dev_mismatched", "test_matched", "test_mismatched"):
        label = "\tgold_label" if not split.startswith("test") else ""
        rows = [pair(i) + (f"\t{names[i % 3]}" if label else "") for i in range(12)]
        _write(folder / "MNLI", split, "index\tsentence1\tsentence2" + label, rows)
    return folder


def _write(folder, split, header, lines, packed=False):
    folder.mkdir(parents=True, exist_ok=True)
    data = "".join(line + "\n" for line in [header, *lines]).encode()
    if packed:
        (folder / f"{split}.tsv.gz").write_bytes(gzip.compress(data))
    else:
        (folder / f"{split}.tsv").write_bytes(data)


def train(data, save, task, *flags):
    """Fine-tune in this process; return what fairseq printed. The criterion is sentence_prediction by default."""
    words = [*tiny.PLUGIN, "--task", "glue", "--glue-task", task, *FLAGS.split()]
    words += [] if "--criterion" in flags else ["--criterion", "sentence_prediction"]
    return tiny.fairseq_here("train", data, "--save-dir", save, *words, *flags)


def write_tuned(root):
    """Write the data, a lively folder, a checkpoint of each of three tasks that nothing was learned in, and MASK."""
    data, folder = write_glue(root / "glue"), hugging_face_folder(root / "hf", ("0", "1"))
    for task in ("SST-2", "STS-B", "MNLI"):
        train(data, root / task, task, "--bert", folder, "--lr", "0", "--max-update", "1", "--max-positions", "20")
        _widen(root / task / "checkpoint_last.pt")
    MASK.save(root / "mask.json")
    return root


def _widen(path):
    """Make the classifier's logits differ from example to example, around 0, so that every label is predicted."""
    state = torch.load(path, weights_only=False)
    name = f"classification_heads.{HEAD}.out_proj."
    weight = state["model"][name + "weight"]
    state["model"][name + "weight"] = 3 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1))
    state["model"][name + "bias"].zero_()
    torch.save(state, path)
    state["model"][name + "bias"] -= torch.from_numpy(logits(path, "train")[0].mean(0))
    torch.save(state, path)


def logits(path, split, mask=None):
    """Logits and targets of a split: one example at a time, through fairseq's own loading, the mask by hand."""
    [model], _, task = checkpoint_utils.load_model_ensemble_and_task([str(path)])
    task.load_dataset(split)
    dataset, gates = task.dataset(split), find_gates(model.eval())
    with torch.no_grad(), gates.masked(mask or gates.mask()):
        rows = [model(**dataset.collater([i])["net_input"])[0][0] for i in range(len(dataset))]
    return torch.stack(rows).numpy(), dataset.targets
