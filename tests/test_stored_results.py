"""Results of this repository: each says how it was made, and none was made from files that no commit holds.

This is where results enter the repository. Studies of users may run from changed files: their results say so, no more.
"""

import pytest
import tiny

from fairseq_headprune.files import read_json

EXAMPLES = tiny.ROOT / "examples"
FILES = [str(path.relative_to(EXAMPLES)) for path in sorted(EXAMPLES.glob("*/results/**/*.json"))]


def commits(value):
    """Yield every ``{"commit": …, "dirty": …}`` in a JSON value."""
    if isinstance(value, dict):
        if {"commit", "dirty"} <= set(value):
            yield value
        value = value.values()
    elif not isinstance(value, list):
        return
    for inner in value:
        yield from commits(inner)


@pytest.mark.parametrize("name", FILES)
def test_results_are_made_on_a_clean_commit(name):
    found = list(commits(read_json(EXAMPLES / name)))
    assert found, "how was it made?"
    # None: the code was copied to another machine, which was told the commit (HEADPRUNE_COMMIT).
    assert not any(git["dirty"] for git in found), "make it again on a clean commit"


def test_a_change_is_found_wherever_it_is_told():
    # By hand: of three environments the second is of changed files.
    made = [{"git": {"commit": "a", "dirty": dirty}} for dirty in (False, True, None)]
    assert [git["dirty"] for git in commits({"rows": [{"environments": made}]})] == [False, True, None]
    assert list(commits({"commit": "a", "git": None})) == []
