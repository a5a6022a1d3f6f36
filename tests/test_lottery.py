"""The search for a winning ticket: its rule by hand, magnitude by torch, the study on a toy, and the verb."""

from dataclasses import asdict
from fractions import Fraction
from itertools import combinations

import pytest
import tiny
import torch
import toys
from torch.nn.utils import prune
from verbs import cells, refused, run_json, write_lively

from fairseq_headprune.choosing.lottery import Move, StructuredSearch, weights_pruned
from fairseq_headprune.choosing.magnitude import KeptWeights, layer_matrices, load_weights, without_lowest, zeroed
from fairseq_headprune.cli import main
from fairseq_headprune.files import read_json
from fairseq_headprune.parts import FFN, HEADS, Mask
from fairseq_headprune.parts.scores import Scores
from fairseq_headprune.studies import estimates, lottery_seeds
from fairseq_headprune.studies.lottery import LotteryFind, LotterySettings
from fairseq_headprune.studies.masked import WeightWork
from fairseq_headprune.studies.study import run


def played(search, holds):
    """Every move with its outcome, where ``holds`` says whether so many pruned heads and blocks are too many."""
    heads = blocks = 0
    moves = []
    while move := search.move():
        held = holds(heads + move.heads, blocks + move.blocks)
        heads, blocks = (heads + move.heads, blocks + move.blocks) if held else (heads, blocks)
        search.tell(held)
        moves.append((move.phase, move.heads, move.blocks, held))
    return moves, heads, blocks


def test_the_rule_by_hand():
    # 144 heads: 14 a step. Up to 50 heads and 2 blocks hold; with 2 or fewer blocks gone, 3 blocks never do.
    moves, heads, blocks = played(StructuredSearch("both", 144, 12), lambda h, b: h <= 50 and b <= 2)
    assert moves == [
        ("both", 14, 1, True), ("both", 14, 1, True), ("both", 14, 1, False),
        ("heads", 14, 0, True), ("heads", 14, 0, False), ("heads", 7, 0, True), ("heads", 7, 0, False),
        ("heads", 3, 0, False), ("heads", 1, 0, True), ("heads", 1, 0, False), ("blocks", 0, 1, False),
    ]  # fmt: skip
    assert (heads, blocks) == (50, 2)
    # Everything can go (WNLI): 7 a step of 72, 10 steps, then the last two; blocks one by one.
    moves, heads, blocks = played(StructuredSearch("both", 72, 12), lambda h, b: True)
    assert (heads, blocks) == (72, 12) and [m[:3] for m in moves[9:]] == [
        ("both", 7, 1), ("both", 2, 1), ("blocks", 0, 1)
    ]  # fmt: skip
    moves = played(StructuredSearch("blocks", 72, 2), lambda h, b: b < 2)[0]
    assert moves == [("blocks", 0, 1, True), ("blocks", 0, 1, False)]
    assert StructuredSearch("heads", 3, 0).move() == Move("heads", 1, 0)
    assert StructuredSearch("heads", 0, 4).move() is None


@pytest.mark.parametrize("most", range(13))
def test_of_heads_in_a_known_order_as_many_as_can_go_do(most):
    assert played(StructuredSearch("heads", 12, 0, Fraction(1, 3)), lambda h, b: h <= most)[1] == most


def test_weights_by_hand():
    tenth = Fraction(1, 10)
    assert list(weights_pruned(1000, tenth, "original")) == list(range(100, 1001, 100))
    assert list(weights_pruned(1000, tenth, "remaining"))[:3] == [100, 190, 271]
    assert list(weights_pruned(4, tenth, "original")) == [1, 2, 3, 4] and not list(weights_pruned(0, tenth, "original"))


