"""Heads chosen by chance, by numbers a layer, and by score. Sources: hand counts, scipy, tables of the papers."""

from collections import Counter
from fractions import Fraction
from itertools import combinations

import pytest
import torch
from scipy.stats import chisquare
from slim_models import SETTINGS, lively, state_of
from tiny import PAPER
from verbs import refused, run_json

from fairseq_headprune.choosing.per_layer import keep_per_layer, mirrored, parse_layers, picking_by_chance, prune_layers
from fairseq_headprune.choosing.random_heads import draw_from_each, generator, keep_random, parse_amount, prune_random
from fairseq_headprune.choosing.scored import keep_within, parse_share
from fairseq_headprune.parts import HEADS, Mask, Part, all_heads
from fairseq_headprune.parts.notation import check_config, format_config, parse_config
from fairseq_headprune.parts.scores import Scores
from fairseq_headprune.removal.checkpoint import slim_checkpoint

TINY = Mask.full({"enc_self": [3, 2], "enc_dec": [2]})
PICK = picking_by_chance(PAPER, 1)
HALF = TINY.without(TINY.kept(["enc_dec"]))

#: Table 2: share pruned, heads kept (counted by hand), the configuration and its mirror
TABLE_2 = [
    (25, 108, "ES=888444 ED=444888 DS=888444", "ES=444888 ED=888444 DS=444888"),
    (40, 86, "ES=777322 ED=233777 DS=777332", "ES=223777 ED=777332 DS=233777"),
    (50, 72, "ES=666222 ED=222666 DS=666222", "ES=222666 ED=666222 DS=222666"),
    (60, 57, "ES=555211 ED=112555 DS=555211", "ES=112555 ED=555211 DS=112555"),
    (75, 36, "ES=333111 ED=111333 DS=333111", "ES=111333 ED=333111 DS=111333"),
]


@pytest.mark.parametrize(
    ("text", "kept"),
    # Of 144 heads, by hand: 144 - 50.4, 144 - 86.4, 144 - 126.
    [("35%", 94), ("60%", 58), ("87.5%", 18), ("1", 143)],
)  # fmt: skip
def test_exact_counts_over_300_seeds(text, kept):
    amount = parse_amount(text)
    counts = {len(prune_random(PAPER, amount, [HEADS], seed).kept()) for seed in range(300)}
    assert counts == {kept}


def test_exact_counts_of_each_component_over_300_seeds():
    groups = [[component] for component in HEADS]
    for seed in range(300):
        counts = prune_random(PAPER, parse_amount("60%"), groups, seed).counts()
        assert [n["kept"] for n in counts.values()] == [19, 19, 19]  # 48 - round(28.8)


@pytest.mark.parametrize(
    ("text", "pruned"), [("25%", 36), ("50%", 72), ("55%", 79), ("75%", 108), ("81%", 117), ("87%", 125)]
)
def test_percentages_of_table_1(text, pruned):
    # round(p x 144) by hand; "87%", one head in each layer, is 126 of 144 = 87.5%.
    assert parse_amount(text).of(144) == pruned


def test_halves_are_rounded_to_the_even_number():
    # 12.5% and 37.5% of 12 heads: 1.5 and 4.5.
    assert [parse_amount(text).of(12) for text in ("12.5%", "37.5%")] == [2, 4]
    assert parse_amount("33.3%").value == Fraction(333, 1000)


def test_every_head_is_pruned_equally_often():
    seeds = 1500
    times = Counter()
    for seed in range(seeds):
        times.update(prune_random(PAPER, parse_amount("60%"), [HEADS], seed).dropped())
    observed = [times[head] for head in all_heads(PAPER.shape)]
    assert sum(observed) == seeds * 86
    # Counts of draws without replacement vary less than multinomial ones, by 1 - 86/144 times 144/143: the statistic
    # so corrected has 143 degrees of freedom.
    statistic = sum((n - seeds * 86 / 144) ** 2 for n in observed) / (seeds * 86 / 144 * (1 - 86 / 144)) * 143 / 144
    assert 100 < statistic < 195  # the middle 99.6% of chi-square with 143 degrees of freedom


