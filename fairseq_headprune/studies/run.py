"""Running a study: processes that share its folder divide its cells, and none is computed twice."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from fairseq_headprune.studies.folder import StudyFolder
from fairseq_headprune.studies.study import Cell, Done, Study


class Work(Protocol):
    """Computes cells: runs the model under masks, or trains."""

    def size(self) -> int:
        """Return how many cells are best computed together."""

    def compute(self, cells: Sequence[Cell]) -> Iterable[Any]:
        """Compute cells and append each to the folder; yield whenever some were appended.

        This process gives up cells that are not appended at the end; others may try them.
        """


#: Told the ids of the cells that this process begins.
Begin = Callable[[Sequence[str]], None]


def run(study: Study, work: Work, begin: Begin = lambda names: None) -> Iterator[Done]:
    """Yield every cell of an opened study when it is finished, whether earlier, here or by another process.

    Raises:
        ValueError: the folder's finished cells are of other masks than the study's.
    """
    cells: Sequence[Cell] = study.plan() or study.next(study.folder.cells())
    while cells:
        check_masks(study.folder, cells)
        first = [cell for cell in cells if cell.id == cell.against]
        yield from shared(study.folder, first, work, begin)
        yield from shared(study.folder, [cell for cell in cells if cell.id != cell.against], work, begin)
        cells = study.next(study.folder.cells())


def check_masks(folder: StudyFolder, cells: Sequence[Cell]) -> None:
    """Before resuming a study, check that the masks of its finished cells are those that its settings give now.

    A finished study is not checked: it is consistent even if another version drew its masks.

    Raises:
        ValueError: a cell has another mask.
    """
    done = folder.cells()
    begun = [cell for cell in cells if cell.mask is not None and cell.id in done]
    for cell in begun if len(begun) < len(cells) else []:
        if folder.mask_path(cell.id).is_file() and folder.read_mask(cell.id).rows != cell.mask.rows:
            raise ValueError(
                f"{folder.path} cannot go on: {cell.id} is of another mask than its settings give now (older versions "
                "drew heads by chance in another way); name another folder"
            )


def shared(folder: StudyFolder, cells: Iterable[Cell], work: Work, begin: Begin = lambda names: None) -> Iterator[Done]:
    """Yield each of these cells once, when it is finished; other processes may compute some of them."""
    waiting = {cell.id: cell for cell in cells}
    yield from _finished(folder, waiting)
    while waiting:
        mine = folder.claims.take(list(waiting), folder.cells, work.size())
        if not mine:
            folder.claims.pause()
        else:
            begin(mine)
            for _ in work.compute([waiting[name] for name in mine]):
                yield from _finished(folder, waiting)
            yield from _finished(folder, waiting)
            given_up = [name for name in mine if waiting.pop(name, None)]
            if given_up:
                folder.claims.release(given_up)
        yield from _finished(folder, waiting)


def _finished(folder: StudyFolder, waiting: dict[str, Cell]) -> Iterator[Done]:
    """Yield the waiting cells that are finished, and remove them from ``waiting``."""
    done = folder.cells() if waiting else {}
    for name in [name for name in waiting if name in done]:
        del waiting[name]
        yield done[name]
