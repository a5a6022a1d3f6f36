"""One model, its task and its data, from fairseq-generate's flags: what every verb that takes a model works on."""

import argparse
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq import options, tasks, utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import OmegaConf

import fairseq_headprune
from fairseq_headprune import plugin  # noqa: F401  (registers)
from fairseq_headprune.batches import Batches
from fairseq_headprune.binarised import load_split
from fairseq_headprune.checkpoints import read_state, task_settings
from fairseq_headprune.cli.common import one_line_error
from fairseq_headprune.evaluation.generation import built
from fairseq_headprune.files import sha256
from fairseq_headprune.importance.reading import TranslationReading
from fairseq_headprune.models.loading import load_model, model_overrides
from fairseq_headprune.modules.attach import attach_gates

#: what fairseq-generate takes when neither is said
_DEFAULT_MAX_TOKENS = 12000
_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def parse_generation_args(
    verb: str,
    argv: list[str],
    add_flags: Callable[[argparse.ArgumentParser], None],
    description: str,
    one_model: bool = True,
) -> argparse.Namespace:
    """Parse fairseq-generate's flags and a verb's own; without ``one_model`` ``--path`` has no place among them.

    Leaves with status 2 and one line on stderr when they are wrong. ``--user-dir`` may name this package (it is there
    already) or another one that is to be loaded too.

    Raises:
        ValueError, FileNotFoundError: a ``--user-dir`` or a checkpoint that cannot be loaded.
    """
    _quiet()
    argv = _without_own_user_dir(argv)
    before, sys.argv = sys.argv, [f"headprune {verb}", *argv]
    try:
        # fairseq looks into sys.argv while it builds the parser.
        task = _saved_task(argv)
        parser = options.get_generation_parser(default_task=task)
        if task == "glue":
            parser.set_defaults(gen_subset="dev")  # GLUE's test sets have no labels
        parser.prog, parser.description = f"headprune {verb}", description
        parser.error = partial(one_line_error, parser)  # type: ignore[method-assign]
        add_flags(parser)
        args = options.parse_args_and_arch(parser, argv)
    except ImportError as error:
        raise ValueError(f"--user-dir: {error}") from error
    finally:
        sys.argv = before
    args.headprune_command = shlex.join(["headprune", verb, *argv])
    if one_model and not args.path:
        parser.error("--path CHECKPOINT is required")
    if args.path and not one_model:
        parser.error("--path names one checkpoint and has no place here")
    if args.path:
        read_state(args.path)  # what is wrong with it comes before what its task would say
    return args


def _saved_task(argv: list[str]) -> str:
    """Return the task to take where ``--task`` is not given: ``glue`` for a checkpoint that was trained with it."""
    given, paths = _values(argv, "--task"), _values(argv, "--path")
    if given:
        return given[-1]
    try:
        found = task_settings(read_state(paths[-1])).get("_name") if paths else None
    except (ValueError, OSError):
        found = None  # the session says what is wrong
    return "glue" if found == "glue" else "translation_headprune"


def _values(argv: list[str], flag: str) -> list[str]:
    """Return what a flag is given."""
    joined = [word.partition("=")[2] for word in argv if word.startswith(f"{flag}=")]
    return joined + [value for word, value in zip(argv, argv[1:], strict=False) if word == flag]


def open_session(args: argparse.Namespace, task: Any = None) -> "Session":
    """Load the model and data that the flags name, for whatever task it is; see :class:`Session` for ``task``.

    Raises:
        ValueError, FileNotFoundError: see :class:`Session`.
    """
    from fairseq_headprune.glue.session import GlueSession

    return (GlueSession if args.task == "glue" else Session)(args, task)


def _quiet() -> None:
    """Keep Hydra's remarks about fairseq's configuration from stderr, where progress and errors belong."""
    warnings.filterwarnings("ignore", module="hydra")
    warnings.filterwarnings("ignore", message=r"\s*'config' is validated against ConfigStore")


