"""The score file, and the order of pruning that follows from it."""

import json

import pytest

from fairseq_headprune.parts import FFN, Part
from fairseq_headprune.parts.scores import Scores

FORMAT = Scores.FORMAT

SCORES = {"enc_self": [[0.5, 0.1], [0.1, None]], "enc_dec": [[0.2, 0.1]], "dec_self": [[0.0, 0.1]]}


def make(**more):
    return Scores(SCORES, estimator="gradient", reduction="sentence", normalize="layer", sentences=7, **more)


def test_round_trip(tmp_path):
    more = {"details": {"x": [1]}, "precision": "fp16", "environment": {"command": "headprune score"}}
    scores = make(data={"split": "train"}, checkpoint={"path": "a.pt", "sha256": "00"}, **more)
    scores.save(tmp_path / "scores.json")
    assert Scores.load(tmp_path / "scores.json") == scores


def test_a_file_without_environment_and_precision_is_read(tmp_path):
    make().save(tmp_path / "scores.json")  # as files were before these were noted
    assert not {"environment", "precision"} & set(json.loads((tmp_path / "scores.json").read_text()))
    assert Scores.load(tmp_path / "scores.json") == make()


def test_the_file_holds_the_promised_keys(tmp_path):
    make().save(tmp_path / "scores.json")
    value = json.loads((tmp_path / "scores.json").read_text())
    # Source: the file format in the documentation.
    keys = {"format", "scores", "estimator", "reduction", "normalize", "sentences", "data", "checkpoint"}
    assert keys <= set(value)
    assert value["format"] == "headprune.scores/2" == FORMAT and value["scores"] == SCORES


def test_order_is_ascending_and_of_equal_scores_the_highest_index_goes_first():
    # Source: by hand. 0.0; then the four heads of 0.1 from the last to the first; 0.2; 0.5. None is not ranked.
    assert make().pruning_order() == [
        Part("dec_self", 0, 0), Part("dec_self", 0, 1), Part("enc_dec", 0, 1), Part("enc_self", 1, 0),
        Part("enc_self", 0, 1), Part("enc_dec", 0, 0), Part("enc_self", 0, 0),
    ]  # fmt: skip


def test_order_within_one_component():
    assert make().pruning_order(["enc_dec"]) == [Part("enc_dec", 0, 1), Part("enc_dec", 0, 0)]
    assert make()[Part("enc_self", 1, 1)] is None and make()[Part("enc_self", 0, 0)] == 0.5
    assert make().shape == {"enc_self": [2, 2], "enc_dec": [2], "dec_self": [2]}


def test_a_hand_made_file_needs_only_scores(tmp_path):
    (tmp_path / "s.json").write_text(
        json.dumps({"format": FORMAT, "scores": {"enc_self": [[2, 1]]}, "comment": "mine"})
    )
    scores = Scores.load(tmp_path / "s.json")
    assert scores.pruning_order() == [Part("enc_self", 0, 1), Part("enc_self", 0, 0)] and scores.estimator == "unknown"


#: as headprune score --ffn blocks wrote it before format /2
OLD = """{"format": "headprune.scores/1", "scores": {"enc_self": [[0.5, null]]}, "estimator": "gradient",
"reduction": "sentence", "normalize": "layer", "loss": "sum", "sentences": 20, "data": {}, "checkpoint": {},
"details": {}, "ffn": {"enc": [0.25], "dec": [[0.5, null, 0.125]]}}"""


def test_a_file_of_format_1_is_read(tmp_path):
    (tmp_path / "s.json").write_text(OLD)
    scores = Scores.load(tmp_path / "s.json")
    ffn = {"enc_ffn": [[0.25]], "dec_ffn": [[0.5, None, 0.125]]}
    assert scores.rows == {"enc_self": [[0.5, None]], **ffn} and scores.loss == "sum"
    assert scores.pruning_order() == [Part("enc_self", 0, 0)]  # of heads, unless other components are asked for
    assert scores.pruning_order(FFN) == [Part("dec_ffn", 0, 2), Part("enc_ffn", 0, 0), Part("dec_ffn", 0, 0)]
    assert Scores.from_dict(scores.to_dict()) == scores
    for ffn in ({"encoder": [1]}, {"enc": 1}, [1]):
        with pytest.raises(ValueError, match='"ffn" is'):
            Scores.from_dict(json.loads(OLD) | {"ffn": ffn})
