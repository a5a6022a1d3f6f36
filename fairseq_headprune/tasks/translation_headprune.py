"""The translation task with head masks: training, validation and generation under ``--head-mask``."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import numpy as np
from fairseq.data import Dictionary
from fairseq.tasks import TASK_REGISTRY, register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from omegaconf import OmegaConf
from torch import Tensor

from fairseq_headprune.binarised import load_split
from fairseq_headprune.checkpoints import task_settings
from fairseq_headprune.criterions.settings import setting
from fairseq_headprune.evaluation.evaluator import Evaluator
from fairseq_headprune.evaluation.generation import ForcingGenerator
from fairseq_headprune.files import sha256
from fairseq_headprune.importance.losses import TokenLosses
from fairseq_headprune.imports.dictionary import ImportedDictionary
from fairseq_headprune.models.starting import state_to_start_from
from fairseq_headprune.stored.dictionaries import differing_sides, hash_symbols, noted_hashes
from fairseq_headprune.stored.loader import refuse_task
from fairseq_headprune.tasks.gated import HEAD_MASK_HELP, WEIGHT_MASK_HELP, GatedTask
from fairseq_headprune.tasks.seam import PrunableTask, changed_settings
from fairseq_headprune.training.fast import CUDA_GRAPHS_HELP, MODES

#: settings that do not change which sentences are translated, in which form: where files are and how they are stored,
#: what belongs to training or validation, padding; languages and masks are identified otherwise
_WITHOUT_EFFECT = {
    *(
        "data",
        "dataset_impl",
        "source_lang",
        "target_lang",
        "head_mask",
        "weight_mask",
        "train_subset",
        "upsample_primary",
    ),
    *("cuda_graphs", "num_batch_buckets", "required_seq_len_multiple", "load_alignments"),
    *("eval_bleu", "eval_bleu_args", "eval_bleu_detok", "eval_bleu_detok_args", "eval_bleu_print_samples"),
    *("eval_bleu_remove_bpe", "eval_tokenized_bleu"),
}


@dataclass
class TranslationHeadpruneConfig(TranslationConfig):
    """Settings of the translation task, and the mask."""

    head_mask: Optional[str] = setting(None, HEAD_MASK_HELP)
    weight_mask: Optional[str] = setting(None, WEIGHT_MASK_HELP)
    cuda_graphs: MODES = setting("off", CUDA_GRAPHS_HELP)  # type: ignore[valid-type]


class ImportedModels:
    """A translation task's support for imported models: their dictionaries, and the forced first token of translations.

    A mixin; it must come before the task in the list of base classes.
    """

    @classmethod
    def load_dictionary(cls, filename: str) -> Dictionary:
        """Load a dictionary, either an imported model's or fairseq's, depending on the file."""
        return ImportedDictionary.read(filename) or super().load_dictionary(filename)  # type: ignore[misc]

    def build_generator(self, models, args, seq_gen_cls=None, extra_gen_cls_kwargs=None, **kwargs: Any) -> Any:
        """Build the search; translations begin with the token of the target language if the model requires it."""
        forced = None
        if isinstance(self.target_dictionary, ImportedDictionary):  # type: ignore[attr-defined]
            forced = self.target_dictionary.forced(self.cfg.target_lang)  # type: ignore[attr-defined]
        wanted = not getattr(args, "score_reference", False) and not getattr(args, "print_alignment", False)
        if forced is not None and seq_gen_cls is None and wanted:
            seq_gen_cls, extra_gen_cls_kwargs = ForcingGenerator, {**(extra_gen_cls_kwargs or {}), "forced": forced}
        return super().build_generator(models, args, seq_gen_cls, extra_gen_cls_kwargs, **kwargs)  # type: ignore[misc]


@register_task("translation_headprune", dataclass=TranslationHeadpruneConfig)
class TranslationHeadpruneTask(GatedTask, ImportedModels, TranslationTask):
    """Translate with a model whose attention heads are gated.

    Any fairseq model made of ``MultiheadAttention`` gets gates, including stock architectures. The mask is stored with
    the weights so that a program without gates refuses the checkpoint instead of ignoring the mask.
    """

    cfg: TranslationHeadpruneConfig
    translates = True
    _decoder: Any = None

    @classmethod
    def opens(cls, name: Optional[str]) -> bool:
        """Opens checkpoints of fairseq's translation tasks, and those of unknown tasks."""
        task = TASK_REGISTRY.get(name or "")
        if name == "translation_lev":  # its models are not autoregressive
            return False
        if task is None or task is cls:
            return True
        return issubclass(task, TranslationTask) and not issubclass(task, PrunableTask)

    def check_checkpoint(self, path: str, state: dict[str, Any]) -> None:
        """Refuse a checkpoint whose model has dictionaries of other sizes.

        Raises:
            ValueError: it has more or fewer embeddings, or its task adds symbols of its own to the dictionaries.
        """
        refuse_task(task_settings(state).get("_name"))
        sides = {"encoder": self.source_dictionary, "decoder": self.target_dictionary}
        for side, dictionary in sides.items():
            table = state["model"].get(f"{side}.embed_tokens.weight")
            if table is not None and table.size(0) != len(dictionary):
                raise ValueError(
                    f"the {side} of {path} has {table.size(0)} embeddings, the dictionary in {self.cfg.data} has "
                    f"{len(dictionary)} entries: use the data folder the model was trained on"
                )

    def training_flags(self) -> list[str]:
        """Return the flags of fairseq-train that select the task and its languages."""
        return [*super().training_flags(), "--source-lang", self.cfg.source_lang, "--target-lang", self.cfg.target_lang]

    def answer_settings(self, session: Any) -> dict[str, Any]:
        """Return the settings of the search and of the conversion of tokens to text."""
        generation: Any = OmegaConf.to_container(session.cfg.generation, resolve=True, enum_to_str=True)
        given = {name: getattr(session.args, name) for name in ("post_process", "bpe", "tokenizer")}
        generation["print_step"] = False  # changes no translation
        settings: dict[str, Any] = {"generation": {**generation, **given}}
        if getattr(session.args, "comet", None) is not None:
            settings["comet"] = session.args.comet
        if generation["max_len_a"]:
            # The maximum length of a translation then depends on the longest sentence of its batch.
            settings["batches"] = {name: session.cfg.dataset[name] for name in ("max_tokens", "batch_size")}
        return settings

    def load_dataset(self, split: str, *args: Any, **kwargs: Any) -> None:
        """Load a split.

        Raises:
            ValueError: ``--num-batch-buckets`` under numpy 2.
        """
        if self.cfg.num_batch_buckets > 0 and np.lib.NumpyVersion(np.__version__) >= "2.0.0":
            raise ValueError(
                f"--num-batch-buckets {self.cfg.num_batch_buckets}: fairseq's buckets need numpy 1, this is numpy "
                f"{np.__version__}; omit it: --cuda-graphs pads batches to few shapes by itself"
            )
        super().load_dataset(split, *args, **kwargs)

    def read_split(self, split: str, saved: Any) -> None:
        """Load a split.

        Raises:
            FileNotFoundError: the data folder has no such split.
            ValueError: the split is empty, one of its sides is missing, or their lengths differ.
        """
        load_split(self, split, saved)
        dataset = self.dataset(split)
        if not len(dataset):
            raise ValueError(f"the split {split!r} of {self.cfg.data} is empty")
        if dataset.tgt is None:
            raise ValueError(f"the split {split!r} of {self.cfg.data} has no target side, which is needed here")

    def identity(self, split: str) -> dict[str, Any]:
        """Identify a split: hashes of its files and dictionaries (not their paths), settings, direction.

        Settings are included if they differ from fairseq's defaults, the direction if the files do not determine it.
        """
        source, target = self.cfg.source_lang, self.cfg.target_lang
        files = self.split_files(split)
        hashes = {path.name: sha256(path) for path in files}
        settings = changed_settings(self.cfg, TranslationHeadpruneConfig, _WITHOUT_EFFECT)
        pairs = [pair for pair in self._pairs() if any(path.name.startswith(f"{split}.{pair}.") for path in files)]
        if pairs != [f"{source}-{target}"]:
            settings["direction"] = f"{source}-{target}"
        return {"split": split, "sha256": hashes, **({"settings": settings} if settings else {})}

    def _pairs(self) -> list[str]:
        source, target = self.cfg.source_lang, self.cfg.target_lang
        return list(dict.fromkeys([f"{source}-{target}", f"{target}-{source}"]))

    def split_files(self, split: str) -> list[Path]:
        """Return the split's files, of both directions, and the dictionaries, sorted by name."""
        root = Path(self.cfg.data.split(os.pathsep)[0])
        patterns = [f"dict.{side}.txt" for side in (self.cfg.source_lang, self.cfg.target_lang)]
        patterns += [f"{split}.{pair}.*" for pair in self._pairs()]
        return sorted({path for pattern in patterns for path in root.glob(pattern) if path.is_file()})

    def losses(self, loss: str, smoothing: float) -> TokenLosses:
        """Return the losses of target sentences."""
        return TokenLosses(self.pad, loss, smoothing)

    def sides(self, sample: dict[str, Any]) -> dict[str, tuple[Tensor, Tensor]]:
        """Return the tokens that attend and the tokens that are attended to."""
        source, prefix = sample["net_input"]["src_tokens"], sample["net_input"]["prev_output_tokens"]
        return {"enc_self": (source, source), "enc_dec": (prefix, source), "dec_self": (prefix, prefix)}

    def evaluator(self, session: Any, split: str) -> Evaluator:
        """Return the translator of a split."""
        from fairseq_headprune.evaluation.translate import Translator  # not needed for training

        return Translator(session, split)

    def build_model(self, cfg, from_checkpoint: bool = False):
        """Build the model.

        Raises:
            ValueError: as for every gated task, or training starts from a checkpoint with other dictionaries.
        """
        if not from_checkpoint:
            run = self._settings_of_run()
            start = state_to_start_from(cfg if run is None else run.checkpoint)
            check_dictionaries(self, {} if start is None else noted_hashes(start), self.cfg.data)
        return super().build_model(cfg, from_checkpoint)

    def state_dict(self) -> dict:
        """Return the task's state for checkpoints: hashes of its dictionaries, the current mask and its origin."""
        return {**super().state_dict(), "dictionaries": dictionary_hashes(self)}

    def load_state_dict(self, state_dict: dict) -> None:
        """Load the state.

        Raises:
            ValueError: the checkpoint was trained with other dictionaries.
        """
        state = dict(state_dict)
        check_dictionaries(self, state.pop("dictionaries", {}), self.cfg.data)
        super().load_state_dict(state)

    def build_generator(self, *args, **kwargs):
        """Build the search; with ``--print-alignment``, omit alignments if no head is left to compute them."""
        generator = super().build_generator(*args, **kwargs)
        extract = getattr(generator, "extract_alignment", None)
        if extract is not None:
            generator.extract_alignment = lambda weights, *rest: extract(weights, *rest) if weights.any() else []
        return generator

    def inference_step(self, generator, models, sample, prefix_tokens=None, constraints=None):
        """Translate one batch, with the same check; for ``--eval-bleu`` by the decoder that studies use."""
        for model in models:
            self.check_mask(model, sample)
        if generator is getattr(self, "sequence_generator", None):
            from fairseq_headprune.evaluation.many_masks import ValidationDecoder

            if self._decoder is None or self._decoder.model is not models[0]:
                self._decoder = ValidationDecoder(models[0], generator)
            found = self._decoder.translate(sample)
            if found is not None:
                return found
        return super().inference_step(generator, models, sample, prefix_tokens, constraints)

    def net_input(self, sample: dict) -> dict:
        """Return the model's inputs; sentences without a target (fairseq-interactive) get an initial target token."""
        net_input = sample["net_input"]
        if "prev_output_tokens" in net_input:
            return net_input
        source = net_input["src_tokens"]
        return {**net_input, "prev_output_tokens": source.new_full((len(source), 1), self.target_dictionary.eos())}


def dictionary_hashes(task: TranslationTask) -> dict[str, str]:
    """Hash each dictionary's entries in order, since dictionaries of equal size may differ."""
    sides = {"source": task.source_dictionary, "target": task.target_dictionary}
    return {side: hash_symbols(dictionary.symbols) for side, dictionary in sides.items()}


def check_dictionaries(task: TranslationTask, noted: dict[str, str], data: str) -> None:
    """Compare the dictionaries with the hashes in a checkpoint, if it has any.

    Raises:
        ValueError: the checkpoint was trained with other dictionaries.
    """
    differing = differing_sides(noted, dictionary_hashes(task))
    if differing:
        raise ValueError(
            f"the {differing} dictionary in {data} differs from the one the checkpoint was trained with: "
            "use the data folder it was trained on"
        )
