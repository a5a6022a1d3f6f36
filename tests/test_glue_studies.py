"""Importance and studies of masks of a BERT checkpoint. Reference: slow loops over heads, examples and masks."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from bert_models import batch, lively
from glue_data import logits
from scipy.stats import pearsonr
from trainings import Here
from verbs import refused, run_json

from fairseq_headprune.glue.catalogue import TASKS
from fairseq_headprune.glue.metrics import scores
from fairseq_headprune.importance.estimate import estimate
from fairseq_headprune.importance.settings import ScoreSettings
from fairseq_headprune.modules.attach import find_gates
from fairseq_headprune.parts import Mask, Part, all_heads
from fairseq_headprune.tasks.glue import GlueConfig, GlueSentencePredictionTask

SHAPE = {"enc_self": [4, 4, 4]}
CLS, SEP = 2, 3


def glue_task(is_regression):
    task = GlueSentencePredictionTask(GlueConfig(glue_task="STS-B" if is_regression else "SST-2"))
    task.vocabulary = SimpleNamespace(pad=0, edges=(CLS, SEP))
    return task


def labelled(is_regression):
    targets = torch.tensor([2.5, 0.0, 4.0]) if is_regression else torch.tensor([1, 0, 1])
    return {"net_input": batch(), "target": targets}


def slow_losses(model, sample, is_regression, row):
    """One example's loss from the definition, without the batch's padding."""
    length = sample["net_input"]["src_lengths"][row]
    parts = {n: v[row : row + 1, :length] for n, v in sample["net_input"].items() if n != "src_lengths"}
    found, target = model(**parts)[0][0], sample["target"][row]
    return (found[0] - target) ** 2 if is_regression else -found.log_softmax(dim=0)[target]


@pytest.mark.parametrize("is_regression", [False, True])
def test_importance_is_the_mean_absolute_derivative_of_each_examples_loss(is_regression):
    """Michel et al. 2019, eq. 2, by central differences of a gate, one head and one example at a time, in float64."""
    model, sample = lively(("score",) if is_regression else ("0", "1")).double(), labelled(is_regression)
    task, gates = glue_task(is_regression), find_gates(model)
    settings = ScoreSettings(normalize="none")
    found = estimate(model, gates, [sample], settings, task)
    assert found.sentences == 3 and found.details["counts"] == {"sentences": 3, "tokens": 19, "batches": 1}
    for head in all_heads(SHAPE):
        module, terms, step = gates.modules["enc_self"][head.layer], [], 1e-4
        for row in range(3):
            values = []
            for sign in (1, -1):
                module.head_gate = torch.ones(4, dtype=torch.float64)
                module.head_gate[head.index] += sign * step
                with torch.no_grad():
                    values.append(slow_losses(model, sample, is_regression, row).item())
            module.head_gate = None
            terms.append(abs(values[0] - values[1]) / (2 * step))
        assert found.rows["enc_self"][head.layer][head.index] == pytest.approx(np.mean(terms), rel=1e-5)
    units = estimate(model, gates, [sample], ScoreSettings(normalize="none", ffn="units"), task)
    assert units.shape["enc_ffn"] == [40, 40, 40] and units.rows["enc_self"] == found.rows["enc_self"]


def test_other_estimators():
    """Confidence (Voita et al. 2019): the largest weight on a key other than [CLS], [SEP] and padding, by a loop."""
    model, sample = lively(), labelled(False)
    sample["net_input"]["src_tokens"][:, 0] = CLS
    sample["net_input"]["src_tokens"][0, 8] = sample["net_input"]["src_tokens"][1, 3] = SEP
    tokens, gates = sample["net_input"]["src_tokens"], find_gates(model)
    task, plain = glue_task(False), {"normalize": "none"}
    found = estimate(model, gates, [sample], ScoreSettings(estimator="confidence", **plain), task)
    weights = []
    for module in gates.modules["enc_self"]:
        module.on_weights = lambda _, w: weights.append(w)
    model(**sample["net_input"])
    for layer, of_layer in enumerate(weights):
        for head in range(4):
            largest = [
                max(of_layer[row, head, query, key].item() for key in range(9) if tokens[row, key] not in (0, CLS, SEP))
                for row, query in tokens.nonzero().tolist()
            ]
            assert found.rows["enc_self"][layer][head] == pytest.approx(np.mean(largest), rel=1e-5)
    with pytest.raises(ValueError, match="--loss label-smoothed is for translation"):
        estimate(model, gates, [sample], ScoreSettings(loss="label-smoothed"), task)


def study(verb, tuned, task, output, *flags):
    path = tuned / task / "checkpoint_last.pt"
    quiet = ["--quiet"] if verb != "score" else []
    return run_json(verb, tuned / "glue", "--path", path, "--cpu", "-o", output, *quiet, *flags)


def test_ablation_scores_are_those_of_each_mask_alone(tuned, tmp_path, capsys):
    """Many masks in one batch and one by one; the second split is MNLI's other development set; then correlate."""
    value = study("ablate", tuned, "MNLI", tmp_path / "a", "--masks-at-once", "5", "--resamples", "50")
    alone = study("ablate", tuned, "MNLI", tmp_path / "b", "--masks-at-once", "1", "--resamples", "50")
    keys = ("component", "layer", "head", "score", "p", "ci")
    assert [[c[k] for k in keys] for c in value["cells"]] == [[c[k] for k in keys] for c in alone["cells"]]
    assert value["signature"] == "accuracy of MNLI, in percent" and value["data"]["split"] == "dev"
    path = tuned / "MNLI" / "checkpoint_last.pt"
    full = Mask.full(SHAPE)
    for cell in value["cells"][:1] + value["cells"][5:8]:
        mask = full if cell["head"] is None else full.without([Part("enc_self", cell["layer"], cell["head"])])
        found, targets = logits(path, "dev", mask)
        assert cell["score"] == pytest.approx(100 * (found.argmax(1) == targets).mean())
    other = ["--gen-subset", "dev_mismatched", "--resamples", "50"]
    second = study("ablate", tuned, "MNLI", tmp_path / "c", *other)
    assert len({cell["score"] for cell in second["cells"]}) > 1
    joined = run_json("correlate", tmp_path / "a", tmp_path / "c")
    x, y = ([cell["score"] for cell in of["cells"][1:]] for of in (value, second))
    assert joined["pearson"]["value"] == pytest.approx(pearsonr(x, y)[0])
    assert "accuracy" in (tmp_path / "a" / "study.json").read_text()
    assert "are the same examples" in refused(
        capsys, "keep-one", tuned / "glue", "--path", path, "--cpu", "-o", tmp_path / "d"
    )


