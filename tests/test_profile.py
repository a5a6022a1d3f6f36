"""The additive model of time and ``headprune profile``: costs from times, the file, masks within a budget; by hand."""

import statistics

import pytest
import tiny
from slim_models import lively, same_on_every_path
from verbs import refused, run_json

from fairseq_headprune.choosing.scored import keep_in_time, parse_latency, parse_speed
from fairseq_headprune.cli import main
from fairseq_headprune.cli.profile import _text
from fairseq_headprune.modules.attach import find_gates
from fairseq_headprune.parts import Mask, Part
from fairseq_headprune.parts.scores import Scores
from fairseq_headprune.speed.profile import LayerGroup, Profile, interpolate, layer_groups, module_costs, monotone
from fairseq_headprune.speed.variants import first_heads, random_masks, with_heads

SHAPE = {"enc_self": [4, 4], "dec_self": [4]}
#: a module without heads is free, one head costs 4 ms, four cost 6 ms (encoder) or 4 ms (decoder); the rest 10 ms
ENCODER, DECODER = [(0, 0.0), (1, 0.004), (4, 0.006)], [(0, 0.0), (1, 0.004), (4, 0.004)]


@pytest.fixture
def profile():
    return Profile(SHAPE, 0.01, {"enc_self": [ENCODER, ENCODER], "dec_self": [DECODER]}, checkpoint={"sha256": "1"})


@pytest.fixture
def scores():
    """The decoder's heads matter least, and of each layer the last ones."""
    rows = {"enc_self": [[0.9, 0.8, 0.7, 0.6], [0.95, 0.5, 0.4, 0.3]], "dec_self": [[0.25, 0.2, 0.15, 0.1]]}
    return Scores(rows, estimator="random")


def test_layers_alike_are_measured_together():
    counts = {"enc_self": [4, 2, 4], "enc_dec": [0, 1]}
    assert layer_groups(counts) == [
        LayerGroup("enc_self", (0, 2), 4),
        LayerGroup("enc_self", (1,), 2),
        LayerGroup("enc_dec", (1,), 1),
    ]
    assert [g.layers for g in layer_groups(counts, each_layer=True)] == [(0,), (1,), (2,), (1,)]
    assert [g.points() for g in layer_groups(counts)] == [[0, 1, 2, 4], [0, 1, 2], [0, 1]]


def test_costs_are_differences_within_a_round():
    # The second round is 5 slower throughout; two modules share a difference.
    times = {0: [10.0, 15.0, 10.0], 1: [12.0, 17.0, 13.0], 4: [14.0, 19.0, 15.0]}
    found = module_costs(times, layers=2)
    costs = [(c.heads, c.seconds, c.low, c.high) for c in found]
    assert costs == [(0, 0, 0, 0), (1, 1.0, 1.0, 1.5), (4, 2.0, 2.0, 2.5)]


@pytest.mark.parametrize("values, expected", [
    ([0, 1, 3], [0, 1, 3]), ([0, 3, 1], [0, 2, 2]), ([0, 3, 2, 1, 4], [0, 2, 2, 2, 4]),
    ([0, 4, 1, 2], [0, 7 / 3, 7 / 3, 7 / 3]), ([0, -3, 1, 0], [0, 0, 0.5, 0.5]), ([0], [0]),
])  # fmt: skip
def test_costs_do_not_fall_when_heads_are_added(values, expected):
    assert monotone(values) == pytest.approx(expected)


def test_costs_between_measured_numbers_are_on_the_line():
    assert [interpolate(ENCODER, n) for n in range(5)] == pytest.approx([0, 0.004, 0.014 / 3, 0.016 / 3, 0.006])
    assert interpolate([(0, 0.0)], 0) == 0
    with pytest.raises(ValueError, match="5 heads, where 4"):
        interpolate(ENCODER, 5)


