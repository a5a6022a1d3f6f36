"""The comparison of products, of linear layers' inputs, and of translations, in the loop and under many masks."""

from argparse import Namespace
from unittest.mock import patch

import linear_inputs
import pytest
import rounding
import rounding_products
import shown_rounding
import tiny
import torch
import torch.nn.functional as F
from verbs import session, write_lively

from fairseq_headprune.files import read_json


@pytest.fixture(scope="module")
def found(trained, tmp_path_factory):
    """What the script writes of the lively model, and prints."""
    folder = tmp_path_factory.mktemp("rounding")
    lively, output = write_lively(trained, folder), folder / "found.json"
    argv = [lively["data"], "--path", lively["checkpoint"], *"--cpu --beam 3 --tokens 7 --sentences 4 1".split()]
    argv += "--masks 3 --translated-masks 3 --gen-subset test --max-len-b 9 --output".split()
    tiny.run_main(rounding, *argv, output)
    return read_json(output)


def test_products_are_the_same_but_for_rounding(found):
    # Source: both sides compute the same function; float32 has a relative precision of 6e-8 an operation.
    assert [row["sentences"] for row in found["rows"]] == [4] * 19 + [1] * 19
    sides = [row[side] for row in found["rows"] for side in ("batch", "half") if row[side] is not None]
    # Half of one sentence is none.
    assert len(sides) == 2 * 19 + 19 and all(side["largest"] < 1e-5 for side in sides)
    # Half of a batch is translated under the same mask, and then in 2 ways of attending and 2 numbers of masks.
    ways = [row["way"] for row in found["translated"]]
    assert [sum(way.endswith(after) for way in ways) for after in ("; flattened", "; many rows", "")] == [4, 5, 18]
    # In float32 nothing differs.
    assert [row["differing_hypotheses"] for row in found["translated"]] == [0] * 18


def test_all_tables_are_printed(found):
    tables = [described.table({"": found}) for described in shown_rounding.ALL]
    # 19 products, 7 linear layers of a step, no layer whose input is not contiguous (see below), 18 ways to translate
    assert [len(table.rows) for table in tables] == [19, 7, 0, 18]
    assert [row[1] for row in tables[1].rows] == ["1-12"] * 7  # 3 masks times 4 sentences
    assert tables[0].header == ["product", "4 sentences", "1 sentence"]


def test_no_linear_layer_gets_another_layout_where_masks_part(found):
    # fairseq gives its first encoder layer a transposed view of the embeddings. The second of the three masks prunes a
    # head of it, so that in their batch it gets copies: attention makes a copy in any case.
    assert found["layouts"] == []


def test_layouts_are_shares_of_calls():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    views, copies = torch.ones(3, 2, 4).transpose(0, 1), torch.ones(3, 2, 4)
    ways = {"one of two": lambda: (model[0](views), model(copies)), "none": lambda: model(copies)}
    # Counted by hand: the first layer is called twice, once of them with the view; the second one's inputs are outputs.
    assert linear_inputs.layouts(model, ways) == [
        {"layer": "0", "way": "one of two", "not_contiguous": 0.5},
        {"layer": "0", "way": "none", "not_contiguous": 0.0},
    ]


def test_copies_in_the_encoder_round_otherwise_in_half_precision(lively):
    # Source: as below. On CUDA the heads of a sentence that come out of fused attention are together in memory.
    opened, attend = session(lively, "--beam", 3), F.scaled_dot_product_attention
    opened.model.half()

    def by_sentence(*given, **options):
        return attend(*given, **options).transpose(1, 2).contiguous().transpose(1, 2)

    with patch.object(F, "scaled_dot_product_attention", by_sentence):
        rows = rounding_products.compare(opened, Namespace(masks=3, sentences=[4], tokens=7, rounds=1))
    differing = {row["product"]: row["batch"]["differing_rows"] for row in rows}
    # The layers themselves differ; attention makes a copy before its output, masked or not.
    assert differing["encoder: the same, of a copy"] and not differing["encoder: output of masked attention"]


def test_a_layout_costs_a_rounding_in_half_precision():
    # Source: by hand. 1 + 2**-11 is no float16 and becomes 1; the exact sum with 2**-11 is 1 + 2**-10, which is one.
    weight = torch.nn.Parameter(torch.tensor([[1.0, 2**-11]], dtype=torch.float16))
    bias = torch.tensor([2**-11], dtype=torch.float16)
    rows = torch.ones(2, 3, 2, dtype=torch.float16)
    strided = torch.ones(3, 2, 2, dtype=torch.float16).transpose(0, 1)
    with torch.no_grad():
        assert (F.linear(rows, weight, bias) == 1 + 2**-10).all() and (F.linear(strided, weight, bias) == 1).all()
        for least_rows in (0, 50):
            with linear_inputs.flattened(least_rows):
                again = F.linear(strided, weight, bias)
            assert again.shape == (2, 3, 1) and (again == 1 + 2**-10).all()


def test_a_kernel_for_some_number_of_rows_is_found(lively):
    # On a CPU one sentence may have a kernel of its own; here two sentences of three hypotheses have one as well.
    opened, args = session(lively, "--beam", 3), Namespace(masks=3, sentences=[4])
    before, linear = rounding_products.kernels(opened, args), F.linear
    with patch.object(F, "linear", lambda x, *given: linear(x, *given) + (len(x) == 6)):
        after = rounding_products.kernels(opened, args)
    changed = [
        set(new["differing_sentences"]) ^ set(old["differing_sentences"])
        for old, new in zip(before, after, strict=True)
    ]
    assert changed == [{2}] * 7


def test_differences_are_counted_by_row():
    # By hand: one of two rows differs, by 3 where the root mean square of (0, 0, 3, 3, 3, 3) is sqrt(6).
    expected = torch.tensor([[0.0, 0.0, 3.0], [3.0, 3.0, 3.0]])
    found = torch.tensor([[0.0, 0.0, 3.0], [3.0, 6.0, 3.0]])
    assert rounding_products._difference(found, expected) == {
        "differing_rows": 0.5,
        "largest": pytest.approx(3 / 6**0.5),
    }


def test_neighbours_are_joined():
    row = {"product": "x", "tried": 9, "differing_sentences": [1, 2, 3, 7]}
    value = {"precision": "fp16", "beam": 5, "least_rows": 8192, "kernels": [row]}
    assert shown_rounding.KERNELS.table({"": value}).rows == [["x", "1-9", 4, "1-3, 7"]]
