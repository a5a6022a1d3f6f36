"""Tables described by their columns: rows, merged rows and titles laid out by hand."""

from dataclasses import replace
from statistics import mean

import pytest
from reports import texts

from fairseq_headprune.report.described import Column, Described, spread_text

RUNS = {
    "a": {"device": "cpu", "sides": {"ours": {"time": {"median": 2, "min": 1, "max": 3}}, "theirs": {"time": None}}},
    "b": {"device": "gpu", "sides": {"ours": {"time": {"median": 1000, "min": 0.5, "max": 2000}, "words": [7, 8]}}},
}


def test_a_row_for_each_entry_sees_what_it_is_in():
    described = Described(
        [
            Column("file", "@file"),
            Column("side", "@sides"),
            Column("device", "device", str.upper),
            Column("time", "time", ",.1f"),
            Column("last word", "words.1", "d"),
            Column("third word", "words.2"),
        ],
        rows="sides",
        align="ll",
        note="By {device}.",
    )
    table = described.table(RUNS)
    # The third word is nowhere: there is no such column.
    assert table.header == ["file", "side", "device", "time", "last word"] and table.align == "llrrr"
    assert texts(table) == [
        ["a", "ours", "CPU", "2.0 (1.0-3.0)", None],
        ["a", "theirs", "CPU", None, None],
        ["b", "ours", "GPU", "1,000.0 (0.5-2,000.0)", "8"],
    ]
    assert table.notes == ["By cpu and gpu."]


def test_without_rows_a_document_is_one():
    described = Described([Column("device", "device")], note=lambda documents: f"{len(documents)} documents")
    assert texts(described.table(RUNS)) == [["cpu"], ["gpu"]]
    assert described.table(RUNS).notes == ["2 documents"]


#: document -> curves -> points
CURVES = {
    "x": {"curves": {"one": [{"at": 1, "score": 5.0}, {"at": 2, "score": 3.0}], "two": [{"at": 2, "score": 4.0}]}}
}


def test_rows_that_differ_in_one_column_stand_side_by_side():
    columns = [Column("at", "at"), Column("", "score", ".1f", over=True)]
    described = Described(columns, rows="curves/*", across=Column("", "@curves"))
    table = described.table(CURVES)
    assert table.header == ["at", "one", "two"]
    assert texts(table) == [["1", "5.0", None], ["2", "3.0", "4.0"]]
    assert replace(described, titles=["none", "two"]).table(CURVES).header == ["at", "two", "one"]


def test_merged_rows_give_all_their_values_to_a_function():
    columns = [Column("curve", "@curves"), Column("mean", "score", lambda found: f"{mean(found):g}", over=True)]
    first = Column("points", form=len, over=True)
    table = Described([*columns, first], rows="curves/*").table(CURVES)
    assert table.header == ["curve", "mean", "points"]
    assert texts(table) == [["one", "4", "2"], ["two", "4", "1"]]


def test_rows_are_chosen_and_sorted():
    described = Described(
        [Column("score", "score", ".0f")],
        rows="curves/*",
        only=lambda row: row["at"] == 2,
        order=lambda row: -row["score"],
    )
    assert texts(described.table(CURVES)) == [["4"], ["3"]]


@pytest.mark.parametrize(("form", "text"), [(".0f", "2 (1-3)"), (",.2f", "2.00 (1.00-3.00)")])
def test_a_spread_has_its_form_three_times(form, text):
    assert spread_text({"median": 2, "min": 1, "max": 3, "runs": 5}, form) == text
