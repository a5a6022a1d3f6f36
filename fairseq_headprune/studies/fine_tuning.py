"""Fine-tuning under masks: the flags of each training, and its job."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_headprune.jobs.training import TrainingJob
from fairseq_headprune.parts import Mask

#: of every fine-tuning, unless the user says otherwise
_PLAIN = ["--distributed-world-size", "1", "--log-format", "simple", "--no-progress-bar"]
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
        """Refuse flags that each job sets itself.

        Raises:
            ValueError: the first of them.
        """
        given = [word.partition("=")[0] for word in self.flags]
        wrong = [flag for flag in _OURS if flag in given]
        if wrong:
            raise ValueError(f"--train-flags: {wrong[0]} is set for each sampling, or not supported; omit it")

    def job(
        self, study: Any, name: str, mask: Mask | None, seed: int, start: str | None, flags: Sequence[str] | None = None
    ) -> TrainingJob:
        """Return the training of a cell of an opened study, whose best checkpoint answers the study's split.

        Args:
            start: the checkpoint whose weights it starts from; None: those that the flags and the seed give.
            flags: in place of :attr:`flags`.
        """
        session, own = study.session, self.flags if flags is None else flags
        return TrainingJob(
            name,
            session.args.data,
            [*session.training_flags(), *_PLAIN, *own, *self.limit],
            seed,
            start=None if start is None else str(Path(start).resolve()),
            mask=None if mask is None else mask.to_dict(),
            slim=self.slim,
            generate=study.generate,
            split=study.split,
            root=f"{study.folder.path.resolve()}/",
        )
