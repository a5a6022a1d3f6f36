"""COMET beside BLEU, by a stub of the public API of unbabel-comet (download_model, load_from_checkpoint, predict).

Expected scores by hand: the stub gives a translation the number of its words by that of its source's, at most 1.
"""

import argparse
import importlib.machinery
import sys
import types
from fractions import Fraction

import pytest
import tiny
import toys

from fairseq_headprune.cli.study_flags import comparison_settings
from fairseq_headprune.evaluation import comet
from fairseq_headprune.evaluation.comet import Comet
from fairseq_headprune.parts.scores import Scores
from fairseq_headprune.studies.ablate import Ablate
from fairseq_headprune.studies.mask_study import Comparison
from fairseq_headprune.studies.masked import MaskWork
from fairseq_headprune.studies.prune import Prune, PruneSettings
from fairseq_headprune.studies.study import run


@pytest.fixture
def stub(monkeypatch):
    """Install the stub; it notes what was asked of it."""
    asked = []

    class Model:
        def predict(self, samples, batch_size=16, gpus=1, progress_bar=True):
            print("what Lightning prints")
            asked.append((samples, gpus))
            scores = [min(1.0, len(s["mt"].split()) / len(s["src"].split())) for s in samples]
            return types.SimpleNamespace(scores=scores, system_score=sum(scores) / len(scores))

    def load(path):
        if path != "here/model.ckpt":
            raise OSError("no such\nfile")
        return Model()

    module = types.ModuleType("comet")
    module.__spec__ = importlib.machinery.ModuleSpec("comet", None)
    module.download_model = lambda name: f"here/{name.split('/')[1]}.ckpt"
    module.load_from_checkpoint = load
    monkeypatch.setitem(sys.modules, "comet", module)
    comet._load.cache_clear()
    yield asked
    comet._load.cache_clear()


def test_the_score_is_the_mean_of_its_sentences(stub, capsys):
    metric = Comet("Unbabel/model", ["a b c d", "a b"], ["A B C D", "A B"])
    statistics = metric.extract(["x y", "x y"])
    assert statistics.tolist() == [[0.5, 1], [1, 1]] and metric.score(statistics.sum(axis=0)) == 75
    assert stub[0] == (
        [{"src": "a b c d", "mt": "x y", "ref": "A B C D"}, {"src": "a b", "mt": "x y", "ref": "A B"}],
        0,
    )
    # Only what is new is asked again, and nothing goes to stdout.
    assert metric.extract(["x y", "x"]).tolist() == [[0.5, 1], [0.5, 1]] and len(stub[1][0]) == 1
    assert metric.extract(["x y", "x"])[0, 0] == 0.5 and len(stub) == 2
    assert metric.signature == "model|version:unknown|x100" and capsys.readouterr().out == ""
    with pytest.raises(ValueError, match="1 hypotheses for 2 references"):
        metric.extract(["x"])


def test_a_model_that_cannot_be_loaded_is_named(stub):
    with pytest.raises(ValueError, match=r"--comet a/b: COMET cannot load it \(no such file\); name a model"):
        Comet("a/b", ["a"], ["A"])


def test_without_comet_one_line_says_what_to_do(monkeypatch):
    monkeypatch.setattr(comet.importlib.util, "find_spec", lambda name: None)
    flags = {"resamples": None, "alpha": 0.01, "bootstrap_seed": 1, "bleu": "sacrebleu", "comet": "Unbabel/model"}
    args = argparse.Namespace(**flags, task="translation_headprune")
    with pytest.raises(ValueError, match="^--comet Unbabel/model: COMET is not installed; pip install unbabel-comet"):
        comparison_settings(args)
    args.task = "glue"
    with pytest.raises(ValueError, match="--comet is for translations; the task glue has a metric of its own"):
        comparison_settings(args)


class Evaluator(toys.ToyEvaluator):
    def beside(self):
        return {**super().beside(), "comet": Comet("Unbabel/model", self.sources, self.references)}


def test_it_stands_beside_bleu_in_ablate_and_prune(stub, tmp_path, monkeypatch):
    monkeypatch.setattr(toys.ToySession, "evaluator", lambda self, split: Evaluator(self, split))
    session, how = toys.ToySession(), Comparison(resamples=20)
    ranking = {c: [[float(i + j) for j in range(2)] for i in range(2)] for c in tiny.SHAPE}
    settings = PruneSettings(resamples=20, order="file", step=Fraction(1, 2))
    pruning = Prune.of(session, "test", settings, Scores(ranking, estimator="given"), "hash")
    documents = []
    for study in (Ablate.of(session, "test", "all", how), pruning):
        study.open(tmp_path / study.name)
        list(run(study, MaskWork(study)))
        documents.append(study.result(study.cells()))
    # No word is lost under a mask, so the stub gives 100 everywhere: a difference of 0.
    captions = [table.caption for table in documents[0].tables]
    assert [sum(f"in {name} " in c for c in captions) for name in ("BLEU", "chrF", "COMET")] == [3, 3, 3]
    assert all(str(cell) == "+0.00" for cell in documents[0].tables[-1].rows[0][1:])
    assert "COMET: 100.00 (model|version:unknown|x100)" in documents[0].notes[0]
    assert documents[1].tables[0].header == ["Pruned", "All", "All (chrF)", "All (COMET)"]
    assert [row[3] for row in documents[1].tables[0].rows] == ["100.00"] * 3
    assert "COMET: 100.00" in documents[1].notes[1]
