"""Hugging Face's loop beside fairseq's Trainer: the same batches, the same recipe. Reference: each other."""

import re
from argparse import Namespace

import bench_finetune
import benchmarks
import pytest
import tiny
import torch
from bert_models import HEAD, hugging_face_folder
from fairseq.logging import metrics
from glue_data import write_glue
from huggingface_loop import Loop, Recipe, inputs, load_model
from tiny import run_script as run
from verbs import refused_script

from fairseq_headprune.files import read_json

pytestmark = pytest.mark.slow  # trains models

REFERENCE = tiny.ROOT / "examples" / "glue" / "reference.py"

#: without dropout, whose random draws differ, and next to no epsilon, which fairseq's Adam adds before it corrects the
#: bias, and torch's after that; a large rate and decay show in the loss at once
RECIPE = Recipe(batch_size=16, lr=0.01, warm_up=0.25, eps=1e-12, weight_decay=0.5, clip_norm=0.5, dropout=0.0)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("finetune")
    return write_glue(root / "glue"), hugging_face_folder(root / "hf")


@pytest.fixture
def sides(data, request):
    """Trainer, loop and batches of a task, both at the same weights, at the beginning of a run of 8 updates."""
    glue, folder = data
    args = Namespace(glue=str(glue), task=request.param, bert=str(folder), device="cpu", max_positions=24)
    trainer = bench_finetune.make_trainer(args, "gated", RECIPE, 8)
    trainer.task.load_dataset("train")
    model = load_model(str(folder), len(trainer.task.labels), RECIPE)
    model.classifier.load_state_dict(trainer.model.classification_heads[HEAD].out_proj.state_dict())
    batches = benchmarks.draw_batches(trainer.task, 2, 24, max_sentences=16)
    return trainer, Loop(model, 8, RECIPE, "cpu"), batches


@pytest.mark.parametrize("sides", ["SST-2", "STS-B"], indirect=True)
def test_both_loops_take_the_same_steps(sides):
    """Losses, rates and final logits of 4 updates of 8, clipped; classes and regression.

    The rate rises from 0 to 0.01 in 2 updates, then falls by a sixth of it each: by hand.
    """
    trainer, loop, batches = sides
    rates = []
    for batch in batches * 2:
        rates.append(trainer.get_lr())
        # What is logged is rounded to three digits: the criterion's own value is compared.
        ours = trainer.criterion(trainer.model.train(), batch)[0].item() / batch["nsentences"]
        trainer.train_step([batch])
        assert loop.step(inputs(batch, 0)).item() == pytest.approx(ours, abs=1e-5)
        norm = torch.stack([parameter.grad.norm() for parameter in loop.model.parameters()]).norm()
        assert norm.item() == pytest.approx(RECIPE.clip_norm, rel=1e-4)
    assert rates == pytest.approx([0, 0.005, 0.01, 0.01 * 5 / 6])
    with torch.no_grad():
        ours = trainer.model.eval()(**batches[0]["net_input"])[0]
    torch.testing.assert_close(loop.logits(inputs(batches[0], 0)), ours, rtol=0, atol=1e-4)


@pytest.mark.parametrize("sides", ["SST-2"], indirect=True)
def test_both_sides_see_the_same_batch(sides):
    """Tokens, types and labels are the same; real pieces are counted from the lengths of the examples."""
    batch = sides[2][0]
    theirs = inputs(batch, 0)
    assert torch.equal(theirs["input_ids"], batch["net_input"]["src_tokens"])
    assert torch.equal(theirs["token_type_ids"], batch["net_input"]["token_types"])
    assert torch.equal(theirs["labels"], batch["target"])
    lengths = batch["net_input"]["src_lengths"]
    assert torch.equal(theirs["attention_mask"].sum(1), lengths) and lengths.min() < lengths.max()


