"""Reading the files of finished cells; errors say how to have a cell with missing or damaged files recomputed."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from fairseq_headprune.files import read_lines
from fairseq_headprune.parts import Mask
from fairseq_headprune.studies.folder import StudyFolder
from fairseq_headprune.studies.study import Cell


def read_mask(folder: StudyFolder, cell_id: str) -> Mask:
    """Return the mask of a finished cell.

    Raises:
        FileNotFoundError, ValueError: it is missing or damaged; the message says what to do.
    """
    with _way_out(folder, cell_id):
        return Mask.load(folder.mask_path(cell_id))


def read_hypotheses(folder: StudyFolder, cell_id: str, sentences: int) -> list[str]:
    """Return the translations of a finished cell.

    Args:
        sentences: the expected number.

    Raises:
        FileNotFoundError, ValueError: they are missing or damaged; the message says what to do.
    """
    path = folder.hyp_path(cell_id)
    with _way_out(folder, cell_id):
        lines = read_lines(path)
        if len(lines) != sentences:
            raise ValueError(f"{path} has {len(lines)} lines for {sentences} sentences")
    return lines


def finished_cells(folder: StudyFolder) -> dict[str, dict[str, Any]]:
    """Return the finished cells of a study of masks by id.

    Raises:
        ValueError: a cell lacks a required number; the message names it and says what to do.
    """
    cells = folder.cells()
    for cell_id, cell in cells.items():
        numbers = [cell.get(name) for name in ("score", "p")]
        if not all(isinstance(number, (int, float)) for number in numbers) or "signature" not in cell:
            raise ValueError(f"a cell is damaged: {way_out(folder, cell_id)}")
    return cells


def check_masks(folder: StudyFolder, cells: Sequence[Cell]) -> None:
    """Before resuming a study, check that the masks of its finished cells are those that its settings give now.

    A finished study is not checked: it is consistent even if another version drew its masks.

    Raises:
        ValueError: a cell has another mask.
    """
    done = folder.cells()
    begun = [cell for cell in cells if cell.mask is not None and cell.id in done]
    for cell in begun if len(begun) < len(cells) else []:
        if folder.mask_path(cell.id).is_file() and read_mask(folder, cell.id).rows != cell.mask.rows:
            raise ValueError(
                f"{folder.path} cannot go on: {cell.id} is of another mask than its settings give now (older versions "
                "drew heads by chance in another way); name another folder"
            )


def way_out(folder: StudyFolder, cell_id: str) -> str:
    """Return a sentence that says how to have a finished cell recomputed."""
    return f"delete the line of {cell_id} in {folder.path / 'cells.jsonl'} to have it done again"


@contextlib.contextmanager
def _way_out(folder: StudyFolder, cell_id: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error.filename} is gone: put it back, or {way_out(folder, cell_id)}") from error
    except (ValueError, KeyError) as error:
        raise ValueError(f"{error.args[0]}: {way_out(folder, cell_id)}") from error
