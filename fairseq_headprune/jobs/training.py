"""A training job: its fairseq-train flags, initial weights and mask, its folder, and how it resumes."""

import json
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import fairseq_headprune
from fairseq_headprune.files import read_json, write_json
from fairseq_headprune.jobs.claims import Claims
from fairseq_headprune.jobs.scheduler import Command, share_commands

USER_DIR = str(Path(fairseq_headprune.__path__[0]).resolve())
#: fairseq-train flags that turn off what is only saved for resuming
_BEST_ONLY = ["--no-last-checkpoints", "--no-save-optimizer-state"]


@dataclass(frozen=True)
class TrainingJob:
    """One run of fairseq-train, in the folder ``runs/NAME`` of a study.

    Attributes:
        data: the data folder.
        flags: fairseq-train flags, except those that follow from the other attributes.
        start: checkpoint of the initial weights; None: those that flags and seed give.
        after: name of the job that trains ``start``, if it is a job of the study.
        mask: content of the mask file under which the model is trained; None: no mask.
        slim: first remove the pruned parts from the initial weights, then train the smaller model.
        weights: ticket of single weights (``--weight-mask``); the other weights are 0.
        embeddings: checkpoint whose embeddings replace the initial ones.
        resumable: save after each epoch what is needed to resume.
        generate, split: fairseq-generate flags, and the split on which the best checkpoint is run after training; an
            empty split: none.
        valid: name of the validation result that chooses the best checkpoint.
        root: the study's folder with a slash at the end, if the training runs in the current folder (paths in ``flags``
            are relative to that); empty if it runs in the study's folder, so that results hold no local paths.
    """

    name: str
    data: str
    flags: Sequence[str]
    seed: int
    start: str | None = None
    after: str | None = None
    mask: Mapping[str, Any] | None = None
    slim: bool = False
    weights: str | None = None
    embeddings: str | None = None
    resumable: bool = True
    generate: Sequence[str] = field(default_factory=list)
    split: str | None = None
    valid: str = "valid_loss"
    root: str = ""

    @property
    def place(self) -> str:
        """The job's folder, relative to the folder in which the training runs."""
        return f"{self.root}runs/{self.name}"

    @property
    def makes_start(self) -> bool:
        """Whether the initial weights are made before the training (``start.pt``)."""
        return self.slim or self.embeddings is not None

    def words(self) -> list[str]:
        """Return the fairseq-train command, to be run in the study's folder."""
        words = [sys.executable, "-m", "fairseq_cli.train", self.data, "--user-dir", USER_DIR, "--seed", str(self.seed)]
        words += ["--save-dir", self.place, "--no-epoch-checkpoints", *([] if self.resumable else _BEST_ONLY)]
        words += self.flags
        if self.mask is not None and not self.slim:
            words += ["--head-mask", f"{self.place}/mask.json"]
        if self.weights is not None:
            words += ["--weight-mask", self.weights]
        if self.makes_start:
            words += ["--finetune-from-model", f"{self.place}/start.pt"]
        elif self.start is not None:
            words += ["--finetune-from-model", self.start]
        return words

    def shown(self, places: Mapping[str, str]) -> str:
        """Return that command without local folders: paths by their name in ``places`` (path -> name) or last part."""
        short = {sys.executable: "python", USER_DIR: "fairseq_headprune", self.data: Path(self.data).name, **places}
        words = [short.get(word, word.removeprefix(self.root)) for word in self.words()]
        return shlex.join([Path(word).name if word.startswith("/") else word for word in words])


