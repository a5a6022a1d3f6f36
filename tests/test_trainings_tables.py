"""The tables of comparisons over trainings, from made-up results. Sources: means, deviations and counts by hand."""

import shown_trainings
from reports import texts


def test_unequal_numbers_of_trainings_stand_in_the_cells():
    difference = {"n": 2, "mean": -1.0, "ci": [-2.0, 0.0], "p_equivalent": None}
    rows = [
        {"method": "ste", "heads": 8, "n": 3, "mean": 30.0, "sd": 0.5, "difference": None},
        {"method": "michel", "heads": 8, "n": 2, "mean": 29.0, "sd": 0.25, "difference": difference},
    ]
    value = {"split": "valid", "against": "ste", "margin": 0.3, "rows": rows}
    table = shown_trainings.DIFFERENCES.table({"d": value})
    assert texts(table) == [["ste", "30.00 ± 0.50 (3)"], ["michel", "29.00 ± 0.25 (2); -1.00 [-2.00, +0.00] (2)"]]
    assert "mean ± standard deviation (number of trainings)" in table.notes[0]
    # One training has no deviation, and what shares no seed no difference.
    rows[1] |= {"n": 1, "sd": None, "difference": difference | {"n": 0, "mean": None, "ci": None}}
    assert texts(shown_trainings.DIFFERENCES.table({"d": value}))[1] == ["michel", "29.00 (1)"]
    rows[0]["n"] = 1
    table = shown_trainings.DIFFERENCES.table({"d": value})
    assert texts(table)[1] == ["michel", "29.00"] and "over 1 trainings" in table.notes[0]


def test_every_number_of_heads_is_compared_with_two_methods():
    def rows(differences):
        scores = [("ste", 8, 30.0), ("l0", 8, 31.0), ("l0", 12, 29.0), ("unpruned", None, 40.0)]
        found = [{"mean": value, "ci": None, "n": 2, "p_equivalent": None} for value in differences]
        return [
            {"method": method, "heads": heads, "n": 2, "mean": mean, "sd": 0.5, "difference": difference}
            for (method, heads, mean), difference in zip(scores, found, strict=True)
        ]

    about = {"split": "test", "margin": None}
    values = {
        "a": {**about, "against": "ste", "rows": rows([None, 1.0, None, 10.0])},
        "b": {**about, "against": "l0", "rows": rows([-1.0, None, None, 9.0])},
    }
    table = shown_trainings.EACH.table(values)
    assert table.header == ["heads", "method", "mean", "difference from ste", "difference from l0"]
    assert texts(table) == [
        ["12", "l0", "29.00 ± 0.50", None, None],
        ["8", "l0", "31.00 ± 0.50", "+1.00", None],
        ["8", "ste", "30.00 ± 0.50", None, "-1.00"],
        ["mean", "unpruned", "40.00 ± 0.50", "+10.00", "+9.00"],
    ]


def test_single_masks_with_their_heads_by_component():
    kept = {"enc_self": ["1100", "0001"], "enc_dec": ["0000", "0000"], "dec_self": ["1000", "0000"]}
    methods = ["random-start+mask=2", "random-start+mask=1", "learned-start+layers+mask=1", "joint-dsp"]
    value = {
        "measure": "BLEU", "split": "test",
        "points": [
            {"method": m, "heads": 4, "seeds": [1, 2], "score": 30.0 + n, "sd": 0.25} for n, m in enumerate(methods)
        ],
        "rows": [{"method": m, "count": 4, "kept": kept} for m in methods],
    }  # fmt: skip
    table = shown_trainings.MASKS.table({"m": value})
    assert table.header == ["heads", "mask", "random-start", "learned-start+layers"]
    assert texts(table) == [
        ["4", "1", "3/0/1: 31.00 ± 0.25", "3/0/1: 32.00 ± 0.25"],
        ["4", "2", "3/0/1: 30.00 ± 0.25", None],
    ]
    assert "standard deviation over 2 trainings." in table.notes[0]
    value["points"][0]["seeds"] = [1]
    table = shown_trainings.MASKS.table({"m": value})
    assert texts(table)[1] == ["4", "2", "3/0/1: 30.00 ± 0.25 (1)", None]
    assert texts(table)[0][2] == "3/0/1: 31.00 ± 0.25 (2)" and "(number of trainings)" in table.notes[0]


def test_settings_of_each_method_are_in_order():
    def point(method, score, heads=12):
        return {"method": method, "heads": heads, "seeds": [101], "score": score, "sd": None}

    points = [point("unpruned", 38.0, None), point("ste+lr=1", 36.5), point("joint-dsp+lr=1+cool=0.1", 37.0)]
    points.append(point("joint-dsp+lr=0.2+cool=0.5", 37.25))
    table = shown_trainings.settings({"c": {"measure": "BLEU", "split": "valid", "points": points}})
    assert table.header == ["ste", "joint-dsp"]
    assert texts(table) == [["36.50 (lr=1)", "37.25 (lr=0.2, cool=0.5)"], [None, "37.00 (lr=1, cool=0.1)"]]
    assert table.notes == ["BLEU on valid with 12 heads, the highest first; trainings of each: 1."]


def test_shares_of_variance_have_their_p():
    one = {"method": "ste", "heads": 8, "masks": 4, "seeds": 3, "share_mask": 0.5, "share_seed": 0.25, "p_mask": 0.0125}
    all_ = {"method": "all", "heads": 12, "masks": 8, "seeds": 3, "share_mask": 0.75, "share_seed": 0.0}
    all_ |= {"share_numbers": 0.7, "share_sets": 0.05, "p_numbers": 1e-6, "p_sets": None}
    table = shown_trainings.VARIANCE.table({"v": {"rows": [one, all_]}})
    assert table.header[3:] == ["mask", "numbers by component", "which heads", "seed"]
    assert texts(table) == [
        ["12", "all", "8 x 3", "75%", "70% (p = 1e-06)", "5%", "0%"],
        ["8", "ste", "4 x 3", "50% (p = 0.013)", None, None, "25%"],
    ]
