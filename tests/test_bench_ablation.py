"""The benchmark of the ablation grid: what it says of equal translations. Source: by hand, sacrebleu, and float32."""

from types import SimpleNamespace

import bench_ablation
import pytest
import sacrebleu
import tiny
from verbs import write_lively

from fairseq_headprune.evaluation.statistics import corpus_metric
from fairseq_headprune.files import read_json


@pytest.fixture
def bench(trained, tmp_path, monkeypatch, capsys):
    """A function that runs the script on a small model, and returns its result and what it prints."""
    lively = write_lively(trained, tmp_path)
    monkeypatch.setitem(bench_ablation._PEAK_SIZE, "cpu", 64)

    def run(*flags):
        argv = [lively["data"], "--path", lively["checkpoint"], "--cpu", "--gen-subset", "test", "--beam", "2"]
        argv += ["--max-len-b", "9", "--max-len-a", "0", "--batch-sizes", "4", "--rounds", "1", "--threads", "1"]
        argv += ["--masks", "5", "--sentences", "6", "--output", tmp_path / "found.json", *flags]
        tiny.run_main(bench_ablation, *argv)
        return read_json(tmp_path / "found.json"), capsys.readouterr().out

    return run


def test_in_float32_nothing_differs(bench):
    # Source: 0 differing translations in float32 on a CPU, as one by one is the definition; 2 masks x 6 sentences.
    value, printed = bench("--control-masks", "2")
    assert value["masks"] == 5 and value["control_masks"] == 2 and value["control_batch_sizes"] == [4, 2]
    for name in ("", "control_", "control_many_"):
        assert (value[f"{name}identical_hypotheses"], value[f"{name}differing_hypotheses"]) == (1.0, 0)
    assert value["largest_bleu_difference"] == 0 and "tok:13a" in value["signature"]
    assert printed.count("100.000%") == 3 and "0.000\n" in printed and "5 x 6" in printed
    assert set(value["cost_to_half"]) == {"half_masks", "half_sentences"}


def test_cost_is_that_of_one_translation():
    """By hand: 12 s for 6 are 2 s each; 8 s for 3 are 2.67 s each: 0.75 times as much; 12 s for 3 are 4 s: 0.5."""
    found = bench_ablation._cost_ratio([12.0, 12.0], 6, [8.0, 12.0], 3)
    assert found == {"median": 0.625, "min": 0.5, "max": 0.75, "runs": 2}


def test_the_control_is_the_loop_at_another_size_on_some_masks(bench, monkeypatch):
    # One translation of the loop at half the size, and two of `many` under the last of 5 masks, are made to differ.
    one_by_one, in_packs = bench_ablation.one_by_one, bench_ablation.in_packs

    def loop(session, translator, masks):
        found = one_by_one(session, translator, masks)
        if session.cfg.dataset.batch_size == 2:
            found[-1][3] += " more"
        return found

    def many(translator, masks, size):
        found = in_packs(translator, masks, size)
        if len(found) == 5:  # not half of them
            found[4][:2] = [text + " more" for text in found[4][:2]]
        return found

    monkeypatch.setattr(bench_ablation, "one_by_one", loop)
    monkeypatch.setattr(bench_ablation, "in_packs", many)
    value, printed = bench("--control-masks", "3")
    assert (value["differing_hypotheses"], value["control_many_differing_hypotheses"]) == (2, 0)
    assert value["control_differing_hypotheses"] == 1 and value["control_identical_hypotheses"] == 17 / 18
    value, printed = bench("--control-masks", "0")
    assert value["control_masks"] == 0 and printed.count("%") == 1 and value["differing_hypotheses"] == 2


def test_largest_difference_in_bleu():
    # Source: sacrebleu on the second mask, where a word of the first sentence is another; the first mask is equal.
    references = ["a b c d e f", "g h i j k"]
    translator = SimpleNamespace(metric=lambda comparison: corpus_metric("bleu", references, comparison.tokenize))
    changed = ["a b c d e x", "g h i j k"]
    value = bench_ablation._bleu_difference(translator, [references, changed], [references, references])
    expected = 100 - sacrebleu.corpus_bleu(changed, [references]).score
    assert value["largest_bleu_difference"] == pytest.approx(expected) and expected > 5
