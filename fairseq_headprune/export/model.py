"""The model that is exported: a checkpoint, its mask applied by removing heads, built by fairseq."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from fairseq import checkpoint_utils
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from fairseq_headprune import plugin  # noqa: F401  (registers)
from fairseq_headprune.checkpoints import State, head_shape, saved_settings, stored_mask
from fairseq_headprune.files import PathLike
from fairseq_headprune.parts import Mask
from fairseq_headprune.removal.checkpoint import remove_heads
from fairseq_headprune.tasks.translation_headprune import ImportedModels, check_dictionaries


class _Task(ImportedModels, TranslationTask):
    """fairseq's translation task, which knows dictionaries of imported models, too."""


@dataclass
class Exportable:
    """A slim model in evaluation mode, in float32 on the CPU, with its dictionaries.

    Attributes:
        model, source, target: the fairseq model and dictionaries.
        settings: the model's settings as saved.
        mask: the heads the model has, in original numbers.
    """

    model: Any
    source: Any
    target: Any
    settings: Any
    mask: Mask
    target_lang: str | None = None


def own_mask(state: State) -> Mask:
    """Return the mask of a checkpoint; without any, the one that keeps every head."""
    return stored_mask(state) or Mask.full(head_shape(state))


def load(
    path: PathLike, state: State, mask: Mask, data: PathLike, source_lang: str | None, target_lang: str | None
) -> Exportable:
    """Remove what the mask prunes and build the rest; the checkpoint's file stays as it is.

    Args:
        path: of the checkpoint; ``state`` as :func:`read_state` returned it.
        data: folder with ``dict.<lang>.txt``; languages are found from it where they are None.

    Raises:
        ValueError: other dictionaries than the model was trained with, a mask that does not fit, or a model that cannot
            be exported.
        FileNotFoundError: no dictionaries.
    """
    settings = saved_settings(state)
    _check_settings(settings)
    task = _task(state, data, source_lang, target_lang)
    for side, dictionary in (("encoder", task.source_dictionary), ("decoder", task.target_dictionary)):
        rows = state["model"][f"{side}.embed_tokens.weight"].size(0)
        if rows != len(dictionary):
            raise ValueError(
                f"the {side} of {path} has {rows} embeddings, its dictionary in {data} has {len(dictionary)} entries: "
                "use the data folder the model was trained on"
            )
    check_dictionaries(task, (state.get("task_state") or {}).get("dictionaries", {}), str(data))
    slim = remove_heads(state, mask, ffn=True).state
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "slim.pt")
        torch.save(slim, file)
        models, _ = checkpoint_utils.load_model_ensemble([str(file)], task=task)
    model = models[0].float().eval().requires_grad_(False)
    return Exportable(model, task.source_dictionary, task.target_dictionary, settings, mask, task.cfg.target_lang)


def _task(state: State, data: PathLike, source_lang: str | None, target_lang: str | None) -> TranslationTask:
    if not Path(data).is_dir():
        raise FileNotFoundError(f"--data {data}: there is no such folder")
    saved = state.get("cfg") or {}
    noted = dict(saved.get("task") or {}) if state.get("args") is None else vars(state["args"])
    config = TranslationConfig(
        data=str(data),
        source_lang=source_lang or noted.get("source_lang"),
        target_lang=target_lang or noted.get("target_lang"),
    )
    wanted = config.source_lang, config.target_lang
    try:
        task = _Task.setup_task(config)
    except FileNotFoundError:
        raise
    except Exception as error:
        raise ValueError(f"--data {data}: {error}; name the languages with --source-lang and --target-lang") from error
    # fairseq passes over one language that is given without the other.
    found = config.source_lang, config.target_lang
    if any(want and want != have for want, have in zip(wanted, found, strict=True)):
        raise ValueError(
            f"--data {data}: of {wanted[0]} to {wanted[1]} only one language is known, and the folder holds {found[0]} "
            f"to {found[1]}; name both with --source-lang and --target-lang"
        )
    return task


def _check_settings(settings: Any) -> None:
    for name, why in (
        ("cross_self_attention", "cross- and self-attention in one"),
        ("no_cross_attention", "no encoder-decoder attention"),
        ("adaptive_softmax_cutoff", "an adaptive softmax"),
        ("no_token_positional_embeddings", "no positions"),
    ):
        if getattr(settings, name, None):
            raise ValueError(f"a model with {why} ({name}) cannot be exported")