def test_magnitude_is_that_of_torch():
    torch.manual_seed(1)
    layers = [torch.nn.Linear(7, 5), torch.nn.Linear(5, 9)]
    weights = {str(i): layer.weight.detach().clone() for i, layer in enumerate(layers)}
    for count in list(weights_pruned(80, Fraction(1, 10), "remaining"))[:6]:
        for layer in layers:
            if prune.is_pruned(layer):
                prune.remove(layer, "weight")
        prune.global_unstructured([(layer, "weight") for layer in layers], prune.L1Unstructured, amount=count)
        kept = without_lowest(weights, count)
        assert all(torch.equal(kept[str(i)], layer.weight_mask.bool()) for i, layer in enumerate(layers))
    # Again and again a share of what remains: torch's own counts.
    fresh = torch.nn.Linear(8, 10)
    counts = []
    for _ in range(6):
        prune.l1_unstructured(fresh, "weight", amount=0.1)
        counts.append(int((fresh.weight_mask == 0).sum()))
    assert counts == list(weights_pruned(80, Fraction(1, 10), "remaining"))[:6]
    ties = {"a": torch.ones(2, 2), "b": torch.ones(1, 2)}
    assert [int(m.sum()) for m in without_lowest(ties, 3).values()] == [1, 2]
    with pytest.raises(ValueError, match="cannot prune 7 of 6 weights"):
        without_lowest(ties, 7)


def test_matrices_of_a_model(tiny_model):
    names = list(layer_matrices(tiny_model))
    assert len(names) == 2 * 6 + 2 * 10 and not any("embed" in name or "bias" in name for name in names)
    matrices, name = layer_matrices(tiny_model), "encoder.layers.0.fc1.weight"
    before = matrices[name].clone()
    with zeroed(matrices, without_lowest(matrices, 20000)):
        assert int(sum((matrix == 0).sum() for matrix in matrices.values())) == 20000
    assert torch.equal(matrices[name], before)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam])
def test_pruned_weights_stay_zero_in_training(tiny_model, batch, optimizer, tmp_path):
    state, matrices = tiny_model.state_dict(), layer_matrices(tiny_model)
    kept = without_lowest(matrices, 5000)
    held = KeptWeights(tiny_model, kept, "ticket")
    tiny_model.load_state_dict({name: value + 1 for name, value in state.items()})
    held.hold()
    more = {"momentum": 0.9} if optimizer is torch.optim.SGD else {}
    learn = optimizer(tiny_model.parameters(), lr=0.01, weight_decay=0.1, **more)
    before = {name: matrix.detach().clone() for name, matrix in matrices.items()}
    for _ in range(3):
        learn.zero_grad()
        tiny_model(**batch["net_input"])[0].logsumexp(-1).sum().backward()
        learn.step()
    for name, matrix in matrices.items():
        assert not matrix[~kept[name]].any() and not matrix.grad[~kept[name]].any()
    moved = sum(int((matrix != before[name])[kept[name]].sum()) for name, matrix in matrices.items())
    assert moved > 0.9 * sum(int(mask.sum()) for mask in kept.values())
    # As recorded passes (--cuda-graphs) take gradients.
    output = tiny_model(**batch["net_input"])[0].logsumexp(-1).sum()
    for name, found in zip(matrices, torch.autograd.grad(output, list(matrices.values())), strict=True):
        assert not found[~kept[name]].any() and found[kept[name]].any()
    (tmp_path / "no.pt").write_bytes(b"no")
    with pytest.raises(ValueError, match="not a ticket of weights"):
        load_weights(tmp_path / "no.pt")
    with pytest.raises(ValueError, match="ticket is of another model than the model to train: encoder.layers.0"):
        KeptWeights(tiny_model, {}, "ticket")


@pytest.fixture
def toy(monkeypatch):
    """A study of 12 heads whose k-th head costs a word in every (k + 2)-th sentence: the first ones matter most."""

    def estimated(session, *_):
        mask, number = session.gates.mask(), iter(range(100))
        rows = {c: [[1.0 / (1 + next(number)) for _ in row] for row in rows] for c, rows in mask.rows.items()}
        scores = Scores(rows, "toy")
        scores.rows = scores.without(mask.dropped()).rows
        return scores

    monkeypatch.setattr(estimates, "estimate_scores", estimated)

    def opened(folder, **more):
        study = LotteryFind.of(toys.ToySession(), "test", LotterySettings(mode="heads", resamples=50, **more))
        study.open(folder)
        return study

    return opened


