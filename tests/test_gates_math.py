"""The mathematics of learned gates against closed forms, enumeration, slow loops and finite differences."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from fairseq_headprune.gates.l0 import HardConcrete, TargetPenalty
from fairseq_headprune.gates.learner import GateLearner
from fairseq_headprune.gates.rules import L0Rule, SubsetRule, uniform
from fairseq_headprune.gates.subset import Temperature, gumbel, soft_top_k, top_k
from fairseq_headprune.parts import Part

#: two layers of three heads in each component
HEADS = [Part(c, layer, head) for c in ("enc_self", "enc_dec", "dec_self") for layer in range(2) for head in range(3)]
TAUS = [1000.0, 10.0, 1.0, 0.1, 0.01, 1e-4, 1e-8]


def slow_loop(r, k, tau):
    """Eqs. 14 to 19 as they stand, one head after the other."""
    r, gates = list(r), [0.0] * len(r)
    for _ in range(k):
        top = max(r)
        weights = [np.exp((x - top) / tau) for x in r]
        step = [w / sum(weights) for w in weights]
        gates = [g + s for g, s in zip(gates, step, strict=True)]
        r = [x + np.log1p(-s) for x, s in zip(r, step, strict=True)]
    return np.array(gates)


def test_hard_concrete_closed_forms():
    """sigmoid(log_alpha - 2/3 log(0.1 / 1.1)) and clip(1.2 sigmoid(log_alpha) - 0.1)."""
    concrete = HardConcrete(beta=2 / 3)
    log_alpha = np.array([-5.0, 0.0, 2.5])
    assert concrete.p_open(log_alpha) == pytest.approx([0.0323, 0.8318, 0.9837], abs=5e-5)
    assert concrete.evaluate(log_alpha) == pytest.approx([0.0, 0.5, 1.0])


def test_hard_concrete_takes_any_noise():
    concrete = HardConcrete()
    with np.errstate(all="raise", under="ignore"):
        for value in (-20.0, 0.0, 20.0):
            gates, slopes = concrete.sample(np.full(4, value), concrete.logistic(np.array([0.0, 1.0, 5e-324, 0.5])))
            assert np.isfinite(gates).all() and np.isfinite(slopes).all() and 0 <= gates.min() <= gates.max() <= 1


def test_the_share_of_open_samples_is_p_open():
    concrete, rng = HardConcrete(), np.random.default_rng(1)
    for value in (-2.0, 0.0, 1.0):
        gates, _ = concrete.sample(np.full(20000, value), concrete.logistic(rng.random(20000)))
        p = float(concrete.p_open(np.array(value)))
        # Four standard deviations of a binomial share.
        assert abs((gates > 0).mean() - p) < 4 * np.sqrt(p * (1 - p) / 20000)


@pytest.mark.parametrize("tau", [2.5, 4.0, 10.0])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_soft_top_k_is_the_published_recursion(k, tau):
    r = np.random.default_rng(k).normal(size=8)
    expected = slow_loop(r, k, tau)
    assert expected.max() <= 1 and slow_loop(-r, k, tau).max() <= 1  # nothing is projected
    assert soft_top_k(r, k, tau)[0] == pytest.approx(expected, abs=1e-12)
    # To keep more than half is to drop the few others.
    assert soft_top_k(r, 8 - k, tau)[0] == pytest.approx(1 - slow_loop(-r, k, tau), abs=1e-12)


@pytest.mark.parametrize("tau", TAUS)
@pytest.mark.parametrize("k", [0, 1, 5, 18, 35, 36, 37, 60, 68, 71, 72])
def test_gates_and_gradients_are_finite_and_add_up_to_k(k, tau):
    rng = np.random.default_rng(k)
    noise = rng.random(72)
    noise[:4] = (0.0, 1.0, 0.0, 1.0)
    for scores in (rng.normal(size=72) + gumbel(noise), np.zeros(72)):  # all tied, too
        gates, pullback = soft_top_k(scores, k, tau)
        back = pullback(rng.normal(size=72))
        assert np.isfinite(gates).all() and np.isfinite(back).all()
        assert gates.min() >= 0 and gates.max() <= 1 and abs(gates.sum() - k) < 1e-4


@pytest.mark.parametrize("k, tau", [(2, 1.0), (3, 0.5), (6, 2.0), (3, 0.1), (5, 0.3)])
def test_the_gradient_equals_finite_differences(k, tau):
    """The last two are projected: their published sum passes 1."""
    rng = np.random.default_rng(4)
    r, direction, step = rng.normal(size=8), rng.normal(size=8), 1e-6
    found = soft_top_k(r, k, tau)[1](direction)
    for place in range(8):
        moved = [soft_top_k(r + sign * step * np.eye(8)[place], k, tau)[0] @ direction for sign in (1, -1)]
        assert found[place] == pytest.approx((moved[0] - moved[1]) / (2 * step), abs=1e-6)


def test_top_k_is_exact_and_ties_go_to_the_lowest_index():
    assert top_k(np.array([1.0, 3.0, 3.0, 3.0]), 2).tolist() == [False, True, True, False]
    for k in range(7):
        assert top_k(np.zeros(6), k).tolist() == [place < k for place in range(6)]
    for wrong in (-1, 7, 2.0, True):
        with pytest.raises(ValueError, match="0 to 6"):
            top_k(np.zeros(6), wrong)


def test_gumbel_top_k_draws_subsets_as_eq_13_says():
    """H = 6, K = 2: the 15 sets' probabilities by enumeration of both orders (eqs. 12 and 13), chi-square."""
    weights = np.array([0.0, 0.5, 1.0, -0.5, 0.2, -1.0])
    chance = np.exp(weights)
    sets = list(itertools.combinations(range(6), 2))
    total = chance.sum()
    expected = [sum(chance[a] / total * chance[b] / (total - chance[a]) for a, b in ((i, j), (j, i))) for i, j in sets]
    draws, counts = 20000, dict.fromkeys(sets, 0)
    for update in range(draws):
        counts[tuple(np.flatnonzero(top_k(weights + gumbel(uniform(3, update, 6)), 2)).tolist())] += 1
    assert sum(expected) == pytest.approx(1)
    assert chisquare(list(counts.values()), np.array(expected) * draws).pvalue > 0.01


