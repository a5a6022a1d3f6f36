"""Values that are saved: plain JSON types, and where two sets of settings differ."""

from pathlib import Path

import numpy
import torch

from fairseq_headprune.json_lines import first_difference, plain


def test_first_difference_sees_missing_settings_and_booleans():
    assert first_difference({"a": 1, "b": 2}, {"a": 1}) == ("b", "2", "absent")
    assert first_difference({"a": 1}, {"a": True}) == ("a", "1", "true")
    assert first_difference({"a": [1, 2.0]}, {"a": [1, 2]}) is None


def test_scalars_of_numpy_and_torch_become_plain_numbers():
    value = plain(
        {"f": numpy.float32(0.5), "i": numpy.int64(3), "b": numpy.bool_(True), "t": torch.tensor(0.25), 1: (1, 2.0)},
        "x",
    )
    assert value == {"f": 0.5, "i": 3, "b": True, "t": 0.25, "1": [1, 2.0]}
    assert [type(v) for v in value.values()] == [float, int, bool, float, list]
    assert type(plain(numpy.float64(1.5), "x")) is float
    assert plain(Path("a") / "b", "x") == "a/b"
