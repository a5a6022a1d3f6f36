"""The masks of every method and head count, and the outputs of trained models under them.

``python -m fairseq_headprune.studies.pruners.answers JOB.json`` computes the cells listed in a file.
"""

import logging
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from fairseq_headprune.choosing.random_heads import parse_amount, prune_random
from fairseq_headprune.files import PathLike, read_json, write_text
from fairseq_headprune.importance.settings import METHODS, REDUCTIONS, ScoreSettings
from fairseq_headprune.jobs.methods import base, learns, option, options, ranks
from fairseq_headprune.jobs.processes import end_with_parent
from fairseq_headprune.jobs.train import best, open_model
from fairseq_headprune.parts import HEADS, Mask, Shape
from fairseq_headprune.pruning import next_heads
from fairseq_headprune.studies.folder import StudyFolder


@dataclass(frozen=True)
class MadeMask:
    """A mask, and how it was made.

    Attributes:
        facts: JSON values stored with the result.
    """

    mask: Mask
    facts: dict[str, Any]


def run(job: dict[str, Any]) -> None:
    """Run the models under every mask of a job, and add each finished cell to the study.

    Args:
        job: ``folder`` of the study; ``generate`` (data folder and flags of fairseq-generate); ``valid`` (the result
            that checkpoints were chosen by); ``step`` and ``sentences`` for estimating importance; ``cells``, grouped
            by checkpoint.
    """
    study = StudyFolder(job["folder"])
    done = study.cells()
    cells = [cell for cell in job["cells"] if cell["id"] not in done]
    for checkpoint, of_one in groupby(cells, lambda cell: cell["checkpoint"]):
        _of_one_model(study, job, checkpoint, list(of_one))


def _of_one_model(study: StudyFolder, job: dict[str, Any], checkpoint: str, cells: list[dict[str, Any]]) -> None:
    session = open_model(study.path / checkpoint, job["generate"], cells[0]["split"])
    facts = {"checkpoint_sha256": session.checkpoint["sha256"], "best": best(session.path, job["valid"])}
    masks = _masks(session, job, cells)
    evaluators: dict[str, Any] = {}
    for cell, made in zip(cells, masks, strict=True):
        split = cell["split"]
        if split not in evaluators:
            evaluators[split] = session.evaluator(split)
            _write_references(study.path, split, evaluators[split].references)
        began = time.perf_counter()
        with session.gates.masked(made.mask):
            sentences = evaluators[split].answers()
        seconds = round(time.perf_counter() - began, 2)
        study.write_hypotheses(cell["id"], sentences)
        study.write_mask(cell["id"], made.mask.to_dict())
        kept = {component: ["".join(map(str, row)) for row in rows] for component, rows in made.mask.rows.items()}
        study.append({**cell, **facts, **made.facts, "kept": kept, "translate_seconds": seconds})


def _masks(session: Any, job: dict[str, Any], cells: list[dict[str, Any]]) -> list[MadeMask]:
    stored = session.gates.mask()
    session.gates.set_mask(None)
    ranked: dict[str, dict[int, MadeMask]] = {}
    masks = []
    for cell in cells:
        method, count = cell["method"], cell["count"]
        if ranks(method) and base(method) == "random-after":
            seed = int(option(method, "order") or cell["seed"])
            masks.append(MadeMask(random_mask(session.gates.shape, count, seed), {}))
        elif ranks(method):
            if method not in ranked:
                counts = [other["count"] for other in cells if other["method"] == method]
                step = len(session.gates.mask().kept()) if "once" in options(method) else job["step"]
                ranked[method] = importance_masks(session, counts, ranking(method, job["sentences"]), step)
            masks.append(ranked[method][count])
        elif learns(method):
            masks.append(learned_mask(session.path, count))
        else:
            masks.append(MadeMask(stored, {}))
    return masks