def test_the_rule_uses_its_noise():
    """Equal weights, K = 2 of 6: by symmetry each head is kept in a third of the updates, and never by itself."""
    rule, draws = SubsetRule(HEADS[:6], 2, Temperature(1e-6, 1e-6, 1)), 6000
    sets = {}
    for update in range(draws):
        gates, _ = rule.gates(np.zeros(6), uniform(5, update, 6), update)
        kept = tuple(np.flatnonzero(gates > 0.5).tolist())
        sets[kept] = sets.get(kept, 0) + 1
    shares = [sum(count for kept, count in sets.items() if head in kept) / draws for head in range(6)]
    assert len(sets) == 15 and shares == pytest.approx([1 / 3] * 6, abs=0.02)
    # Evaluation draws nothing: ties go to the lowest index.
    assert rule.evaluate(np.zeros(6)).tolist() == rule.evaluate(np.zeros(6)).tolist() == [1, 1, 0, 0, 0, 0]


@pytest.mark.parametrize("tau", [0.0, -1.0, float("nan"), float("inf")])
def test_temperatures_out_of_range_are_refused(tau):
    for start, end in ((tau, 1e-8), (0.1, tau)):
        with pytest.raises(ValueError, match=f"{tau:g}"):
            Temperature(start, end, 4)


@pytest.mark.parametrize("rule", [{"temperature": Temperature(0.1, 1e-6, 2, wait=3)}, {"straight_through": True}])
def test_the_share_of_updates_that_sample_the_learned_set(rule):
    """K = 1 of two heads, weights log 3 and 0: Gumbel noise keeps the first one with probability 3 / 4 (eq. 12)."""
    learner = GateLearner(SubsetRule(HEADS[:2], 1, noise="always", **rule), HEADS[:2], 0.1, seed=2)
    with torch.no_grad():
        learner.weight.copy_(torch.tensor([math.log(3), 0.0]))
    for _ in range(5 if "temperature" in rule else 0):
        assert learner.sampled == (0, 0)  # it cools in updates 3 and 4
        learner.begin()
        learner.step(np.zeros(2))
    for _ in range(4000):
        learner.begin()
        learner.step(np.zeros(2))
    assert learner.sampled[1] == 4000 and learner.stats()["sampled_as_learned"] == pytest.approx(0.75, abs=0.02)
    again = GateLearner(SubsetRule(HEADS[:2], 1, noise="always", **rule), HEADS[:2], 0.1, seed=2)
    again.load(learner.state(), learner.description())
    assert again.sampled == learner.sampled


