"""What a study of random pruning draws, and the paper's tables. Source: Budhraja et al. 2020, Tables 1 to 6."""

import pytest
from tiny import PAPER

from fairseq_headprune.parts import HEADS, Mask
from fairseq_headprune.report.marks import TrainingTests
from fairseq_headprune.studies.random_tables import paper_tables
from fairseq_headprune.studies.samplings import Item, facts, items, samplings

CONFIG = "ES=777322 ED=233777 DS=777332"

#: what a mean has beside its item
TESTED = {"n": 3, "ci": [-0.5, 0.25], "p": 0.5, "p_holm": 1.0, "p_equivalent": 0.02}
MEAN = {"samplings": 3, "difference": TESTED}
ALONE = {"samplings": 1, "difference": {"n": 1, "ci": None, "p": None, "p_holm": None, "p_equivalent": None}}
INTERVAL = ["-0.50", "to", "+0.25"]


def test_items_in_the_order_of_the_tables():
    found = items(["25%", "87.5%:at-least-one"], [CONFIG], ["14,31,30"], ["top:1,bottom:1"], mirror=True, control=True)
    assert [item.name for item in found] == [
        "control", "random-25%", "random-87.5%-at-least-one", "config-ES=777322+ED=233777+DS=777332",
        "config-ES=777322+ED=233777+DS=777332-mirror", "triple-14,31,30", "layers-top1,bottom1",
    ]  # fmt: skip


def test_masks_of_items():
    for seed in range(5):
        assert Item("control").mask(PAPER, seed) == PAPER
        assert len(Item("random", "60%").mask(PAPER, seed).kept()) == 58
        one = Item("random", "87.5%:at-least-one").mask(PAPER, seed)
        assert facts(Item("random"), seed, PAPER, one)["config"] == {"ES": "111111", "ED": "111111", "DS": "111111"}
        layers = Item("layers", "middle:2,top:1").mask(PAPER, seed)
        assert facts(Item("layers"), seed, PAPER, layers)["config"] == dict.fromkeys(("ES", "ED", "DS"), "880080")
        twin = Item("config", CONFIG, mirror=True)
        found = facts(twin, seed, PAPER, twin.mask(PAPER, seed))
        assert found["config"] == {"ES": "223777", "ED": "777332", "DS": "233777"}
        assert (found["pruned"], round(found["percent"])) == (58, 40)
        found = facts(twin, seed, PAPER, Item("triple", "14,31,30").mask(PAPER, seed))
        assert found["kept"] == dict(zip(HEADS, (14, 31, 30), strict=True))


def test_seeds_give_other_masks_and_the_same_again():
    plan = samplings(PAPER, items(["60%"], [], [], [], False, False), [0, 1, 2])
    masks = [mask.rows for mask, _ in plan.values()]
    assert list(plan) == ["random-60%-0", "random-60%-1", "random-60%-2"] and masks[0] != masks[1] != masks[2]
    again = samplings(PAPER, items(["60%"], [], [], [], False, False), [2])
    assert again["random-60%-2"][0].rows == masks[2]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: items([], [], [], [], False, True), "nothing to sample"),
        (lambda: items(["60%", "60%"], [], [], [], False, False), "random-60% is given twice"),
        (lambda: samplings(PAPER, [Item("random", "60%")], [1, 1]), "a seed is given twice"),
        (lambda: samplings(PAPER, [Item("random", "90%:at-least-one")], [1]), "each of 18 layers with 14 of 144"),
        (lambda: samplings(PAPER, [Item("config", "ES=977322")], [1]), "cannot keep 9 heads of 8"),
    ],
)
def test_wrong_input(call, message):
    """What cannot be drawn: test_choosing.py, but for one of each way."""
    with pytest.raises(ValueError, match=message):
        call()


