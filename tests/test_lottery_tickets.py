"""Tickets of exactly the same size, and whether searches agree: hand counts, published examples, and the verb."""

import importlib.util
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from verbs import cells, refused, run_json, write_lively

from fairseq_headprune.choosing.lottery import bad_ticket, drawn, random_ticket, super_survivors
from fairseq_headprune.choosing.magnitude import bad_weights, load_weights, random_weights
from fairseq_headprune.choosing.random_heads import generator
from fairseq_headprune.evaluation.agreement import agreement, overlaps
from fairseq_headprune.parts import COMPONENTS, FFN, HEADS, Mask, Part

START = Mask({"enc_self": [[1, 1, 1], [1, 0, 1]], "enc_dec": [[1, 1]], "enc_ffn": [[1], [1], [1]]})
#: keeps 3 of 7 heads and 2 of 3 blocks
GOOD = Mask({"enc_self": [[1, 0, 0], [0, 0, 1]], "enc_dec": [[1, 0]], "enc_ffn": [[1], [0], [1]]})


def test_sizes_by_hand():
    started, good = set(START.kept(COMPONENTS)), set(GOOD.kept(COMPONENTS))
    for seed in range(20):
        found = random_ticket(START, GOOD, generator(seed))
        assert [len(found.kept(kind)) for kind in (HEADS, FFN)] == [3, 2] and set(found.kept(COMPONENTS)) <= started
        found = random_ticket(START, GOOD, generator(seed), [[c] for c in COMPONENTS])
        assert {c: n["kept"] for c, n in found.counts().items()} == {"enc_self": 2, "enc_dec": 1, "enc_ffn": 2}
        bad = bad_ticket(START, GOOD, generator(seed))
        assert [len(bad.kept(kind)) for kind in (HEADS, FFN)] == [3, 2] and set(bad.kept(COMPONENTS)) <= started
        # 4 heads did not survive: all 3 are of them. 1 block did not: it, and 1 of the 2 others.
        assert not set(bad.kept(HEADS)) & good and Part("enc_ffn", 1, 0) in bad.kept(FFN)
    with pytest.raises(ValueError, match="a ticket of 8 parts is larger than the 7 there are to draw from"):
        drawn(START.kept(HEADS), 8, generator(1))


def test_every_ticket_is_equally_likely():
    found = Counter(tuple(random_ticket(START, GOOD, generator(seed)).kept(HEADS)) for seed in range(3500))
    assert len(found) == len(list(combinations(range(7), 3))) and chisquare(list(found.values())).pvalue > 0.001


def test_super_survivors():
    other = Mask({"enc_self": [[1, 1, 0], [0, 0, 0]], "enc_dec": [[0, 1]], "enc_ffn": [[1], [1], [0]]})
    assert super_survivors([GOOD, other]).kept(COMPONENTS) == [Part("enc_self", 0, 0), Part("enc_ffn", 0, 0)]
    assert super_survivors([GOOD]) == GOOD


def test_weights_by_hand():
    good = {"a": torch.tensor([[1, 1, 1, 0], [0, 0, 0, 0]]).bool(), "b": torch.tensor([[1, 1, 1, 0]]).bool()}
    for draw in (random_weights, bad_weights):
        found = draw(good, 3)
        assert {name: int(kept.sum()) for name, kept in found.items()} == {"a": 3, "b": 3}
    assert not (found["a"] & good["a"]).any() and found["b"][0, 3] and int((found["b"] & good["b"]).sum()) == 2
    assert not torch.equal(random_weights(good, 1)["a"], random_weights(good, 2)["a"])


def test_cochrans_q_of_a_published_example():
    # Source: documentation of SAS, PROC FREQ, "Cochran's Q Test": three drugs, 46 patients; df 2.
    counts = {
        (1, 1, 1): 6, (1, 1, 0): 16, (1, 0, 1): 2, (1, 0, 0): 4, (0, 1, 1): 2, (0, 1, 0): 4, (0, 0, 1): 6, (0, 0, 0): 6
    }  # fmt: skip
    found = agreement([row for row, count in counts.items() for _ in range(count)])
    assert found.q == pytest.approx(8.4706, abs=5e-5) and found.p == pytest.approx(0.0145, abs=5e-5)


def test_kappa_of_a_published_example():
    # Source: Fleiss 1971 in the form of Wikipedia, "Fleiss' kappa", with its five categories as yes and no by hand:
    # 10 subjects, 14 raters; category 5 against the rest.
    yes = [14, 2, 6, 0, 1, 0, 0, 2, 0, 7]
    table = [[1] * count + [0] * (14 - count) for count in yes]
    p, agreeing = sum(yes) / 140, np.mean([(y * (y - 1) + (14 - y) * (13 - y)) / (14 * 13) for y in yes])
    chance = p**2 + (1 - p) ** 2
    assert agreement(table).kappa == pytest.approx((agreeing - chance) / (1 - chance))
    same = agreement([[1, 1, 1], [1, 1, 1]])
    assert (same.kappa, same.q, same.p) == (None, None, None)
    assert agreement([[1, 1], [0, 0]]).kappa == 1


