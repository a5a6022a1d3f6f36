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


def test_random_over_components(made):
    assert [n["kept"] for n in made("--random", "60%", "--components", "each").counts().values()] == [19, 19, 19]
    counts = made("--random", "50%", "--components", "enc_self").counts()
    assert [n["kept"] for n in counts.values()] == [24, 48, 48]
    counts = made("--random", "50%", "--components", "enc_self,dec_self").counts()
    assert counts["enc_self"]["kept"] + counts["dec_self"]["kept"] == 48 and counts["enc_dec"]["kept"] == 48


def test_at_least_one(made):
    mask = made("--random", "87.5%", "--at-least-one")
    assert format_config(mask) == {"ES": "111111", "ED": "111111", "DS": "111111"}
    assert mask.source["drawn"]["at_least_one"] is True
    assert "0" not in "".join(format_config(made("--triple", "6,7,8", "--at-least-one")).values())


def test_config_repeated_and_in_one_argument(made):
    wanted = {"ES": "777322", "ED": "233777", "DS": "777332"}
    repeated = made("--config", "ES=777322", "--config", "ED=233777", "--config", "DS=777332", "--seed", "2")
    assert format_config(repeated) == wanted
    assert made("--config", "ES=777322 ED=233777 DS=777332", "--seed", "2") == repeated
    assert repeated.source["drawn"]["seed"] == 2
    first = made("--config", "ES=777322 ED=233777 DS=777332")
    assert format_config(first) == wanted and first != repeated
    assert first.rows["enc_self"][3] == [1, 1, 1, 0, 0, 0, 0, 0] and "seed" not in first.source["drawn"]


def test_mirror(made):
    mask = made("--config", "ES=777322 ED=233777 DS=777332", "--mirror", "--seed", "2")
    assert format_config(mask) == {"ES": "223777", "ED": "777332", "DS": "233777"}
    assert mask.source["drawn"]["mirrored"] is True


def test_triple(made):
    mask = made("--triple", "14,31,30", "--seed", "0")
    assert [n["kept"] for n in mask.counts().values()] == [14, 31, 30]
    assert mask.source["drawn"]["triple"] == {"enc_self": 14, "enc_dec": 31, "dec_self": 30}


def test_layers(made):
    mask = made("--layers", "top:2,bottom:2")
    assert format_config(mask) == {"ES": "008800", "ED": "888888", "DS": "888888"}
    drawn = {"layers": "top:2,bottom:2", "pruned_layers": {"enc_self": [0, 1, 4, 5]}}
    assert mask.source["drawn"] == drawn
    assert format_config(made("--layers", "even", "--components", "dec_self"))["DS"] == "808080"


def test_complement(made, tmp_path):
    made("--random", "60%").save(tmp_path / "other.json")
    other = Mask.load(tmp_path / "other.json")
    mask = made("--complement", tmp_path / "other.json")
    assert mask.kept() == other.dropped()
    assert mask.source["complement"]["sha256"] == sha256(tmp_path / "other.json")


def test_wrong_input(like, tmp_path, capsys):
    def line(*words):
        return refused(capsys, "mask", "--like", like, "-o", tmp_path / "out.json", *words)

    assert "prunes no head of 144" in line("--random", "0.3%")
    assert "prunes all heads of 144" in line("--random", "99.8%")
    assert "each of 18 layers with 14 of 144 heads" in line("--random", "90%", "--at-least-one")
    assert "5 layers, the model has 6" in line("--config", "ES=77732", "--seed", "1")
    assert "cannot keep 9 heads of 8" in line("--config", "ES=977322", "--seed", "1")
    assert "not a triple" in line("--triple", "14,31")
    assert "cannot keep 49 heads" in line("--triple", "49,1,1")
    assert "--mirror needs --config" in line("--random", "60%", "--mirror")
    assert "--seed needs --random or --triple or --config" in line("--seed", "1")
    assert "--at-least-one needs --random or --triple" in line("--config", "ES=111111", "--at-least-one")
    assert "--components needs --random or --layers" in line("--triple", "1,1,1", "--components", "all")
    assert "--seed must be 0 or more" in line("--random", "60%", "--seed", "-1")
    assert "there are 6 layers" in line("--layers", "top:7")
    assert "not allowed with" in line("--random", "60%", "--triple", "1,1,1")
    assert not (tmp_path / "out.json").exists()