def ranking(method: str, sentences: int) -> ScoreSettings:
    """Return how ``michel``, ``michel-signed`` (the published comparison's sign error) or a variant ranks heads."""
    reduction = [text for text in options(method) if text in REDUCTIONS]
    normalize = [text for text in options(method) if text in METHODS]
    return ScoreSettings(
        reduction="signed" if base(method) == "michel-signed" else (reduction or ["sentence"])[0],
        normalize=(normalize or [ScoreSettings.normalize])[0],
        sentences=sentences,
    )


def _write_references(folder: Path, split: str, references: list[str]) -> None:
    (folder / "references").mkdir(exist_ok=True)
    write_text(folder / "references" / f"{split}.txt", "".join(f"{line}\n" for line in references))


def random_mask(shape: Shape, count: int, seed: int) -> Mask:
    """Keep ``count`` random heads, the same as ``headprune mask --random`` with this seed and count.

    Raises:
        ValueError: fewer than 0 heads, or more than there are.
    """
    full = Mask.full(shape)
    total = len(full.kept())
    if not 0 <= count <= total:
        raise ValueError(f"cannot keep {count} heads of {total}: give 0 to {total}")
    if count in (0, total):
        mask = full.without(full.kept()[count:])
    else:
        mask = prune_random(full, parse_amount(str(total - count)), [list(shape)], seed)
    mask.source = {"random": {"heads": count, "seed": seed}}
    return mask


def importance_masks(session: Any, counts: Sequence[int], settings: ScoreSettings, step: int) -> dict[int, MadeMask]:
    """Prune the least important heads of a trained model, estimating again after every ``step`` heads (§4.2.1).

    One pass serves all head counts; the heads kept do not depend on which counts are requested.

    Returns:
        number of heads kept -> mask; its facts are the number of estimates since the full model, and seconds.

    Raises:
        ValueError: more heads than there are.
    """
    from fairseq_headprune.studies.estimates import estimate_scores  # imports torch

    start = mask = session.gates.mask()
    total, components = len(start.kept()), list(start.only(HEADS).rows)
    if not 0 <= min(counts) <= max(counts) <= total:
        raise ValueError(f"cannot keep {max(counts)} heads of {total}: give 0 to {total}")
    made: dict[int, MadeMask] = {}
    first = None
    began = time.perf_counter()
    for number, present in enumerate(range(total, min(counts), -step), 1):
        with session.gates.masked(mask):
            scores = estimate_scores(session, settings, first)
        first = first or scores
        seconds = round(time.perf_counter() - began, 1)
        facts = {"estimates": number, "scoring_seconds": seconds}
        for count in (c for c in counts if present - step <= c < present):
            made[count] = MadeMask(mask.without(next_heads(mask, scores, components, start, total - count)), facts)
        mask = mask.without(next_heads(mask, scores, components, start, min(total, total - present + step)))
    if total in counts:
        made[total] = MadeMask(start, {"estimates": 0, "scoring_seconds": 0.0})
    return made


def learned_mask(checkpoint: PathLike, count: int | None) -> MadeMask:
    """Return the mask of a checkpoint's learned gates, corrected to ``count`` heads; facts: the number learned.

    Raises:
        ValueError: no learned gates, or a number out of range.
    """
    from fairseq_headprune.checkpoints import read_state, stored_layout
    from fairseq_headprune.gates.saved import choose, saved_gates

    state = read_state(checkpoint)
    gates = saved_gates(state)
    if gates is None:
        raise ValueError(f"{checkpoint} holds no learned gates")
    choice = choose(gates, count)
    facts: dict[str, Any] = {"learned": choice.learned, "changed": len(choice.included) + len(choice.excluded)}
    if gates.sampled is not None:
        facts["sampled_as_learned"] = round(gates.sampled, 4)
    return MadeMask(stored_layout(state).mask().without(choice.dropped), facts)


if __name__ == "__main__":
    end_with_parent()
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    run(read_json(sys.argv[1]))
