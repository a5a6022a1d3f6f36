"""The tables of lottery tickets, from made-up results. Sources: means, deviations and counts by hand."""

import shown_lottery
import tiny
from reports import texts

from fairseq_headprune.files import read_json


def lottery():
    """Two models of MRPC; what gather.py writes, as far as tables read it."""
    ticket = lambda name, how, mean, p=None: {  # noqa: E731
        "ticket": name, "how": how, "mean": mean, "sd": 0.5, "n": 2, "p": p, "p_holm": p and 2 * p,
    }  # fmt: skip
    cells = [ticket("full", "retrained", 80.0), ticket("bad", "retrained", 70.0, 0.004)]
    both = {"kind": "", "measure": "f1", "alpha": 0.01, "tests": 2, "majority": {"score": 66.5}}
    both["tickets"] = [*cells, ticket("bad", "pruned", 60.0, 0.006), ticket("random", "fresh", 65.0, 0.5)]
    weights = both | {"kind": "weights", "tickets": [*cells[:1], ticket("bad", "retrained", 50.0, 0.5)]}
    cell = lambda score, heads, blocks: {"score": score, "kept": {"enc_self": heads, "enc_ffn": blocks}}  # noqa: E731
    searches = {
        f"model-{seed}": {
            "baseline": cell(80.0, 72, 6), "ticket": cell(there, heads, 2),
            "reported_baseline": cell(80.0, 72, 6), "reported_ticket": cell(reported, heads, 2),
        }
        for seed, there, reported, heads in [(1, 76.0, 72.0, 10), (2, 72.0, 72.0, 20)]
    }  # fmt: skip
    agreed = {"heads": {"kappa": -0.001, "p": 0.03}, "blocks": {"kappa": None, "p": None}}
    found = {"stability": agreed, "super-survivors": {"enc_self": [[1, 0], [1, 1]], "enc_ffn": [[1], [1]]}}
    value = {"searches": {"holdout-both": searches, "dev-both": searches}, "tickets": {"dev-both": found}}
    return {"MRPC": value | {"tables": {"both": both, "magnitude": weights}}}


def test_lottery_tickets_beside_the_paper():
    # Source: Prasanna et al. 2020, Table 2 (MRPC: 0.68, and 0.67 for the other three); the rest by hand.
    paper = read_json(tiny.ROOT / "examples" / "lottery" / "paper-table2.json")
    assert [row[1:] for row in texts(shown_lottery.paper(lottery(), paper))] == [
        ["ours", "66.5"], ["paper", "68"], ["ours", "70.0"], ["paper", "67"],
        ["ours", "50.0"], ["paper", "67"], ["ours", "65.0"], ["paper", "67"],
    ]  # fmt: skip


def test_differences_of_lottery_tickets_have_intervals():
    """By hand: -3, 1 and -4 have mean -2 and variance 7; t(2) at .975 is 4.3027."""
    [value] = lottery().values()
    scores = {("full", "retrained"): [82, 80, 84], ("bad", "retrained"): [79, 81, 80]}
    tickets = [{"ticket": ticket, "how": how, "scores": of} for (ticket, how), of in scores.items()]
    both = value["tables"]["both"] | {"tickets": tickets}
    table = shown_lottery.differences({"MRPC": {"tables": {"both": both, "magnitude": both | {"kind": "weights"}}}})
    expected = "-2.00 [-8.57, +4.57] (3)"
    assert texts(table) == [["MRPC", "bad", expected], ["MRPC", "bad (weights)", expected]]


def test_lottery_tickets_of_tasks():
    values = lottery()
    table = shown_lottery.tickets({**values, "RTE": values["MRPC"]})
    rows = [
        ["full", None, "80.00 ± 0.50 (2)", None],
        ["random", None, None, "65.00 ± 0.50 (2)"],
        ["bad", "60.00 ± 0.50 (2)", "70.00 ± 0.50 (2)", None],
        ["bad (weights)", None, "50.00 ± 0.50 (2)", None],
    ]
    assert table.header == ["Task", "Ticket", "After pruning", "Trained again", "From random weights"]
    assert texts(table) == [[task, *row] for task in ("MRPC", "RTE") for row in rows]
    # p after Holm's correction: .012 and .008.
    assert [cell.mark for cell in table.rows[2][2:4]] == ["raw", "holm"] and table.rows[3][3].mark == ""
    assert texts(shown_lottery.tickets(values)) == rows


