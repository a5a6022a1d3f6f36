"""The studies of single heads: remove one, or keep one of a layer (Michel et al. 2019, §3.2 and §3.3)."""

from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

from fairseq_headprune.parts import Mask, Part
from fairseq_headprune.session import Session
from fairseq_headprune.single_heads import one_kept, one_removed
from fairseq_headprune.studies.folder import StudyFolder
from fairseq_headprune.studies.masked import Comparison, MaskedCells, model_settings
from fairseq_headprune.studies.results import best_of_layers, cell_head, with_delta, with_holm
from fairseq_headprune.studies.study import Cell

#: Shows progress: wraps an iterable of cells, given their number.
Progress = Callable[[Iterable[dict], int], Iterable[dict]]

_NO_HEAD = {"component": None, "layer": None, "head": None}


def ablate(
    session: Session, folder: StudyFolder, split: str, components: list[str], comparison: Comparison, progress: Progress
) -> dict[str, Any]:
    """Mask every head of these components alone, and test each mask against the unpruned model on ``split``.

    Returns:
        ``baseline``: the unpruned cell; ``cells``: one a head with ``delta`` and ``p_holm`` (corrected over all heads).
    """
    cells = MaskedCells(session, folder, "ablate", split, comparison)
    plan = _plan(one_removed(cells.start, components))
    baseline = cells.unpruned(**_NO_HEAD)
    done = [with_delta(cell, baseline) for cell in progress(cells.run(plan), len(plan))]
    return {"baseline": baseline, "cells": with_holm(done)}


def keep_one(
    session: Session,
    folder: StudyFolder,
    splits: tuple[str, str],
    components: list[str],
    comparison: Comparison,
    progress: Progress,
) -> dict[str, Any]:
    """Find for each layer the head that does best alone on the first split, and test it on the second.

    Where both are the same split, p is corrected over every head that was tried, since the best ones were sought
    among them; else over the layers.

    Returns:
        ``baseline``: the unpruned cell of the second split; ``cells``: one a layer, with ``delta``, ``p_holm`` and
        ``select_delta``; ``select_baseline``, ``candidates``: the unpruned cell and all cells of the first split.
    """
    of_split = {name: MaskedCells(session, folder, "keep-one", name, comparison, f"{name}@") for name in splits}
    select, report = (of_split[name] for name in splits)
    layers = one_kept(select.start, components)
    masks = {head: mask for candidates in layers.values() for head, mask in candidates.items()}
    plan = _plan(masks)
    first = select.unpruned(**_NO_HEAD)
    tried = with_holm([with_delta(cell, first) for cell in progress(select.run(plan), len(plan))])
    best = best_of_layers(tried)
    plan = _plan({cell_head(cell): masks[cell_head(cell)] for cell in best})
    baseline = report.unpruned(**_NO_HEAD)
    if report is select:
        chosen = best
    else:
        chosen = with_holm([with_delta(cell, baseline) for cell in progress(report.run(plan), len(plan))])
    cells = [{**cell, "select_delta": found["delta"]} for cell, found in zip(chosen, best, strict=True)]
    return {"baseline": baseline, "cells": cells, "select_baseline": first, "candidates": tried}


def study_settings(
    session: Session, study: str, splits: list[str], components: list[str], comparison: Comparison
) -> dict[str, Any]:
    """Return all settings of a study of single heads, as they are kept in its folder; the last split is reported."""
    settings = {**model_settings(session, study, splits[-1]), "components": components, **asdict(comparison)}
    if len(splits) > 1:
        settings["select_data"] = session.data(splits[0])
    return settings


def _plan(masks: dict[Part, Mask]) -> list[Cell]:
    return [Cell("-".join(map(str, head)), mask, head.facts()) for head, mask in masks.items()]
