"""The comparison of a decoder step's products in the loop and in a batch of many masks."""

import pytest
import rounding
import tiny
import torch
from verbs import write_lively

from fairseq_headprune.files import read_json


def test_products_are_the_same_but_for_rounding(trained, tmp_path, capsys):
    # Source: both sides compute the same function; float32 has a relative precision of 6e-8 an operation.
    lively, output = write_lively(trained, tmp_path), tmp_path / "found.json"
    argv = [lively["data"], "--path", lively["checkpoint"], *"--cpu --beam 3 --tokens 7 --sentences 4 2".split()]
    argv += "--masks 3 --translated-masks 3 --gen-subset test --max-len-b 9 --output".split()
    tiny.run_main(rounding, *argv, output)
    value, printed = read_json(output), capsys.readouterr().out
    assert [row["sentences"] for row in value["rows"]] == [4] * 11 + [2] * 11 and printed.count("%") == 2 * 22 + 14
    assert all(row[side]["largest"] < 1e-5 for row in value["rows"] for side in ("batch", "half"))
    # In float32 nothing differs.
    assert [row["differing_hypotheses"] for row in value["translated"]] == [0] * 14


def test_differences_are_counted_by_row():
    # By hand: one of two rows differs, by 3 where the root mean square of (0, 0, 3, 3, 3, 3) is sqrt(6).
    expected = torch.tensor([[0.0, 0.0, 3.0], [3.0, 3.0, 3.0]])
    found = torch.tensor([[0.0, 0.0, 3.0], [3.0, 6.0, 3.0]])
    assert rounding._difference(found, expected) == {"differing_rows": 0.5, "largest": pytest.approx(3 / 6**0.5)}