def _without_own_user_dir(argv: list[str]) -> list[str]:
    """Drop ``--user-dir fairseq_headprune`` in any spelling: importing a second copy of ourselves would be refused."""
    kept, skip = [], False
    for place, word in enumerate(argv):
        value = word.partition("=")[2] if word.startswith("--user-dir=") else (argv[place + 1 : place + 2] or [""])[0]
        is_own = word.split("=")[0] == "--user-dir" and _is_own_folder(value)
        if not skip and not is_own:
            kept.append(word)
        skip = is_own and "=" not in word
    return kept


def _is_own_folder(name: str) -> bool:
    own = os.path.realpath(fairseq_headprune.__path__[0])
    return name == os.path.basename(own) or os.path.realpath(name) == own


class Session:
    """A checkpoint loaded with its task, ready to translate and to be differentiated.

    Attributes:
        args, cfg: the settings, as parsed and as fairseq's configuration.
        overrides: what ``--model-overrides`` says.
        task, model, gates: the parts; the model is in evaluation mode, on the device, gated.
    """

    def __init__(self, args: argparse.Namespace, task: Any = None) -> None:
        """Load everything; the task of another session, and with it the data it has loaded, can be shared.

        Raises:
            ValueError, FileNotFoundError: a checkpoint that cannot be read or does not fit the dictionaries, a mask
                that does not fit, data that is not there.
        """
        if args.task == "glue" and type(self) is Session:
            raise ValueError("this verb is for translation models; the checkpoint is of the task glue")
        self.args = args
        self.cfg = built("settings (null: a flag that is missing)", lambda: convert_namespace_to_omegaconf(args))
        if self.cfg.dataset.max_tokens is None and self.cfg.dataset.batch_size is None:
            self.cfg.dataset.max_tokens = _DEFAULT_MAX_TOKENS
        self.path = args.path
        self.overrides = model_overrides(self.cfg.common_eval.model_overrides)
        self.device = torch.device("cuda" if torch.cuda.is_available() and not self.cfg.common.cpu else "cpu")
        self.task = task or _setup_task(self.cfg)
        self.model, self.saved_cfg = self._load()
        self.gates = attach_gates(self.model)
        self.model.to(self.device, _DTYPES[self.precision])
        self.model.prepare_for_inference_(self.cfg)

    def _load(self) -> tuple[Any, Any]:
        state = read_state(self.path)
        self._check(state)
        return load_model(self.path, state, self.overrides, self.task)

    def _check(self, state: dict) -> None:
        """Refuse a checkpoint that does not belong to the data; fairseq would not say it in one line."""
        weights = state["model"]
        sides = {"encoder": self.task.source_dictionary, "decoder": self.task.target_dictionary}
        for side, dictionary in sides.items():
            table = weights.get(f"{side}.embed_tokens.weight")
            if table is not None and table.size(0) != len(dictionary):
                raise ValueError(
                    f"the {side} of {self.path} has {table.size(0)} embeddings, the dictionary in {self.args.data} has "
                    f"{len(dictionary)} entries: use the data folder the model was trained on"
                )

    @property
    def precision(self) -> str:
        """What the model computes in: ``fp32``, ``fp16`` or ``bf16``."""
        common = self.cfg.common
        return "fp16" if common.fp16 else "bf16" if common.bf16 else "fp32"

    @cached_property
    def checkpoint(self) -> dict[str, str]:
        """Path and hash of the checkpoint."""
        return {"path": str(self.path), "sha256": sha256(self.path)}

    def training_flags(self) -> list[str]:
        """Return the flags of fairseq-train that name the task."""
        cfg = self.task.cfg
        return ["--task", "translation_headprune", "--source-lang", cfg.source_lang, "--target-lang", cfg.target_lang]

    def answering(self) -> dict[str, Any]:
        """Return the settings that answers depend on, apart from model and data: how it translates."""
        generation = OmegaConf.to_container(self.cfg.generation, resolve=True, enum_to_str=True)
        args = self.args
        said = {"post_process": args.post_process, "bpe": args.bpe, "tokenizer": args.tokenizer}
        return {"generation": {**generation, **said}}

    @property
    def reading(self) -> Any:
        """How importance reads a batch (see :mod:`importance.reading`)."""
        dictionary = self.task.target_dictionary
        return TranslationReading(dictionary.pad(), dictionary.eos())

    def evaluator(self, split: str) -> Any:
        """Return what answers a split under a mask, and scores the answers (see :mod:`evaluation.evaluator`)."""
        from fairseq_headprune.evaluation.translate import Translator

        return Translator(self, split)

    def dataset(self, split: str) -> Any:
        """Load a split (once).

        Raises:
            FileNotFoundError: the data folder has no such split.
            ValueError: the split is empty, or one of its sides is missing or of another length.
        """
        if split not in self.task.datasets:
            load_split(self.task, split, self.saved_cfg.task)
        dataset = self.task.dataset(split)
        if not len(dataset):
            raise ValueError(f"the split {split!r} of {self.args.data} is empty")
        if dataset.tgt is None:
            raise ValueError(f"the split {split!r} of {self.args.data} has no target side, which is needed here")
        return dataset

    def data(self, split: str) -> dict[str, Any]:
        """Identify a split by the hashes of its files and of the dictionaries (not by their place)."""
        root, source, target = (
            Path(self.args.data.split(os.pathsep)[0]),
            self.task.cfg.source_lang,
            self.task.cfg.target_lang,
        )
        names = {f"dict.{source}.txt", f"dict.{target}.txt"}
        for pair in (f"{source}-{target}", f"{target}-{source}"):
            names |= {path.name for path in root.glob(f"{split}.{pair}.*")}
        return {
            "split": split,
            "sha256": {name: sha256(root / name) for name in sorted(names) if (root / name).is_file()},
        }

    def batches(self, split: str, indices: np.ndarray | None = None, max_tokens: int | None = None) -> Batches:
        """Return batches of a split, each moved to the device when it is used.

        Args:
            indices: which sentences (default: all). Sentences of similar length share a batch.
            max_tokens: limit of a batch, in place of ``--max-tokens`` and ``--batch-size``.

        Raises:
            ValueError: a sentence is longer than the model allows and ``--skip-invalid-size-inputs-valid-test`` is off,
                or longer than ``--max-tokens``.
        """
        dataset = self.dataset(split)
        indices = np.arange(len(dataset)) if indices is None else np.asarray(indices)
        lengths = np.array([dataset.num_tokens(i) for i in indices])
        indices = indices[np.lexsort((indices, lengths))]
        positions = utils.resolve_max_positions(self.task.max_positions(), self.model.max_positions())
        if positions is not None:
            ignore = self.cfg.dataset.skip_invalid_size_inputs_valid_test
            try:
                indices = self.task.filter_indices_by_size(indices, dataset, positions, ignore)
            except Exception as error:
                raise ValueError(f"{split}: {error}") from error
        limits = {"max_tokens": self.cfg.dataset.max_tokens, "max_sentences": self.cfg.dataset.batch_size}
        if max_tokens is not None:
            limits = {"max_tokens": max_tokens, "max_sentences": None}
        try:
            groups = dataset.batch_by_size(indices, **limits, required_batch_size_multiple=1)
        except AssertionError as error:
            raise ValueError(f"{split}: {error}; raise --max-tokens") from error
        return Batches(dataset, groups, self.device)

    def collate(self, split: str, indices: Sequence[int]) -> dict[str, Any]:
        """Return one batch of these sentences, on the device."""
        return next(iter(Batches(self.dataset(split), [indices], self.device)))


def _setup_task(cfg: Any) -> Any:
    try:
        return tasks.setup_task(cfg.task)
    except (ValueError, KeyError, OSError):
        raise
    except Exception as error:
        raise ValueError(f"{cfg.task.data}: {error}") from error
