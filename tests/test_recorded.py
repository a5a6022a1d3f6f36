"""Sentence statistics in result files, and p computed again from them. Source: the p values that the verbs gave."""

import json

import numpy as np
import pytest
import toys
from verbs import run_json

from fairseq_headprune.evaluation.recorded import packed, unpacked
from fairseq_headprune.evaluation.statistics import corpus_metric
from fairseq_headprune.glue.catalogue import TASKS
from fairseq_headprune.glue.metrics import label_subject
from fairseq_headprune.studies.ablate import Ablate
from fairseq_headprune.studies.mask_study import Comparison
from fairseq_headprune.studies.masked import MaskWork
from fairseq_headprune.studies.stored import recomputed_p
from fairseq_headprune.studies.study import run


def test_statistics_come_back_whole_through_json():
    draw = np.random.default_rng(1)
    references = [" ".join(draw.choice(list("abcdefgh"), size=9)) for _ in range(50)]
    metric = corpus_metric("bleu", references)
    texts = {name: [line[: len(line) - 2 * (i % k == 0)] for i, line in enumerate(references)]
             for name, k in (("base", 7), ("half", 2), ("chained", 3))}  # fmt: skip
    statistics = {name: metric.extract(lines) for name, lines in texts.items()}
    against = {"half": "base", "chained": "half"}
    record = json.loads(json.dumps(packed(metric, statistics, against, 100, 3)))
    for name, rows in unpacked(record).items():
        assert np.array_equal(rows, statistics[name])
    assert record["dtype"] == "<i4" and record["recipe"] == {"metric": "bleu", "smooth": "exp"}
    # A system like the one it is compared with needs few bytes for its 500 numbers.
    same = packed(metric, {"base": statistics["base"], "same": statistics["base"]}, {"same": "base"}, 100, 3)
    assert len(same["systems"]["same"]["data"]) < 50
    record["systems"]["half"]["data"] = "AAAA"
    with pytest.raises(ValueError, match="the statistics of half are damaged"):
        unpacked(record)
    del record["systems"]["half"]
    with pytest.raises(ValueError, match="the statistics of half, which chained is compared with, are missing"):
        unpacked(record)


def test_scores_that_are_no_whole_numbers_come_back_too():
    labels, mine = np.random.default_rng(2).uniform(0, 5, size=(2, 40))
    subject = label_subject(TASKS["STS-B"], "pearson", labels.tolist(), {"a": mine.tolist(), "b": labels.tolist()})
    statistics = {name: subject.metric.extract(answers) for name, answers in subject.answers.items()}
    record = json.loads(json.dumps(packed(subject.metric, statistics, {"b": "a"}, 50, 1)))
    assert all(np.array_equal(rows, statistics[name]) for name, rows in unpacked(record).items())
    found = recomputed_p({"statistics": [record]})["b"]
    assert found["score"] == pytest.approx(100) and found["p"] == pytest.approx(2 / 51)


def test_p_of_compare_is_computed_again_from_its_json(tmp_path):
    lines = [f"the {word} sat on the mat with {word} and a hat" for word in ("cat", "dog", "hen", "cow", "pig", "fox")]
    files = {
        "ref": lines,
        "base": [lines[0], *(line.replace("mat", "hat") for line in lines[1:])],
        "sys": [*lines[1:3], *(line.replace("sat on", "sat") for line in lines[2:])],
    }
    paths = {name: str(tmp_path / f"{name}.txt") for name in files}
    for name, text in files.items():
        (tmp_path / f"{name}.txt").write_text("\n".join(text) + "\n")
    for more in (["--metric", "chrf"], ["--sample-fraction", "0.5"], ["--bleu", "tok"]):
        value = run_json("compare", *paths.values(), "--resamples", "300", *more)
        system = value["systems"][1]
        [found] = recomputed_p(value).values()
        assert (found["p"], found["score"]) == (system["p"], pytest.approx(system["score"]))
        assert value["made_by"]["command"].startswith("headprune compare ") and "git" in value["made_by"]
    with pytest.raises(KeyError, match="no sentence statistics"):
        recomputed_p({})


def test_p_of_a_study_is_computed_again(tmp_path):
    study = Ablate.of(toys.ToySession(), "test", "all", Comparison(resamples=200))
    study.open(tmp_path / "s")
    list(run(study, MaskWork(study)))
    cells = {cell["id"]: cell for cell in study.result(study.cells()).data["cells"]}
    found = recomputed_p({"statistics": study.sentence_statistics()})
    unpruned = cells.pop("unpruned")
    assert {name: one["p"] for name, one in found.items()} == {name: cell["p"] for name, cell in cells.items()}
    assert len(found) == 12 and all(one["base"] == pytest.approx(unpruned["score"]) for one in found.values())
    # The cells hand them on: their translations are not read again. Source: the same study, opened anew, reads them.
    kept, again = study.sentence_statistics(), Ablate(study.settings, study.session, study.folder)
    assert again.sentence_statistics() == kept
    (tmp_path / "s" / "hyps").rename(tmp_path / "elsewhere")
    assert study.sentence_statistics() == kept
    with pytest.raises(FileNotFoundError, match="hyps"):
        Ablate(study.settings, study.session, study.folder).sentence_statistics()
    # Read without its model a study has no references, so no statistics.
    assert type(study)(study.settings, folder=study.folder).sentence_statistics() == []
