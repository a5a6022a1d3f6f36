"""Study folders; a full disk is a write that fails half way. Several processes that write: test_claims.py."""

import errno
import json
import os
import re
from pathlib import Path

import numpy
import pytest
import torch

from fairseq_headprune import files
from fairseq_headprune.studies.folder import StudyFolder

SETTINGS = {"seed": 0, "step": "10%", "model": {"path": "m.pt", "beam": 5}}


@pytest.fixture
def study(tmp_path):
    return StudyFolder.open(tmp_path / "study", SETTINGS)


def snapshot(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in Path(folder).rglob("*") if p.is_file()}


def test_a_new_study_has_the_documented_layout(study):
    assert sorted(p.name for p in study.path.iterdir()) == ["cells.jsonl", "figures", "hyps", "masks", "study.json"]
    expected = {"format": "headprune.study/1", "settings": SETTINGS, "runs": []}
    assert json.loads((study.path / "study.json").read_text()) == expected
    assert study.cells() == {}


def test_cells_come_back_in_order_and_one_a_line(study):
    cells = [{"id": f"all-{k}", "score": k / 3, "text": "line\nend\u2028ü"} for k in (2, 0, 1)]
    for cell in cells:
        study.append(cell)
    assert list(study.cells().values()) == cells
    assert [json.loads(line) for line in (study.path / "cells.jsonl").read_bytes().split(b"\n")[:-1]] == cells


def test_the_first_of_two_cells_with_one_id_counts(study):
    study.append({"id": "a", "score": 1})
    study.append({"id": "a", "score": 2})
    assert study.cells() == {"a": {"id": "a", "score": 1}}


def test_resuming_compares_settings_only_and_notes_each_environment_once(study):
    study.append({"id": "a"})
    for host in ("x", "y", "x"):
        # Tuples and other numeric types of equal value are the same settings once they are JSON.
        again = StudyFolder.open(study.path, {**SETTINGS, "seed": numpy.int64(0)}, environment={"host": host})
    assert again.runs == StudyFolder(study.path).runs == [{"host": "x"}, {"host": "y"}]
    assert list(again.cells()) == ["a"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 1}, "seed is 0 there and 1 now"),
        ({"model": {"path": "m.pt", "beam": 4}}, "model.beam is 5 there and 4 now"),
        ({"metric": "chrf"}, 'metric is absent there and "chrf" now'),
        ({"step": "5%", "model": {}}, 'step is "10%" there and "5%" now'),
    ],
)
def test_other_settings_are_refused_by_name_and_nothing_is_touched(study, change, message):
    before = snapshot(study.path)
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        StudyFolder.open(study.path, {**SETTINGS, **change})
    assert "name another folder" in str(error.value)
    assert snapshot(study.path) == before