def test_every_set_of_heads_is_equally_likely():
    times = Counter(
        tuple(prune_random(TINY, parse_amount("4"), [["enc_self", "enc_dec"]], s).kept()) for s in range(7000)
    )
    assert set(times) == set(combinations(all_heads(TINY.shape), 3))  # 35
    assert chisquare(list(times.values())).pvalue > 1e-3


def test_at_least_one_is_uniform_over_the_masks_that_do():
    layers = [
        [h for h in TINY.kept() if (h.component, h.layer) == place]
        for place in (("enc_self", 0), ("enc_self", 1), ("enc_dec", 0))
    ]
    allowed = [c for c in combinations(TINY.kept(), 4) if all(set(c) & set(layer) for layer in layers)]
    assert len(allowed) == 24  # of 3, 2 and 2: one layer gives two: 3 x 2 x 2 + 3 x 1 x 2 + 3 x 2 x 1
    chance = generator(5)
    times = Counter(tuple(draw_from_each(layers, 4, chance)) for _ in range(7200))
    assert set(times) == set(allowed)
    assert chisquare(list(times.values())).pvalue > 1e-3


def test_one_head_in_every_layer():
    masks = [prune_random(PAPER, parse_amount("126"), [HEADS], seed, at_least_one=True) for seed in range(30)]
    assert all(set(format_config(mask).values()) == {"111111"} for mask in masks)
    assert len({tuple(mask.kept()) for mask in masks}) == 30
    # All heads are as many as can be kept.
    assert all(keep_random(PAPER, {"enc_self": 48}, 1, each) == PAPER for each in (False, True))
    for seed in range(30):
        mask = prune_random(PAPER, parse_amount("81%"), [HEADS], seed, at_least_one=True)
        assert len(mask.kept()) == 27 and "0" not in "".join(format_config(mask).values())


def test_many_heads_do_not_overflow():
    large = Mask.full({component: [16] * 24 for component in HEADS})
    mask = prune_random(large, parse_amount("50%"), [HEADS], 1, at_least_one=True)
    assert len(mask.kept()) == 576


@pytest.mark.parametrize(("percent", "kept", "config", "twin"), TABLE_2)
def test_configurations_of_table_2(percent, kept, config, twin):
    counts = parse_config([config])
    check_config(counts, PAPER.shape)
    assert mirrored(counts) == parse_config([twin]) and mirrored(mirrored(counts)) == counts
    for wanted, text in ((counts, config), (mirrored(counts), twin)):
        masks = [keep_per_layer(PAPER, wanted, picking_by_chance(PAPER, seed)) for seed in range(20)]
        assert {len(mask.kept()) for mask in masks} == {kept}
        assert round(100 * (144 - kept) / 144) == percent
        for mask in masks:
            assert {c: [sum(row) for row in rows] for c, rows in mask.rows.items()} == wanted
            assert " ".join(f"{key}={row}" for key, row in format_config(mask).items()) == text
        assert len({tuple(mask.kept()) for mask in masks}) == 20


def test_which_heads_of_a_layer_is_uniform():
    config = parse_config(["ES=21"])
    times = Counter(
        tuple(keep_per_layer(TINY, config, picking_by_chance(TINY, s)).kept(["enc_self"])) for s in range(3000)
    )
    assert len(times) == 6  # 3 pairs x 2 heads
    assert chisquare(list(times.values())).pvalue > 1e-3


@pytest.mark.parametrize("triple", [(14, 31, 30), (12, 21, 25), (21, 12, 25), (25, 21, 12), (5, 9, 12)])
def test_triples_of_table_3(triple):
    wanted = dict(zip(HEADS, triple, strict=True))
    masks = [keep_random(PAPER, wanted, seed) for seed in range(50)]
    assert all(tuple(n["kept"] for n in mask.counts().values()) == triple for mask in masks)
    assert len({tuple(mask.kept()) for mask in masks}) == 50


