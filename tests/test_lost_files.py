"""Files of finished cells that are gone or damaged: the message says how to go on, and that works."""

import json
import shutil

import pytest
from ablations import write_ablation
from reports import COMPARISON
from verbs import refused, run_json, write_lively

from fairseq_headprune.cli.report import document
from fairseq_headprune.files import read_json, write_json
from fairseq_headprune.studies.results import Ablation


@pytest.fixture(scope="module")
def study(trained, tmp_path_factory):
    """A study of 5 cells, and the flags it was made with."""
    run = write_lively(trained, tmp_path_factory.mktemp("lively"))
    flags = ["--beam", "2", "--max-len-b", "10", "--cpu", "--resamples", "20", "--components", "dec_self"]
    flags, folder = [run["data"], "--path", run["checkpoint"], *flags], tmp_path_factory.mktemp("study") / "s"
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
    with pytest.raises(ValueError, match="not finished .the unpruned model is not done.; run headprune ablate again"):
        Ablation(lost)
    content = read_json(lost / "study.json")
    del content["settings"]["start"]
    write_json(lost / "study.json", content)
    with pytest.raises(ValueError, match="is damaged: there is no 'start' in its study.json"):
        Ablation(lost)


@pytest.mark.parametrize("broken", [{"score": None}, {"p": "x"}, {"signature": ...}, {"layer": ...}])
def test_a_cell_without_its_values_is_named(tmp_path, broken):
    study = write_ablation(tmp_path / "s", [0.1] * 5, **COMPARISON)
    *lines, last = map(json.loads, (study / "cells.jsonl").read_text().splitlines())
    last = {name: value for name, value in {**last, **broken}.items() if value is not ...}
    (study / "cells.jsonl").write_text("".join(json.dumps(cell) + "\n" for cell in [*lines, last]))
    with pytest.raises(ValueError, match="a cell is damaged: delete the line of enc_self-1-1 in .* done again"):
        Ablation(study)
    if "layer" in broken:
        return  # the page places a cell by its id
    with pytest.raises(ValueError, match="is damaged: delete the line of enc_self-1-1"):
        document([study], "title")