def test_ablation_of_feed_forward_blocks(tuned, tmp_path):
    value = study("ablate", tuned, "SST-2", tmp_path / "a", "--components", "ffn", "--resamples", "20")
    path, full = tuned / "SST-2" / "checkpoint_last.pt", Mask.full({**SHAPE, "enc_ffn": [1, 1, 1]})
    assert [cell["layer"] for cell in value["cells"]] == [None, 0, 1, 2]
    for cell in value["cells"][1:]:
        found, targets = logits(path, "dev", full.without([Part("enc_ffn", cell["layer"], 0)]))
        assert cell["score"] == pytest.approx(100 * (found.argmax(1) == targets).mean())


def test_a_pruning_curve_of_regression(tuned, tmp_path):
    """Scored heads, masks at 50% and 100%, and the score of each by SciPy on the mask's own predictions."""
    file = tmp_path / "scores.json"
    path = tuned / "STS-B" / "checkpoint_last.pt"
    scored = run_json("score", tuned / "glue", "--path", path, "--cpu", "-o", file)
    assert scored["sentences"] == 32 and scored["data"]["sha256"].keys() == {"train.tsv"}
    flags = ["--order", file, "--step", "50%", "--resamples", "50", "--metric", "pearson"]
    value = study("prune", tuned, "STS-B", tmp_path / "p", *flags)
    ranked = sorted(all_heads(SHAPE), key=lambda h: scored["scores"][h.component][h.layer][h.index])
    for point, dropped in zip(value["curves"]["all"], (0, 6, 12), strict=True):
        found, targets = logits(path, "dev", Mask.full(SHAPE).without(ranked[:dropped]))
        expected = scores(TASKS["STS-B"], "pearson", found[:, 0], targets)["score"]
        assert point["score"] == pytest.approx(expected, abs=1e-3)
    assert value["settings"]["metric"] == "pearson"


def test_random_heads_fine_tuned_and_every_epoch(tuned, tmp_path):
    """The score of a sampling is that of its own best checkpoint under its mask; then the curve at each epoch."""
    flags = "--arch bert_gated --criterion sentence_prediction --optimizer adam --lr 0.003 --batch-size 16 --cpu "
    flags += "--num-workers 0 --dropout 0 --best-checkpoint-metric score --maximize-best-checkpoint-metric"
    more = ["--random", "50%", "--seeds", "1", "--epochs", "1", "--train-flags", flags, "--resamples", "20"]
    with Here().instead():
        value = study("random-study", tuned, "SST-2", tmp_path / "r", *more)
    [cell] = value["cells"]
    path = tmp_path / "r" / cell["tuned"]["checkpoint"]
    mask = Mask.load(tmp_path / "r" / "masks" / f"{cell['id']}.json")
    found, targets = logits(path, "dev", mask)
    assert len(mask.kept()) == 6 and cell["score"] == pytest.approx(100 * (found.argmax(1) == targets).mean())
    (tmp_path / "epochs").mkdir()
    (tmp_path / "epochs" / "checkpoint1.pt").write_bytes((tuned / "SST-2" / "checkpoint_last.pt").read_bytes())
    epochs = ["--task", "glue", "--checkpoints", tmp_path / "epochs", "--order", "random", "--step", "100%"]
    swept = run_json("sweep-epochs", tuned / "glue", *epochs, "--cpu", "--quiet", "-o", tmp_path / "s")
    whole, _ = logits(tuned / "SST-2" / "checkpoint_last.pt", "dev")
    [row] = swept["epochs"]
    assert row["baseline"]["score"] == pytest.approx(100 * (whole.argmax(1) == targets).mean())


def test_verbs_for_translation_say_so(tuned, tmp_path, capsys):
    path = tuned / "SST-2" / "checkpoint_last.pt"
    line = refused(capsys, "profile", tuned / "glue", "--path", path, "--cpu", "-o", tmp_path / "p.json")
    assert "this verb is for translation models; the checkpoint is of the task glue" in line
    line = refused(capsys, "ablate", tuned / "glue", "--path", path, "--cpu", "-o", tmp_path / "s", "--bleu", "tok")
    assert "--bleu tok is for translations" in line and not (tmp_path / "s").exists()