def test_a_seed_is_a_mask():
    def of(seed):
        return prune_random(PAPER, parse_amount("60%"), [HEADS], seed)

    assert of(0) == of(0) and of(0) != of(1)
    # Python's generator of seed 0 starts with 0.844, 0.758, 0.421, 0.259, 0.511, 0.405, 0.784: the three smallest stay.
    kept = prune_random(TINY, parse_amount("4"), [["enc_self", "enc_dec"]], 0).kept()
    assert kept == [Part("enc_self", 0, 2), Part("enc_self", 1, 0), Part("enc_dec", 0, 0)]


def test_pruned_heads_stay_pruned_and_shares_are_of_the_rest():
    start = PAPER.without(PAPER.kept(["enc_self"]))
    mask = prune_random(start, parse_amount("50%"), [HEADS], 1)
    assert len(mask.kept()) == 48 and not mask.kept(["enc_self"])


@pytest.mark.parametrize(
    ("text", "layers"),
    # Of BERT's 12 layers, from 1: bottom is next to the embeddings.
    [
        ("top:3", [10, 11, 12]), ("bottom:3", [1, 2, 3]), ("middle:4", [5, 6, 7, 8]),
        ("middle:8", [3, 4, 5, 6, 7, 8, 9, 10]),
        ("even", [2, 4, 6, 8, 10, 12]), ("odd", [1, 3, 5, 7, 9, 11]), ("top:2,bottom:2", [1, 2, 11, 12]),
        ("1,2", [1, 2]), ("top:1, 3", [3, 12]), ("top:12", list(range(1, 13))),
    ],
)  # fmt: skip
def test_layer_sets_of_tables_5_and_6(text, layers):
    assert parse_layers(text, 12) == [layer - 1 for layer in layers]


def test_prune_layers():
    mask, layers = prune_layers(PAPER, "top:1,bottom:1", ["enc_self", "dec_self"])
    assert layers == {"enc_self": [0, 5], "dec_self": [0, 5]}
    assert format_config(mask) == {"ES": "088880", "ED": "888888", "DS": "088880"}


def test_complement():
    mask = TINY.without([Part("enc_self", 0, 1), Part("enc_dec", 0, 0)])
    other = TINY.complement(mask)
    assert other.kept() == mask.dropped() and TINY.complement(other) == mask
    # Not the mirror: the numbers of heads differ.
    assert (len(mask.kept()), len(other.kept())) == (5, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: prune_random(PAPER, parse_amount("0.1%"), [HEADS], 1), "prunes no head of 144"),
        (lambda: prune_random(PAPER, parse_amount("99.9%"), [HEADS], 1), "prunes all heads of 144"),
        (lambda: prune_random(PAPER, parse_amount("0"), [HEADS], 1), "prunes no head of 144"),
        (lambda: parse_amount("1").of(1), "all heads of 1"),
        (lambda: prune_random(PAPER, parse_amount("-5%"), [HEADS], 1), "prunes no head of 144"),
        (lambda: prune_random(PAPER, parse_amount("200"), [HEADS], 1), "more than all heads of 144"),
        (lambda: prune_random(PAPER, parse_amount("127"), [HEADS], 1, True), "each of 18 layers with 17 of 144"),
        (lambda: keep_random(PAPER, {"enc_self": 5}, 1, True), "each of 6 layers with 5 of 48"),
        (lambda: keep_random(PAPER, {"enc_self": 49}, 1), "cannot keep 49 heads, 48"),
        (lambda: keep_random(TINY, {"dec_self": 1}, 1), "the model has no dec_self"),
        (lambda: prune_random(PAPER, parse_amount("50%"), [HEADS], -1), "--seed must be 0 or more, got -1"),
        (lambda: prune_random(HALF, parse_amount("1"), [["enc_self", "enc_dec"]], 1, True), "layer 0 has no head left"),
        (lambda: parse_amount("60 percent"), "neither a percentage"),
        (lambda: parse_amount("nan%"), "neither a percentage"),
        (lambda: parse_amount("0.6"), "neither a percentage"),
        (lambda: keep_per_layer(PAPER, parse_config(["ES=77732"]), PICK), "5 layers, the model has 6"),
        (lambda: keep_per_layer(PAPER, parse_config(["ES=977322"]), PICK), "cannot keep 9 heads of 8"),
        (lambda: parse_layers("top:13", 12), "there are 12 layers"),
        (lambda: parse_layers("0", 12), "there are 12 layers"),
        (lambda: parse_layers("middle:3", 12), "not defined"),
        (lambda: parse_layers("top:7,bottom:7", 12), "layer 6 is named twice"),
        (lambda: parse_layers("first:2", 12), "none of top:N"),
        (lambda: parse_layers("", 12), "none of top:N"),
        (lambda: PAPER.complement(TINY), "--like has 6"),
    ],
)  # fmt: skip
def test_wrong_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


