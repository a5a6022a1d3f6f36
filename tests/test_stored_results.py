"""Results of this repository: each says how it was made, and none was made from files that no commit holds.

This is where results enter the repository. Studies of users may run from changed files: their results say so, no more.
"""

import fnmatch

import pytest
import tiny

from fairseq_headprune.files import read_json

EXAMPLES = tiny.ROOT / "examples"
FILES = [str(path.relative_to(EXAMPLES)) for path in sorted(EXAMPLES.glob("*/results/**/*.json"))]

#: without a word on how they were made, from before --json told it -> what made them
SILENT = {
    "glue/results/change-SST-2-*.json": "headprune weight-change",
    "lottery/results/find-speed.json": "the command that it names, timed on several machines",
}


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
    assert bool(found) != any(fnmatch.fnmatch(name, pattern) for pattern in SILENT), "how was it made?"
    # None: the code was copied to another machine, which was told the commit (HEADPRUNE_COMMIT).
    assert not any(git["dirty"] for git in found), "make it again on a clean commit"


def test_exceptions_are_files():
    assert all(fnmatch.filter(FILES, pattern) for pattern in SILENT)


def test_a_change_is_found_wherever_it_is_told():
    # By hand: of three environments the second is of changed files.
    made = [{"git": {"commit": "a", "dirty": dirty}} for dirty in (False, True, None)]
    assert [git["dirty"] for git in commits({"rows": [{"environments": made}]})] == [False, True, None]
    assert list(commits({"commit": "a", "git": None})) == []
