"""Runs one training job: trains, keeps the best checkpoint, and runs it on a split.

``python -m fairseq_headprune.jobs.train runs/NAME`` runs the job of a folder; start it in the study's folder.
Training and inference share a process because starting one takes longer than translating.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq_headprune.files import PathLike, sha256, write_json, write_text, write_with
from fairseq_headprune.jobs.leash import end_with_parent
from fairseq_headprune.jobs.training import Run, TrainingJob


def do(place: str) -> None:
    """Run a job, or the rest of it, and write ``facts.json`` at the end.

    Facts: ``checkpoint``, its ``sha256``, ``updates``, the validation result by which it was chosen; ``resumed`` if
    another process had begun the training.

    Raises:
        RuntimeError: the training left no best checkpoint.
    """
    run = Run(Path(), place)
    job = run.job()
    resumed = {"resumed": True} if run.last.exists() or run.trained.exists() else {}
    if not run.trained.exists():
        _train(job, run)
    if not run.best.exists():
        raise RuntimeError(f"trained, but left no best checkpoint in {place} (no update, or no finite loss on valid?)")
    # fairseq-train would run one more update if it were started again.
    run.trained.touch()
    _settle(run)
    if job.split:
        sentences = answers(run.best, job.generate, job.split)
        write_text(run.answers, "".join(f"{sentence}\n" for sentence in sentences))
    facts = {"checkpoint": f"{place}/{run.best.name}", "sha256": sha256(run.best), **best(run.best, job.valid)}
    write_json(run.facts, {**facts, **resumed})
    for path in (run.last, run.slim):
        path.unlink(missing_ok=True)


def _train(job: TrainingJob, run: Run) -> None:
    from fairseq_cli import train

    from fairseq_headprune import plugin  # noqa: F401  (registers)

    skip_dynamo()
    if job.slim and job.start is not None:
        from fairseq_headprune.parts import Mask
        from fairseq_headprune.removal.checkpoint import slim_checkpoint

        mask = Mask.load(run.mask)
        slim_checkpoint(job.start, run.slim, mask, ffn=mask.prunes_ffn())
    # fairseq-train reads sys.argv.
    before, sys.argv = sys.argv, ["fairseq-train", *job.words()[3:]]
    try:
        train.cli_main()
    finally:
        sys.argv = before


def skip_dynamo() -> None:
    """Keep torch's compiler from being imported by the first optimizer, which costs 1.5 seconds; nothing is compiled.

    torch excludes its optimizers' methods from compilation when they are first called; here they count as excluded.
    """
    import torch

    for method in vars(torch.optim.Optimizer).values():
        code = getattr(method, "__code__", None)
        if code is not None and code.co_filename == torch._compile.__file__:
            method.__wrapped__.__dynamo_disable = method.__wrapped__


def _settle(run: Run) -> None:
    """Keep the best checkpoint, without the state that is only needed to resume training."""
    import torch

    from fairseq_headprune.checkpoints import read_state

    state = read_state(run.best)
    if state.pop("last_optimizer_state", None) is not None:
        write_with(run.best, lambda stream: torch.save(state, stream))


def answers(checkpoint: PathLike, generate: Sequence[str], split: str) -> list[str]:
    """Return a checkpoint's outputs (translations or predictions) for a split, under its stored mask."""
    return open_model(checkpoint, generate, split).evaluator(split).answers()


def open_model(checkpoint: PathLike, generate: Sequence[str], split: str) -> Any:
    """Open the session of a checkpoint.

    Args:
        generate: data folder and flags of fairseq-generate; their ``--path`` and split are ignored.
    """
    from fairseq_headprune.session import open_session, parse_generation_args

    argv = [*generate, "--path", str(checkpoint), "--gen-subset", split]
    return open_session(parse_generation_args("job", argv, lambda parser: None, ""))


def best(checkpoint: PathLike, valid: str) -> dict[str, Any]:
    """Return the facts of the training that the best checkpoint stores; ``valid`` names the value it was chosen by."""
    from fairseq_headprune.checkpoints import read_state

    state = read_state(checkpoint)
    history = state.get("optimizer_history") or [{}]
    return {"updates": history[-1].get("num_updates"), valid: float(state["extra_state"]["val_loss"])}


if __name__ == "__main__":
    end_with_parent()
    do(sys.argv[1])