class Run:
    """The folder of a job, finished or not.

    Attributes:
        best: the best checkpoint on the validation set, with its hard mask.
        mask: mask file of the training, if any.
        answers: outputs of the best checkpoint, if a split is given.
        done: facts about the job, written at its end.
    """

    def __init__(self, work: Path, place: str) -> None:
        folder = self.folder = work / place
        self.best, self.mask, self.start = folder / "checkpoint_best.pt", folder / "mask.json", folder / "start.pt"
        self.answers, self.facts, self.done = folder / "hypotheses.txt", folder / "facts.json", folder / "done.json"
        self.last, self.trained, self._job = folder / "checkpoint_last.pt", folder / "trained", folder / "job.json"

    def prepare(self, job: TrainingJob) -> None:
        """Write the folder, or keep it as it is if the same job was interrupted."""
        value = json.loads(json.dumps(asdict(job)))
        if not (self._job.exists() and read_json(self._job) == value):
            shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        if job.mask is not None:
            write_json(self.mask, dict(job.mask))
        write_json(self._job, value)

    def job(self) -> TrainingJob:
        """Read the job's settings."""
        return TrainingJob(**read_json(self._job))

    def reached(self) -> list[int] | None:
        """Return a value that changes with every saved epoch; None before the first."""
        return [path.stat().st_mtime_ns for path in (self.last, self.trained) if path.exists()] or None


def run_trainings(
    jobs: Sequence[TrainingJob],
    work: Path,
    claims: Claims,
    at_once: int,
    finished: Callable[[], Container[str]],
) -> Iterator[tuple[TrainingJob, dict[str, Any]]]:
    """Yield each finished job with its facts; jobs that other processes run are waited for.

    Facts: ``command``; ``seconds`` of its process, and ``resumed`` if that is only part of the training;
    ``side_by_side``: how many ran at the same time; and those of :func:`~fairseq_headprune.jobs.train.do`.

    Args:
        work: the study's folder.
        claims: the study's claims.
        at_once: how many run at the same time, spread over the GPUs.
        finished: returns the names of the jobs that the study has taken over; of the others, those that were done
            before are yielded first.

    Raises:
        RuntimeError: some failed; raised after the others have ended.
    """
    by_name, trainings = {job.name: job for job in jobs}, Trainings(work, at_once)
    runs = {job.name: Run(work, job.place) for job in jobs}

    def done() -> set[str]:
        return {name for name, run in runs.items() if run.done.exists()}

    for name in done():
        if name not in finished() and claims.take([name], finished):
            yield by_name[name], read_json(runs[name].done)
    commands = [trainings.command(job, [job.after] if job.after else []) for job in jobs if job.name not in done()]
    for name in share_commands(commands, at_once, claims, done, lambda name: trainings.prepare(by_name[name])):
        yield by_name[name], trainings.finish(name)


class Trainings:
    """The commands of training jobs, and what is written before each starts and after it has ended.

    Args:
        work, at_once: see :func:`run_trainings`.
        places: local path -> the name shown for it in commands.
    """

    def __init__(self, work: Path, at_once: int, places: Mapping[str, str] | None = None) -> None:
        self._work, self._at_once, self._places = work, at_once, places or {}
        self._begun: dict[str, tuple[TrainingJob, float]] = {}

    def command(self, job: TrainingJob, after: Sequence[str]) -> Command:
        """Return the command of a job, which waits for what ``after`` names."""
        words = [sys.executable, "-m", "fairseq_headprune.jobs.train", job.place]
        log, cwd = self._work / "logs" / f"{job.name}.log", None if job.root else self._work
        reached = Run(self._work, job.place).reached
        return Command(job.name, words, log, after, cwd, progress=reached, forked=True)

    def prepare(self, job: TrainingJob) -> None:
        """Write the folder of a job that is going to start."""
        Run(self._work, job.place).prepare(job)
        self._begun[job.name] = job, time.monotonic()

    def finish(self, name: str) -> dict[str, Any]:
        """Return the facts of a job that has ended, and mark it as done."""
        job, began = self._begun.pop(name)
        run, seconds = Run(self._work, job.place), round(time.monotonic() - began, 1)
        facts = {"command": job.shown(self._places), "side_by_side": self._at_once, "seconds": seconds}
        facts |= read_json(run.facts)
        write_json(run.done, facts)
        return facts
