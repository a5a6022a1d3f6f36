"""Runs one training job: trains, keeps the best checkpoint, and runs it on a split.

``python -m fairseq_headprune.jobs.train runs/NAME`` runs the job of a folder; start it in the study's folder.
Training and inference share a process because starting one takes longer than translating.
"""

import gc
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fairseq_headprune.evaluation.evaluator import answers_under
from fairseq_headprune.files import PathLike, sha256, write_json, write_text, write_with
from fairseq_headprune.jobs.processes import end_with_parent, jobs_on_gpu, sleep_while_gpu_works
from fairseq_headprune.jobs.training import Run, TrainingJob

#: parameters of BERT's embeddings: words, positions, token types, and their layer norm
EMBEDDINGS = re.compile(r"encoder\.(embed_|layernorm_embedding\.)")


def do(place: str) -> None:
    """Run a job, or the rest of it, and write ``facts.json`` at the end.

    Facts: ``checkpoint``, its ``sha256``, ``updates``, the validation result by which it was chosen; ``resumed`` if
    another process had begun the training.

    Raises:
        RuntimeError: the training left no best checkpoint.
    """
    run = Run(Path(), place)
    job = run.job()
    mend(run)
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
    for path in (run.last, run.start):
        path.unlink(missing_ok=True)


def mend(run: Run) -> None:
    """Replace a last checkpoint that cannot be read by the newest one that can, or remove it if there is none.

    fairseq writes a checkpoint whole or not at all, but copies it in place: a kill during the copy leaves half a file.
    """
    if run.trained.exists() or not run.last.exists() or _readable(run.last):
        return
    others = sorted(set(run.folder.glob("checkpoint*.pt")) - {run.last}, key=lambda path: -path.stat().st_mtime_ns)
    found = next(filter(_readable, others), None)
    if found is None:
        run.last.unlink()
    else:
        with open(found, "rb") as stream:
            write_with(run.last, lambda copy: shutil.copyfileobj(stream, copy))
    what = "and no other checkpoint can: the training begins anew" if found is None else f"goes on from {found.name}"
    print(f"{run.last} cannot be read (killed while it was written?); {what}", file=sys.stderr)


def _readable(path: Path) -> bool:
    from fairseq_headprune.checkpoints import read_state

    try:
        read_state(path)
    except ValueError:
        return False
    return True


def _train(job: TrainingJob, run: Run) -> None:
    from fairseq_cli import train

    from fairseq_headprune.generation_flags import called  # registers our tasks and models, too

    skip_dynamo()
    if job.makes_start and not run.last.exists():
        make_start(job, run)
    with called("fairseq-train", job.words()[3:]):
        train.cli_main()
    end_loaders()


def end_loaders() -> None:
    """End the processes that loaded the batches of trainings that are over.

    As garbage, each costs 5 seconds: in a reference cycle, a DataLoader's queues close before it can tell them to end.
    """
    from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter as Loader

    for loader in [thing for thing in gc.get_objects() if type(thing) is Loader]:
        loader._shutdown_workers()


def skip_dynamo() -> None:
    """Keep torch's compiler from being imported by the first optimizer, which costs 1.5 seconds; nothing is compiled.

    torch excludes its optimizers' methods from compilation when they are first called; here they count as excluded.
    """
    import torch

    for method in vars(torch.optim.Optimizer).values():
        code = getattr(method, "__code__", None)
        if code is not None and code.co_filename == torch._compile.__file__:
            method.__wrapped__.__dynamo_disable = method.__wrapped__


def make_start(job: TrainingJob, run: Run) -> None:
    """Write the initial weights: those of ``start`` or of flags and seed, with other embeddings, or without parts."""
    import torch

    from fairseq_headprune.checkpoints import read_state
    from fairseq_headprune.parts import Mask
    from fairseq_headprune.removal.checkpoint import slim_checkpoint

    begin = None if job.start is None else Path(job.start)
    if begin is None or job.embeddings is not None:
        state = initial_state(job) if begin is None else read_state(begin)
        if job.embeddings is not None:
            found = read_state(job.embeddings)["model"]
            names = [name for name in state["model"] if EMBEDDINGS.match(name)]
            state["model"] |= {name: found[name].float() for name in names}
        begin = run.folder / "initial.pt"
        write_with(begin, lambda stream: torch.save(state, stream))
    if job.slim:
        mask = Mask.load(run.mask)
        slim_checkpoint(begin, run.start, mask, ffn=mask.prunes_ffn())
        (run.folder / "initial.pt").unlink(missing_ok=True)
    else:
        begin.replace(run.start)


def initial_state(job: TrainingJob) -> dict[str, Any]:
    """Return the checkpoint of a training's model before the first update, as its flags and seed make it."""
    import numpy as np
    from fairseq import options, tasks, utils
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from omegaconf import OmegaConf

    from fairseq_headprune.generation_flags import called

    words = replace(job, start=None, mask=None, slim=False, weights=None, embeddings=None).words()[3:]
    with called("fairseq-train", words):
        cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), words))
    # As fairseq-train does before it builds the model.
    np.random.seed(cfg.common.seed)
    utils.set_torch_seed(cfg.common.seed)
    task = tasks.setup_task(cfg.task)
    model = task.build_model(cfg.model)
    return {
        "cfg": OmegaConf.to_container(cfg, resolve=True, enum_to_str=True),
        "args": None,
        "model": model.state_dict(),
        "optimizer_history": [{"optimizer_name": "none", "lr_scheduler_state": {}, "num_updates": 0}],
        "task_state": task.state_dict(),
        "extra_state": {"train_iterator": {"epoch": 1}},
    }


def _settle(run: Run) -> None:
    """Keep the best checkpoint, without the state that is only needed to resume training."""
    import torch

    from fairseq_headprune.checkpoints import read_state

    state = read_state(run.best)
    if state.pop("last_optimizer_state", None) is not None:
        write_with(run.best, lambda stream: torch.save(state, stream))


def answers(checkpoint: PathLike, generate: Sequence[str], split: str) -> list[str]:
    """Return a checkpoint's outputs (translations or predictions) for a split, under its stored mask."""
    session = open_model(checkpoint, generate, split)
    return answers_under(session, session.evaluator(split), [session.gates.mask()])[0]


def open_model(checkpoint: PathLike, generate: Sequence[str], split: str) -> Any:
    """Open the session of a checkpoint.

    Args:
        generate: data folder and flags of fairseq-generate; their ``--path`` and split are ignored.
    """
    from fairseq_headprune.session import Session, parse_generation_args

    argv = [*generate, "--path", str(checkpoint), "--gen-subset", split]
    args = parse_generation_args("job", argv, lambda parser: None, "")
    args.jobs_on_gpu = jobs_on_gpu()
    return Session(args)


def best(checkpoint: PathLike, valid: str) -> dict[str, Any]:
    """Return the facts of the training that the best checkpoint stores; ``valid`` names the value it was chosen by."""
    from fairseq_headprune.checkpoints import read_state, updates_of

    state = read_state(checkpoint)
    return {"updates": updates_of(state), valid: float(state["extra_state"]["val_loss"])}


if __name__ == "__main__":
    end_with_parent()
    sleep_while_gpu_works()
    do(sys.argv[1])