SCORES = Scores({"enc_self": [[0.5, 0.1, 0.4, 0.2]]}, estimator="random")
FULL = Mask.full({"enc_self": [4]})
#: 10 parameters a head of a model of 100
COSTS = dict.fromkeys(FULL.kept(), 10)


@pytest.mark.parametrize(
    "share, kept, left", [("1", [0, 1, 2, 3], 100), ("0.9x", [0, 2, 3], 90), ("85%", [0, 2], 80), ("0.6", [], 60)]
)
def test_the_lowest_scores_go_until_the_model_is_small_enough(share, kept, left):
    mask, found = keep_within(FULL, SCORES, 100, COSTS, parse_share(share))
    assert ([head.index for head in mask.kept()], found) == (kept, left)


def test_heads_that_are_masked_count_as_gone_and_removed_ones_cost_nothing():
    start = FULL.without([Part("enc_self", 0, 1)])
    assert keep_within(start, SCORES, 100, COSTS, Fraction(9, 10))[1] == 90
    # Nor has a head to go where 10 parameters of feed-forward parts do.
    assert keep_within(start, SCORES, 100, COSTS, Fraction(8, 10), other=10) == (start, 80)
    costs = {head: 10 for head in start.kept()}
    assert keep_within(start, SCORES, 100, costs, Fraction(9, 10))[1] == 90  # another head had to go


def test_impossible_shares_are_refused():
    with pytest.raises(ValueError, match="60 of 100"):
        keep_within(FULL, SCORES, 100, COSTS, Fraction(1, 2))
    for text in ("0", "1.1x", "-5%", "much"):
        with pytest.raises(ValueError, match="share"):
            parse_share(text)


def test_the_slim_model_has_the_parameters_that_were_promised(tmp_path, capsys):
    state, path = state_of(lively(SETTINGS[1])), tmp_path / "model.pt"
    state["model"]["head_gates.weight"] = torch.zeros(40)  # learned gates, which no slim model has
    torch.save(state, path)
    draw = torch.Generator().manual_seed(1)
    shape = {"enc_self": [4, 4], "enc_dec": [8, 8], "dec_self": [8, 8]}
    values = {c: [torch.rand(n, generator=draw).tolist() for n in layers] for c, layers in shape.items()}
    Scores(values, estimator="random").save(tmp_path / "scores.json")
    words = ["mask", "--like", path, "--scores", tmp_path / "scores.json", "-o", tmp_path / "mask.json"]
    value = run_json(*words, "--for-params", "0.75x")
    budget = value["source"]["budget"]
    slim = slim_checkpoint(path, tmp_path / "slim.pt", Mask.load(tmp_path / "mask.json"))
    # Source: the tensors of the slim checkpoint.
    assert slim["parameters"]["after"] == budget["parameters"] <= 0.75 * slim["parameters"]["before"]
    assert budget["of"] == slim["parameters"]["before"]
    assert "--scores" in refused(capsys, *words[:3], "-o", tmp_path / "x.json", "--for-params", "0.75x")
    assert "of" in refused(capsys, *words, "--for-params", "0.1x")
