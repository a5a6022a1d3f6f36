"""A training as a job: flags of fairseq-train, where it starts, its mask; what it leaves, and how it resumes."""

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
#: of fairseq-train: nothing is written that only a training that resumes needs
_BEST_ONLY = ["--no-last-checkpoints", "--no-save-optimizer-state"]


@dataclass(frozen=True)
class TrainingJob:
    """One training by fairseq-train, in the folder ``runs/NAME`` of a study.

    Attributes:
        data: the data folder.
        flags: of fairseq-train, but for those that follow from the other attributes.
        start: the checkpoint whose weights it starts from; None: random weights.
        after: name of the job that trains ``start``, where a job of the study does.
        mask: the content of a mask file: the heads it is trained under; None: all.
        slim: remove the other heads from ``start`` first, and train the smaller model.
        resumable: it saves after each epoch what it needs to go on after a stop.
        generate, split: flags of fairseq-generate and the split that the best checkpoint answers when it is trained;
            no split: none.
        valid: what the number is called by which the best checkpoint is chosen.
        root: the study's folder, with a slash, where the training runs in the present folder, which places in ``flags``
            are relative to; empty where it runs in the study's folder, so that results hold no places of this machine.
    """

    name: str
    data: str
    flags: Sequence[str]
    seed: int
    start: str | None = None
    after: str | None = None
    mask: Mapping[str, Any] | None = None
    slim: bool = False
    resumable: bool = True
    generate: Sequence[str] = field(default_factory=list)
    split: str | None = None
    valid: str = "valid_loss"
    root: str = ""

    @property
    def place(self) -> str:
        """Its folder, from the folder on in which the training runs."""
        return f"{self.root}runs/{self.name}"

    def words(self) -> list[str]:
        """Return the command of fairseq-train; it runs in the study's folder."""
        words = [sys.executable, "-m", "fairseq_cli.train", self.data, "--user-dir", USER_DIR, "--seed", str(self.seed)]
        words += ["--save-dir", self.place, "--no-epoch-checkpoints", *([] if self.resumable else _BEST_ONLY)]
        words += self.flags
        if self.mask is not None and not self.slim:
            words += ["--head-mask", f"{self.place}/mask.json"]
        if self.start is not None:
            words += ["--finetune-from-model", f"{self.place}/slim.pt" if self.slim else self.start]
        return words

    def shown(self, places: Mapping[str, str]) -> str:
        """Return that command without the places of this machine, of which some may be given (path -> name)."""
        short = {sys.executable: "python", USER_DIR: "fairseq_headprune", self.data: Path(self.data).name, **places}
        words = [short.get(word, word) for word in self.words()]
        return shlex.join([word.removeprefix(self.root) if self.root else word for word in words])


class Run:
    """The folder of a job: what a stopped one resumes from, and what is kept of a finished one.

    Attributes:
        best: the checkpoint that is used: the best on the validation set, under its hard mask.
        mask: the mask it is trained under, where there is one.
        answers: what the best checkpoint answers, where it is asked.
        done: facts about the job once all is there.
    """

    def __init__(self, work: Path, place: str) -> None:
        folder = self.folder = work / place
        self.best, self.mask, self.slim = folder / "checkpoint_best.pt", folder / "mask.json", folder / "slim.pt"
        self.answers, self.facts, self.done = folder / "hypotheses.txt", folder / "facts.json", folder / "done.json"
        self.last, self.trained, self._job = folder / "checkpoint_last.pt", folder / "trained", folder / "job.json"

    def prepare(self, job: TrainingJob) -> None:
        """Write the folder, or leave it as it is where the same job was stopped."""
        value = json.loads(json.dumps(asdict(job)))
        if not (self._job.exists() and read_json(self._job) == value) and not self._stopped_before():
            shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        if job.mask is not None:
            write_json(self.mask, dict(job.mask))
        write_json(self._job, value)

    def _stopped_before(self) -> bool:
        """Whether a training was stopped here by a version that kept no job file; settings of a study do not change."""
        return not self._job.exists() and (self.last.exists() or self.trained.exists())

    def job(self) -> TrainingJob:
        """Read the job of this folder."""
        return TrainingJob(**read_json(self._job))

    def reached(self) -> list[int] | None:
        """Say how far the job has come: a value that changes with every epoch that is kept; None at the start."""
        return [path.stat().st_mtime_ns for path in (self.last, self.trained) if path.exists()] or None


def run_trainings(
    jobs: Sequence[TrainingJob],
    work: Path,
    claims: Claims,
    at_once: int,
    limit: float | None = None,
    finished: Callable[[], Container[str]] | None = None,
    places: Mapping[str, str] | None = None,
) -> Iterator[tuple[TrainingJob, dict[str, Any]]]:
    """Yield each job with its facts when it is done; those that other processes do are waited for.

    Facts: ``command``; ``seconds`` of its process, and ``resumed`` where that is only a part; ``side_by_side``: how
    many ran at the same time; and those of :func:`~fairseq_headprune.jobs.train.do`.

    Args:
        work: the study's folder.
        claims: the study's.
        at_once: how many run at the same time, dealt out over the GPUs.
        limit: seconds after which what still runs is ended.
        finished: names that need nothing any more (default: those that are done).
        places: of this machine (path -> name), which commands are shown without.

    Raises:
        RuntimeError: some failed, after the others have ended.
        TimeoutError: the limit came first.
    """
    by_name, began = {job.name: job for job in jobs}, dict[str, float]()
    runs = {job.name: Run(work, job.place) for job in jobs}

    def done() -> set[str]:
        return {name for name, run in runs.items() if run.done.exists()}

    def prepare(name: str) -> None:
        runs[name].prepare(by_name[name])
        began[name] = time.monotonic()

    for name in done():
        if finished is not None and name not in finished() and claims.take([name], finished):
            yield by_name[name], read_json(runs[name].done)
    commands = [_command(job, work, runs[job.name]) for job in jobs if job.name not in done()]
    for name in share_commands(commands, at_once, claims, done, prepare, limit):
        seconds = round(time.monotonic() - began[name], 1)
        facts = {"command": by_name[name].shown(places or {}), "side_by_side": at_once, "seconds": seconds}
        facts |= read_json(runs[name].facts)
        write_json(runs[name].done, facts)
        yield by_name[name], facts


def _command(job: TrainingJob, work: Path, run: Run) -> Command:
    words = [sys.executable, "-m", "fairseq_headprune.jobs.train", job.place]
    log = work / "logs" / f"{job.name}.log"
    return Command(job.name, words, log, job.after, None if job.root else work, progress=run.reached)
