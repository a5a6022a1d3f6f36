"""GLUE's metrics. Reference: values by hand, scikit-learn and SciPy; statistics against resampled scores."""

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from fairseq_headprune.glue.catalogue import TASKS
from fairseq_headprune.glue.metrics import LabelMetric, metric_of, scores

#: values of scikit-learn and SciPy, in percent
REFERENCES = {
    "accuracy": lambda found, target: 100 * accuracy_score(target, found),
    "f1": lambda found, target: 100 * f1_score(target, found),
    "matthews": lambda found, target: 100 * matthews_corrcoef(target, found),
    "pearson": lambda found, target: 100 * pearsonr(found, target)[0],
    "spearman": lambda found, target: 100 * spearmanr(found, target)[0],
}


def test_values_by_hand():
    """tp 3, fp 1, fn 2, tn 4: accuracy 7/10, F1 6/9, Matthews (12 - 2) / sqrt(4 * 5 * 5 * 6)."""
    target, found = np.array([1] * 5 + [0] * 5), np.array([1, 1, 1, 0, 0, 1, 0, 0, 0, 0])
    mrpc = scores(TASKS["MRPC"], "accuracy+f1", found, target)
    assert mrpc == pytest.approx({"accuracy": 70, "f1": 200 / 3, "score": (70 + 200 / 3) / 2})
    assert scores(TASKS["MRPC"], "f1", found, target)["score"] == pytest.approx(200 / 3)
    assert scores(TASKS["CoLA"], "matthews", found, target)["score"] == pytest.approx(1000 / 600**0.5)
    # 1, 2, 3 against 1, 3, 2: both coefficients are 1/2; a monotone curve leaves Spearman's at 1.
    assert scores(TASKS["STS-B"], "pearson", np.array([1.0, 2, 3]), np.array([1.0, 3, 2]))["score"] == pytest.approx(50)
    curve = scores(TASKS["STS-B"], "pearson+spearman", np.array([1.0, 2, 4]), np.array([1.0, 2, 3]))
    assert curve["spearman"] == pytest.approx(100) and curve["pearson"] == pytest.approx(100 * 27**0.5 / 28**0.5)


def test_what_is_not_defined_is_0():
    same, other = np.zeros(4), np.arange(4.0)
    of_scores = scores(TASKS["STS-B"], "pearson+spearman", same, other)
    none, some = np.zeros(4, dtype=int), np.array([0, 1, 1, 0])
    assert set(of_scores.values()) == {0} and scores(TASKS["STS-B"], "pearson", other[:1], other[:1])["score"] == 0
    assert scores(TASKS["MRPC"], "f1", none, none)["f1"] == scores(TASKS["CoLA"], "matthews", none, some)["score"] == 0


@pytest.mark.parametrize(
    "task, asked, message",
    [
        ("SST-2", "bleu", "--metric bleu: SST-2 knows accuracy, f1, matthews"),
        ("STS-B", "accuracy", "STS-B knows pearson, spearman"),
        ("MNLI", "f1", "F1 is of two classes, MNLI has 3"),
    ],
)
def test_metrics_that_do_not_fit_are_refused(task, asked, message):
    with pytest.raises(ValueError, match=message):
        metric_of(TASKS[task], asked)


@pytest.mark.parametrize(
    "task, metric", [("MRPC", "accuracy+f1"), ("CoLA", "matthews"), ("MNLI", "matthews"), ("STS-B", "pearson")]
)
def test_sums_of_statistics_give_the_score_of_a_resample(task, metric):
    """Against scikit-learn and SciPy on the resampled examples; Spearman, whose ranks are the split's, on all."""
    task, draw = TASKS[task], np.random.default_rng(1)
    if task.is_regression:
        target = draw.uniform(0, 5, 60)
        found = target + draw.normal(size=60)
        texts = [[f"{value:.6f}" for value in values] for values in (found, target)]
    else:
        target = draw.integers(len(task.labels), size=60)
        found = np.where(draw.random(60) < 0.6, target, draw.integers(len(task.labels), size=60))
        texts = [[task.labels[i] for i in values] for values in (found, target)]
    bound = LabelMetric(task, metric, texts[1])
    statistics = bound.extract(texts[0])
    for rows in (np.arange(60), draw.integers(60, size=60), draw.integers(60, size=60)):
        expected = np.mean([REFERENCES[name](found[rows], target[rows]) for name in metric.split("+")])
        assert scores(task, metric, found[rows], target[rows])["score"] == pytest.approx(expected)
        assert bound.score(statistics[rows].sum(axis=0)) == pytest.approx(expected, abs=1e-3)
    if task.is_regression:
        both = LabelMetric(task, "pearson+spearman", texts[1])
        whole = np.mean([REFERENCES[name](found, target) for name in ("pearson", "spearman")])
        assert both.score(both.extract(texts[0]).sum(axis=0)) == pytest.approx(whole, abs=1e-3)
        assert both.score(both.extract(["2.5"] * 60).sum(axis=0)) == 0
    else:
        with pytest.raises(ValueError, match="predictions that are no label of .*: maybe"):
            bound.extract(["maybe"] * 60)