def test_predictions_are_sums(profile):
    assert [profile.whole(), profile.seconds(Mask.full(SHAPE))] == pytest.approx([0.026, 0.026])
    mask = Mask({"enc_self": [[0, 0, 0, 0], [0, 1, 0, 0]], "dec_self": [[1, 0, 0, 1]]})
    assert profile.seconds(mask) == pytest.approx(0.01 + 0 + 0.004 + 0.004)
    with pytest.raises(ValueError, match="the profiled model has 4"):
        profile.seconds(Mask.full(SHAPE | {"dec_self": [2]}))


def test_a_profile_is_saved_and_read_again(profile, tmp_path):
    profile.save(tmp_path / "p.json")
    assert Profile.load(tmp_path / "p.json") == profile


@pytest.mark.parametrize(
    "change, message",
    [
        ({"format": "headprune.profile/2"}, "upgrade"),
        ({"format": "headprune.mask/1"}, "not a profile file"),
        ({"rest": None}, '"rest" is None'),
        ({"costs": {"enc_self": [[[0, 0.0]]]}}, "enc_self: costs of 1 layers, the shape has 2"),
        ({"costs": {"enc_self": [[[1, 0.1]], [[0, 0]]], "dec_self": [[[0, 0]]]}}, "enc_self layer 0: costs are pairs"),
        ({"costs": None}, "one list a component"),
    ],
)
def test_a_wrong_profile_is_refused(profile, change, message):
    with pytest.raises(ValueError, match=message):
        Profile.from_dict(profile.to_dict() | change)


DECODER_HEADS = [Part("dec_self", 0, head) for head in range(4)]


@pytest.mark.parametrize(
    "limit, dropped",
    [
        (0.026, []),
        # One decoder head saves nothing: all four go, and with 22 ms the limit is kept.
        (0.022, DECODER_HEADS),
        # 20 ms: the lowest scores after the decoder's are heads 3, 2 and 1 of encoder layer 1, which save 2 ms.
        (0.020, [*(Part("enc_self", 1, head) for head in (1, 2, 3)), *DECODER_HEADS]),
        # 24 ms could be had for three heads of encoder layer 1, but the decoder's have lower scores.
        (0.024, DECODER_HEADS),
    ],
)
def test_the_lowest_scores_go_until_the_time_is_kept(profile, scores, limit, dropped):
    mask = keep_in_time(Mask.full(SHAPE), scores, profile.seconds, limit)
    assert mask.dropped() == dropped and profile.seconds(mask) <= limit * (1 + 1e-9)


def test_heads_that_save_nothing_come_back(profile):
    # By these scores decoder heads go first, three of four for nothing, then encoder layer 1: 2 + 4 ms.
    rows = {"enc_self": [[0.9, 0.8, 0.7, 0.6], [0.1, 0.2, 0.3, 0.4]], "dec_self": [[0.5, 0.01, 0.02, 0.03]]}
    mask = keep_in_time(Mask.full(SHAPE), Scores(rows, "random"), profile.seconds, 0.020)
    assert mask.dropped() == [Part("enc_self", 1, head) for head in range(4)]


def test_what_is_out_of_reach():
    assert [parse_speed(text) for text in ("1.3x", "1", "2.5 x")] == [1.3, 1.0, 2.5]
    assert [parse_latency(text) for text in ("250", "0.5ms")] == [250.0, 0.5]
    for text in ("0.9x", "fast", "inf", "nan"):
        with pytest.raises(ValueError, match="--for-speed"):
            parse_speed(text)
    for text in ("0", "-1", "soon", "nan"):
        with pytest.raises(ValueError, match="--for-latency"):
            parse_latency(text)


