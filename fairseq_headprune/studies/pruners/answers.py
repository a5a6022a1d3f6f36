"""The masks of every method and head count, and the outputs of trained models under them.

``python -m fairseq_headprune.studies.pruners.answers JOB.json`` computes the cells listed in a file.
"""

import logging
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from fairseq_headprune.choosing.random_heads import keep_drawn
from fairseq_headprune.evaluation.evaluator import answers_under, masks_at_once
from fairseq_headprune.files import PathLike, read_json, write_text
from fairseq_headprune.importance.normalize import concerns
from fairseq_headprune.importance.settings import METHODS, MICHEL, PRESETS, REDUCTIONS, ScoreSettings
from fairseq_headprune.jobs.methods import base, estimates, learns, option, options, ranks
from fairseq_headprune.jobs.processes import end_with_parent, sleep_while_gpu_works
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
    stored = session.gates.mask()
    session.gates.set_mask(None)
    model = _Model(study, session, job["valid"])
    for some in in_rounds(cells):
        model.answer(some, _masks(session, job, some, stored))


def in_rounds(cells: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Group a model's cells by what is saved together: first all masks that need no estimates, then each ranking."""
    rounds: dict[str, list[dict[str, Any]]] = {"": []}
    for cell in cells:
        rounds.setdefault(cell["method"] if estimates(cell["method"]) else "", []).append(cell)
    return [found for found in rounds.values() if found]


class _Model:
    """A checkpoint that is run on the splits of a study.

    Args:
        valid: the validation result that the checkpoint was chosen by.
    """

    def __init__(self, study: StudyFolder, session: Any, valid: str) -> None:
        self._study, self._session, self._evaluators = study, session, dict[str, Any]()
        self._facts = {"checkpoint_sha256": session.checkpoint["sha256"], "best": best(session.path, valid)}

    def answer(self, cells: Sequence[dict[str, Any]], masks: Sequence[MadeMask]) -> None:
        """Run the model under the mask of each cell, several at once, and store the cells."""
        for split in dict.fromkeys(cell["split"] for cell in cells):
            evaluator = self._evaluator(split)
            here = [pair for pair in zip(cells, masks, strict=True) if pair[0]["split"] == split]
            size = masks_at_once(self._session, evaluator)
            for pack in (here[start : start + size] for start in range(0, len(here), size)):
                began = time.perf_counter()
                answers = answers_under(self._session, evaluator, [made.mask for _, made in pack])
                seconds = round((time.perf_counter() - began) / len(pack), 2)
                for (cell, made), sentences in zip(pack, answers, strict=True):
                    self._save(cell, made, sentences, seconds)

    def _save(self, cell: dict[str, Any], made: MadeMask, sentences: list[str], seconds: float) -> None:
        self._study.write_hypotheses(cell["id"], sentences)
        self._study.write_mask(cell["id"], made.mask.to_dict())
        kept = {component: ["".join(map(str, row)) for row in rows] for component, rows in made.mask.rows.items()}
        self._study.append({**cell, **self._facts, **made.facts, "kept": kept, "translate_seconds": seconds})

    def _evaluator(self, split: str) -> Any:
        if split not in self._evaluators:
            self._evaluators[split] = self._session.evaluator(split)
            folder = self._study.path / "references"
            folder.mkdir(exist_ok=True)
            lines = (f"{line}\n" for line in self._evaluators[split].references)
            write_text(folder / f"{split}.txt", "".join(lines))
        return self._evaluators[split]


def _masks(session: Any, job: dict[str, Any], cells: list[dict[str, Any]], stored: Mask) -> list[MadeMask]:
    """Return the mask of each cell of a model; ``stored`` is that of the checkpoint, no longer in force."""
    ranked: dict[str, dict[int, MadeMask]] = {}
    masks = []
    for cell in cells:
        method, count = cell["method"], cell["count"]
        if estimates(method):
            if method not in ranked:
                counts = [other["count"] for other in cells if other["method"] == method]
                step = len(session.gates.mask().kept()) if "once" in options(method) else job["step"]
                ranked[method] = importance_masks(session, counts, ranking(method, job["sentences"]), step)
            masks.append(ranked[method][count])
        elif ranks(method) or learns(method):
            masks.append(mask_without_estimates(method, count, cell["seed"], session.gates.shape, session.path))
        else:
            masks.append(MadeMask(stored, {}))
    return masks


def mask_without_estimates(method: str, count: int | None, seed: int, shape: Shape, checkpoint: PathLike) -> MadeMask:
    """Return random heads of a model of this shape, or those that the checkpoint of a method's training learned."""
    if ranks(method):
        return MadeMask(random_mask(shape, count or 0, int(option(method, "order") or seed)), {})
    return learned_mask(checkpoint, count)


def ranking(method: str, sentences: int) -> ScoreSettings:
    """Return how ``michel``, ``michel-signed`` (the published comparison's sign error) or a variant ranks heads.

    Whatever the options do not name is as in the paper (Michel et al. 2019), not the default of scores.
    """
    reduction = [text for text in options(method) if text in REDUCTIONS]
    normalize = [text for text in options(method) if text in METHODS]
    paper = PRESETS[MICHEL]
    chosen = {
        "reduction": "signed" if base(method) == "michel-signed" else (reduction or [paper["reduction"]])[0],
        "normalize": (normalize or [paper["normalize"]])[0],
    }
    return ScoreSettings(**paper | chosen, sentences=sentences)


def random_mask(shape: Shape, count: int, seed: int) -> Mask:
    """Keep ``count`` random heads, the same as ``headprune mask --random`` with this seed and count.

    Raises:
        ValueError: fewer than 0 heads, or more than there are.
    """
    full = Mask.full(shape)
    total = len(full.kept())
    if not 0 <= count <= total:
        raise ValueError(f"cannot keep {count} heads of {total}: give 0 to {total}")
    mask = keep_drawn(full, count, seed)
    mask.source = {"random": {"heads": count, "seed": seed}}
    return mask


def importance_masks(session: Any, counts: Sequence[int], settings: ScoreSettings, step: int) -> dict[int, MadeMask]:
    """Prune the least important heads of a trained model, estimating again after every ``step`` heads (§4.2.1).

    One pass serves all head counts; the heads kept do not depend on which counts are requested.

    Returns:
        number of heads kept -> mask; its facts are the number of estimates since the full model, seconds, and
        ``concerns``: what the orders up to there hide, if anything.

    Raises:
        ValueError: more heads than there are.
    """
    from fairseq_headprune.studies.estimates import estimate_scores  # imports torch

    start = mask = session.gates.mask()
    total, components = len(start.kept()), list(start.only(HEADS).rows)
    if not 0 <= min(counts) <= max(counts) <= total:
        raise ValueError(f"cannot keep {max(counts)} heads of {total}: give 0 to {total}")
    made: dict[int, MadeMask] = {}
    hidden: dict[str, None] = {}
    first = None
    began = time.perf_counter()
    for number, present in enumerate(range(total, min(counts), -step), 1):
        with session.gates.masked(mask):
            scores = estimate_scores(session, settings, first)
        first = first or scores
        seconds = round(time.perf_counter() - began, 1)
        hidden |= dict.fromkeys(concerns(scores))
        facts = {"estimates": number, "scoring_seconds": seconds, **({"concerns": [*hidden]} if hidden else {})}
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
    sleep_while_gpu_works()
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    run(read_json(sys.argv[1]))
