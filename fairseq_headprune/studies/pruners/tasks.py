"""The differences between comparing translation models and GLUE classifiers."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from fairseq_headprune.files import sha256
from fairseq_headprune.parts import Shape
from fairseq_headprune.studies.mask_study import Comparison


class Translating:
    """Encoder-decoders, scored by BLEU.

    Attributes:
        flags: fairseq-train flags of the task.
        criterion: name of the criterion without gates; with gates it gets the suffix ``_l0`` or ``_dsp``.
        preset: DSP's preset (Li et al. 2021, Table 2).
        selection: fairseq-train flags that choose the best checkpoint by the validation result ``valid``.
        measure: name of the score.
        places: local paths in the flags -> the names shown for them in results.
    """

    flags: ClassVar = ["--task", "translation_headprune"]
    criterion, preset = "label_smoothed_cross_entropy", "dsp-mt"
    selection: ClassVar[list[str]] = []
    valid, measure = "valid_loss", "BLEU"
    places: ClassVar[dict[str, str]] = {}

    def shape(self, data: str, flags: Sequence[str]) -> Shape:
        """Return the number of heads in each layer of the encoder-decoder that these fairseq-train flags describe.

        Raises:
            ValueError: a flag unknown to fairseq, or an architecture whose settings do not give layers and heads.
        """
        from fairseq import options

        from fairseq_headprune import plugin  # noqa: F401  (registers)

        before = sys.argv
        # fairseq reads sys.argv while it builds the parser.
        words = ["--task", "translation_headprune", "--criterion", "label_smoothed_cross_entropy", *flags]
        sys.argv = ["fairseq-train", data, *words]
        try:
            parser = options.get_training_parser()
            parser.error = _refuse  # type: ignore[method-assign]
            found = vars(options.parse_args_and_arch(parser, sys.argv[1:]))
        finally:
            sys.argv = before
        names = [f"{side}_{what}" for side in ("encoder", "decoder") for what in ("layers", "attention_heads")]
        if not all(isinstance(found.get(name), int) for name in names):
            raise ValueError(f"--arch {found.get('arch')}: its settings do not tell {', '.join(names)}")
        encoder_layers, encoder_heads, decoder_layers, decoder_heads = (found[name] for name in names)
        decoder = [decoder_heads] * decoder_layers
        return {"enc_self": [encoder_heads] * encoder_layers, "enc_dec": decoder, "dec_self": list(decoder)}

    def hashes(self, data: Path, splits: Sequence[str]) -> dict[str, str]:
        """Return the hashes of the dictionaries and the translated splits, by file name.

        Raises:
            FileNotFoundError: the folder has no dictionary, or no such split.
        """
        for pattern in ("dict.*.txt", *(f"{split}.*" for split in splits)):
            if not any(data.glob(pattern)):
                raise FileNotFoundError(f"{data} holds no {pattern}: name a folder that fairseq-preprocess wrote")
        return self.hashes_found(data, splits)

    def hashes_found(self, data: Path | str, splits: Sequence[str]) -> dict[str, str]:
        """Return the hashes of the dictionaries, and of those splits that are there, by file name."""
        patterns = ("dict.*.txt", *(f"{split}.*" for split in splits))
        found = {path for pattern in patterns for path in Path(data).glob(pattern)}
        return {path.name: sha256(path) for path in sorted(found)}

    def metric(self, references: Sequence[str], how: Comparison) -> Any:
        """Return BLEU against these references."""
        from fairseq_headprune.evaluation.statistics import corpus_metric

        return corpus_metric("bleu", references, how.tokenize)


class Classifying:
    """BERT on one GLUE task, scored by the task's metric; attributes as in :class:`Translating`.

    Args:
        task: name of the GLUE task.
        bert: Hugging Face folder of the initial model.
        metric: None: GLUE's metric of the task.

    Raises:
        KeyError, ValueError: no such task or metric.
    """

    criterion, preset = "sentence_prediction", "dsp-bert"
    selection: ClassVar = ["--best-checkpoint-metric", "score", "--maximize-best-checkpoint-metric"]
    valid = "valid_score"

    def __init__(self, task: str, bert: str, metric: str | None = None) -> None:
        from fairseq_headprune.glue.catalogue import glue_task
        from fairseq_headprune.glue.metrics import metric_of

        self._task, self._bert = glue_task(task), bert
        self.places = {bert: Path(bert).name}
        self.measure = metric_of(self._task, metric)
        self.flags = ["--task", "glue", "--glue-task", self._task.name, "--metric", self.measure]

    def shape(self, data: str, flags: Sequence[str]) -> Shape:
        """Return the head counts of the folder's model.

        Raises:
            ValueError, FileNotFoundError: see :func:`~fairseq_headprune.imports.bert.read_config`.
        """
        from fairseq_headprune.imports.bert import read_config

        sizes = read_config(self._bert)
        return {"enc_self": [sizes["num_attention_heads"]] * sizes["num_hidden_layers"]}

    def hashes(self, data: Path, splits: Sequence[str]) -> dict[str, str]:
        """Return the hashes of train, the predicted splits, and the folder's weights, by name.

        Raises:
            KeyError, FileNotFoundError: no such split or file.
        """
        from fairseq_headprune.glue.tsv import split_path
        from fairseq_headprune.imports.bert import weights_path

        paths = [split_path(data, self._task, self._task.stem(split)) for split in ("train", *splits)]
        return {path.name: sha256(path) for path in [*paths, weights_path(self._bert)]}

    def hashes_found(self, data: Path | str, splits: Sequence[str]) -> dict[str, str]:
        """Return the hashes of train, which valid is a part of, the predicted splits, and the folder's weights."""
        return self.hashes(Path(data), [split for split in splits if split not in ("train", "valid")])

    def metric(self, references: Sequence[str], how: Comparison) -> Any:
        """Return the task's metric for these labels."""
        from fairseq_headprune.glue.metrics import LabelMetric

        return LabelMetric(self._task, self.measure, references)


Task = Translating | Classifying


def _refuse(message: str) -> NoReturn:
    raise ValueError(f"fairseq-train would refuse its flags: {message}")
