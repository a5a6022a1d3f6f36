"""The papers' notations, with values from the papers."""

import pytest

from fairseq_headprune.parts import Mask, Part
from fairseq_headprune.parts.notation import (
    check_config,
    format_config,
    format_descriptor,
    parse_config,
    parse_descriptor,
    parse_layer_counts,
    parse_triple,
)

BASE = {"enc_self": [8] * 6, "enc_dec": [8] * 6, "dec_self": [8] * 6}


def test_layer_counts():
    assert parse_layer_counts("888444") == [8, 8, 8, 4, 4, 4]
    assert parse_layer_counts("777322") == [7, 7, 7, 3, 2, 2]  # Budhraja §3.2, in words
    assert parse_layer_counts("16,16,8") == [16, 16, 8]
    assert parse_layer_counts("16") == [1, 6]
    assert parse_layer_counts("16,") == [16]
    assert parse_layer_counts(" 0 ") == [0]


def test_config_keys():
    assert parse_config(["ES=44 ED=22", "dec_self=44"]) == {"enc_self": [4, 4], "enc_dec": [2, 2], "dec_self": [4, 4]}
    with pytest.raises(KeyError, match="unknown component 'EE' in 'EE=44'; keys are ES, ED, DS, enc_self"):
        parse_config(["EE=44"])
    with pytest.raises(ValueError, match="'ES' is not KEY=COUNTS"):
        parse_config(["ES", "44"])
    with pytest.raises(ValueError, match="enc_self is given twice"):
        parse_config(["ES=44", "enc_self=44"])
    with pytest.raises(ValueError, match="empty"):
        parse_config([" "])


def test_more_than_9_heads_take_commas():
    mask = Mask({"enc_self": [[1] * 16, [1] * 3 + [0] * 13], "enc_dec": [[1] * 12], "dec_self": [[1] * 9] * 2})
    written = format_config(mask)
    assert written == {"ES": "16,3", "ED": "12,", "DS": "99"}
    read = parse_config(f"{key}={value}" for key, value in written.items())
    assert read == {"enc_self": [16, 3], "enc_dec": [12], "dec_self": [9, 9]}


def test_config_that_a_model_cannot_meet():
    with pytest.raises(ValueError, match="enc_self names 2 layers, the model has 6"):
        check_config({"enc_self": [8, 8]}, BASE)
    with pytest.raises(ValueError, match="enc_dec layer 5: cannot keep 9 heads of 8"):
        check_config({"enc_dec": [8, 8, 8, 8, 8, 9]}, BASE)
    with pytest.raises(ValueError, match="the model has 0"):
        check_config({"enc_dec": [8]}, {"dec_self": [8]})


def test_triple():
    # Budhraja et al. 2020, Table 3, the row of 48%: (14,31,30) in the order ES, ED, DS; 75 of 144 heads are kept.
    triple = parse_triple("14,31,30")
    assert triple == {"enc_self": 14, "enc_dec": 31, "dec_self": 30}
    assert round(100 * (1 - sum(triple.values()) / 144)) == 48


def test_descriptor_counts_from_1():
    assert parse_descriptor("E:1:1,2") == [Part("enc_self", 0, 0), Part("enc_self", 0, 1)]
    assert parse_descriptor("A:6:8") == [Part("enc_dec", 5, 7)]
    # Two-digit heads, several descriptors, both separators.
    assert parse_descriptor("D:2:10;A:1:1  E:3:4") == [("dec_self", 1, 9), ("enc_dec", 0, 0), ("enc_self", 2, 3)]


@pytest.mark.parametrize(
    "parse, texts, message",
    [
        (parse_layer_counts, ["", "8 8", "8-4", "8,,4", ",8", "-1", "8.0", "eight"], "is not a configuration"),
        (parse_triple, ["14,31", "14,31,30,1", "a,b,c", "14;31;30", "-1,2,3", ""], "is not a triple"),
        (parse_descriptor, "E E:1 E:1: E:1:1, X:1:1 e:1:1 E:1:1-2 E:one:1 E:1:1:1".split(), "is not a descriptor"),
        (parse_descriptor, ["E:0:1", "E:1:0", "E:1:1,0"], "count from 1"),
        (parse_descriptor, [""], "is not a descriptor"),
    ],
)
def test_what_is_no_notation(parse, texts, message):
    for text in texts:
        with pytest.raises(ValueError, match=message):
            parse(text)


def test_descriptor_round_trip():
    text = "E:1:1,2 E:6:8 A:2:12 D:1:3"
    assert format_descriptor(parse_descriptor(text)) == text
    # Heads of one layer are collected and sorted.
    assert format_descriptor([Part("enc_self", 0, 4), Part("enc_dec", 0, 0), Part("enc_self", 0, 1)]) == "E:1:2,5 A:1:1"
    assert format_descriptor([]) == ""