def test_feed_forward_parts_are_drawn_alone_or_with_heads():
    start = Mask.full({"enc_self": [2, 2], "enc_ffn": [1, 1, 1, 1], "dec_ffn": [3, 3]})
    for seed in range(5):
        # Source: by hand: half of 4 blocks and 6 units, then a third of all but the blocks.
        mask = Item("random", "50%").mask(start, seed, ("enc_ffn", "dec_ffn"))
        assert facts(Item("random"), seed, start, mask, ("enc_ffn", "dec_ffn"))["percent"] == 50
        assert mask.only(HEADS) == start.only(HEADS) and len(mask.dropped(("enc_ffn", "dec_ffn"))) == 5
        mask = Item("random", "3").mask(start, seed, ("enc_self", "dec_ffn"))
        assert facts(Item("random"), seed, start, mask, ("enc_self", "dec_ffn"))["percent"] == 30
        assert len(mask.dropped(("enc_self", "dec_ffn"))) == 3 and not mask.dropped(("enc_ffn",))
    layers = Item("layers", "top:1").mask(start, 1, ("enc_ffn",))
    assert layers.rows["enc_ffn"] == [[1], [1], [1], [0]] and not layers.dropped(("enc_self", "dec_ffn"))


def test_layers_are_recorded_from_0():
    start = Mask.full({"enc_self": [2, 2, 2], "dec_self": [2, 2]})
    drawn = Item("layers", "top:1").mask(start, 1).source["drawn"]
    assert drawn["text"] == "top:1" and drawn["pruned_layers"] == {"enc_self": [2], "dec_self": [1]}


def tables(baseline, entries, measure="BLEU"):
    [table] = paper_tables(baseline, PAPER, entries, TrainingTests(0.01, 9, 0.3), measure)
    return table


def test_table_1():
    entries = [
        {"kind": "control", "text": "", "score": 29.5, "sd": 0.1, "delta": 0.41, **MEAN},
        {"kind": "random", "text": "60%", "score": 28.94, "sd": None, "delta": -0.15, **ALONE},
        {"kind": "random", "text": "72:at-least-one", "percent": 50.0, "pruned": 72, "score": 29.0, "sd": 0.2}
        | {"delta": -0.09, **MEAN},
        {"kind": "random", "text": "75%", "score": 28.22, "sd": 0.3, "delta": -0.87, **MEAN}
        | {"difference": {"ci": [-0.2, -0.1], "p": 1e-5, "p_holm": 1e-4, "p_equivalent": 1e-3}},
    ]
    lines = tables(29.09, entries).render().splitlines()
    assert [line.split() for line in lines[2:]] == [
        ["0", "(Baseline)", "29.09", "-", "-", "-"],
        ["0,", "fine-tuned", "29.50", "(+0.41)", *INTERVAL, "0.10", "3"],
        ["60", "28.94", "(-0.15)", "-", "-", "1"],
        ["50", "(72", "heads),", "at-least-one", "29.00", "(-0.09)", *INTERVAL, "0.20", "3"],
        ["75", "28.22", "(-0.87)**", "-0.20", "to", "-0.10", "=", "0.30", "3"],
    ]


def test_tables_2_and_3():
    config = {"ES": "777322", "ED": "233777", "DS": "777332"}
    entry = {"percent": 40.3, "config": config, "text": "14,31,30", "score": 29.17, "sd": 0.2, "delta": 0.08, **MEAN}
    lines = tables(29.09, [{**entry, "kind": "config"}]).render().splitlines()
    assert lines[2].split() == ["0", "888888", "888888", "888888", "29.09", "-", "-", "-"]
    assert lines[3].split() == ["40", "777322", "233777", "777332", "29.17", "(+0.08)", *INTERVAL, "0.20", "3"]
    lines = tables(29.09, [{**entry, "kind": "triple"}]).render().splitlines()
    assert lines[2].split() == ["Baseline", "(48,48,48)", "29.09", "-", "-", "-"]
    assert lines[3].split() == ["40%", "(14,31,30)", "29.17", "(+0.08)", *INTERVAL, "0.20", "3"]


def test_tables_5_and_6():
    entry = {"percent": 50.0, "text": "top:2,bottom:1", "score": 92.31, "sd": None, "delta": -0.57, **ALONE}
    lines = tables(92.88, [{**entry, "kind": "layers"}], "accuracy").render().splitlines()
    assert lines[2].split() == ["0", "(Baseline)", "-", "92.88", "-", "-", "-"]
    assert lines[3].split() == ["Top", "2,", "bottom", "1", "50", "92.31", "(-0.57)", "-", "-", "1"]
