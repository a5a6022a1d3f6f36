"""The study folder: settings, finished cells, masks, hypotheses and figures of one experiment that can be resumed.

Layout: ``study.json`` (all settings), ``cells.jsonl`` (one finished cell per line, in the order they finished),
``masks/``, ``hyps/``, ``figures/``, and in studies of single heads ``texts/`` (sources and references). Several
processes on one file system may add cells at the same time; claims divide the work (``claims.jsonl``, ``workers/``).
"""

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fairseq_headprune import files
from fairseq_headprune.jobs.claims import Claims
from fairseq_headprune.json_lines import append_line, first_difference, json_line, locked, plain, read_cells
from fairseq_headprune.leftovers import remove_leftovers
from fairseq_headprune.parts import Mask

FORMAT = "headprune.study/1"
_PARTS = ("masks", "hyps", "figures")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+=,@%-]{0,199}")


class StudyFolder:
    """One study on disk.

    ``StudyFolder(path)`` opens an existing study for reading; :meth:`open` creates or resumes one for writing.

    Attributes:
        path: the folder.
        settings: the study's settings, as stored.
        runs: the distinct environments in which the study has run (any JSON), in order.
        claims: this process's claims on cells.
    """

    def __init__(self, path: files.PathLike) -> None:
        """Read ``study.json``.

        Raises:
            FileNotFoundError: the folder holds no study.
            ValueError: ``study.json`` is damaged or of an unknown format version.
        """
        self.path = Path(path)
        study = self.path / "study.json"
        if not self.path.exists():
            raise FileNotFoundError(f"{self.path}: there is no such folder")
        if not study.is_file():
            raise FileNotFoundError(f"{self.path} is not a study folder: it holds no study.json")
        content = files.read_json(study)
        found = content.get("format") if isinstance(content, dict) else None
        if found != FORMAT:
            raise ValueError(f'{study}: the "format" is {found!r}, this version reads {FORMAT!r}; name another folder')
        if not isinstance(content.get("settings"), dict):
            raise ValueError(f'{study}: there is no "settings" in it; name another folder')
        self.settings: dict[str, Any] = content["settings"]
        self.runs: list[Any] = content.get("runs", [])
        self.claims = Claims(self.path)

    @classmethod
    def open(
        cls, path: files.PathLike, settings: Mapping[str, Any], environment: Mapping[str, Any] | None = None
    ) -> "StudyFolder":
        """Create the study, or resume it if it has the same settings.

        Only settings are compared. ``environment`` (the machine and software of this run) may differ from run to run;
        each new one is recorded in ``study.json``, with the ``command`` of the first run there.

        Raises:
            ValueError: the folder holds something else, or a study with other settings (the message names the first
                that differs); or a setting is NaN or not a JSON value.
            OSError: the folder cannot be created or written.
        """
        path = Path(path)
        settings = plain(dict(settings), "settings")
        environment = None if environment is None else plain(dict(environment), "environment")
        with _explained(f"cannot write to the study folder {path}; name a folder you can write to"):
            # Check first, so that a refused folder is not modified.
            cls.check(path, settings)
            if (path / "study.json").exists():
                remove_leftovers(path, within=True)
            path.mkdir(parents=True, exist_ok=True)
            with locked(path / "cells.jsonl"):
                if not (path / "study.json").exists():
                    _write_study(path, settings, [])
                study = cls(path)
                study._check_same(settings)
                if environment is not None and _place(environment) not in map(_place, study.runs):
                    study.runs.append(environment)
                    _write_study(path, settings, study.runs)
            for part in _PARTS:
                (path / part).mkdir(exist_ok=True)
        return study

    @classmethod
    def check(cls, path: files.PathLike, settings: Mapping[str, Any]) -> None:
        """Check that :meth:`open` would create the study there or resume it; nothing is written.

        Raises:
            ValueError: the folder holds something else, or a study with other settings.
        """
        path = Path(path)
        if (path / "study.json").exists():
            cls(path)._check_same(plain(dict(settings), "settings"))
        else:
            _refuse_strange_folder(path)

    def cells(self) -> dict[str, dict[str, Any]]:
        """Return the finished cells by id, in the order they finished.

        A last line that a killed writer left incomplete is ignored. If two writers computed the same cell, the first
        one counts: a finished result never changes.

        Raises:
            ValueError: a line before the last is damaged; the message names it.
        """
        return read_cells(self.path / "cells.jsonl")

    def append(self, cell: Mapping[str, Any]) -> None:
        """Add a finished cell: it is on disk when this returns, and if this fails the file is unchanged.

        Write the cell's hypotheses and mask first: a cell that is listed is complete.

        Args:
            cell: JSON values, with the key ``id`` (letters, digits and ``. _ + = , @ % -``, since it names files).

        Raises:
            ValueError: an invalid id, a number that is NaN or infinite, or a value that is not JSON.
            OSError: no permission, or the disk is full.
        """
        cell_id = _check_id(cell.get("id"))
        line = json_line(plain(dict(cell), f"cell {cell_id}"))
        with _explained(f"could not save the cell {cell_id} in {self.path}"), locked(self.path / "cells.jsonl") as out:
            append_line(out, line)

    def mask_path(self, cell_id: str) -> Path:
        """Return the path of a cell's mask (``masks/ID.json``); ValueError if the id cannot name a file."""
        return self.path / "masks" / f"{_check_id(cell_id)}.json"

    def hyp_path(self, cell_id: str) -> Path:
        """Return the path of a cell's hypotheses (``hyps/ID.txt``, one per line); raises as :meth:`mask_path` does."""
        return self.path / "hyps" / f"{_check_id(cell_id)}.txt"

    def read_mask(self, cell_id: str) -> Mask:
        """Return the mask of a finished cell.

        Raises:
            FileNotFoundError, ValueError: it is missing or damaged; the message says what to do.
        """
        with self._told_way_out(cell_id):
            return Mask.load(self.mask_path(cell_id))

    def read_hypotheses(self, cell_id: str, sentences: int) -> list[str]:
        """Return the translations of a finished cell, of which there have to be this many.

        Raises:
            FileNotFoundError, ValueError: they are missing or damaged; the message says what to do.
        """
        path = self.hyp_path(cell_id)
        with self._told_way_out(cell_id):
            lines = files.read_lines(path)
            if len(lines) != sentences:
                raise ValueError(f"{path} has {len(lines)} lines for {sentences} sentences")
        return lines

    def way_out(self, cell_id: str) -> str:
        """Return a sentence that says how to have a finished cell recomputed."""
        return f"delete the line of {cell_id} in {self.path / 'cells.jsonl'} to have it done again"

    @contextlib.contextmanager
    def _told_way_out(self, cell_id: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{error.filename} is gone: put it back, or {self.way_out(cell_id)}") from error
        except (ValueError, KeyError) as error:
            raise ValueError(f"{error.args[0]}: {self.way_out(cell_id)}") from error

    def text_path(self, split: str, side: str) -> Path:
        """Return the path of one side (``source``, ``reference``) of a split (``texts/SPLIT.SIDE.txt``)."""
        return self.path / "texts" / f"{_check_id(split)}.{side}.txt"

    def figure_stem(self, name: str) -> Path:
        """Return the path of a figure without its extension (``figures/NAME``)."""
        return self.path / "figures" / _check_id(name)

    def write_mask(self, cell_id: str, mask: Mapping[str, Any]) -> Path:
        """Write a cell's mask file atomically; ``mask`` is its content, see ``Mask.to_dict``.

        Raises:
            OSError: no permission, or the disk is full.
        """
        path = self.mask_path(cell_id)
        with _explained(f"could not save the mask of the cell {cell_id} in {self.path}"):
            files.write_json(path, plain(dict(mask), f"mask {cell_id}"))
        return path

    def write_hypotheses(self, cell_id: str, sentences: Sequence[str]) -> Path:
        r"""Write a cell's translations atomically, one per line.

        Raises:
            ValueError: a sentence contains ``\n``, which would shift all lines after it.
            OSError: no permission, or the disk is full.
        """
        return self._write_sentences(self.hyp_path(cell_id), sentences, "hypotheses", f"the cell {cell_id}")

    def write_texts(self, split: str, sources: Sequence[str], references: Sequence[str]) -> None:
        r"""Store the sources and references of a split atomically, unless they are already stored.

        Raises:
            ValueError, OSError: as for :meth:`write_hypotheses`.
        """
        for side, sentences in (("source", sources), ("reference", references)):
            path = self.text_path(split, side)
            if not path.exists():
                path.parent.mkdir(exist_ok=True)
                self._write_sentences(path, sentences, f"{side}s", f"the split {split}")

    def _write_sentences(self, path: Path, sentences: Sequence[str], what: str, whose: str) -> Path:
        for number, sentence in enumerate(sentences, 1):
            if "\n" in sentence:
                raise ValueError(f"sentence {number} of {whose} holds a line end: {sentence!r}")
        with _explained(f"could not save the {what} of {whose} in {self.path}"):
            files.write_text(path, "".join(f"{sentence}\n" for sentence in sentences))
        return path

    def _check_same(self, settings: Mapping[str, Any]) -> None:
        difference = first_difference(self.settings, settings)
        if difference:
            name, stored, now = difference
            raise ValueError(
                f"{self.path} holds a study with other settings: {name} is {stored} there and {now} now; "
                "name another folder, or use the settings of this one to resume it"
            )


def _place(environment: dict[str, Any]) -> dict[str, Any]:
    """An environment without the command: printing a finished study in another form does not count as a new run."""
    return {name: value for name, value in environment.items() if name != "command"}


def _check_id(cell_id: Any) -> str:
    if not isinstance(cell_id, str) or not _ID.fullmatch(cell_id):
        raise ValueError(
            f"{cell_id!r} cannot be the id of a cell: use a letter or digit, then letters, digits and . _ + = , @ % - "
            "(200 characters at most)"
        )
    return cell_id


def _refuse_strange_folder(path: Path) -> None:
    """Accept a missing or empty folder, or one left by a run killed while creating a study; refuse any other."""
    if not path.exists():
        return
    if not path.is_dir():
        raise ValueError(f"{path} is a file; name a folder for the study")
    names = sorted(entry.name for entry in path.iterdir())
    cells = path / "cells.jsonl"
    strange = [name for name in names if not name.startswith(".study.json.") and name not in ("study.json", cells.name)]
    if cells.exists() and cells.stat().st_size:
        strange.append(cells.name)
    # Another process may have created the study since the check for study.json.
    if strange and not (path / "study.json").exists():
        raise ValueError(f"{path} is no study folder and holds other files ({strange[0]}, …); name another folder")


def _write_study(path: Path, settings: Mapping[str, Any], runs: Sequence[Any]) -> None:
    files.write_json(path / "study.json", {"format": FORMAT, "settings": settings, "runs": runs})


@contextlib.contextmanager
def _explained(what: str) -> Iterator[None]:
    """Add what could not be done to the message of an OSError; its errno is kept."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise type(error)(error.errno, f"{what} ({reason})") from error
