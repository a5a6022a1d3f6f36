"""A third task in one file: language modelling of a made-up text, scored, pruned and ablated by the unchanged verbs."""

from dataclasses import dataclass, field
from typing import Optional

import numpy as np
import pytest
import tiny
import torch
from fairseq.data import FairseqDataset, data_utils
from fairseq.tasks import FairseqTask, register_task
from fairseq.tasks.language_modeling import LanguageModelingConfig
from omegaconf import II
from verbs import cells, refused, run_json

from fairseq_headprune.importance.losses import TokenLosses
from fairseq_headprune.session import Session, parse_generation_args
from fairseq_headprune.tasks.gated import GatedTask

pytestmark = pytest.mark.slow  # trains models


@dataclass
class ToyConfig(LanguageModelingConfig):
    """Settings of the task, whose text is made up."""

    jump: Optional[int] = field(default=None, metadata={"help": "how far the next word is (default: 3)"})
    head_mask: Optional[str] = field(default=None, metadata={"help": "mask file"})
    train_subset: str = II("dataset.train_subset")


class Sentences(FairseqDataset):
    """Sentences whose next word is a fixed number of words further in the dictionary."""

    def __init__(self, dictionary, jump, seed):
        draw = np.random.default_rng(seed)
        starts, self.sizes = draw.integers(0, 20, 24), draw.integers(4, 9, 24)
        words = [dictionary.index(word) for word in tiny.WORDS]
        self.rows = [
            torch.tensor([words[(start + jump * i * i) % 20] for i in range(n)])
            for start, n in zip(starts, self.sizes, strict=True)
        ]
        self.dictionary = dictionary

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return index

    def num_tokens(self, index):
        return int(self.sizes[index])

    size = num_tokens

    def ordered_indices(self):
        return np.argsort(self.sizes, kind="stable")

    def collater(self, samples):
        pad, eos = self.dictionary.pad(), torch.tensor([self.dictionary.eos()])
        rows = [self.rows[i] for i in samples]
        target = data_utils.collate_tokens([torch.cat([row, eos]) for row in rows], pad)
        source = data_utils.collate_tokens([torch.cat([eos, row]) for row in rows], pad)
        lengths = torch.tensor([len(row) + 1 for row in rows])
        return {
            "id": torch.tensor(samples), "net_input": {"src_tokens": source, "src_lengths": lengths},
            "target": target, "nsentences": len(rows), "ntokens": int(lengths.sum()),
        }  # fmt: skip


@register_task("toy_lm", dataclass=ToyConfig)
class ToyTask(GatedTask, FairseqTask):
    """Predict the next word."""

    default_subset, as_trained = "valid", ("jump",)

    def __init__(self, cfg, **kwargs):
        super().__init__(cfg)
        self.dictionary = self.output_dictionary = tiny.make_dictionary()

    source_dictionary = target_dictionary = property(lambda self: self.dictionary)

    @property
    def jump(self):
        return 3 if self.cfg.jump is None else self.cfg.jump

    def max_positions(self):
        return 32

    def load_dataset(self, split, **kwargs):
        self.datasets[split] = Sentences(self.dictionary, self.jump, len(split))

    def identity(self, split):
        return {"split": split, "jump": self.jump}

    def losses(self, loss, smoothing):
        return TokenLosses(self.pad, loss, smoothing)

    def sides(self, sample):
        tokens = sample["net_input"]["src_tokens"]
        return {"dec_self": (tokens, tokens)}

    def evaluator(self, session, split):
        return NextWords(session, split)


class NextWords:
    """Predicts every next word; scored by how many are right."""

    obstacle, name, signature = "the toy task answers under one mask at a time", "accuracy", "accuracy of words"

    def __init__(self, session, split):
        self._session, self._batches = session, session.batches(split)
        self.references = self._texts(lambda sample: sample["target"])
        self.sources = self._texts(lambda sample: sample["net_input"]["src_tokens"])

    def _texts(self, tokens):
        found = {}
        for sample in self._batches:
            real = sample["target"].ne(self._session.task.pad)
            for number, row, kept in zip(sample["id"].tolist(), tokens(sample), real, strict=True):
                found[number] = " ".join(map(str, row[kept].tolist()))
        return [found[number] for number in sorted(found)]

    def answers(self):
        with torch.no_grad():
            return self._texts(lambda sample: self._session.model(**sample["net_input"])[0].argmax(dim=-1))

    def metric(self, comparison):
        return self

    def beside(self):
        return {}

    def extract(self, hypotheses):
        pairs = [(h.split(), r.split()) for h, r in zip(hypotheses, self.references, strict=True)]
        return np.array([[sum(map(str.__eq__, h, r)), len(r)] for h, r in pairs], dtype=float)

    def score(self, sums):
        return 100 * sums[..., 0] / sums[..., 1]


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    save = tmp_path_factory.mktemp("toy")
    model = "--task toy_lm --arch transformer_lm --decoder-layers 2 --decoder-attention-heads 2 --decoder-embed-dim 16"
    flags = "--cpu --optimizer adam --lr 0.005 --batch-size 8 --seed 1 --max-update 60 --num-workers 0 --dropout 0"
    tiny.fairseq_here(
        "train", save, "--save-dir", save, *f"{model} {flags} --jump 2 --no-epoch-checkpoints --no-progress-bar".split()
    )
    return [save, "--path", save / "checkpoint_last.pt", "--cpu", "--batch-size", "5"]


def accuracy(toy, dropped=None):
    """Share of right words in percent, by the definition, with the columns of a head's output set to zero."""
    session = Session(parse_generation_args("score", [*map(str, toy)], lambda parser: None, ""))
    assert session.task.jump == 2  # as in training
    right = total = 0
    with torch.no_grad():
        if dropped:
            layer, head = dropped
            session.model.decoder.layers[layer].self_attn.out_proj.weight[:, 8 * head : 8 * head + 8] = 0
        for number in range(24):
            sample = session.collate("valid", [number])
            found = session.model(**sample["net_input"])[0].argmax(dim=-1)
            right, total = right + int((found == sample["target"]).sum()), total + found.numel()
    return 100 * right / total


def test_ablate(toy, tmp_path):
    found = run_json("ablate", *toy, "-o", tmp_path / "s", "--quiet", "--resamples", "50")
    rows = {row["id"]: row["score"] for row in cells(tmp_path / "s")}
    assert len(rows) == 5 and found["baseline"]["signature"] == "accuracy of words"
    by_hand = [accuracy(toy), *(accuracy(toy, (layer, head)) for layer in range(2) for head in range(2))]
    assert list(rows.values()) == pytest.approx(by_hand) and len(set(by_hand)) > 1


def test_prune_and_score(toy, tmp_path, capsys):
    scores = run_json("score", *toy, "--score-subset", "train", "--score-sentences", "0")
    assert scores["sentences"] == 24 and np.array(scores["scores"]["dec_self"]).min() > 0
    found = run_json("prune", *toy, "-o", tmp_path / "s", "--quiet", "--resamples", "50", "--step", "50%")
    shares = {row["id"]: row["score"] for row in cells(tmp_path / "s")}
    assert len(shares) == 3 and list(shares.values())[0] == pytest.approx(accuracy(toy))
    assert found["data"] == {"split": "valid", "jump": 2}
    # Other settings of the task are another study; what is for translations is refused.
    line = refused(capsys, "prune", *toy, "-o", tmp_path / "s", "--jump", "5")
    assert "jump" in line
    assert "translation models" in refused(capsys, "profile", *toy, "-o", tmp_path / "p.json")
