"""Random masks, and masks by importance that is estimated anew on the way."""

import math
from dataclasses import replace

import pytest
import verbs

from fairseq_headprune.choosing.lottery import random_ticket
from fairseq_headprune.choosing.per_layer import keep_per_layer, picking_by_chance
from fairseq_headprune.choosing.random_heads import generator, keep_random, parse_amount, prune_random
from fairseq_headprune.importance.normalize import UNEVEN
from fairseq_headprune.importance.part_weights import random_scores
from fairseq_headprune.importance.settings import ScoreSettings
from fairseq_headprune.modules.attach import attach_gates
from fairseq_headprune.parts import Part, all_heads
from fairseq_headprune.parts.notation import format_config
from fairseq_headprune.parts.scores import Scores
from fairseq_headprune.pruning import next_heads
from fairseq_headprune.studies.estimates import estimate_scores
from fairseq_headprune.studies.pruners.answers import importance_masks, in_rounds, random_mask, ranking
from fairseq_headprune.studies.pruners.flow import groups
from fairseq_headprune.studies.samplings import Item

SHAPE = {"enc_self": [2, 1], "dec_self": [3]}


def test_random_masks_keep_exactly_so_many_heads_and_every_head_as_often():
    """Each of 6 heads is kept with probability 1/3: over 600 seeds 200 times, with a deviation of 11.5."""
    kept = dict.fromkeys(all_heads(SHAPE), 0)
    for seed in range(600):
        heads = random_mask(SHAPE, 2, seed).kept()
        assert len(heads) == 2
        for head in heads:
            kept[head] += 1
    assert all(150 < number < 250 for number in kept.values())
    assert random_mask(SHAPE, 2, 5) == random_mask(SHAPE, 2, 5)
    assert [len(random_mask(SHAPE, count, 0).kept()) for count in (0, 6)] == [0, 6]
    with pytest.raises(ValueError, match="cannot keep 7 heads of 6"):
        random_mask(SHAPE, 7, 0)


def test_a_seed_gives_the_same_heads_everywhere(tiny_model):
    """mask --random, random-study, prune --order random and compare-pruners, at every number of heads."""
    gates = attach_gates(tiny_model)
    full = gates.full()
    parts, total = list(gates.shape), len(full.kept())
    for seed in (0, 7):
        order = Scores(random_scores(gates, seed), estimator="random")
        for count in range(1, total):
            pruned = str(total - count)
            drawn = prune_random(full, parse_amount(pruned), [parts], seed)
            assert random_mask(gates.shape, count, seed) == drawn == Item("random", pruned).mask(full, seed)
            assert full.without(next_heads(full, order, parts, full, total - count)) == drawn
            # Of lottery tickets the random one of the first search, which is drawn first.
            assert random_ticket(full, drawn, generator(seed)).kept() == drawn.kept()


@pytest.mark.parametrize("gone", [[], [Part("enc_self", 0, 1), Part("enc_dec", 1, 0), Part("dec_self", 0, 1)]])
@pytest.mark.parametrize(
    "groups", [[["enc_dec"]], [["enc_self", "dec_self"]], [["enc_self"], ["enc_dec"], ["dec_self"]]]
)
def test_it_does_so_within_components_and_where_heads_are_pruned_already(tiny_model, gone, groups):
    """Against random orders, whose numbers are of all heads; two layers of two heads in each component."""
    gates = attach_gates(tiny_model)
    start = gates.full().without(gone)
    for seed in range(20):
        order = Scores(random_scores(gates, seed), estimator="random")
        drawn = prune_random(start, parse_amount("50%"), groups, seed)
        by_order = [next_heads(start, order, c, start, parse_amount("50%").of(len(start.kept(c)))) for c in groups]
        assert start.without(head for heads in by_order for head in heads) == drawn
        # Triples, and as many in each layer: the same numbers decide.
        counts = {c: len(drawn.kept([c])) for c in ("enc_self", "enc_dec", "dec_self")}
        triple = keep_random(start, counts, seed)
        for component, count in counts.items():
            alone = keep_random(start, {component: count}, seed)
            assert alone.kept([component]) == triple.kept([component])
        config = {c: [sum(row) for row in rows] for c, rows in drawn.rows.items()}
        layers = keep_per_layer(start, config, picking_by_chance(start, seed))
        text = " ".join(f"{name}={row}" for name, row in format_config(drawn).items())
        assert layers == Item("config", text).mask(start, seed)
        if len(groups) == 3:
            assert triple == drawn


@pytest.fixture(scope="module")
def session(lively):
    return verbs.session(lively, "--quiet")


def lowest(scores, kept):
    """The heads by ascending score, of equal scores the highest index first."""
    return sorted(reversed(kept), key=scores.__getitem__)


