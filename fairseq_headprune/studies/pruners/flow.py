"""Trainings and translations of a comparison of pruners in one flow: each starts when it can and a slot is free.

What others wait for comes first: rankings whose heads are trained, then trainings that others start from; of these, and
of the other trainings, the longest. Models that nobody waits for are translated when no training can start.
"""

import contextlib
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence

from fairseq_headprune.files import write_json
from fairseq_headprune.jobs.methods import estimates, options, ranks
from fairseq_headprune.jobs.scheduler import Command, share_commands
from fairseq_headprune.jobs.training import Run, Trainings
from fairseq_headprune.studies.pruners.study import ComparePruners
from fairseq_headprune.studies.pruners.trainings import Training
from fairseq_headprune.studies.study import Cell, Done


class Flow:
    """What is left of an opened comparison.

    Args:
        at_once: processes of this one at the same time.
        shares: a process takes one of so many shares of the models that can be translated (default: ``at_once``).
    """

    def __init__(self, study: ComparePruners, at_once: int, shares: int | None = None) -> None:
        self._study, self._folder, self._at_once, self._shares = study, study.folder, at_once, shares or at_once
        self._trainings = {training.name: training for training in study.trainings}
        #: name of a translation -> the cells of a model and method
        self._translations: dict[str, list[Cell]] = {}
        for cell in study.plan():
            method = cell.facts["method"]
            name = f"{method}-{cell.facts['seed']}" if ranks(method) else cell.job
            self._translations.setdefault(f"translate-{name}", []).append(cell)
        self._jobs = Trainings(self._folder.path, at_once, study.how.task.places)
        self._translation_of = {cell.id: name for name, cells in self._translations.items() for cell in cells}
        #: translations that trainings wait for
        self._urgent: Collection[str] = ()
        #: name of a translation -> the cells that its process takes
        self._taken: dict[str, list[Cell]] = {}
        self._cells: tuple[int, Collection[str]] = (0, ())

    def run(self, stages: Collection[str], limit: float | None) -> Iterator[tuple[str, str]]:
        """Train (stage ``train``) and translate (``translate``); yield the stage and name of each process that is done.

        Of one stage alone what needs the other is left out. Other processes may work on the same folder.

        Raises:
            RuntimeError: something failed; raised after the others have ended.
            TimeoutError: the limit, in seconds, was reached.
        """
        (self._folder.path / "jobs").mkdir(exist_ok=True)
        commands = self.commands(stages)
        with contextlib.closing(self._folder.claims) as claims:
            for name in share_commands(
                commands, self._at_once, claims, self.finished, self._prepare, limit, self._together
            ):
                if name in self._trainings:
                    self._jobs.finish(name)
                yield ("train" if name in self._trainings else "translate"), name

    def finished(self) -> set[str]:
        """Return the names of the trainings and translations that are done, and the ids of the cells that are."""
        cells = self._finished_cells()
        trained = {name for name in self._trainings if Run(self._folder.path, f"runs/{name}").done.exists()}
        return trained.union(
            cells, (name for name, own in self._translations.items() if all(cell.id in cells for cell in own))
        )

    def commands(self, stages: Collection[str]) -> list[Command]:
        """Return the commands of what is left, in the order in which they start if they can."""
        done, commands = self.finished(), dict[str, Command]()
        if "train" in stages:
            left = [training for name, training in self._trainings.items() if name not in done]
            commands |= {t.name: self._jobs.command(self._study.job(t), self._needs(t, done)) for t in left}
        if "translate" in stages:
            commands |= {name: self._translating(name) for name in self._translations if name not in done}
        made = done.union(commands, (cell for cell, name in self._translation_of.items() if name in commands))
        commands = {name: command for name, command in commands.items() if made.issuperset(command.after)}
        waiting = self._waiting(commands)
        self._urgent = waiting.keys() & self._translations.keys()

        def length(name: str) -> int:
            own = self._trainings[name].length if name in self._trainings else 0
            return own + max(map(length, waiting.get(name, ())), default=0)

        def place(name: str) -> tuple[bool, bool, bool, int]:
            translates = name in self._translations
            # Sorted in this order: urgent translations, trainings that others wait for, trainings, translations.
            return translates and name not in waiting, name not in waiting, not translates, -length(name)

        return [commands[name] for name in sorted(commands, key=place)]

    def _waiting(self, commands: Mapping[str, Command]) -> dict[str, list[str]]:
        """Name of a training or translation -> the trainings that wait for it, and the translations that these need."""
        found: dict[str, list[str]] = {}
        for name in commands.keys() & self._trainings.keys():
            for need in commands[name].after:
                found.setdefault(self._translation_of.get(need, need), []).append(name)
        for name in found.keys() & self._translations.keys():
            found.setdefault(str(self._translations[name][0].job), []).append(name)
        return found

    def _needs(self, training: Training, done: Collection[str]) -> list[str]:
        """What has to be finished before a training starts; heads that are ranked are known by their translation."""
        needs = [] if training.after is None else [training.after]
        cell = self._study.source_cell(training)
        if training.source is not None and cell not in done:
            method, name = training.source[0], str(training.mask_of)
            # Without its checkpoint (on another machine) a model cannot be translated either, which fails and tells.
            gone = name in done and not Run(self._folder.path, f"runs/{name}").best.exists()
            needs += [] if ranks(method) and not estimates(method) else [cell if estimates(method) or gone else name]
        return needs

    def _translating(self, name: str) -> Command:
        path, of = self._folder.path, str(self._translations[name][0].job)
        words = [sys.executable, "-m", "fairseq_headprune.studies.pruners.answers", f"jobs/{name}.json"]
        log = path / "logs" / f"{name}.log"
        return Command(name, words, log, [of], path, progress=lambda: self._reached(name), forked=True)

    def _reached(self, name: str) -> int:
        return sum(cell.id in self._finished_cells() for cell in self._taken[name])

    def _missing(self, names: Sequence[str]) -> list[Cell]:
        done = self._finished_cells()
        return [cell for name in names for cell in self._translations[name] if cell.id not in done]

    def _finished_cells(self) -> Collection[str]:
        """The ids of finished cells, which are read again when there are more: this is asked several times a second."""
        size = (self._folder.path / "cells.jsonl").stat().st_size
        if size != self._cells[0]:
            self._cells = size, self._folder.cells().keys()
        return self._cells[1]

    def _together(self, free: list[str]) -> list[str]:
        """Return what one process takes of what is free: the first, or a share of the models that nobody waits for."""
        names = free[:1]
        if free[0] in self._translations:
            if free[0] not in self._urgent:
                cells: list[Done] = [{"id": cell.id, **cell.facts} for cell in self._missing(free)]
                share = next(iter(groups(cells, self._shares)), [])
                names = list(dict.fromkeys(self._translation_of[cell["id"]] for cell in share))
            self._taken |= {name: self._missing(names) for name in names[:1]}
        return names

    def _prepare(self, name: str) -> None:
        if name in self._trainings:
            self._jobs.prepare(self._study.job_under_mask(self._trainings[name]))
        else:
            write_json(self._folder.path / "jobs" / f"{name}.json", self._study.translating(self._taken[name]))


def groups(cells: Sequence[Done], at_once: int) -> list[list[Done]]:
    """Divide cells among at most ``at_once`` processes, each of which loads as few models as possible.

    The cells of a model stay together; only where there are fewer models than processes, its methods are divided.
    """
    models: dict[str, dict[str, list[Done]]] = {}
    for cell in cells:
        models.setdefault(cell["checkpoint"], {}).setdefault(cell["method"], []).append(cell)
    each = max(1, at_once // max(1, len(models)))
    return _spread([part for methods in models.values() for part in _spread(list(methods.values()), each)], at_once)


def _spread(parts: Sequence[list[Done]], count: int) -> list[list[Done]]:
    """Join parts to at most ``count``: the dearest first, each to what costs least so far."""
    found: list[list[Done]] = [[] for _ in range(count)]
    for part in sorted(parts, key=_cost, reverse=True):
        min(found, key=_cost).extend(part)
    return [joined for joined in found if joined]


def _cost(cells: Sequence[Done]) -> int:
    """The work of cells, in translations of a split; about two estimates precede a mask that is ranked anew."""
    anew = [cell for cell in cells if estimates(cell["method"]) and "once" not in options(cell["method"])]
    return len(cells) + 2 * len(anew)