def test_noise_ends_with_cooling_or_is_never_there():
    """Nearly equal weights: without noise the higher one wins; with it either head in half of the updates."""
    kept, nearly = {}, np.array([1e-3, 0.0])
    for noise in ("always", "cooling", "never"):
        rule = SubsetRule(HEADS[:2], 1, Temperature(1e-6, 1e-6, 100), noise=noise)
        gates = [rule.gates(nearly, uniform(5, update, 2), update)[0][0] for update in range(200)]
        kept[noise] = [sum(gates[:100]), sum(gates[100:])]
    assert kept["never"] == [100, 100] and kept["cooling"][1] == 100
    assert all(30 < number < 70 for number in (*kept["always"], kept["cooling"][0]))


def test_temperature_is_eq_24():
    assert [Temperature(0.1, 1e-8, 10, wait=5).at(n) for n in (0, 5, 15)] == [0.1, 0.1, 1e-8]
    schedule = Temperature(0.1, 1e-8, 1000)
    assert schedule.at(0) == pytest.approx(0.1) and schedule.at(1000) == schedule.at(5000) == 1e-8
    assert schedule.at(500) == pytest.approx(np.sqrt(0.1 * 1e-8))  # halfway is the geometric mean
    for wrong in ((0.1, 1.0, 10), (0.1, 0.01, 0)):
        with pytest.raises(ValueError, match="tau"):
            Temperature(*wrong)


EACH = {"enc_self": 1, "enc_dec": 3, "dec_self": 2}
RULES = {
    "dsp": lambda: SubsetRule(HEADS, 5, Temperature(1.0, 1e-8, 40)),
    "dsp by component": lambda: SubsetRule(HEADS, EACH, Temperature(1.0, 1e-8, 40)),
    "ste": lambda: SubsetRule(HEADS, 5, straight_through=True),
    "l0": lambda: L0Rule(HEADS, penalty=0.01),
    "l0 with target": lambda: L0Rule(HEADS, target=5, warm_up=10),
}


def advance(learner, updates):
    """Steps with gradients that depend on the update alone."""
    for _ in range(updates):
        learner.begin()
        learner.step(np.random.default_rng(learner.updates).normal(size=len(HEADS)))


@pytest.mark.parametrize("name", RULES)
def test_a_learner_goes_on_bit_for_bit_and_leaves_global_streams_alone(name):
    torch.manual_seed(1)
    before = torch.random.get_rng_state(), np.random.get_state()[1].copy()
    straight = GateLearner(RULES[name](), HEADS, 0.1, seed=3)
    advance(straight, 30)
    first = GateLearner(RULES[name](), HEADS, 0.1, seed=3)
    advance(first, 11)
    again = GateLearner(RULES[name](), HEADS, 0.1, seed=3)
    again.load(first.state(), first.description())
    advance(again, 19)
    assert all(torch.equal(value, again.state()[key]) for key, value in straight.state().items())
    assert np.array_equal(straight.begin(), again.begin()) and torch.equal(straight.evaluate(), again.evaluate())
    assert torch.equal(before[0], torch.random.get_rng_state()) and (before[1] == np.random.get_state()[1]).all()


def test_a_gradient_vanishes_by_the_temperature_only():
    cold = GateLearner(SubsetRule(HEADS, 5, Temperature(1e-8, 1e-8, 40)), HEADS, 0.1, seed=3)
    warm = GateLearner(SubsetRule(HEADS, 5, Temperature(1.0, 1.0, 40)), HEADS, 0.1, seed=3)
    # L0 has no temperature: far open, every gate is drawn as exactly 1, where its gradient by definition is 0.
    open_ = GateLearner(L0Rule(HEADS, penalty=0.01, init=20.0), HEADS, 0.1, seed=3)
    for learner, vanished in ((cold, True), (warm, False), (open_, False)):
        advance(learner, 1)
        assert learner.gradient_vanished == vanished
    assert (open_.begin() == 1).all() and open_.stats()["gate_gradient"] > 0


