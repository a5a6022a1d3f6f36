"""A study folder goes on with what it began with: the same input in form and direction, and the same masks."""

import json

import pytest
from untrained import write_checkpoint
from verbs import mask, refused, run_json

from fairseq_headprune.parts import Mask


@pytest.fixture(scope="module")
def argv(data_bin, tmp_path_factory):
    flags = ["--arch", "transformer_gated_tiny", "--task", "translation_headprune"]
    checkpoint = write_checkpoint(data_bin, tmp_path_factory.mktemp("untrained") / "c.pt", *flags)
    search = "--cpu --beam 1 --max-len-b 8 --resamples 10".split()
    return ["prune", data_bin, "--path", checkpoint, *search, "--order", "random"]


@pytest.mark.slow
def test_the_form_and_the_direction_of_the_input_are_the_studys(argv, tmp_path, capsys):
    forms = {
        "cut": ["--truncate-source", "--max-source-positions", "3"],
        "whole": [],
        "exchanged": ["--truncate-source", "--max-source-positions", "3", "-s", "yy", "-t", "xx"],
    }
    found = {name: run_json(*argv, "--step", "1", *form, "-o", tmp_path / name) for name, form in forms.items()}
    # The control: each form has translations of its own.
    assert len({(tmp_path / name / "hyps" / "unpruned.txt").read_text() for name in forms}) == 3
    (tmp_path / "cut" / "cells.jsonl").write_text(
        (tmp_path / "cut" / "cells.jsonl").read_text().splitlines(keepends=True)[0]
    )
    for name in ("whole", "exchanged"):
        line = refused(capsys, *argv, "--step", "1", *forms[name], "-o", tmp_path / "cut")
        assert "holds a study with other settings" in line and "data.settings" in line
    again = run_json(*argv, "--step", "1", *forms["cut"], "-o", tmp_path / "cut")
    assert again["curves"]["all"][1]["score"] == found["cut"]["curves"]["all"][1]["score"]


@pytest.mark.slow
def test_a_half_finished_study_of_other_masks_does_not_go_on(argv, tmp_path, capsys):
    # Older versions drew random orders in another way; their folders have the same settings.
    argv = [*argv, "--order-seeds", "1", "2", "--step", "50%", "-o", tmp_path / "s"]
    whole = run_json(*argv)
    drawn = mask(tmp_path / "s", "all-seed1-01")
    Mask({c: [[1 - kept for kept in row] for row in rows] for c, rows in drawn.rows.items()}).save(
        tmp_path / "s" / "masks" / "all-seed1-01.json"
    )
    assert run_json(*argv)["curves"] == whole["curves"]  # a finished study is printed as it is
    *kept, last = (tmp_path / "s" / "cells.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "s" / "cells.jsonl").write_text("".join(kept))
    line = refused(capsys, *argv)
    assert "cannot go on: all-seed1-01 is of another mask" in line and "name another folder" in line
    assert (tmp_path / "s" / "cells.jsonl").read_text() == "".join(kept)
    drawn.save(tmp_path / "s" / "masks" / "all-seed1-01.json")
    assert run_json(*argv)["curves"]["all-seed2"][-1]["score"] == json.loads(last)["score"]
