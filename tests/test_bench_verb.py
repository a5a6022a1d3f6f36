"""``headprune bench``: counts by hand, and translations of a fixed length."""

import pytest
import tiny
import torch
from verbs import refused, run_json

from fairseq_headprune.cli import main
from fairseq_headprune.modules.attach import find_gates
from fairseq_headprune.parts import Mask
from fairseq_headprune.removal.checkpoint import slim_checkpoint
from fairseq_headprune.session import Session, parse_generation_args
from fairseq_headprune.speed.measure import Side, multiply_adds, operations, parameter_shares


def test_sizes_equal_the_hand_counts():
    """transformer_tiny: 2 + 2 layers, width 64, 2 heads of 32, feed-forward 64; 24 entries in the dictionary."""
    model = tiny.make_model()
    gates, words = find_gates(model), model.decoder.output_projection.weight.size(0)
    s, t, d, w, f = 7, 5, 64, 64, 64
    encoder = 2 * (s * (4 * d * w + 2 * d * f) + 2 * s * s * w)
    decoder = 2 * (t * (4 * d * w + 2 * d * f) + t * (t + 1) * w + 2 * t * d * w + 2 * s * d * w + 2 * s * t * w)
    assert multiply_adds(model, gates, s, t) == encoder + decoder + t * d * words
    shares = parameter_shares(model, gates)
    # A head has 32 rows of q, k and v with biases, and 32 columns of out_proj.
    assert shares["parameters_per_head"] == 32 * (4 * 64 + 3)
    assert shares["attention_share"] * shares["parameters"] == pytest.approx(6 * (4 * 64 * 64 + 4 * 64))


def test_an_adaptive_softmax_is_counted_by_its_parts():
    """24 words in clusters of 10, 5 and 9: the first has an entry for each other; their widths are 64 / 4, 64 / 16."""
    plain, adaptive = tiny.make_model(), tiny.make_model(adaptive_softmax_cutoff="10,15", adaptive_softmax_factor=4)
    parts = 64 * (10 + 2) + (64 + 5) * 16 + (64 + 9) * 4
    found = [multiply_adds(model, find_gates(model), 7, 5) for model in (plain, adaptive)]
    assert found[1] - found[0] == 5 * (parts - 64 * 24)


@pytest.fixture(scope="module")
def models(trained, tmp_path_factory):
    """The trained model and its slim form."""
    slim = tmp_path_factory.mktemp("bench") / "slim.pt"
    slim_checkpoint(trained["checkpoint"], slim, tiny.FEW)
    data = [trained["data"], "--path", trained["checkpoint"], "--cpu", "--gen-subset", "test"]
    return {"full": [str(word) for word in data], "slim": str(slim)}


def test_every_translation_has_the_length_that_was_asked_for(models):
    session = Session(parse_generation_args("bench", models["full"], lambda parser: None, ""))
    side = Side(session, "test", 6, [2])
    for batch in side.batches(8, 4):
        found = session.task.inference_step(side.generators[2], [session.model], batch)
        assert {len(hypotheses[0]["tokens"]) for hypotheses in found} == {6}


def test_the_verb_compares_models(models):
    few = ["--batch-sizes", "4,0", "--beams", "1,2", "--rounds", "2", "--length", "5", "--sentences", "8"]
    value = run_json("bench", *models["full"], "--models", models["slim"], *few)
    rows = value["rows"]
    assert [(row["beam"], row["batch_size"]) for row in rows[::2]] == [(1, 4), (1, 0), (2, 4), (2, 0)]
    assert all(len(row["seconds"]) == 2 and row["sentences"] == 8 for row in rows)
    assert all(row["speed"] == {"median": 1.0, "min": 1.0, "max": 1.0} for row in rows[::2])
    full, slim = value["models"].values()
    # 7 heads go, each of 32 (4 * 64 + 3) parameters.
    assert full["parameters"] - slim["parameters"] == 7 * 32 * (4 * 64 + 3)
    assert full["heads"] == 12 and slim["heads"] == 5 and slim["floor_speed"] > 1
    # Modules that have lost all their heads start nothing.
    assert all(
        whole["operations"] > less["operations"] > 100 for whole, less in zip(rows[::2], rows[1::2], strict=True)
    )


def test_beam_and_batch_size_of_fairseq_generate_are_measured(models):
    few = ["--beam", "2", "--batch-size", "3", "--rounds", "1", "--length", "5", "--sentences", "8"]
    value = run_json("bench", *models["full"], *few)
    assert [(row["beam"], row["batch_size"]) for row in value["rows"]] == [(2, 3)]


@pytest.mark.parametrize(
    "flags, words",
    [
        (["--rounds", "0"], "--rounds"),
        (["--length", "1"], "--length"),
        (["--length", "1025"], "--length 1025: the model translates to 1024 tokens"),  # --max-target-positions
        (["--beams", "0"], "--beams"),
        (["--beams", "1,2.5"], "--beams: '1,2.5': give whole numbers as in 1,16"),
    ],
)
def test_wrong_numbers_are_refused(models, capsys, flags, words):
    assert words in refused(capsys, "bench", *models["full"], *flags)


def test_classifiers_are_compared_on_whole_examples(tuned, tmp_path, capsys):
    """3 layers, width 24, 4 heads of 6, feed-forward 40, 2 classes; the mask keeps 3, 0 and 1 heads."""
    full, slim = tuned / "SST-2" / "checkpoint_last.pt", tmp_path / "slim.pt"
    slim_checkpoint(full, slim, Mask.load(tuned / "mask.json"))
    call = [tuned / "glue", "--path", full, "--cpu", "--models", slim, "--batch-sizes", "1,4", "--rounds", "2"]
    value = run_json("bench", *call, "--sentences", "6")
    rows = [(row["batch_size"], row["beam"], row["sentences"]) for row in value["rows"][::2]]
    assert rows == [(1, None, 6), (4, None, 6)]
    assert {row["tokens_per_second"] for row in value["rows"]} == {None} and value["length"] is None
    session = Session(parse_generation_args("bench", [str(word) for word in call[:4]], lambda parser: None, ""))
    examples = session.dataset("dev").sizes
    length = round(sum(map(int, examples)) / len(examples))
    rest = 3 * length * 2 * 24 * 40 + 24 * 24 + 24 * 2
    attention = {heads: heads * (4 * length * 24 * 6 + 2 * length**2 * 6) for heads in (12, 4)}
    assert [model["multiply_adds"] for model in value["models"].values()] == [rest + attention[12], rest + attention[4]]
    assert [model["heads"] for model in value["models"].values()] == [12, 4]
    assert main(["bench", *map(str, call), "--sentences", "2"]) == 0
    printed = capsys.readouterr().out
    assert "sentences/s" in printed and "tokens/s" not in printed and "sentences: examples" in printed
    assert "--beams: a classifier translates nothing" in refused(capsys, "bench", *call, "--beams", "1")


def test_operations_are_counted_without_views():
    a, b = torch.ones(2, 3), torch.ones(3, 2)
    # By hand: a product and a sum; transposing moves nothing.
    assert operations(lambda: (a @ b).t() + 1) == 2


def test_operations_of_the_backward_pass_count():
    w = torch.ones(3, requires_grad=True)
    forward = operations(lambda: (w * 2).sum())
    # By hand: a product and a sum; back come a tensor of ones and its product with 2. (The expansion is a view.)
    assert forward == 2 and operations(lambda: (w * 2).sum().backward()) >= forward + 2
