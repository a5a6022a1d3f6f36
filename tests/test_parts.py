"""Components, heads and the mask file. Expected values are counted by hand."""

import json

import numpy
import pytest

from fairseq_headprune.parts import COMPONENTS, FFN, HEADS, Mask, Part, all_heads, parse_components
from fairseq_headprune.parts.layout import Layout
from fairseq_headprune.parts.mask import SoftGates
from fairseq_headprune.parts.scores import Scores

FORMAT = Mask.FORMAT

#: Uneven on purpose: enc_self has layers of 3 and 2 heads, enc_dec one of 2, dec_self layers of 1 and 4.
UNEVEN = {"enc_self": [3, 2], "enc_dec": [2], "dec_self": [1, 4]}


def test_fixed_order_is_component_layer_head():
    heads = all_heads(UNEVEN)
    assert len(heads) == 12  # 3 + 2 + 2 + 1 + 4
    assert heads[:4] == [("enc_self", 0, 0), ("enc_self", 0, 1), ("enc_self", 0, 2), ("enc_self", 1, 0)]
    assert heads[5] == ("enc_dec", 0, 0) and heads[-1] == ("dec_self", 1, 3)
    # The order does not depend on the order of the keys.
    assert all_heads(dict(reversed(UNEVEN.items()))) == heads


def test_full_and_without():
    full = Mask.full(UNEVEN)
    assert full.shape == UNEVEN and full.dropped() == []
    pruned = full.without([Part("enc_self", 0, 1), Part("dec_self", 1, 3)])
    assert pruned.rows == {"enc_self": [[1, 0, 1], [1, 1]], "enc_dec": [[1, 1]], "dec_self": [[1], [1, 1, 1, 0]]}
    assert full.dropped() == []  # a copy
    found = {component: (count["kept"], count["total"]) for component, count in pruned.counts().items()}
    assert found == {"enc_self": (4, 5), "enc_dec": (2, 2), "dec_self": (4, 5)}


def test_a_decoder_without_encoder_decoder_heads_is_blind():
    both = [Part("enc_dec", 0, 0), Part("enc_dec", 0, 1)]
    full = Mask.full(UNEVEN)
    assert full.without(both).is_blind() and not full.without(both[:1]).is_blind()
    assert not Mask.full({"enc_self": [2]}).without([Part("enc_self", 0, 0), Part("enc_self", 0, 1)]).is_blind()  # BERT


def test_pruning_in_rounds_keeps_original_indices():
    # H = 6: prune 1, then 3, then 1 again: 0, 2, 4, 5 are left; the order of the rounds does not matter.
    mask = Mask.full({"enc_self": [6]})
    rounds = mask.without([Part("enc_self", 0, 1)]).without([Part("enc_self", 0, 3)]).without([Part("enc_self", 0, 1)])
    assert [head.index for head in rounds.kept()] == [0, 2, 4, 5]
    assert rounds == mask.without([Part("enc_self", 0, 3), Part("enc_self", 0, 1)])


def test_keeping_is_the_complement_of_without():
    some = [Part("enc_self", 0, 2), Part("enc_dec", 0, 0)]
    mask = Mask.full(UNEVEN).keeping(some)
    assert mask.kept() == some and len(mask.dropped()) == 10
    assert mask == Mask.full(UNEVEN).without(mask.dropped())
    assert mask.kept(["enc_dec"]) == [("enc_dec", 0, 0)] and mask.dropped(["enc_dec"]) == [("enc_dec", 0, 1)]


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (Part("enc_self", 0, 3), r"enc_self layer 0 has 3 heads \(0 to 2\); there is no head 3"),
        (Part("enc_self", 0, -1), "there is no head -1"),
        (Part("enc_self", 2, 0), r"enc_self has 2 layers \(0 to 1\); there is no layer 2"),
        (Part("enc_dec", -1, 0), "there is no layer -1"),
    ],
)
def test_heads_out_of_range(head, message):
    with pytest.raises(ValueError, match=message):
        Mask.full(UNEVEN).without([head])
    with pytest.raises(ValueError, match=message):
        Mask.full(UNEVEN).keeping([head])


def test_unknown_components():
    with pytest.raises(KeyError, match="unknown component 'encoder'; components are enc_self, enc_dec, dec_self"):
        Mask({"encoder": [[1]]})
    with pytest.raises(KeyError, match="'dec_dec'"):
        Mask.full(UNEVEN).without([Part("dec_dec", 0, 0)])
    with pytest.raises(KeyError, match="'x'"):
        Mask.full(UNEVEN).kept(["x"])


