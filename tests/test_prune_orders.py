"""Orders of pruning (re-estimated, from a file, by chance, several), and what is said of their curves."""

import json
import statistics

import pytest
from tiny import SHAPE
from verbs import cells, mask, refused, run_json

from fairseq_headprune.cli import main
from fairseq_headprune.cli.report import document
from fairseq_headprune.importance.normalize import TIED
from fairseq_headprune.parts import Part
from fairseq_headprune.parts.scores import Scores
from fairseq_headprune.progress import Bar, Progress
from fairseq_headprune.report.marks import Family
from fairseq_headprune.studies import estimates
from fairseq_headprune.studies.curves import curve_found, mean_of


@pytest.fixture(scope="module")
def flags(flags):
    return [*flags, "--score-sentences", "20"]


def ranking(reverse):
    """Scores 1, 2, … 12 in the order of the heads, or the other way round."""
    numbers = iter(range(12, 0, -1) if reverse else range(1, 13))
    return {c: [[float(next(numbers)) for _ in range(n)] for n in layers] for c, layers in SHAPE.items()}


def test_reestimated_importance_decides_the_next_step(flags, tmp_path, monkeypatch):
    # Source: by hand. The full model ranks heads from the first, every pruned one from the last.
    def estimate(session, settings, first):
        pruned = session.gates.mask()
        rows = ranking(reverse=bool(pruned.dropped()))
        for component, layer, head in pruned.dropped():
            rows[component][layer][head] = None
        return Scores(rows, estimator="gradient")

    monkeypatch.setattr(estimates, "estimate_scores", estimate)
    run_json("prune", *flags, "-o", tmp_path / "s", "--step", "25%", "--reestimate")
    steps = [mask(tmp_path / "s", f"all-{step:02d}").dropped() for step in (1, 2, 3, 4)]
    first = [Part("enc_self", 0, 0), Part("enc_self", 0, 1), Part("enc_self", 1, 0)]
    last = [Part("dec_self", 0, 1), Part("dec_self", 1, 0), Part("dec_self", 1, 1)]
    assert steps[0] == first and steps[1] == first + last
    for smaller, larger in zip(steps, steps[1:], strict=False):
        assert set(smaller) < set(larger)


def test_reestimated_scores_are_those_of_the_pruned_model(flags, tmp_path):
    # Source: headprune score under the mask of the step before.
    folder = tmp_path / "study"
    argv = ["prune", *flags, "-o", folder, "--components", "dec_self", "--step", "50%", "--reestimate"]
    run_json(*argv)
    score = [flag for flag in flags if flag not in ("--resamples", "50")]
    expected = run_json("score", *score, "--head-mask", folder / "masks" / "dec_self-01.json")
    assert expected.pop("environment") and expected.pop("origin")  # study.json has the one, its document both
    found = json.loads((folder / "scores" / "dec_self-02.json").read_text())
    assert found == expected and not (folder / "scores" / "dec_self-01.json").exists()
    # Stopped after the first step, it re-estimates the same.
    before = cells(folder)
    lines = (folder / "cells.jsonl").read_text().splitlines(keepends=True)
    (folder / "cells.jsonl").write_text("".join(lines[:2]))
    (folder / "scores" / "dec_self-02.json").unlink()
    run_json(*argv)
    assert cells(folder) == before and json.loads((folder / "scores" / "dec_self-02.json").read_text()) == found


def test_order_from_a_file_and_a_part_of_the_components(flags, tmp_path):
    # Source: by hand; ascending from the first head, enc_dec (4 heads) and dec_self (4 heads) in play.
    Scores(ranking(reverse=False), estimator="mine").save(tmp_path / "order.json")
    argv = ["--order", tmp_path / "order.json", "--components", "enc_dec,dec_self", "--step", "0.5"]
    run_json("prune", *flags, "-o", tmp_path / "s", *argv)
    assert mask(tmp_path / "s", "enc_dec+dec_self-01").dropped() == [
        Part("enc_dec", layer, head) for layer in (0, 1) for head in (0, 1)
    ]
    assert len(mask(tmp_path / "s", "enc_dec+dec_self-02").dropped()) == 8


def test_a_given_order_that_falls_to_ties_is_told(flags, tmp_path, capsys):
    rows = ranking(reverse=False)
    rows["enc_self"][0] = [3.0, 3.0]
    Scores(rows, estimator="mine").save(tmp_path / "order.json")
    argv = ["prune", *map(str, flags), "-o", str(tmp_path / "s"), "--order", str(tmp_path / "order.json")]
    assert main([*argv, "--step", "0.5"]) == 0
    told = capsys.readouterr()
    assert f"headprune prune: warning: {TIED}\n" in told.err and TIED in " ".join(told.out.split())


