"""Reading finished studies: Holm, differences, and the oracle order, by hand."""

import json
import shutil

import pytest
from ablations import SHAPE, write_ablation
from reports import COMPARISON
from verbs import refused, run_json

from fairseq_headprune.cli.report import document
from fairseq_headprune.files import read_json, write_json
from fairseq_headprune.parts import Mask, Part
from fairseq_headprune.studies.ablation import Ablation
from fairseq_headprune.studies.folder import StudyFolder


def test_differences_are_to_the_unpruned_model(tmp_path):
    study = Ablation(write_ablation(tmp_path / "s", [0.5, -1.0, 0.25, -4.0, 0.0]))
    assert study.baseline["score"] == 30.0
    assert [cell["delta"] for cell in study.cells.values()] == [0.5, -1.0, 0.25, -4.0, 0.0]


def test_the_oracle_prunes_first_what_hurts_least(tmp_path):
    # By hand, Michel et al. (2019), §4.2: highest difference first; of equal ones the highest index.
    scores = Ablation(write_ablation(tmp_path / "s", [-1.0, 0.5, 0.25, -4.0, 0.5], "valid")).oracle()
    places = [(1, 1), (0, 1), (0, 2), (0, 0), (1, 0)]
    assert scores.pruning_order() == [Part("enc_self", layer, head) for layer, head in places]
    assert scores.data["split"] == "valid" and scores.checkpoint["sha256"] == "c" * 64
    assert scores.estimator == "oracle" and scores[Part("enc_self", 1, 0)] == 4.0


def test_heads_that_were_not_removed_have_no_score(tmp_path):
    start = Mask.full(SHAPE).without([Part("enc_self", 1, 1)])
    scores = Ablation(write_ablation(tmp_path / "s", [0.1, 0.2, 0.3, 0.4], start=start.rows)).oracle()
    assert scores[Part("enc_self", 1, 1)] is None
    assert len(scores.pruning_order()) == 4


def test_what_is_no_finished_ablation_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no such folder"):
        Ablation(tmp_path / "nowhere")
    StudyFolder.open(tmp_path / "prune", {"study": "prune"})
    with pytest.raises(ValueError, match="is a study of headprune prune"):
        Ablation(tmp_path / "prune")
    with pytest.raises(ValueError, match="not finished: 3 of 5 masks are done"):
        Ablation(write_ablation(tmp_path / "part", [0.1, 0.2, 0.3]))


@pytest.fixture(scope="module")
def study(flags, tmp_path_factory):
    """A study of 5 cells, and the flags it was made with."""
    flags, folder = [*flags, "--components", "dec_self"], tmp_path_factory.mktemp("study") / "s"
    run_json("ablate", *flags, "-o", folder)
    return folder, flags


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("hyps/unpruned.txt", None, "is gone: put it back, or delete the line of unpruned in "),
        ("hyps/unpruned.txt", "a\nb\n", "has 2 lines for 8 sentences: delete the line of unpruned in "),
        ("masks/dec_self-0-0.json", None, "is gone: put it back, or delete the line of dec_self-0-0 in "),
        ("masks/dec_self-0-0.json", "{", "not a JSON file"),
    ],
)
def test_the_way_out_leads_out(study, tmp_path, capsys, name, content, said):
    whole, flags = study
    folder = shutil.copytree(whole, tmp_path / "s")
    lines = (folder / "cells.jsonl").read_text().splitlines(keepends=True)
    (folder / "cells.jsonl").write_text("".join(lines[:-1]))
    (folder / name).unlink() if content is None else (folder / name).write_text(content)
    line = refused(capsys, "ablate", *flags, "-o", folder)
    assert f"{folder / name}" in line and said in line and f"in {folder / 'cells.jsonl'} to have it done again" in line
    cell = (folder / name).stem
    (folder / "cells.jsonl").write_text("".join(kept for kept in lines[:-1] if json.loads(kept)["id"] != cell))
    again = run_json("ablate", *flags, "-o", folder)["cells"]
    # Source: the study that nothing was lost of.
    assert [(c["id"], c["score"], c["p"]) for c in again] == [
        (c["id"], c["score"], c["p"]) for c in map(json.loads, lines)
    ]
    assert (folder / name).read_text().splitlines()[-1] == (whole / name).read_text().splitlines()[-1]


def test_damaged_ablations_are_told_from_unfinished_ones(tmp_path):
    lost = write_ablation(tmp_path / "lost", [0.1] * 5)
    cells = (lost / "cells.jsonl").read_text().splitlines(keepends=True)
    (lost / "cells.jsonl").write_text("".join(cells[1:]))
    with pytest.raises(ValueError, match="not finished: the unpruned model is not done; run headprune ablate again"):
        Ablation(lost)
    content = read_json(lost / "study.json")
    del content["settings"]["start"]
    write_json(lost / "study.json", content)
    with pytest.raises(ValueError, match="is damaged: there is no 'start' in it"):
        Ablation(lost)


@pytest.mark.parametrize("broken", [{"score": None}, {"p": "x"}, {"signature": ...}])
def test_a_cell_without_its_values_is_named(tmp_path, broken):
    study = write_ablation(tmp_path / "s", [0.1] * 5, **COMPARISON)
    *lines, last = map(json.loads, (study / "cells.jsonl").read_text().splitlines())
    last = {name: value for name, value in {**last, **broken}.items() if value is not ...}
    (study / "cells.jsonl").write_text("".join(json.dumps(cell) + "\n" for cell in [*lines, last]))
    with pytest.raises(ValueError, match="a cell is damaged: delete the line of enc_self-1-1 in .* done again"):
        Ablation(study)
    with pytest.raises(ValueError, match="is damaged: delete the line of enc_self-1-1"):
        document([study], "title")
