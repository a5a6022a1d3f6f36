"""Fine-tune a checkpoint under a mask and translate (BERT: predict) with the result: one process a mask.

``python -m fairseq_headprune.studies.fine_tuning JOB.json`` does one job. Training and translation share the process,
since starting one takes longer than translating.
"""

import json
import shutil
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fairseq_headprune import files
from fairseq_headprune.jobs.leash import end_with_parent

#: what a finished job writes into its folder
DONE = "done.json"
HYPOTHESES = "hypotheses.txt"
_BEST = "checkpoint_best.pt"
#: what a job sets itself, or cannot do without
_OURS = (
    "--seed",
    "--save-dir",
    "--user-dir",
    "--finetune-from-model",
    "--restore-file",
    "--head-mask",
    "--no-save",
    "--disable-validation",
)


@dataclass(frozen=True)
class FineTuning:
    """How models are fine-tuned.

    Attributes:
        flags: of fairseq-train: architecture, optimizer, learning rate, batch size, ….
        limit: ``--max-update N`` or ``--max-epoch N``.
        slim: remove the pruned heads first and fine-tune the smaller model.
    """

    flags: list[str]
    limit: list[str]
    slim: bool = False

    def check(self) -> None:
        """Refuse flags that have no place among those of every job.

        Raises:
            ValueError: the first of them.
        """
        given = [word.partition("=")[0] for word in self.flags]
        wrong = [flag for flag in _OURS if flag in given]
        if wrong:
            raise ValueError(f"--train-flags: {wrong[0]} is set for each sampling, or must not be; leave it away")


@dataclass(frozen=True)
class Job:
    """One mask to fine-tune under.

    Attributes:
        folder: gets ``mask.json``, the best checkpoint, ``hypotheses.txt`` and, last, ``done.json``.
        checkpoint: the one to start from.
        data: the data folder; ``task`` the flags that name the task.
        generate: the flags of fairseq-generate, as they were given.
        split: what is translated.
        seed: of fairseq-train.
    """

    folder: str
    checkpoint: str
    data: str
    task: list[str]
    generate: list[str]
    split: str
    seed: int
    how: FineTuning = field(default_factory=lambda: FineTuning([], []))


def write_job(job: Job, mask: dict[str, Any]) -> Path:
    """Write the folder of a job anew, and return the job file."""
    folder = Path(job.folder)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    files.write_json(folder / "mask.json", mask)
    files.write_json(folder / "job.json", asdict(job))
    return folder / "job.json"


def train_command(job: Job) -> list[str]:
    """Return the flags of fairseq-train for a job."""
    import fairseq_headprune

    folder = Path(job.folder)
    start = ["--finetune-from-model", job.checkpoint, "--head-mask", str(folder / "mask.json")]
    if job.how.slim:
        start = ["--finetune-from-model", str(folder / "slim.pt")]
    ours = ["--user-dir", fairseq_headprune.__path__[0], *job.task]
    ours += ["--save-dir", job.folder, "--no-epoch-checkpoints", "--no-last-checkpoints", "--no-save-optimizer-state"]
    ours += ["--distributed-world-size", "1", "--log-format", "simple", "--no-progress-bar", "--seed", str(job.seed)]
    # What the user says comes last and wins (see FineTuning.check), but not over start and length.
    return [job.data, *ours, *job.how.flags, *job.how.limit, *start]


def run_job(path: files.PathLike) -> None:
    """Do one job; ``done.json`` is written when all is there.

    Raises:
        RuntimeError: training ended without a checkpoint.
    """
    value = files.read_json(path)
    job = Job(**{**value, "how": FineTuning(**value["how"])})
    folder = Path(job.folder)
    if job.how.slim:
        _slim(job)
    _train(job)
    best = folder / _BEST
    if not best.exists():
        raise RuntimeError(f"fairseq-train left no {best}: it trained for no update, or did not validate")
    sentences = _answers(job, best)
    files.write_text(folder / HYPOTHESES, "".join(f"{sentence}\n" for sentence in sentences))
    (folder / "slim.pt").unlink(missing_ok=True)
    files.write_json(folder / DONE, {"checkpoint": str(best), "sha256": files.sha256(best), **_training(best)})


def _slim(job: Job) -> None:
    from fairseq_headprune.parts import Mask
    from fairseq_headprune.removal.checkpoint import slim_checkpoint

    folder = Path(job.folder)
    slim_checkpoint(job.checkpoint, folder / "slim.pt", Mask.load(folder / "mask.json"))


def _train(job: Job) -> None:
    from fairseq_cli import train

    from fairseq_headprune import plugin  # noqa: F401  (registers)

    before, sys.argv = sys.argv, ["fairseq-train", *train_command(job)]
    try:
        train.cli_main()
    finally:
        sys.argv = before


def _answers(job: Job, checkpoint: Path) -> list[str]:
    from fairseq_headprune.cli.random_study import parse
    from fairseq_headprune.session import open_session

    args = parse(job.generate)
    args.path = str(checkpoint)
    return open_session(args).evaluator(job.split).answers()


def _training(checkpoint: Path) -> dict[str, Any]:
    """What the best checkpoint says of its training."""
    from fairseq_headprune.checkpoints import read_state

    state = read_state(checkpoint)
    history = state.get("optimizer_history") or [{}]
    return {"updates": history[-1].get("num_updates"), "valid_loss": float(state["extra_state"]["val_loss"])}


if __name__ == "__main__":
    end_with_parent()
    run_job(sys.argv[1])
    print(json.dumps({"job": sys.argv[1]}))
