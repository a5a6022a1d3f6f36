"""The README's table of random pruning beside the paper's numbers."""

import shlex
import sys

import pytest
import tiny
from reports import hand_random

from fairseq_headprune.files import write_json
from fairseq_headprune.studies.samplings import items

sys.path.insert(0, str(tiny.ROOT / "scripts"))
from random_pruning_table import PAPER, random_pruning, random_samplings  # noqa: E402


def test_the_example_runs_what_the_paper_has():
    script = (tiny.ROOT / "examples" / "multi30k" / "random.sh").read_text()
    words = shlex.split(script[script.index("--control") : script.index("--train-flags")].replace("\\\n", " "))
    random = words[words.index("--random") + 1 : words.index("--config")]
    configs = [word for before, word in zip(words, words[1:], strict=False) if before == "--config"]
    triples = words[words.index("--triple") + 1 : words.index("--seeds")]
    names = [item.name for item in items(random, configs, triples, [], "--mirror" in words, control=False)]
    assert names == list(PAPER) and len(names) == 15


def test_table(tmp_path):
    item = {"item": "random-60%", "kind": "random", "text": "60%", "mirror": False, "percent": 59.7, "score": 40.5}
    item |= {"sd": 0.3, "delta": -0.5, "p": 0.004, "p_holm": 0.06, "samplings": 3}
    value = {"baseline": {"score": 41.0}, "items": [item], "alpha": 0.01, "signature": "sig"}
    write_json(tmp_path / "random.json", value)
    table, note = random_pruning(tmp_path)
    # Table 1 of the paper: 60% pruned, -0.15 and -0.07.
    assert [str(cell) for cell in table.rows[1]] == ["60%", "random", "40.50", "-0.50", "0.30", "-0.15", "-0.07"]
    assert table.rows[1][3].mark == "raw" and note.startswith("Mean of 3 samplings")


def test_table_of_the_samplings_of_an_unfinished_study(tmp_path):
    hand_random(tmp_path / "random-study", done=6)
    table, note = random_samplings(tmp_path)
    # By hand: of 60% the means and the one that is worse, 27 of 30; the paper's Table 1 has -0.15 and -0.07.
    assert [[cell and str(cell) for cell in row] for row in table.rows[1:]] == [
        ["0%", "all, fine-tuned", "32.00", "+2.00", "1.00", "3", "0 / 1", None, None],
        ["60%", "random", "28.00", "-2.00", "1.00", "3", "1 / 0", "-0.15", "-0.07"],
    ]
    assert "correction over all 6" in note


def test_there_is_no_table_without_a_study(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no such folder"):
        random_samplings(tmp_path)
