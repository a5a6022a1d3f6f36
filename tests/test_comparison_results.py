"""Means, tests, tables and figure of a comparison, from made-up rows."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from test_trainings import mean

from fairseq_headprune.jobs.methods import DEFAULT, NAMES
from fairseq_headprune.report import drawing
from fairseq_headprune.studies.mask_study import Comparison
from fairseq_headprune.studies.pruners.figures import comparison_figure, layer_counts, set_figures
from fairseq_headprune.studies.pruners.points import cost_table, costs, methods_compared, summarise
from fairseq_headprune.studies.pruners.results import (
    best_methods,
    both_levels_table,
    difference_table,
    model_table,
    points_of,
    result_tables,
    score_note,
    score_table,
)
from fairseq_headprune.studies.pruners.trainings import Translating, trainings


def made(scores):
    """Rows and statistics of systems: (method, count, seed) -> the score of each sentence."""
    rows, sentences = [], {}
    for (method, count, seed), values in scores.items():
        name = f"{method}-{count}-{seed}"
        rows.append({"id": name, "method": method, "count": count, "seed": seed, "score": float(np.mean(values))})
        sentences[name] = np.array([[value, 1] for value in values])
    return rows, sentences


@pytest.fixture
def points():
    base = [30, 32, 34, 36]
    scores = {("unpruned", None, 1): base, ("unpruned", None, 2): base}
    scores |= {("michel", 8, 1): [v - 10 for v in base], ("michel", 8, 2): [v - 14 for v in base]}
    scores |= {("ste", 8, 1): base, ("ste", 8, 2): base}
    # Seed 1 alone is compared with the unpruned model of seed 1 alone.
    scores |= {("ste", 4, 1): [29, 33, 33, 37]}
    # A fixed penalty has no number of heads, and is no point.
    scores |= {("l0-lambda", None, 1): base}
    rows, sentences = made(scores)
    return summarise(rows, sentences, mean, Comparison(seed=1), 0.3)


def test_means_and_tests_over_trainings(points):
    """By hand: 23 and 19 have mean 21 and deviation 4 / sqrt(2); -10 and -14 have t = -12 / 2 with one degree."""
    found = {(point["method"], point["heads"]): point for point in points}
    assert set(found) == {("unpruned", None), ("michel", 8), ("ste", 8), ("ste", 4)}
    michel = found["michel", 8]
    assert (michel["score"], michel["sd"], michel["seeds"], michel["scores"]) == (21.0, 2.8284, [1, 2], [23, 19])
    difference = michel["difference"]
    assert (difference["n"], difference["mean"], difference["test"]) == (2, -12.0, "paired t")
    # t with one degree of freedom is Cauchy's distribution: p = 1 - 2 arctan(6) / pi. One test: Holm changes nothing.
    assert difference["p"] == difference["p_holm"] == pytest.approx(1 - 2 * np.arctan(6) / np.pi)
    assert michel["both_levels"]["difference"] == -12.0 and michel["both_levels"]["n"] == 2
    # Equal models have no variance, so no test.
    assert found["ste", 8]["difference"]["p"] is None and found["ste", 8]["both_levels"]["p"] == 1.0
    assert "difference" not in found["unpruned", None] and found["unpruned", None]["score"] == 33.0


def test_one_training_is_tested_over_its_sentences_only(points):
    ste = points[-1]
    assert (ste["sd"], ste["difference"]["mean"], ste["difference"]["p"]) == (None, 0.0, None)
    assert ste["sentences"]["resamples"] == 1000 and ste["sentences"]["p_holm"] == ste["sentences"]["p"] > 0.5
    assert "both_levels" not in ste and "sentences" not in points[1]


def test_only_shared_seeds_are_compared():
    rows, sentences = made({("unpruned", None, 1): [1, 3], ("ste", 8, 1): [1, 2], ("ste", 8, 2): [2, 2]})
    (_, ste) = summarise(rows, sentences, mean, Comparison(resamples=10), 0.3)
    assert ste["seeds"] == [1, 2] and (ste["difference"]["n"], ste["difference"]["mean"]) == (1, -0.5)
    assert ste["sentences"]["resamples"] == 10
    rows, sentences = made({("unpruned", None, 1): [1, 2], ("ste", 8, 2): [2, 2]})
    (_, ste) = summarise(rows, sentences, mean, Comparison(), 0.3)
    assert ste["difference"]["n"] == 0 and "sentences" not in ste and "both_levels" not in ste


def test_the_best_methods_are_named_by_how_many_numbers_of_heads(points):
    # By hand: at 8 heads STE has 33 and Michel 21; at 4 only STE is there.
    said = best_methods(points, "BLEU")[0]
    what = "highest mean BLEU over the trainings that all methods have (1 to 2), of 2 numbers of heads"
    assert said.startswith(f"{what}: STE at 2 (")
    assert best_methods([], "BLEU") == []
    # Without a shared seed there is no best method.
    apart = [{"heads": 8, "method": m, "seeds": [seed], "scores": [30.0]} for m, seed in (("ste", 1), ("michel", 2))]
    assert best_methods(apart, "BLEU") == []


RESULTS = {"split": "test", "measure": "BLEU", "signature": "sig", "alpha": 0.01, "bootstrap_seed": 1, "margin": 0.3}


def shown(table):
    return [[str(cell) if cell is not None else None for cell in row] for row in table.rows]


def test_table_3b(points):
    results = {**RESULTS, "points": points}
    table = score_table(results)
    assert list(table.header) == ["Unpruned Heads", "Michel et al.", "STE"]
    assert shown(table) == [["8", "21.00 ± 2.83 (2)", "33.00 ± 0.00 (2)"], ["4", None, "33.00 (1)"]]
    # p = 0.105: no mark; a cell of one training is not tested beside cells of two.
    assert [cell.mark for row in table.rows for cell in row[1:] if cell] == ["", "", ""]
    assert shown(difference_table(results))[1] == ["4", None, "+0.00 (1)"]
    # t with one degree of freedom is 12.706 (a table): -12 -+ 12.706 x 2.
    assert shown(difference_table(results))[0] == ["8", "-12.00 [-37.41, +13.41] (2)", "+0.00 (2)"]
    note = score_note(results)
    assert note.startswith("The unpruned model has 33.00 ± 0.00 (2). BLEU on test, sig; mean ± standard deviation")
    assert "over 1 test," in note and "fewer than two trainings are not tested)" in note and "TOST" not in note
    # All sentences differ by the same: of two trainings one is drawn, -10 or -14. One training alone has no interval.
    both = both_levels_table(results)
    assert shown(both) == [["8", "-12.00 [-14.00, -10.00]", "+0.00 [+0.00, +0.00]"], ["4", None, None]]
    made = result_tables({**results, "mixed_model": None, "costs": []})
    assert [table.caption.partition(",")[0] for table in made][2] == "The same difference in BLEU"
    points[1]["difference"] |= {"p": 0.001, "p_holm": 0.002}
    points[2]["difference"] |= {"p": 0.5, "p_holm": 0.5, "p_equivalent": 0.001}
    assert [cell.mark for cell in score_table(results).rows[0][1:]] == ["holm", ""]
    assert str(difference_table(results).rows[0][2]) == "+0.00 (2) ="


def test_where_every_method_has_one_training_the_sentences_are_tested():
    rows, sentences = made({("unpruned", None, 1): [30, 32], ("ste", 8, 1): [10, 12], ("l0", 8, 1): [30, 32]})
    results = {**RESULTS, "points": summarise(rows, sentences, mean, Comparison(resamples=600), 0.3)}
    assert shown(score_table(results)) == [["8", "31.00 (1)", "11.00 (1)"]]
    assert [cell.mark for cell in score_table(results).rows[0][1:]] == ["", "holm"]
    assert "this model against that model, not one method against another, 600 resamples, seed 1)" in score_note(
        results
    )


def test_results_of_older_versions_are_tested_anew_from_their_rows(points):
    # The mean of two trainings had the test of its sentences; one training keeps it.
    rows, _ = made({("unpruned", None, 1): [33], ("unpruned", None, 2): [33], ("ste", 4, 1): [30]})
    old = [{"method": m, "heads": h, "seeds": s, "score": 1.0, "sd": None} for m, h, s in [("unpruned", None, [1, 2])]]
    old.append({"method": "ste", "heads": 4, "seeds": [1], "score": 30.0, "sd": None, "p": 0.0, "p_holm": 0.0})
    results = {**RESULTS, "resamples": 1000, "points": old, "rows": rows}
    assert points_of(results)[1]["sentences"] == {"resamples": 1000, "p": 0.0, "p_holm": 0.0}
    assert str(score_table(results).rows[0][1]) == "30.00 (1)" and score_table(results).rows[0][1].mark == "holm"


def test_methods_are_compared_by_a_mixed_model_over_what_all_have():
    # By hand: seeds 1 to 3 and 8 heads are shared; differences 2, 3, 4 are 3 on average.
    scores = {(m, 8, s): [v] for m, vs in (("ste", (32, 34, 33)), ("random-after", (30, 31, 29)))
              for s, v in enumerate(vs, 1)}  # fmt: skip
    rows, _ = made(scores | {("ste", 4, 1): [1], ("ste", 8, 9): [0], ("unpruned", None, 1): [40]})
    found = methods_compared(rows)
    assert (found["reference"], found["counts"], found["seeds"]) == ("random-after", [8], [1, 2, 3])
    ste = found["methods"]["ste"]
    assert ste["score"] == 33 and ste["difference"]["mean"] == pytest.approx(3) and ste["difference"]["n"] == 3
    table = model_table(found, "BLEU", 0.01)
    assert [str(cell) for cell in table.rows[0][:2]] == ["STE", "33.00"] and str(table.rows[0][2]).startswith("+3.00 [")
    assert methods_compared(rows[:1]) is None


def row(method, count, seconds, bleu, **more):
    training = None if seconds is None else {"seconds": seconds}
    return {"method": method, "count": count, "seed": 1, "training": training, "score": bleu, **more}


def test_table_1_is_measured():
    """By hand, with 100 s and 1,000 updates for the unpruned model."""
    rows = [
        row("unpruned", None, 100.0, 40.0),
        row("michel", 8, None, 20.0, scoring_seconds=10.0, estimates=4),
        row("michel", 4, None, 10.0, scoring_seconds=20.0, estimates=6),
        row("pipelined-dsp", 8, 5.0, 25.0, learned=8, best={"updates": 50}),
        row("l0", 8, 120.0, 36.0, learned=10),
        row("l0", 4, 100.0, 34.0, learned=3),
    ]
    michel, pipelined, l0 = costs(rows, 1000)
    # Scores are means over 8 heads and seed 1, which all three have.
    assert michel == {"method": "michel", "seconds": 1.15, "updates": 1, "estimates": 5, "off": None, "score": 20.0}
    assert (pipelined["seconds"], pipelined["updates"], pipelined["off"]) == (1.05, 1.05, 0)
    assert (l0["seconds"], l0["updates"], l0["off"], l0["score"]) == (1.1, 1, 1.5, 36.0)
    body = [[str(cell) for cell in line] for line in cost_table([michel, pipelined, l0], "BLEU").rows]
    assert body[0] == ["Michel et al.", "1.15", "1.00 + 5.0 rankings", "0 (exact)", "20.00"]
    assert body[2] == ["Voita et al. (L0)", "1.10", "1.00", "1.50", "36.00"]


def test_the_costs_tell_how_often_the_learned_set_was_sampled():
    """By hand: 25 and 75% of the updates after cooling are 50; a method without cooling has no share."""
    rows = [row("unpruned", None, 100.0, 40.0), row("ste", 8, 100.0, 30.0)]
    rows += [row("joint-dsp", count, 100.0, 30.0, sampled_as_learned=share) for count, share in ((8, 0.25), (4, 0.75))]
    table = cost_table(costs(rows, 1000), "BLEU")
    assert {str(line[0]): line[4] for line in table.rows} == {"STE": None, "Joint DSP": "50%"}
    assert table.header[4] == "Sampled = learned"


def test_time_is_compared_among_as_many_processes():
    """By hand: of 150 s among 2 and 900 s among 20, with 100 s among 2 for the unpruned model, the first counts."""
    rows = [row("unpruned", None, 100.0, 40.0), row("ste", 8, 150.0, 30.0), row("ste", 4, 900.0, 20.0)]
    for found, many in zip(rows, (2, 2, 20), strict=True):
        found["training"]["side_by_side"] = many
    (ste,) = costs(rows, 1000)
    assert (ste["seconds"], ste["score"]) == (1.5, 25.0)
    (slow,) = costs([rows[0], rows[2]], 1000)
    assert slow["seconds"] is None and str(cost_table([slow], "BLEU").rows[0][1]) == "None"


def test_figures_3b_and_3d(points, tmp_path, monkeypatch):
    """The right panel has what keeps up to a third of the heads: 4 of 12, not 8."""
    drawn, save = [], drawing.save
    monkeypatch.setattr(drawing, "save", lambda figure, stem: drawn.append(figure) or save(figure, stem))
    written = comparison_figure(points, tmp_path / "compare", total=12, measure="BLEU")
    assert [path.name for path in written] == ["compare.png", "compare.svg"] and all(p.stat().st_size for p in written)
    assert isinstance(drawn[0], Figure)
    curves = [{c.get_label(): c.lines[0].get_xydata().tolist() for c in axes.containers} for axes in drawn[0].axes]
    # STE has two trainings with 8 heads and one with 4: unequal numbers are told.
    ste = "STE, n = 1 to 2"
    assert curves == [{"Michel et al., n = 2": [[8, 21]], ste: [[4, 33], [8, 33]]}, {ste: [[4, 33]]}]
    assert [line.get_label() for line in drawn[0].axes[0].lines][-1] == "Unpruned (33.00), n = 2"
    equal = [point for point in points if len(point["seeds"]) == 2]
    comparison_figure(equal, tmp_path / "equal", total=12, measure="BLEU")
    assert [c.get_label() for c in drawn[1].axes[0].containers] == ["Michel et al.", "STE"]


def test_sets_are_counted_by_layer_and_averaged_over_seeds():
    """By hand: 1, 0 and 1, 1 heads in two layers of enc_dec are 1 and 0.5 on average."""
    rows = [
        {"count": 2, "kept": {"enc_self": ["01"], "enc_dec": ["10", "00"]}},
        {"count": 2, "kept": {"enc_self": ["00"], "enc_dec": ["10", "01"]}},
        {"count": 1, "kept": {"enc_self": ["10"], "enc_dec": ["00", "00"]}},
    ]
    found = layer_counts(rows)
    assert found == {1: {"enc_self": [1], "enc_dec": [0, 0]}, 2: {"enc_self": [0.5], "enc_dec": [1, 0.5]}}
    assert list(found) == [1, 2]


def test_figures_of_sets_and_of_penalties(tmp_path):
    kept = {"enc_self": ["01"]}
    rows = [{"method": method, "count": 1, "kept": kept} for method in ("ste", "michel")]
    rows.append({"method": "l0-lambda", "count": None, "penalty": 0.1, "learned": 1, "kept": kept})
    written = set_figures(rows, tmp_path / "compare", 2)
    # Michel et al.'s sets are not learned.
    names = ["compare-layers-ste.png", "compare-layers-ste.svg", "compare-lambda.png", "compare-lambda.svg"]
    assert [path.name for path in written] == names and all(path.stat().st_size for path in written)


def flag(training, name):
    """The value after a flag."""
    return training.flags[training.flags.index(name) + 1]


def test_all_trainings_of_a_comparison():
    """Counted by hand: five of the nine methods train for each number of heads: 2 seeds x (1 + 5 x 3)."""
    found = trainings(DEFAULT, [24, 4, 1], [1, 2], [], 1000, Translating())
    assert len(found) == 32 and len({training.name for training in found}) == 32
    # What pipelined DSP starts from comes first.
    assert [t.name for t in found[:2]] == ["unpruned-1", "unpruned-2"]
    per_method = {method: sum(t.method == method for t in found) for method in NAMES}
    six = dict.fromkeys(("joint-dsp", "ste", "l0", "pipelined-dsp", "random-start"), 6)
    assert {method: count for method, count in per_method.items() if count} == {"unpruned": 2, **six}


def test_budgets_and_settings_are_the_paper_s():
    """§4.3: joint methods as long as the unpruned model; pipelined DSP one epoch on the trained model."""
    found = {t.name: t for t in trainings(DEFAULT, [24], [3], [], 1000, Translating())}
    pipelined = found["pipelined-dsp-24-3"]
    assert pipelined.after == "unpruned-3" and flag(pipelined, "--max-epoch") == "1"
    assert "--gates-only" in pipelined.flags and "--validate-after-updates" not in pipelined.flags
    for name in ("unpruned-3", "joint-dsp-24-3", "ste-24-3", "l0-24-3", "random-start-24-3"):
        # Checkpoints are chosen among those of the second half, for all alike.
        assert flag(found[name], "--validate-after-updates") == "500" and found[name].after is None
    assert flag(found["joint-dsp-24-3"], "--heads-kept") == "24" == flag(found["l0-24-3"], "--l0-target-heads")
    assert "--straight-through" in found["ste-24-3"].flags and "--preset" not in found["ste-24-3"].flags


def test_fixed_penalties_are_trained_once_each():
    found = trainings(["l0-lambda"], [24, 12], [1], [0.001, 0.1], 100, Translating())
    assert [(t.name, t.count, t.penalty) for t in found[1:]] == [
        ("l0-lambda-0.001-1", None, 0.001),
        ("l0-lambda-0.1-1", None, 0.1),
    ]
    assert flag(found[2], "--l0-penalty") == "0.1"


def test_an_unknown_method_is_refused():
    with pytest.raises(ValueError, match="'magic'; known are unpruned, michel,"):
        trainings(["magic"], [1], [1], [], 100, Translating())