def test_selection_and_agreement_of_lottery_tickets():
    # Kept there: 95 and 90% of 80; reported: 90% of it: 5 and 0 points apart, mean 2.5, deviation 5 / sqrt(2).
    kept = ["2", "15.0 (10 to 20) heads, 2 blocks", "80.0 → 74.0", "80.0 → 72.0", "+2.5 ± 3.5"]
    table = shown_lottery.SELECTION.table(lottery())
    assert texts(table) == [["MRPC", "heads and blocks", on, *kept] for on in ("dev", "holdout")]
    [row] = texts(shown_lottery.AGREEMENT.table(lottery()))
    assert row == ["MRPC", "both", "2", "15.0 (10 to 20)", "3", "0.00 (0.030)", "2", "2"]


def test_survivors_of_lottery_tickets_and_their_attention():
    share = lambda mean, sd: {"n": 2, "mean": mean, "sd": sd}  # noqa: E731
    # One search has no deviation.
    assert [shown_lottery.SURVIVAL.columns[3].form(share(88.6, sd)) for sd in (None, 0.0)] == ["88.6", "88.6 ± 0.0"]
    shares = {
        "tickets-dev-heads": {"heads": share(20.4, 5.6), "weights": share(73.0, 2.0)},
        "tickets-dev-magnitude": {"weights": share(44.0, 5.0)},
    }
    always = {
        "tickets-dev-heads": {"heads": 1, "blocks": 6, "weights": 68.9},
        "tickets-dev-magnitude": {"weights": 39.5},
    }
    head = {"component": "enc_self"}
    groups = {"survivors": [head], "the rest": [head], "all heads": [head, head]}
    found = {"groups": groups, "sentences": 100}
    found |= {"classifier": {}, "shares": {}}
    for kind, f1, survivors in (("raw", 0.924, [0.25, 0.75, 0, 0, 0]), ("normed", 0.9, [0.5, 0.5, 0, 0, 0])):
        by_group = {"survivors": survivors, "the rest": [0.0, 1.0, 0, 0, 0], "all heads": [0.125, 0.875, 0, 0, 0]}
        found["shares"][kind] = {f"Enc-Enc, {name}": of for name, of in by_group.items()}
        found["classifier"][kind] = {"enc_self": {"weighted_f1": f1}}
    survived = {"survival": {"survival": shares, "super_survivors": always}, "patterns": {"model-1": found}}
    values = {"MRPC-survivors": survived}
    assert texts(shown_lottery.survival(values)) == [
        ["MRPC", "heads", "2", "20.4 ± 5.6", "73.0 ± 2.0", "1", "6", "68.9"],
        ["MRPC", "weights", "2", None, "44.0 ± 5.0", None, None, "39.5"],
    ]
    table = shown_lottery.patterns(values)
    assert texts(table)[:2] == [
        ["MRPC", "Enc-Enc, survivors", "1", "25 / 50", "75 / 50", *["0 / 0"] * 3],
        ["MRPC", "Enc-Enc, the rest", "1", "0 / 0", "100 / 100", *["0 / 0"] * 3],
    ]
    assert len(table.rows) == 3 and "made-up maps: 0.92 (raw), 0.90 (normed)" in table.notes[0]
    # A model of which nothing survives has one group only, which is all heads.
    found["groups"] = {"the rest": [head, head], "all heads": [head, head]}
    for kind in ("raw", "normed"):
        del found["shares"][kind]["Enc-Enc, survivors"]
    assert [row[1] for row in shown_lottery.patterns(values).rows] == ["Enc-Enc, all heads"]


def test_gathered_results_name_no_place(tmp_path):
    command = f"headprune lottery table {tmp_path}/a/1 --bert=/elsewhere/model a/2 1/2"
    found = tiny.example_script("lottery/gather.py").without_places(
        {"command": command, "path": [f"{tmp_path}/a/1", "/x/y", 3]}, tmp_path
    )
    assert found == {"command": "headprune lottery table a/1 --bert=model a/2 1/2", "path": ["a/1", "y", 3]}