def test_several_random_orders_are_averaged(flags, tmp_path, capsys):
    # Source: one study a seed; mean and standard deviation by the statistics module.
    half = ["--order", "random", "--step", "1/2"]
    alone = [run_json("prune", *flags, "-o", tmp_path / s, *half, "--score-seed", s)["curves"]["all"] for s in "37"]
    found = run_json("prune", *flags, "-o", tmp_path / "both", *half, "--order-seeds", "3", "7")
    assert [[point["score"] for point in found["curves"][f"all-seed{s}"]] for s in "37"] == [
        [point["score"] for point in curve] for curve in alone
    ]
    for place in ("3", "7"):
        name = f"all-seed{place}-01"
        assert mask(tmp_path / "both", name).rows == mask(tmp_path / place, "all-01").rows
    for point, pair in zip(found["means"]["all"], zip(*alone, strict=True), strict=True):
        scores = [one["score"] for one in pair]
        assert point["score"] == pytest.approx(statistics.mean(scores))
        assert point["sd"] == pytest.approx(statistics.stdev(scores)) and point["seeds"] == [3, 7]
    # Each curve has an order of its own: no map is the study's.
    assert document([tmp_path / "both"], "title")["studies"][0]["maps"] == []
    assert not list((tmp_path / "both" / "figures").glob("scores*")) and list((tmp_path / "both" / "figures").iterdir())
    capsys.readouterr()
    assert main(["prune", *map(str, flags), "-o", str(tmp_path / "both"), *half, "--order-seeds", "3", "7"]) == 0
    assert (
        f"{found['means']['all'][1]['score']:.2f} (sd {found['means']['all'][1]['sd']:.2f})" in capsys.readouterr().out
    )


def test_wrong_score_files_are_refused(flags, tmp_path, capsys):
    path, argv = tmp_path / "scores.json", ["prune", *flags, "-o", tmp_path / "s", "--order", tmp_path / "scores.json"]
    rows = ranking(reverse=False)
    rows["enc_dec"][1][0] = float("nan")
    path.write_text(json.dumps({"format": "headprune.scores/1", "scores": rows}))
    assert "enc_dec layer 1 head 0: the score is nan" in refused(capsys, *argv)
    rows["enc_dec"][1][0] = None
    path.write_text(json.dumps({"format": "headprune.scores/1", "scores": rows}))
    assert "do not rank enc_dec layer 1 head 0" in refused(capsys, *argv)
    path.write_text(json.dumps({"format": "headprune.scores/1", "scores": {"enc_self": [[1, 2, 3]]}}))
    assert "the scores rank heads of shape" in refused(capsys, *argv)
    assert not (tmp_path / "s").exists()


def points(*scores, heads=9):
    """A curve of a model with a score of 30; scores below 25 are losses with p = 0."""
    cells = [{"step": 0, "percent": 0.0, "pruned": 0, "score": 30.0, "p": 1.0, "p_holm": 1.0}]
    for step, score in enumerate(scores, 1):
        p = 0.0 if score < 25 else 1.0
        percent = 100.0 * step / len(scores)
        cells.append({"step": step, "percent": percent, "pruned": heads * step, "score": score, "p": p, "p_holm": p})
    return cells


@pytest.mark.parametrize(
    ("curve", "resamples", "expected"),
    [
        # Source: by hand.
        (points(20, 10), 1000, "fewer than 9 of 18 heads (not tested) can go without a significant loss of BLEU, 9 "
         "(step 1, 50%) lose it"),
        (points(29, 10), 1000, "9 of 18 heads can go without a significant loss of BLEU, 18 (step 2, 100%) lose it; "
         "numbers between were not tested"),
        (points(20, 10, heads=1), 1000, "0 of 2 heads can go without a significant loss of BLEU, 1 (step 1, 50%) loses "
         "it"),
        (points(29, 28), 1000, "18 of 18 heads can go without a significant loss of BLEU"),
        (points(20, heads=1), 100, "0 of 1 heads can go without a significant loss of BLEU, 1 (step 1, 100%) loses it; "
         "100 resamples are too few to call that significant"),
    ],
)  # fmt: skip
def test_the_sentence_says_what_was_tested(curve, resamples, expected):
    assert curve_found("all", curve, Family(0.01, resamples, 1, len(curve) - 1), "BLEU") == f"All: {expected}"


def test_the_interval_of_a_mean_is_a_95_percent_interval():
    # Source: t with 2 degrees of freedom is 4.3027 (a table): 20 -+ 4.3027 x 2 / sqrt(3).
    found = mean_of([{"score": 18.0}, {"score": 20.0}, {"score": 22.0}])
    assert (found["score"], found["sd"]) == (20.0, 2.0) and found["ci"] == pytest.approx([15.032, 24.968], abs=1e-3)
    assert mean_of([{"score": 18.0}]) == {"score": 18.0, "sd": None, "ci": None}


def test_without_a_terminal_each_cell_has_a_line(capsys):
    progress = Progress("prune", 2, quiet=False)
    progress.cell({"id": "all-01", "score": 21.256})
    progress.close()
    Bar("timing", "round").part("batch size 1")
    out, err = capsys.readouterr()
    assert out == "" and err == "prune: 1 of 2: all-01, 21.26 (0 s, about 0 s left)\ntiming: batch size 1\n"
    Progress("prune", 2, quiet=True).cell({"id": "all-01"})
    Bar("timing", "round", quiet=True).part("batch size 1")
    assert capsys.readouterr().err == ""