def test_folders_that_are_no_studies_are_refused_and_left_alone(tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("x")
    with pytest.raises(ValueError, match=r"no study folder and holds other files \(thesis.tex"):
        StudyFolder.open(other, SETTINGS)
    assert list(snapshot(other)) == ["thesis.tex"]
    with pytest.raises(ValueError, match="is a file"):
        StudyFolder.open(other / "thesis.tex", SETTINGS)
    (tmp_path / "cells.jsonl").write_text('{"id": "a"}\n')
    other.rename(tmp_path.parent / f"{tmp_path.name}-moved")
    with pytest.raises(ValueError, match="holds other files"):
        StudyFolder.open(tmp_path, SETTINGS)
    with pytest.raises(FileNotFoundError, match="holds no study.json"):
        StudyFolder(tmp_path)


def test_what_a_run_killed_while_creating_leaves_is_taken_over(tmp_path):
    # files.write_text makes its temporary file beside study.json, and the list of cells is there first, empty.
    (tmp_path / ".study.json.x1y2").write_text("{")
    (tmp_path / "cells.jsonl").touch()
    assert StudyFolder.open(tmp_path, SETTINGS).settings == SETTINGS


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"format": "headprune.study/2", "settings": {}}', "'headprune.study/2', this version reads"),
        ('{"settings": {}}', 'the "format" is None'),
        ("[]", 'the "format" is None'),
        ('{"format": "headprune.study/1"}', 'no "settings"'),
        ('{"format": ', "not a JSON file"),
    ],
)
def test_a_study_file_of_another_kind_is_refused(tmp_path, content, message):
    (tmp_path / "study.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        StudyFolder.open(tmp_path, SETTINGS)
    assert snapshot(tmp_path) == {"study.json": content.encode()}


@pytest.mark.parametrize("tail", [b'{"id": "b", "sc', b"{", '{"id": "ä'.encode()[:-1], b"\0\0\0"])
def test_a_cut_off_last_line_is_not_done_and_the_next_starts_afresh(study, tail):
    study.append({"id": "a"})
    path = study.path / "cells.jsonl"
    path.write_bytes(path.read_bytes() + tail)
    assert list(study.cells()) == ["a"]
    study.append({"id": "b", "score": 2})
    assert path.read_bytes() == b'{"id": "a"}\n{"id": "b", "score": 2}\n'


def test_a_whole_last_line_without_its_end_is_done(study):
    path = study.path / "cells.jsonl"
    path.write_bytes(b'{"id": "a"}\n{"id": "b"}')
    assert list(study.cells()) == ["a", "b"]
    study.append({"id": "c"})
    assert path.read_bytes() == b'{"id": "a"}\n{"id": "b"}\n{"id": "c"}\n'


@pytest.mark.parametrize("line", [b'{"id": "b", "sc', b"", b"[1]", b'{"score": 1}', b"\xff"])
def test_a_damaged_line_elsewhere_is_named(study, line):
    (study.path / "cells.jsonl").write_bytes(b'{"id": "a"}\n' + line + b'\n{"id": "c"}\n')
    with pytest.raises(ValueError, match=r"cells\.jsonl, line 2: not a cell"):
        study.cells()


@pytest.mark.parametrize("raises", [True, False])
def test_a_full_disk_leaves_the_list_as_it_was(study, monkeypatch, raises):
    study.append({"id": "a"})
    before = snapshot(study.path)
    write = os.write

    def write_a_part(handle, data):
        written = write(handle, data[: len(data) // 2])
        if raises:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return written  # what the kernel does when a part still fits

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write_a_part)
        with pytest.raises(OSError, match="could not save the cell b .*No space left on device") as error:
            study.append({"id": "b"})
    assert error.value.errno == errno.ENOSPC
    assert snapshot(study.path) == before
    study.append({"id": "b"})
    assert list(study.cells()) == ["a", "b"]


def test_a_full_disk_on_which_nothing_can_be_undone_still_reads(study, monkeypatch):
    study.append({"id": "a"})
    write = os.write

    def write_a_part(handle, data):
        write(handle, data[:5])
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def refuse(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write_a_part)
        patch.setattr(os, "ftruncate", refuse)
        with pytest.raises(OSError, match="could not save the cell b"):
            study.append({"id": "b"})
    assert list(study.cells()) == ["a"]
    study.append({"id": "b"})
    assert list(study.cells()) == ["a", "b"]


def test_a_folder_without_permission_is_a_clear_error_and_still_reads(study, monkeypatch):
    # By a refused open(), since file permissions do not bind root, who may run this test.
    study.append({"id": "a"})
    real = os.open

    def read_only(path, flags, *rest, **more):
        if flags & (os.O_WRONLY | os.O_RDWR):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", read_only)
    with pytest.raises(PermissionError, match="cannot write to the study folder .*Permission denied"):
        StudyFolder.open(study.path, SETTINGS)
    with pytest.raises(PermissionError, match="could not save the cell b in .*Permission denied"):
        study.append({"id": "b"})
    with pytest.raises(PermissionError, match="could not save the hypotheses of the cell b"):
        study.write_hypotheses("b", ["x"])
    assert list(StudyFolder(study.path).cells()) == ["a"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="cannot write to the study folder .*file/study"):
        StudyFolder.open(tmp_path / "file" / "study", SETTINGS)


def test_masks_and_hypotheses_are_files_named_by_the_cell(study):
    mask = {"format": "headprune.mask/1", "heads": {"enc_self": [[1, 0]]}, "source": {}}
    path = study.path / "masks/enc_self-10%.json"
    assert study.write_mask("enc_self-10%", mask) == study.mask_path("enc_self-10%") == path
    assert files.read_json(study.mask_path("enc_self-10%")) == mask
    assert study.write_hypotheses("all-0", ["ein Haus", "", "zwei\u2028"]) == study.path / "hyps" / "all-0.txt"
    assert study.hyp_path("all-0").read_bytes() == "ein Haus\n\nzwei\u2028\n".encode()
    assert study.figure_stem("curve") == study.path / "figures" / "curve"
    with pytest.raises(ValueError, match="sentence 2 of the cell all-0 holds a line end"):
        study.write_hypotheses("all-0", ["a", "b\nc"])
    assert files.read_lines(study.hyp_path("all-0"))[0] == "ein Haus"


@pytest.mark.parametrize("cell_id", ["", "../x", ".hidden", "a/b", "a b", "ä", "x" * 201, None, 3])
def test_ids_that_cannot_name_files_are_refused(study, cell_id):
    for call in (study.mask_path, study.hyp_path, study.figure_stem, lambda c: study.append({"id": c})):
        with pytest.raises(ValueError, match="cannot be the id of a cell"):
            call(cell_id)
    assert study.cells() == {}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (float("nan"), "cell a: score: bleu is nan; only finite numbers"),
        (numpy.float32("inf"), "cell a: score: bleu is inf"),
        (torch.tensor(float("nan")), "cell a: score: bleu is nan"),
        ([1.0, float("-inf")], r"cell a: score: bleu\[1\] is -inf"),
        (torch.zeros(2), "cell a: score: bleu is a Tensor"),
        (numpy.zeros(2), "cell a: score: bleu is a ndarray"),
        ({1}, "cell a: score: bleu is a set"),
    ],
)
def test_values_that_json_cannot_carry_are_refused(study, value, message):
    with pytest.raises(ValueError, match=message):
        study.append({"id": "a", "score": {"bleu": value}})
    assert (study.path / "cells.jsonl").read_bytes() == b""