@pytest.mark.parametrize("target, scale", [(1, 1e-4), (5, 0.01), (16, 1.0)])
def test_a_target_is_reached_within_one_head(target, scale):
    """A simulated training: heads of random use, and noise in the gradient; the last 50 updates count."""
    use = np.random.default_rng(2).exponential(size=len(HEADS)) * scale
    rng = np.random.default_rng(3)
    learner = GateLearner(L0Rule(HEADS, target=target, warm_up=300), HEADS, 0.02, seed=0)
    for update in range(1500):
        gates = learner.begin()
        learner.step(-use * (1.5 - gates) + rng.normal(size=len(HEADS)) * scale / 2)
        if update >= 1450:
            assert abs(int(learner.hard().sum()) - target) <= 1


def test_prices_of_a_target_by_hand():
    """Groups of 4 heads, of which 1 is wanted after 10 updates, and of 2; rate 0.5, damping 50, past 0.98."""
    penalty = TargetPenalty([(np.arange(4), 1), (np.arange(4, 6), 2)], warm_up=10)
    hard = np.array([1, 1, 1, 1, 1, 0])
    # All 4 and 2 are wanted at first: errors 0 of 4 and -1 of 2. The unit is the mean absolute gradient.
    penalty.adapt(penalty.errors(hard, 0), 0, np.array([1.0, -1, 1, -1, 4, -4]))
    assert penalty.multipliers == pytest.approx([0, -0.25, 2])
    # Half-way 2.5 are wanted of the first: an error of 1.5 of 4.
    penalty.adapt(penalty.errors(hard, 5), 5, np.zeros(6))
    assert penalty.multipliers == pytest.approx([0.1875, -0.5, 1.96])
    expected = [1.96 * (0.1875 + 50 * 0.375)] * 4 + [1.96 * (-0.5 - 50 * 0.5)] * 2
    assert penalty.prices(penalty.errors(hard, 5)) == pytest.approx(expected)
    assert penalty.stats() == {"l0_price": pytest.approx(1.96 * (0.1875 - 0.5) / 2)}
    assert [penalty.keep_schedule(saved) for saved in ({}, {"warm_up": 10}, {"warm_up": 20})] == [False, False, True]
    assert penalty.description() == {"warm_up": 20}
    # Later the number is the target's: 3 of 4 are too many.
    assert penalty.prices(penalty.errors(hard, 30))[0] == pytest.approx(1.96 * (0.1875 + 50 * 0.75))


@pytest.mark.parametrize("ahead", [False, True], ids=["in the step", "while a GPU works"])
def test_an_update_is_priced_by_its_own_target(ahead):
    total = len(HEADS)
    learner = GateLearner(L0Rule(HEADS, target=total - 10, warm_up=10), HEADS, 0.01, seed=0)
    for _ in range(3):
        learner.begin()
        if ahead:
            learner.prepare()
        learner.step(np.ones(total))
    # By hand: all heads are open at first. The target falls by one head an update, so that 0, 1 and 2 are too many; the
    # multiplier rises by half of their share of all. The mean absolute gradient is 1.
    assert learner.hard().all()
    assert learner.state()["multipliers"].tolist() == pytest.approx([0.5 * (0 + 1 + 2) / total, 1.0])


def test_wrong_settings_and_states_are_refused():
    with pytest.raises(ValueError, match="rate"):
        GateLearner(RULES["ste"](), HEADS, 0.0, seed=1)
    with pytest.raises(ValueError, match="enc_self"):
        SubsetRule(HEADS, {"enc_self": 1}, straight_through=True)
    with pytest.raises(ValueError, match="-0.1"):
        L0Rule(HEADS, penalty=-0.1)
    learner = GateLearner(RULES["ste"](), HEADS, 0.1, seed=1)
    other = GateLearner(RULES["dsp"](), HEADS, 0.1, seed=1)
    with pytest.raises(ValueError, match="dsp"):
        learner.load(other.state(), other.description())
    broken = learner.state() | {"exp_avg": torch.full((len(HEADS),), float("nan"))}
    with pytest.raises(ValueError, match=r"not finite \(exp_avg\): take an earlier checkpoint"):
        learner.load(broken, learner.description())
    learner.begin()
    weight = learner.weight.clone()
    with pytest.raises(FloatingPointError, match="update 0.*enc_self"):
        learner.step(np.full(len(HEADS), math.nan))
    assert learner.updates == 0 and torch.equal(weight, learner.weight)