@pytest.mark.parametrize("reduction", ["sentence", "signed"])
def test_importance_is_estimated_anew_after_each_step(session, reduction):
    """Against a slow loop: 12 heads, 5 a step, so estimates at 12, 7 and 2 heads."""
    settings = ScoreSettings(reduction=reduction, sentences=10)
    expected, facts = {}, {}
    mask, number = session.gates.mask(), 0
    for left in range(12, 0, -1):
        if left in (12, 7, 2):
            with session.gates.masked(mask):
                scores, number = estimate_scores(session, settings), number + 1
        mask = mask.without([lowest(scores, mask.kept())[0]])
        expected[left - 1], facts[left - 1] = mask, number
    made = importance_masks(session, [1, 2, 5, 9, 12], settings, 5)
    assert made[12].mask.kept() == session.gates.mask().kept() and made[12].facts["estimates"] == 0
    for count in (1, 2, 5, 9):
        assert len(made[count].mask.kept()) == count
        assert made[count].mask.kept() == expected[count].kept()
        assert made[count].facts["estimates"] == facts[count]


@pytest.mark.parametrize(
    "method, reduction, normalize",
    [
        # Michel et al. 2019, eq. 2 and §4.1; Li et al. 2021's code sums derivatives with their signs.
        ("michel", "sentence", "layer"),
        ("michel-signed", "signed", "layer"),
        ("michel+once", "sentence", "layer"),
        ("michel+token", "token", "layer"),
        ("michel+none", "sentence", "none"),
        ("michel+batch+layer-rms+once", "batch", "layer-rms"),
    ],
)
def test_a_method_ranks_as_its_paper_does_but_for_its_options(method, reduction, normalize):
    assert ranking(method, 7) == ScoreSettings(reduction=reduction, normalize=normalize, sentences=7)


def test_frozen_norms_are_those_of_the_full_model(session):
    """Against scores without normalisation, divided by each module's l2 norm in the full model."""
    plain = ScoreSettings(sentences=10, normalize="none")
    norms = {c: [math.hypot(*row) for row in rows] for c, rows in estimate_scores(session, plain).rows.items()}
    first = importance_masks(session, [7], replace(plain, normalize="layer"), 5)[7].mask
    with session.gates.masked(first):
        rows = estimate_scores(session, plain).rows
    scores = {head: rows[head[0]][head[1]][head[2]] / norms[head[0]][head[1]] for head in first.kept()}
    expected = first.without(lowest(scores, first.kept())[:5])
    assert importance_masks(session, [2], replace(plain, normalize="layer-frozen"), 5)[2].mask == expected


def test_masks_tell_what_their_order_hides(session):
    """After the first step modules keep different numbers of heads, and the layer's norm favours those with fewer."""
    made = importance_masks(session, [11, 2], ScoreSettings(sentences=10, normalize="layer"), 5)
    assert "concerns" not in made[11].facts and made[2].facts["concerns"][0] == UNEVEN
    made = importance_masks(session, [2], ScoreSettings(sentences=10, normalize="none"), 5)
    assert "concerns" not in made[2].facts


def test_masks_do_not_depend_on_which_numbers_are_asked_for(session):
    settings = ScoreSettings(sentences=10)
    alone = importance_masks(session, [3], settings, 4)[3]
    assert alone.mask == importance_masks(session, [10, 7, 4, 3, 1], settings, 4)[3].mask
    with pytest.raises(ValueError, match="cannot keep 13 heads of 12"):
        importance_masks(session, [13, 2], settings, 4)


def cells(model, *methods, counts=(5, 2)):
    return [{"checkpoint": model, "method": method, "count": count} for method in methods for count in counts]


def methods_of(found):
    return [[(cell["checkpoint"], cell["method"]) for cell in group if cell["count"] == 5] for group in found]


def test_a_process_takes_all_of_a_model():
    """Source: by hand. A ranking anew costs 3 a mask, other masks 1; what costs most is given away first."""
    rankings = ["michel", "michel+none", "michel+none+once", "random-after"]
    mine, other = cells("u1", *rankings), cells("u2", *rankings)
    assert methods_of(groups([*mine, *other], 2)) == [[(m, r) for r in rankings] for m in ("u1", "u2")]
    # Two processes a model: 6 + 2 and 6 + 2.
    parts = [["michel", "michel+none+once"], ["michel+none", "random-after"]]
    assert methods_of(groups([*mine, *other], 5)) == [[(m, r) for r in part] for m in ("u1", "u2") for part in parts]
    # More processes than there is to do; and more models than processes: 16 with the rankings, 2 + 2 + 2 without.
    assert len(groups(mine, 9)) == 4 and groups([], 3) == []
    trained = [cell for number in range(3) for cell in cells(f"t{number}", "ste")]
    found = groups([*trained, *mine], 2)
    assert [sum(cell["checkpoint"] == "u1" for cell in group) for group in found] == [8, 0]
    assert [[cell["checkpoint"] for cell in group] for group in found][1] == ["t0", "t0", "t1", "t1", "t2", "t2"]
    # Within a process: what needs no estimates is saved first, then each ranking.
    assert [{cell["method"] for cell in some} for some in in_rounds(mine)] == [
        {"random-after"}, {"michel"}, {"michel+none"}, {"michel+none+once"},
    ]  # fmt: skip