def test_the_study_finds_what_enumeration_does(toy, tmp_path):
    study = toy(tmp_path / "study", threshold=Fraction(4, 5), step=Fraction(1, 4))
    done = {cell["id"]: cell for cell in run(study, WeightWork(study))}
    document = study.result(study.cells())
    kept, gates = study.folder.read_mask(document.data["ticket"]["id"]), study.session.gates
    evaluator = study.session.evaluator("valid")
    metric = evaluator.metric(study.comparison)

    def score(mask):
        with gates.masked(mask):
            return float(metric.score(metric.extract(evaluator.answers()).sum(axis=0)))

    # Reference: every set of heads of each size. The largest set that can go is as large as the one that is found.
    enough, heads = 0.8 * score(Mask.full(tiny.SHAPE)), Mask.full(tiny.SHAPE).kept()
    sizes = [n for n in range(1, 13) if any(score(gates.full().without(s)) >= enough for s in combinations(heads, n))]
    assert len(kept.dropped()) == max(sizes) and kept.dropped() == heads[12 - max(sizes) :]
    assert list(done)[-2:] == ["test@unpruned", "test@ticket"] and done["test@ticket"]["score"] > 0
    assert [s["accepted"] for s in document.data["steps"]].count(False) >= 1 and not document.missing
    assert document.findings[0].startswith(f"The ticket keeps {12 - max(sizes)} of 12 heads: BLEU ")
    # Importance is that of the last accepted mask: a rejected one has none.
    rejected = {step["id"] for step in document.data["steps"] if not step["accepted"]}
    stored = {path.stem for path in (study.folder.path / "scores").iterdir()}
    assert rejected and not rejected & stored
    assert all(form in document.render("markdown") for form in ("| Step |", "Heads pruned", "| no |"))


def test_a_killed_search_goes_on_to_the_same_result(toy, tmp_path):
    whole = toy(tmp_path / "whole")
    list(run(whole, WeightWork(whole)))
    for cut in range(1, len(cells(whole.folder.path))):
        part = toy(tmp_path / f"part{cut}")
        for number, _ in enumerate(run(part, WeightWork(part)), 1):
            if number == cut:
                break
        part = toy(tmp_path / f"part{cut}")
        list(run(part, WeightWork(part)))
        assert cells(part.folder.path) == cells(whole.folder.path)


def test_everything_pruned_is_a_result_and_a_negative_score_is_none(toy, tmp_path, monkeypatch):
    monkeypatch.setattr(LotteryFind, "holds", lambda self, cell, full: True)
    study = toy(tmp_path / "a")
    list(run(study, WeightWork(study)))
    finding = study.result(study.cells()).findings[0]
    assert "keeps 0 of 12 heads" in finding
    assert finding.endswith("Everything is pruned: what remains of the model answers as well.")
    with pytest.raises(ValueError, match="full model on valid is -3.00: it misses a threshold"):
        study.next({"unpruned": {"score": -3.0}})


@pytest.fixture(scope="module")
def flags(trained, tmp_path_factory):
    lively = write_lively(trained, tmp_path_factory.mktemp("lively"))
    quick = ["--beam", "2", "--max-len-b", "10", "--cpu", "--quiet", "--score-sentences", "20", "--resamples", "50"]
    return [lively["data"], "--path", lively["checkpoint"], *quick, "--threshold", "50%", "--step", "25%"]


def test_translation(flags, tmp_path, capsys):
    folder, call = tmp_path / "s", ["lottery", "find", *flags, "--mode", "both,magnitude", "-o", tmp_path / "s"]
    found = {search["mode"]: search for search in run_json(*call)["searches"]}
    assert set(found) == {"both", "magnitude"}
    before = [cells(folder / mode) for mode in found]
    study = {mode: read_json(folder / mode / "study.json")["settings"] for mode in found}
    steps = {mode: [cell for cell in lines if "step-" in cell["id"]] for mode, lines in zip(found, before, strict=True)}
    for search in found.values():
        assert search["ticket"]["score"] >= 0.5 * search["baseline"]["score"] and search["reported"]
    assert study["both"]["score"]["ffn"] == "blocks" and steps["both"][0]["tried"] == asdict(Move("both", 3, 1))
    mask = Mask.load(folder / "both" / "masks" / "step-001.json")
    scores = Scores.load(folder / "both" / "scores" / "unpruned.json")
    # Source: Prasanna et al. 2020, §3.3: importance of heads is normalised by layer, without being asked for.
    assert study["both"]["score"]["normalize"] == scores.normalize == LotterySettings().score.normalize == "layer"
    assert all(sum(v * v for v in row) == pytest.approx(1) for component in HEADS for row in scores.rows[component])
    dropped = scores.pruning_order(HEADS)[:3] + scores.pruning_order(FFN)[:1]
    assert set(mask.dropped(HEADS) + mask.dropped(FFN)) == set(dropped)
    assert steps["magnitude"][0]["weights"] == study["magnitude"]["weights"] // 4
    capsys.readouterr()
    assert main([*map(str, call)]) == 0
    assert "s/both: The ticket keeps " in (text := capsys.readouterr().out) and "s/magnitude: " in text
    assert [cells(folder / mode) for mode in found] == before
    # A mode alone is the same search.
    alone = run_json("lottery", "find", *flags, "--mode", "both", "-o", tmp_path / "alone")
    assert alone["ticket"] | {"seconds": 0} == found["both"]["ticket"] | {"seconds": 0}
    assert main(["report", str(folder / "both"), "-o", str(tmp_path / "page.html")]) == 0