def test_parse_components():
    assert parse_components("dec_self, enc_self") == ["enc_self", "dec_self"]
    assert parse_components("all") == ["enc_self", "enc_dec", "dec_self"]
    with pytest.raises(KeyError, match="''"):
        parse_components("enc_self,")


def test_file_round_trip(tmp_path):
    mask = Mask.full(UNEVEN, {"command": "by hand"}).without([Part("dec_self", 0, 0)])
    mask.save(tmp_path / "m.json")
    again = Mask.load(tmp_path / "m.json")
    assert again == mask and again.source == {"command": "by hand"}
    written = json.loads((tmp_path / "m.json").read_text())
    assert written["format"] == "headprune.mask/2" == FORMAT
    assert written["parts"]["dec_self"] == [[0], [1, 1, 1, 1]]


def test_a_file_of_format_1_is_read():
    old = {"format": "headprune.mask/1", "heads": {"enc_self": [[1, 0]]}, "source": {"a": 1}}
    assert Mask.from_dict(old) == Mask({"enc_self": [[1, 0]]}) and Mask.from_dict(old).source == {"a": 1}
    mask = Mask.from_dict(old | {"ffn": {"enc": [1, 0, [1, 0, 1]], "dec": [1]}})
    assert mask.rows == {"enc_self": [[1, 0]], "enc_ffn": [[1], [0], [1, 0, 1]], "dec_ffn": [[1]]}
    for ffn in ({"encoder": [1]}, {"enc": 1}):
        with pytest.raises(ValueError, match='m.json: "ffn" is'):
            Mask.from_dict(old | {"ffn": ffn}, "m.json")
    with pytest.raises(ValueError, match="enc_ffn layer 1 part 0: .*found 2"):
        Mask.from_dict(old | {"ffn": {"enc": [1, 2]}})


def test_feed_forward_parts_are_parts():
    mask = Mask({"enc_self": [[1, 0]], "enc_ffn": [[1, 0, 1], [0], [1]]})
    assert mask.kept() == [("enc_self", 0, 0)]
    assert mask.kept(FFN) == [("enc_ffn", 0, 0), ("enc_ffn", 0, 2), ("enc_ffn", 2, 0)]
    assert mask.dropped(COMPONENTS) == [("enc_self", 0, 1), ("enc_ffn", 0, 1), ("enc_ffn", 1, 0)]
    assert mask.counts()["enc_ffn"] == {"kept": 3, "total": 5}
    assert mask.without([Part("enc_ffn", 2, 0)]).rows["enc_ffn"] == [[1, 0, 1], [0], [0]]
    # A model of three blocks of 3 units: a single entry is the whole block, and components that are absent fit.
    mask.check_shape({"enc_self": [2], "enc_ffn": [3, 3, 3], "dec_ffn": [3]})
    with pytest.raises(ValueError, match="the mask has 3 parts in enc_ffn layer 0, the model has 4"):
        mask.check_shape({"enc_self": [2], "enc_ffn": [4, 4, 4]})
    with pytest.raises(ValueError, match="the mask has 3 layers of enc_ffn, the model has 0"):
        mask.check_shape({"enc_self": [2]})
    assert mask.only(HEADS) == Mask({"enc_self": [[1, 0]]})


def test_what_two_masks_keep():
    mask = Mask({"enc_self": [[1, 0]], "enc_ffn": [[1, 0, 1], [0], [1], [1]]})
    other = Mask({"enc_self": [[1, 1]], "enc_ffn": [[1], [1], [0, 1, 1], [0]], "dec_ffn": [[0]]})
    both = {"enc_self": [[1, 0]], "enc_ffn": [[1, 0, 1], [0], [0, 1, 1], [0]], "dec_ffn": [[0]]}
    assert (mask & other).rows == (other & mask).rows == both


def test_masks_differ_by_parts_not_by_source():
    mask = Mask({"enc_self": [[1, 0]]}, {"a": 1})
    assert mask == Mask({"enc_self": [[1, 0]]}, {"b": 2})
    assert mask != Mask({"enc_self": [[0, 1]]})
    assert mask != Mask({"enc_self": [[1, 0]], "enc_ffn": [[1]]})


