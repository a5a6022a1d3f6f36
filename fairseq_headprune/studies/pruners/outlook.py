"""What a comparison of pruners is going to do (``--dry-run``), and its time and memory, estimated here."""

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from fairseq_headprune.jobs.processes import gpus, on_fullest
from fairseq_headprune.jobs.train import initial_state, open_model
from fairseq_headprune.jobs.training import Run, TrainingJob
from fairseq_headprune.studies.outlook import Outlook, finished, time_answers, trained
from fairseq_headprune.studies.pruners.answers import in_rounds
from fairseq_headprune.studies.pruners.flow import groups
from fairseq_headprune.studies.pruners.study import ComparePruners
from fairseq_headprune.studies.study import Done


def of_comparison(study: ComparePruners, path: Path, at_once: int) -> tuple[Outlook, list[TrainingJob]]:
    """Return the outlook of a comparison of pruners, and its trainings that are left.

    Answers are those of a trained model, if there is one; otherwise those of an untrained one, whose translations are
    made as long as the references are on average: by itself it would end at once, or never.
    """
    jobs, done = [job for job in study.jobs() if not Run(path, job.place).done.exists()], finished(path)
    left: list[Done] = [{"id": cell.id, **cell.facts} for cell in study.plan() if cell.id not in done]
    found = replace(trained(study.name, jobs, at_once), cells=len(left), done=len(done), answers=0)
    return (_with_answers(found, study, path, left, at_once) if left else found), jobs


def _with_answers(found: Outlook, study: ComparePruners, path: Path, left: Sequence[Done], at_once: int) -> Outlook:
    """Add the answers of these cells, spread over the processes that the study starts for them."""
    session, is_trained = _open(study, path)
    session.args.jobs_on_gpu = on_fullest(at_once, len(gpus()))
    shares = groups(left, at_once)
    answers, seconds, memory, notes = 0, 0.0, found.memory, [*found.notes]
    for split in dict.fromkeys(cell["split"] for cell in left):
        whose = "a trained model" if is_trained else "an untrained model of this size"
        if not is_trained and session.task.translates:
            whose += f" that writes {_force_length(session, split)} tokens, the references' mean"
        for size, cells in sorted(_together(shares, split).items()):
            count = cells * session.scored(split)["scored"]
            each, peak, how = time_answers(session, split, size)
            answers, seconds, memory = answers + count, seconds + count * each / len(shares), max(memory, peak)
            notes.append(f"{how} ({split}, {whose})")
    total = None if found.seconds is None else found.seconds + seconds
    return replace(found, answers=answers, seconds=total, memory=memory, notes=notes)


def _open(study: ComparePruners, path: Path) -> tuple[Any, bool]:
    """Open the first trained model that is there, or else the untrained one; tell whether it is trained."""
    import torch

    how, jobs = study.how, study.jobs()
    generate = [how.data, *how.task.flags, *how.generate_flags]
    for run in (Run(path, job.place) for job in jobs):
        if run.done.exists() and run.best.exists():
            return open_model(run.best, generate, how.splits[0]), True
    with tempfile.TemporaryDirectory() as folder:
        untrained = Path(folder) / "untrained.pt"
        torch.save(initial_state(jobs[0]), untrained)
        return open_model(untrained, generate, how.splits[0]), False


def _force_length(session: Any, split: str) -> int:
    """Let every translation have as many tokens as the split's references on average, and return their number."""
    sizes = session.dataset(split).tgt_sizes  # with the end of the sentence, which limits do not count
    length = round(float(sizes.mean())) - 1
    generation = session.cfg.generation
    generation.min_len, generation.max_len_a, generation.max_len_b = length, 0.0, length
    return length


def _together(shares: Sequence[Sequence[Done]], split: str) -> Counter[int]:
    """Return how many cells of a split are run alone (1), and how many together (the most that share a batch)."""
    models = [list(cells) for share in shares for _, cells in groupby(share, lambda cell: cell["checkpoint"])]
    sizes = [sum(cell["split"] == split for cell in some) for model in models for some in in_rounds(model)]
    found = Counter[int]()
    for size in filter(None, sizes):
        found[1 if size == 1 else max(sizes)] += size
    return found
