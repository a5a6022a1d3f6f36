"""``headprune mask`` by chance, per layer, by layer sets: what the flags give and what the file says of it."""

import pytest
from verbs import refused

from fairseq_headprune.cli import main
from fairseq_headprune.files import sha256
from fairseq_headprune.parts import HEADS, Mask
from fairseq_headprune.parts.notation import format_config

#: The paper's model (Budhraja et al. 2020, §2.2): 144 heads.
PAPER = Mask.full({component: [8] * 6 for component in HEADS})


@pytest.fixture
def like(tmp_path):
    PAPER.save(tmp_path / "like.json")
    return tmp_path / "like.json"


@pytest.fixture
def made(like, tmp_path):
    """The function that runs the verb and returns the mask it wrote."""

    def make(*arguments):
        output = tmp_path / "out.json"
        assert main(["mask", "--like", str(like), "-o", str(output), *map(str, arguments)]) == 0
        return Mask.load(output)

    return make


def test_random(made):
    mask = made("--random", "60%", "--seed", "5")
    assert len(mask.kept()) == 58
    assert mask.source["drawn"] == {
        "random": "60%", "components": "all", "seed": 5, "at_least_one": False, "pruned": 86, "of": 144,
    }  # fmt: skip
    assert made("--random", "60%", "--seed", "5") == mask != made("--random", "60%", "--seed", "0")
    # The default seed is 1, and it is recorded.
    default = made("--random", "60%")
    assert default == made("--random", "60%", "--seed", "1") and default.source["drawn"]["seed"] == 1
    assert len(made("--random", 86).kept()) == 58


@pytest.mark.parametrize(
    "flags, counts",
    [
        (["--random", "60%", "--components", "each"], [19, 19, 19]),
        (["--random", "50%", "--components", "enc_self"], [24, 48, 48]),
        (["--triple", "14,31,30", "--seed", "0"], [14, 31, 30]),
    ],
)
def test_heads_by_component(made, flags, counts):
    assert [n["kept"] for n in made(*flags).counts().values()] == counts


CONFIG = "ES=777322 ED=233777 DS=777332"


@pytest.mark.parametrize(
    "flags, config, drawn",
    [
        (["--random", "87.5%", "--at-least-one"], "111111 111111 111111", {"at_least_one": True}),
        (["--config", CONFIG, "--seed", "2"], "777322 233777 777332", {"seed": 2, "mirrored": False}),
        (["--config", CONFIG, "--mirror", "--seed", "2"], "223777 777332 233777", {"mirrored": True}),
        (["--layers", "top:2,bottom:2"], "008800 888888 888888", {"pruned_layers": {"enc_self": [0, 1, 4, 5]}}),
        (["--layers", "even", "--components", "dec_self"], "888888 888888 808080", {"layers": "even"}),
    ],
)
def test_heads_by_layer(made, flags, config, drawn):
    mask = made(*flags)
    assert " ".join(format_config(mask).values()) == config
    assert mask.source["drawn"].items() >= drawn.items()


def test_components_drawn_over_jointly(made):
    counts = made("--random", "50%", "--components", "enc_self,dec_self").counts()
    assert counts["enc_self"]["kept"] + counts["dec_self"]["kept"] == 48 and counts["enc_dec"]["kept"] == 48
    assert "0" not in "".join(format_config(made("--triple", "6,7,8", "--at-least-one")).values())


def test_config_repeated_and_without_a_seed(made):
    repeated = made(*(word for part in CONFIG.split() for word in ("--config", part)), "--seed", "2")
    assert made("--config", CONFIG, "--seed", "2") == repeated
    first = made("--config", CONFIG)
    assert format_config(first) == format_config(repeated) and first != repeated
    assert first.rows["enc_self"][3] == [1, 1, 1, 0, 0, 0, 0, 0] and "seed" not in first.source["drawn"]


def test_complement(made, tmp_path):
    other = made("--random", "60%")
    other.save(tmp_path / "other.json")
    mask = made("--complement", tmp_path / "other.json")
    assert mask.kept() == other.dropped()
    assert mask.source["complement"]["sha256"] == sha256(tmp_path / "other.json")


def test_wrong_input(like, tmp_path, capsys):
    """What cannot be drawn: test_choosing.py, but for one of each way."""
    for words, message in (
        (["--random", "0.3%"], "prunes no head of 144"),
        (["--config", "ES=77732", "--seed", "1"], "5 layers, the model has 6"),
        (["--triple", "14,31"], "not a triple"),
        (["--layers", "top:7"], "there are 6 layers"),
        (["--random", "60%", "--seed", "-1"], "--seed must be 0 or more"),
        (["--random", "60%", "--mirror"], "--mirror needs --config"),
        (["--seed", "1"], "--seed needs --random or --triple or --config"),
        (["--config", "ES=111111", "--at-least-one"], "--at-least-one needs --random or --triple"),
        (["--triple", "1,1,1", "--components", "all"], "--components needs --random or --layers"),
        (["--random", "60%", "--triple", "1,1,1"], "not allowed with"),
    ):
        assert message in refused(capsys, "mask", "--like", like, "-o", tmp_path / "out.json", *words)
    assert not (tmp_path / "out.json").exists()