#: a file of each kind, and one entry that is none
FILES = {
    Mask: (Mask({"enc_self": [[1, 0]]}).to_dict(), 2, "a mask entry is 0 or 1, found 2"),
    Scores: (Scores({"enc_self": [[1.0, None]]}, "gradient").to_dict(), float("nan"), "the score is nan, not a finite"),
    SoftGates: (SoftGates({"enc_self": [[0.5, 1]]}).to_dict(), True, "the gate is True, not a finite"),
}


@pytest.mark.parametrize("kind", FILES, ids=lambda kind: kind.NOUN)
def test_wrong_files_are_refused_by_name(kind, tmp_path):
    """The same for masks, scores and gates; damaged JSON and files that are not there: test_files.py."""
    good, bad, message = FILES[kind]
    key, path = kind.KEY, tmp_path / "f.json"

    def refused(value, message, error=ValueError):
        path.write_text(value if isinstance(value, str) else json.dumps(value))
        with pytest.raises(error) as found:
            kind.load(path)
        assert str(found.value.args[0]).startswith(f"{path}: ") and message in str(found.value.args[0])

    kind.from_dict(good)
    for value in ([], None, {}, good | {"format": "headprune.layout/1"}):
        refused(value, f"not a {kind.NOUN} file")
    refused(good | {"format": f"{kind.FORMAT[:-1]}3"}, "/3' is not known here (this is ")
    for rows in ({}, [[1]], None):
        refused(good | {key: rows}, f'no "{key}"')
    for rows in (1, [1.0], ["10"]):
        refused(good | {key: {"enc_self": rows}}, "not one list a layer")
    refused(good | {key: {"encoder": [[1]]}}, "unknown component 'encoder'", KeyError)
    refused(good | {key: {"enc_self": [[1, 1], [bad]]}}, f"enc_self layer 1 head 0: {message}")
    refused(good | {"source": 5}, '"source" must be an object')
    refused(json.dumps(good)[:-9], "not a JSON file")


@pytest.mark.parametrize("entry", [float("nan"), 1.0, 0.5, 2, -1, "1", None, [1]])
def test_entries_are_0_or_1(entry):
    with pytest.raises(ValueError, match="enc_self layer 1 head 0: a mask entry is 0 or 1, found "):
        Mask({"enc_self": [[1], [entry]]})


def test_booleans_and_numpy_integers_become_0_and_1():
    mask = Mask({"enc_self": [[True, False, numpy.int64(1)]]})
    assert mask.rows["enc_self"] == [[1, 0, 1]]
    assert json.dumps(mask.to_dict()["parts"]) == '{"enc_self": [[1, 0, 1]]}'  # not "true"


def test_a_misfit_says_where():
    mask = Mask.full(UNEVEN)
    mask.check_shape(UNEVEN)
    with pytest.raises(
        ValueError, match="the mask has 2 heads in enc_self layer 1, ckpt has 3; .*headprune mask --like"
    ):
        mask.check_shape(UNEVEN | {"enc_self": [3, 3]}, "ckpt")
    with pytest.raises(ValueError, match="the mask has 1 layers of enc_dec, the model has 2"):
        mask.check_shape(UNEVEN | {"enc_dec": [2, 2]})
    with pytest.raises(ValueError, match="the mask has 2 layers of dec_self, the model has 0"):
        mask.check_shape({"enc_self": [3, 2], "enc_dec": [2]})


def test_given_lists_are_copied():
    rows = {"enc_self": [[1, 1]]}
    mask = Mask(rows)
    rows["enc_self"][0][0] = 0
    mask.to_dict()["parts"]["enc_self"][0][1] = 0
    assert mask.rows == {"enc_self": [[1, 1]]}


def test_layouts_are_equal_or_differ_in_layers():
    # Source: by hand; where a layout is from does not count.
    counts = {"enc_self": [3, 2], "enc_ffn": [4]}
    one = Layout(counts, {"enc_self": [[0, 2], [0, 1]], "enc_ffn": [None]})
    other = Layout(counts, {"enc_self": [[0, 1], [0, 1]], "enc_ffn": [[0, 1, 2, 3]]})
    assert one == Layout(counts, one.stored_rows(), {"command": "another"}) and one != other
    assert list(one.differences(one)) == []
    assert list(one.differences(other)) == [
        "enc_self layer 0 has the heads [0, 2] in one and [0, 1] in the other",
        "they have other feed-forward blocks or units (enc_ffn layer 0)",
    ]
    assert list(one.differences(Layout({"enc_self": [3]}, {"enc_self": [[0, 2]]}))) == [
        "enc_self has 2 layers in one and 1 in the other", "enc_ffn has 1 layers in one and 0 in the other",
    ]  # fmt: skip
