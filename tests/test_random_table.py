"""The README's table of random pruning beside the paper's numbers."""

import shlex
import sys

import pytest
import tiny

from fairseq_headprune.files import write_json
from fairseq_headprune.studies.folder import StudyFolder
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
    study = StudyFolder.open(tmp_path / "random-study", {"study": "random-study", "alpha": 0.01})
    shared = {"text": "", "percent": 0.0, "signature": "sig"}
    study.append({"id": "unpruned", "item": "unpruned", "kind": "unpruned", "score": 40.0, "p": 1.0, **shared})
    study.append({"id": "control-1", "item": "control", "kind": "control", "score": 42.0, "p": 0.5, **shared})
    shared |= {"item": "random-60%", "kind": "random", "percent": 59.7}
    for seed, (score, p) in enumerate([(41.0, 0.0), (39.0, 0.002), (41.5, 0.004)]):
        study.append({"id": f"random-60%-{seed}", "score": score, "p": p, **shared})
    table, note = random_samplings(tmp_path)
    # By hand: mean (41 + 39 + 41.5) / 3, sample deviation of it; Holm over four makes p 0, 0.006, 0.008 and 0.5.
    assert [[cell and str(cell) for cell in row] for row in table.rows[1:]] == [
        ["0%", "all, fine-tuned", "42.00", "+2.00", None, "1", "0 / 0", None, None],
        ["60%", "random", "40.50", "+0.50", "1.32", "3", "1 / 2", "-0.15", "-0.07"],
    ]
    assert "p < 0.01 after Holm's correction over all of them" in note


def test_there_is_no_table_without_a_study(tmp_path):
    with pytest.raises(FileNotFoundError, match="is not a study folder"):
        random_samplings(tmp_path)