def test_the_mask_verb_meets_the_target_and_says_how(profile, scores, tmp_path, capsys):
    profile.save(tmp_path / "p.json")
    scores.save(tmp_path / "s.json")
    Mask.full(SHAPE).save(tmp_path / "full.json")
    out = ["-o", tmp_path / "mask.json"]
    call = ["mask", "--like", tmp_path / "full.json", "--scores", tmp_path / "s.json", "--profile", tmp_path / "p.json"]
    value = run_json(*call, *out, "--for-speed", "1.3x")
    budget = value["source"]["budget"]
    # 26 ms / 1.3 = 20 ms
    assert value["kept"] == 5 and budget["for_speed"] == "1.3x"
    assert budget["predicted"] == pytest.approx({"milliseconds": 20, "of": 26, "speed": 1.3})
    assert budget["profile"]["checkpoint"] == {"sha256": "1"} and len(budget["profile"]["sha256"]) == 64
    assert Mask.load(tmp_path / "mask.json").source == value["source"]
    assert run_json(*call, *out, "--for-latency", "22")["kept"] == 8
    # One number a stack: without the decoder's heads two in each encoder layer take 10 + 2 * 14 / 3 ms, three too much.
    value = run_json(*call, *out, "--for-speed", "1.3x", "--uniform")
    assert [sum(row) for row in Mask.load(tmp_path / "mask.json").rows["enc_self"]] == [2, 2] and value["kept"] == 4
    assert value["source"]["budget"]["predicted"]["milliseconds"] == pytest.approx(10 + 28 / 3)
    # Without heads 10 ms are left.
    line = refused(capsys, *call, *out, "--for-speed", "2.61x")
    assert "without any scored head it is 2.60x" in line and run_json(*call, *out, "--for-speed", "2.60x")["kept"] == 0
    line = refused(capsys, *call, *out, "--for-latency", "9.99")
    assert "10.00 ms" in line and run_json(*call, *out, "--for-latency", "10.00")["kept"] == 0
    for flags, message in (
        ([*call[:5], *out, "--for-speed", "2"], "--profile FILE"),
        ([*call[:3], *call[5:], *out, "--for-latency", "20"], "--scores FILE"),
        ([*call[:5], *out, "--heads", "3", "--uniform"], "--uniform needs --for-speed or --for-latency"),
        ([*call, *out, "--heads", "3"], "--profile needs --for-speed or --for-latency"),
        ([*call, *out, "--for-speed", "2", "--for-latency", "3"], "not allowed with"),
        ([*call, *out, "--for-speed", "2", "--ffn", "1"], "--for-speed does not go with --ffn"),
    ):
        assert message in refused(capsys, *flags)
    profile.rest = -0.001
    profile.save(tmp_path / "p.json")
    assert "(-1.00 ms are left)" in refused(capsys, *call, *out, "--for-speed", "2")


def test_a_component_that_is_gone_and_the_profiles_own_error_are_said(profile, scores, tmp_path, capsys):
    profile.checks = [{"mask": "a", "error": -0.33}, {"mask": "b", "error": 0.1}]
    profile.save(tmp_path / "p.json")
    scores.save(tmp_path / "s.json")
    Mask.full(SHAPE).save(tmp_path / "full.json")
    call = ["mask", "--like", tmp_path / "full.json", "-o", tmp_path / "mask.json"]
    timed = ["--scores", tmp_path / "s.json", "--profile", tmp_path / "p.json", "--for-speed", "1.3x"]
    for flags in (timed, ["--scores", tmp_path / "s.json", "--heads", "8"]):
        assert main([*map(str, [*call, *flags])]) == 0
        out = capsys.readouterr().out
        # The decoder's four heads have the lowest scores.
        assert "no head of dec_self is kept" in out
        assert ("were off by up to 33%)" in out) == (flags is timed)


def test_a_model_with_fewer_heads_is_the_masked_one_and_shares_the_rest(batch):
    model = lively({})
    fewer = with_heads(model, tiny.FEW)
    with find_gates(model).masked(tiny.FEW):
        same_on_every_path(fewer, model, batch, unlike=lively({}))
    own = {id(parameter) for parameter in fewer.parameters()} - {id(parameter) for parameter in model.parameters()}
    # Three modules keep one of two heads: weights of four projections, and biases of three, are cut.
    assert len(own) == 3 * 7


