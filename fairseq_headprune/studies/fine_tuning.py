"""Fine-tuning under masks: the flags of each training, and its job."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_headprune.jobs.flags import training_settings
from fairseq_headprune.jobs.training import TrainingJob
from fairseq_headprune.parts import Mask

#: default flags of every fine-tuning
_PLAIN = ["--distributed-world-size", "1", "--log-format", "simple", "--no-progress-bar"]
#: flags that a job sets itself or depends on
_OURS = (
    "--seed",
    "--save-dir",
    "--user-dir",
    "--finetune-from-model",
    "--restore-file",
    "--head-mask",
    "--weight-mask",
    "--no-save",
    "--disable-validation",
)


@dataclass(frozen=True)
class FineTuning:
    """How models are fine-tuned.

    Attributes:
        flags: fairseq-train flags: architecture, optimizer, learning rate, batch size, ….
        limit: ``--max-update N`` or ``--max-epoch N``.
        slim: remove the pruned heads first and fine-tune the smaller model.
    """

    flags: list[str]
    limit: list[str]
    slim: bool = False

    def check(self) -> None:
        """Check that no flag is one that each job sets itself.

        Raises:
            ValueError: names the first such flag.
        """
        given = [word.partition("=")[0] for word in self.flags]
        wrong = [flag for flag in _OURS if flag in given]
        if wrong:
            raise ValueError(f"--train-flags: {wrong[0]} is set for each sampling, or not supported; omit it")

    def check_training(self, session: Any) -> None:
        """Check that fairseq-train takes the flags, for the model of a session.

        Raises:
            ValueError: it would refuse them.
        """
        training_settings([session.args.data, *session.task.training_flags(), *_PLAIN, *self.flags, *self.limit])

    def job(
        self,
        study: Any,
        name: str,
        mask: Mask | None,
        seed: int,
        start: str | None,
        flags: Sequence[str] | None = None,
        **more: Any,
    ) -> TrainingJob:
        """Return the training job of a cell; the best checkpoint is run on the (opened) study's split.

        Args:
            start: checkpoint of the initial weights; None: the flags and the seed determine them.
            flags: used instead of :attr:`flags`.
            more: other attributes of the job.
        """
        session, own = study.session, self.flags if flags is None else flags
        return TrainingJob(
            name,
            session.args.data,
            [*session.task.training_flags(), *_PLAIN, *own, *self.limit],
            seed,
            start=None if start is None else str(Path(start).resolve()),
            mask=None if mask is None else mask.to_dict(),
            slim=self.slim and mask is not None,
            generate=study.generate,
            split=study.split,
            root=f"{study.folder.path.resolve()}/",
            **more,
        )