def test_several_models_in_one_command(flags, tmp_path, capsys, monkeypatch):
    """Each is a process, in whose place its command is noted; what has been done is not done again."""
    path, started = flags[2], []
    other = tmp_path / "other.pt"
    other.write_bytes(path.read_bytes())
    rest = [word for word in flags if word not in ("--path", path)]

    def share(commands, at_once, claims, finished):
        for command in commands:
            if command.name not in finished():
                started.append((command.name, at_once))
                assert main(command.words[3:]) == 0
                yield command.name

    monkeypatch.setattr(lottery_seeds, "share_commands", share)
    call = ["lottery", "find", *rest, "--mode", "blocks", "-o", tmp_path / "s", "--paths", path, other, "--jobs", "2"]
    capsys.readouterr()
    assert main([*map(str, call)]) == main([*map(str, call)]) == 0
    assert started == [("model-1", 2), ("model-2", 2)]
    assert "s/model-2: The ticket keeps " in capsys.readouterr().out
    assert cells(tmp_path / "s" / "model-1")[0]["score"] == cells(tmp_path / "s" / "model-2")[0]["score"]
    for more, message in (
        (["--paths", path, path], "--paths names a checkpoint twice"),
        (["--paths", path, tmp_path / "none.pt"], "none.pt: there is no such file"),
        (["--paths", path, "--jobs", "0"], "--jobs must be at least 1, got 0"),
        (["--path", path, "--jobs", "2"], "--jobs 2 is for --paths"),
        (["--paths", path, "--mode", "heads,heads"], "--mode heads,heads: give one or more of heads, blocks, both"),
    ):
        assert message in refused(capsys, "lottery", "find", *rest, "-o", tmp_path / "o", *more)
        assert not (tmp_path / "o").exists()


def test_bert(tuned, tmp_path, capsys):
    call = ["lottery", "find", tuned / "glue", "--path", tuned / "SST-2" / "checkpoint_last.pt", "--cpu", "--quiet"]
    capsys.readouterr()
    assert main([*map(str, call), "-o", str(tmp_path / "s"), "--resamples", "50"]) == 0
    out, err = capsys.readouterr()
    assert "The ticket keeps" in out and "of 3 blocks" in out
    assert "the ticket is chosen on valid, whose examples are those of dev" in err
    apart = [*call, "-o", tmp_path / "h", "--resamples", "50", "--holdout", "0.25", "--mode", "blocks"]
    holdout = run_json(*apart)
    assert holdout["settings"]["select_data"]["holdout"]["amount"] == 0.25 and "reported" in holdout
    # Its p is of one model's sentences, and says so.
    assert main([*map(str, apart)]) == 0
    assert "p: paired bootstrap of sentences: this model against that model" in " ".join(
        capsys.readouterr().out.split()
    )


def test_wrong_input_is_one_line(flags, tmp_path, capsys, monkeypatch):
    call = ["lottery", "find", *flags, "-o", tmp_path / "o"]
    for more, message in (
        (["--threshold", "1.2"], "--threshold 1.2: give a share above 0 and up to 1, which the full model"),
        (["--magnitude-of", "original"], "--magnitude-of is for --mode magnitude, not both"),
        (["--select-on", "nowhere"], "nowhere"),
        (["--estimator", "confidence"], "feed-forward parts have no attention weights"),
    ):
        assert message in refused(capsys, *call, *more)
        assert not (tmp_path / "o").exists()
    assert "invalid choice: 'win'" in refused(capsys, "lottery", "win")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "each step needs the one before" in refused(capsys, *call)
