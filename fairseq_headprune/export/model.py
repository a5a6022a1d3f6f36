"""The model to export: a checkpoint, with its mask applied by removing heads, built by fairseq."""

import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from fairseq import checkpoint_utils
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from torch import Tensor

from fairseq_headprune import plugin  # noqa: F401  (registers)
from fairseq_headprune.checkpoints import State, part_modules, saved_settings, stored_layout
from fairseq_headprune.files import PathLike
from fairseq_headprune.modules.attach import without_attention_weights
from fairseq_headprune.parts import HEADS, Mask
from fairseq_headprune.removal.checkpoint import remove_heads
from fairseq_headprune.removal.surgery import LEARNED
from fairseq_headprune.tasks.translation_headprune import ImportedModels, check_dictionaries


class _Task(ImportedModels, TranslationTask):
    """fairseq's translation task, also with the dictionaries of imported models."""


@dataclass
class Exportable:
    """A slim model in evaluation mode, in float32 on the CPU, with its dictionaries.

    Attributes:
        model, source, target: the fairseq model and dictionaries.
        settings: the model's settings as saved.
        target_lang: the language of the target dictionary.
    """

    model: Any
    source: Any
    target: Any
    settings: Any
    target_lang: str | None


def load(
    path: PathLike, state: State, mask: Mask, data: PathLike, source_lang: str | None, target_lang: str | None
) -> Exportable:
    """Remove what the mask prunes and build the model; the checkpoint file is unchanged.

    Args:
        path: of the checkpoint; ``state`` as returned by :func:`read_state`.
        data: folder with ``dict.<lang>.txt``; languages that are None are inferred from it.

    Raises:
        ValueError: dictionaries other than those the model was trained with, a mask that does not fit, or a model that
            cannot be exported.
        FileNotFoundError: the dictionaries are missing.
    """
    settings = saved_settings(state)
    _check_settings(settings)
    if not {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"} <= set(state["model"]):
        raise ValueError(f"{path}: only models with an encoder and a decoder can be exported")
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
    return Exportable(model, task.source_dictionary, task.target_dictionary, settings, task.cfg.target_lang)


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
    # fairseq ignores a language that is given without the other.
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


def zeroed_weights(state: State, mask: Mask, way_out: str = "") -> dict[str, Tensor]:
    """Return the weights without masks and gates, with zeros in the output projection of pruned heads.

    Raises:
        ValueError: parts were removed, or feed-forward parts are pruned; ``way_out`` says what to do instead.
    """
    layout = stored_layout(state)
    gone = layout.dropped()
    if gone or mask.prunes_ffn() or layout.prunes_ffn():
        what = f"{len(gone)} heads were removed from it ({gone[0]}…)" if gone else "feed-forward parts are pruned"
        raise ValueError(f"a Hugging Face folder holds layers with all their heads and units: {what}{way_out}")
    layout.check(mask)
    weights = {n: t for n, t in state["model"].items() if not n.startswith(LEARNED) and "_keep" not in n}
    for module in part_modules(state["model"], HEADS):
        keep = torch.tensor(mask.rows[module.component][module.layer], dtype=torch.bool)
        if not keep.all():
            columns = weights[module.output].unflatten(1, (len(keep), -1))
            weights[module.output] = columns.masked_fill(~keep[None, :, None], 0.0).flatten(1)
    return weights


#: largest difference in log-probabilities that rounding can explain; beyond it the export is wrong
TOLERANCE = 1e-3

#: pairs of (source, target) token indices, without end of sentence
Pairs = list[tuple[list[int], list[int]]]


def made_up_pairs(exported: Exportable, count: int = 8, seed: int = 1) -> Pairs:
    """Draw sentences of 1 to 12 random words."""
    draw = random.Random(seed)

    def sentence(dictionary) -> list[int]:
        special = getattr(dictionary, "special", ())  # imported dictionaries have special symbols anywhere
        words = [i for i in range(dictionary.nspecial, len(dictionary)) if i not in special]
        return [draw.choice(words) for _ in range(draw.randint(1, 12))]

    return [(sentence(exported.source), sentence(exported.target)) for _ in range(count)]


def fairseq_log_probs(exported: Exportable, pairs: Pairs) -> list[list[float]]:
    """Return the log-probability of every target token, end of sentence included, sentence by sentence."""
    result = []
    with torch.no_grad(), without_attention_weights(exported.model):
        for source, target in pairs:
            ends = [*target, exported.target.eos()]
            tokens = torch.tensor([[*source, exported.source.eos()]])
            previous = torch.tensor([[exported.target.eos(), *target]])
            logits = exported.model(tokens, torch.tensor([tokens.size(1)]), previous)[0]
            result.append(gathered(logits.log_softmax(dim=-1)[0], ends))
    return result


def gathered(log_probs: Tensor, tokens: list[int]) -> list[float]:
    """Return the log-probability of each token, from log_probs (length, V)."""
    return log_probs.gather(1, torch.tensor(tokens)[:, None])[:, 0].tolist()


def check(exported: Exportable, log_probs: Callable[[Pairs], list[list[float]]]) -> dict[str, float]:
    """Compare fairseq's log-probabilities with the other program's and return the largest difference.

    Raises:
        RuntimeError: it exceeds ``TOLERANCE``.
    """
    pairs = made_up_pairs(exported)
    expected, found = fairseq_log_probs(exported, pairs), log_probs(pairs)
    difference = max(abs(a - b) for x, y in zip(expected, found, strict=True) for a, b in zip(x, y, strict=True))
    if not difference <= TOLERANCE:
        raise RuntimeError(f"log-probabilities of the exported model differ from fairseq's by up to {difference:.2g}")
    return {"sentences": len(pairs), "seed": 1, "largest_difference": difference, "tolerance": TOLERANCE}
