"""examples/multi30k/exports.py: how translations of an export are counted. Source: by hand."""

import importlib.util

import pytest
import tiny


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("exports", tiny.ROOT / "examples" / "multi30k" / "exports.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_translations_at_the_limit_do_not_count(script):
    long = [7] * (script.LIMIT - 1)
    theirs = [([4, 5], -1.0), ([4], -2.0), (long, -3.0), ([6, 6], -1.0)]
    mine = [([4, 5], -1.25), ([5], -2.0), ([4], -3.0), ([6, 6], -1.5)]
    found = script.compared(mine, theirs)
    # Scores are compared where the tokens agree: 0.25 and 0.5.
    assert found == {"sentences": 4, "at_the_limit": 1, "identical": 2, "largest_score_difference": 0.5}


def test_without_an_equal_translation_no_score_is_compared(script):
    assert script.compared([([4], -1.0)], [([5], -1.0)])["largest_score_difference"] is None