def test_the_recipe_is_that_of_the_example():
    """Every flag that the recipe gives to fairseq-train is in finetune.sh; the run's length is computed there."""
    script = (tiny.ROOT / "examples" / "glue" / "finetune.sh").read_text(encoding="utf-8")
    words = Recipe().fairseq_flags(1000)
    given = {flag: value for flag, value in zip(words[::2], words[1::2], strict=True)}
    assert (given.pop("--warmup-updates"), given.pop("--total-num-update")) == ("100", "1000")
    assert "--warmup-updates $((total / 10)) --total-num-update" in script
    # Not given there: the classifier's dropout is that of hidden states in the folder's config.json.
    assert given.pop("--pooler-dropout") == "0.1"
    for flag, value in given.items():
        written = re.search(rf"{flag} ('[^']*'|\S+)", script).group(1).strip("'")
        assert written == value or float(written) == float(value), flag


def test_the_benchmark_compares_sides_round_by_round(data, tmp_path, capsys):
    """4 updates are all 56 examples; in a single round every spread is one number."""
    metrics.reset()  # of trainings before, in this process
    glue, folder = data
    words = [glue, "SST-2", "--bert", folder, "--device", "cpu", "--batch-size", "16", "--max-positions", "24"]
    words += ["--variants", "gated-mask,gated-dsp5", "--updates", "4", "--warm-up", "1", "--rounds", "1"]
    assert run(bench_finetune.__file__, *words, "--threads", "1", "-o", tmp_path / "found.json") == 0
    found = read_json(tmp_path / "found.json")
    assert list(found["sides"]) == ["huggingface", "gated-mask", "gated-dsp5"]
    assert found["batches"]["examples"] == 56 and "gated-dsp5" in capsys.readouterr().out
    assert str(glue) not in (tmp_path / "found.json").read_text(encoding="utf-8")
    loop, mine = (found["sides"][name]["ms_per_update"]["median"] for name in ("huggingface", "gated-mask"))
    assert found["sides"]["gated-mask"]["ratio_by_round"] == [pytest.approx(loop / mine)]
    assert found["sides"]["gated-mask"]["examples_per_second"]["median"] == pytest.approx(14000 / mine)


def test_the_reference_writes_the_scores_of_every_epoch(data, tmp_path):
    """2 epochs of 32 and 24 examples: 4 updates. Accuracy is a number of the 12 examples of dev. Seeds decide."""
    glue, folder = data
    found = []
    for number, seed in enumerate((1, 1, 2)):
        words = [glue, "SST-2", "--bert", folder, "--seed", seed, "--epochs", "2", "--device", "cpu"]
        assert run(REFERENCE, *words, "-o", tmp_path / f"{number}.json") == 0
        found.append(read_json(tmp_path / f"{number}.json"))
        assert str(tmp_path.parent) not in (tmp_path / f"{number}.json").read_text(encoding="utf-8")
    assert found[0]["recipe"]["updates"] == 4 and found[0]["metric"] == "accuracy"
    scores = [epoch["score"] for epoch in found[0]["epochs"]]
    assert [round(score * 12 / 100) * 100 / 12 for score in scores] == pytest.approx(scores)
    assert found[0]["best"]["score"] == max(scores)
    losses = [[epoch["train_loss"] for epoch in run["epochs"]] for run in found]
    assert losses[0] == losses[1] != losses[2]


@pytest.mark.parametrize(
    "changed, message",
    [
        (["--variants", "gated-dsp"], "--variants gated-dsp: known are"),
        (["--rounds", "0"], "--rounds 0: it must be at least 1"),
        (["--bert", "nowhere"], "nowhere"),
    ],
)
def test_wrong_flags_of_the_benchmark(data, tmp_path, capsys, changed, message):
    words = [data[0], "SST-2", "--bert", data[1], "--device", "cpu", "-o", tmp_path / "x.json", *changed]
    assert message in refused_script(capsys, "bench_finetune", *words) and not (tmp_path / "x.json").exists()


@pytest.mark.parametrize("changed, message", [(["--epochs", "0"], "--epochs 0: at least 1"), ([], "SST-3: no task")])
def test_wrong_flags_of_the_reference(data, tmp_path, capsys, changed, message):
    task = "SST-2" if changed else "SST-3"
    assert run(REFERENCE, data[0], task, "--bert", data[1], "-o", tmp_path / "x.json", *changed) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