def test_overlaps_by_hand():
    found = overlaps([[1, 1, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]])
    assert found[0] == {"searches": [1, 2], "both": 2, "expected": 9 / 4, "jaccard": 0.5}
    assert found[1]["searches"] == [1, 3] and found[1]["jaccard"] == 0


@pytest.fixture(scope="module")
def searches(trained, tmp_path_factory):
    """Searches of two models that differ in some weights, by mode."""
    folder = tmp_path_factory.mktemp("searches")
    lively, found = write_lively(trained, folder), {}
    state = torch.load(lively["checkpoint"], weights_only=False)
    for name, weight in state["model"].items():
        weight += 0.2 * torch.randn(weight.shape) if ".layers.0." in name and weight.dim() == 2 else 0
    torch.save(state, folder / "second.pt")
    quick = ["--beam", "2", "--max-len-b", "10", "--cpu", "--quiet", "--score-sentences", "20", "--resamples", "20"]
    for mode in ("both", "magnitude"):
        for path in (lively["checkpoint"], folder / "second.pt"):
            output = folder / f"{mode}-{path.stem}"
            flags = ["--path", path, *quick, "--threshold", "30%", "--step", "20%", "--mode", mode, "-o", output]
            run_json("lottery", "find", lively["data"], *flags)
            found.setdefault(mode, []).append(output)
    return found


def test_the_verb(searches, tmp_path):
    found = run_json("lottery", "tickets", *searches["both"], "-o", tmp_path / "t")
    for number, folder in enumerate(searches["both"], 1):
        ticket = found["searches"][number - 1]["ticket"]
        masks = {path.stem: Mask.load(path) for path in (tmp_path / "t" / str(number)).iterdir()}
        assert set(masks) == {"good", "random", "bad", "random-by-component"}
        assert masks["good"] == Mask.load(folder / "masks" / f"{ticket['id']}.json")
        sizes = {(len(mask.kept(HEADS)), len(mask.kept(FFN))) for mask in masks.values()}
        assert sizes == {(12 - ticket["pruned"]["heads"], 4 - ticket["pruned"]["blocks"])}
    always = Mask.load(tmp_path / "t" / "super-survivors.json")
    both = [set(Mask.load(tmp_path / "t" / n / "good.json").kept(COMPONENTS)) for n in "12"]
    assert set(always.kept(COMPONENTS)) == both[0] & both[1]
    assert {path.name for path in (tmp_path / "t").glob("survival.*")} == {"survival.png", "survival.svg"}
    assert run_json("lottery", "tickets", *searches["both"], "-o", tmp_path / "u")["stability"] == found["stability"]
    for name in ("1/random", "2/bad"):
        assert (tmp_path / "t" / f"{name}.json").read_text() == (tmp_path / "u" / f"{name}.json").read_text()


def test_the_verb_on_weights(searches, tmp_path):
    found = run_json("lottery", "tickets", *searches["magnitude"], "-o", tmp_path / "t")
    for number in "12":
        tickets = {path.stem: load_weights(path)[0] for path in (tmp_path / "t" / number).iterdir()}
        counts = [{m: int(kept.sum()) for m, kept in ticket.items()} for ticket in tickets.values()]
        cell = found["searches"][int(number) - 1]["ticket"]
        assert counts[0] == counts[1] == counts[2]
        assert sum(counts[0].values()) == found["settings"]["weights"] - cell["weights"]


def test_wrong_input_is_one_line(searches, tmp_path, capsys, monkeypatch):
    (both, other), (weights, _) = searches["both"], searches["magnitude"]
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    unfinished = tmp_path / "unfinished"
    unfinished.mkdir()
    (unfinished / "study.json").write_text((both / "study.json").read_text())
    lines = (both / "cells.jsonl").read_text().splitlines(keepends=True)
    (unfinished / "cells.jsonl").write_text("".join(lines[:2]))
    assert len(cells(unfinished)) == 2
    for studies, message in (
        ([both, weights], "differ in more than a seed: "),
        ([both, both], "are searches of the same checkpoint"),
        ([unfinished], "the search has not ended"),
        ([tmp_path], "study.json"),
    ):
        assert message in refused(capsys, "lottery", "tickets", *studies, "-o", tmp_path / "o")
        assert not (tmp_path / "o").exists()
    assert "holds no tickets" in refused(capsys, "lottery", "tickets", both, other, "-o", tmp_path / "full")
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "statsmodels" else found(name))
    line = refused(capsys, "lottery", "tickets", both, other, "-o", tmp_path / "o")
    assert "need statsmodels: pip install" in line and not (tmp_path / "o").exists()