def test_masks_that_are_measured():
    full = Mask.full({"enc_self": [4, 4, 2], "dec_self": [4]}).without([])
    mask = first_heads(full, LayerGroup("enc_self", (0, 1), 4), 1)
    assert mask.rows == {"enc_self": [[1, 0, 0, 0], [1, 0, 0, 0], [1, 1]], "dec_self": [[1, 1, 1, 1]]}
    # 14 heads: halves go to the even number.
    counts = {name: len(mask.dropped()) for name, mask in random_masks(full).items()}
    assert counts == {"25% pruned": 4, "50% pruned": 7, "75% pruned": 10, "90% pruned": 13}


@pytest.fixture(scope="module")
def call(trained):
    few = ["--batch-size", "4", "--batches", "2", "--rounds", "3", "--length", "3", "--beam", "1"]
    return ["profile", trained["data"], "--path", trained["checkpoint"], "--cpu", "--gen-subset", "test", *few]


def test_the_file_tells_what_was_measured_and_how(call, trained, tmp_path):
    value = run_json(*call, "-o", tmp_path / "p.json")
    assert Profile.load(tmp_path / "p.json").to_dict() == Profile.from_dict(value).to_dict()
    settings = {"device": "cpu", "gpu": None, "precision": "fp32", "threads": 1, "batch_size": 4, "beam": 1}
    assert value["settings"] == settings | {"length": 3, "batches": 2, "rounds": 3}
    assert value["checkpoint"]["path"] == str(trained["checkpoint"]) and value["environment"]["torch"]
    whole, *rows = value["measured"]
    # Three components of two layers with two heads; one head is half of them.
    expected = [(c, [0, 1], heads) for c in ("enc_self", "enc_dec", "dec_self") for heads in (0, 1, 2)]
    assert [(row["component"], row["layers"], row["heads"]) for row in rows] == expected
    for row, none in zip(rows, [row for row in rows for _ in range(3) if not row["heads"]], strict=True):
        halves = [(mine - base) / 2 for mine, base in zip(row["seconds"], none["seconds"], strict=True)]
        assert len(halves) == 3 and (row["cost"]["min"], row["cost"]["max"]) == (min(halves), max(halves))
    profile = Profile.from_dict(value)
    assert profile.whole() == pytest.approx(statistics.median(whole["seconds"]))
    assert [check["mask"] for check in value["checks"]] == ["25% pruned", "50% pruned", "75% pruned", "90% pruned"]
    for check in value["checks"]:
        assert check["error"] == pytest.approx(check["predicted"] / check["measured"]["median"] - 1)
        mask = {c: [[1] * n + [0] * (2 - n) for n in counts] for c, counts in check["heads"].items()}
        assert check["predicted"] == pytest.approx(profile.seconds(Mask(mask)))


def test_the_text_warns_of_a_prediction_that_is_far_off():
    profile = Profile({"dec_self": [2]}, 0.01, {"dec_self": [[(0, 0.0), (2, 0.001)]]})
    names = ("gpu", "device", "precision", "threads", "batch_size", "beam", "length", "batches", "rounds")
    profile.settings = dict.fromkeys(names, 1)
    check = {"mask": "m", "predicted": 0.01, "measured": {"median": 0.0125, "min": 0.01, "max": 0.02}}
    for error, warned in ((-0.2, True), (0.1, False)):
        profile.checks = [{**check, "error": error}]
        assert ("off by up to 20%" in _text(profile, "p.json", "text")) == warned


@pytest.mark.parametrize(
    "flags, words",
    [
        (["--rounds", "0"], "--rounds must be at least 1, got 0"),
        (["--length", "1"], "--length 1"),
        (["--length", "1025"], "--length 1025: the model translates to 1024 tokens"),
        (["--batch-size", "0"], "--batch-size must be at least 1, got 0"),
        (["--batches", "3"], "3 batches of 4 need 12 sentences, test has 8"),
        (["-o", "nowhere/p.json"], "there is no folder nowhere"),
    ],
)
def test_wrong_input_is_one_line(call, tmp_path, capsys, flags, words):
    assert words in refused(capsys, *call, "-o", tmp_path / "p.json", *flags)
    assert not (tmp_path / "p.json").exists()
