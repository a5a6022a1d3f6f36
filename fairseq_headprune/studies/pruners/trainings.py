"""The tasks of a comparison of pruning methods, and the trainings that it needs (Li et al. 2021, §4.3)."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from fairseq_headprune.files import sha256
from fairseq_headprune.jobs.flags import training_settings
from fairseq_headprune.jobs.methods import (
    SETTLED,
    base,
    check_method,
    in_order,
    lambda_flags,
    method_flags,
    option,
    options,
    ranks,
)
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
        found = training_settings([data, *self.flags, "--criterion", self.criterion, *flags])
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


@dataclass(frozen=True)
class Training:
    """One training of a method.

    Attributes:
        name: name of its job.
        count: heads to keep; None for the unpruned model and for ``l0-lambda``.
        flags: fairseq-train flags, besides those common to all trainings.
        after: the training whose best checkpoint it starts from, or None.
        penalty: lambda of ``l0-lambda``.
        updates: at most so many.
        source: method, head count and seed of the training (or ranking) whose heads it keeps, or None.
    """

    name: str
    method: str
    seed: int
    count: int | None = None
    flags: Sequence[str] = field(default_factory=list)
    after: str | None = None
    penalty: float | None = None
    updates: int = 0
    source: tuple[str, int, int] | None = None

    @property
    def mask_seed(self) -> int:
        """The seed of random heads: that of the training, or of the option ``mask=N``."""
        return int(option(self.method, "mask") or self.seed)

    @property
    def mask_of(self) -> str | None:
        """The name of its source."""
        return None if self.source is None else _name(*self.source)

    @property
    def length(self) -> int:
        """Its updates; 0 for pipelined DSP's one epoch, of which only is known that it is short."""
        return 0 if base(self.method) == "pipelined-dsp" and "tuned" not in options(self.method) else self.updates


def unpruned_name(seed: int) -> str:
    """Return the name of the unpruned model's training."""
    return f"unpruned-{seed}"


def trainings(
    methods: Sequence[str],
    counts: Sequence[int],
    seeds: Sequence[int],
    lambdas: Sequence[float],
    updates: int,
    task: Task,
    tune: int = 0,
) -> list[Training]:
    """List all trainings of a comparison; the unpruned models, from which others start, come first.

    Args:
        lambdas: penalties of ``l0-lambda``.
        updates: updates of every training, except pipelined DSP's (one epoch).
        tune: updates of variants that are fine-tuned (``tuned``), and more updates of those trained ``long``.

    Raises:
        ValueError: an unknown method, or one that takes the heads of another that is not compared.
    """
    for method in methods:
        check_method(method)
    chosen = [m for m in in_order(["unpruned", *methods]) if base(m) != "l0-lambda" and not ranks(m)]
    if not tune and any({"tuned", "long"} & {*options(method)} for method in chosen):
        raise ValueError("variants that are tuned, or trained for long, need --tune UPDATES")

    def of(method: str, count: int | None, seed: int) -> Training:
        limit = updates + tune if "long" in options(method) else updates
        return _training(method, count, seed, tune if "tuned" in options(method) else limit, task)

    whole = [method for method in chosen if base(method) == "unpruned"]
    result = [of(method, None, seed) for method in whole for seed in seeds]
    for seed in seeds:
        # Ordered by head count, so that an interrupted comparison has complete rows of the table.
        result += [of(method, count, seed) for count in counts for method in chosen if method not in whole]
        for value in lambdas if "l0-lambda" in methods else ():
            flags = [*lambda_flags(value, task.criterion), "--validate-after-updates", str(int(SETTLED * updates))]
            name = f"l0-lambda-{value:g}-{seed}"
            result.append(Training(name, "l0-lambda", seed, None, flags, penalty=value, updates=updates))
    _check_sources(result, methods, seeds)
    return result


def _training(method: str, count: int | None, seed: int, updates: int, task: Task) -> Training:
    """Return a training of so many updates, from random weights or from the unpruned model."""
    tuned, plain = "tuned" in options(method), ["--criterion", task.criterion]
    flags = plain if count is None else method_flags(method, count, task.criterion, task.preset)
    short = tuned or base(method) == "pipelined-dsp"
    flags = flags if short else [*flags, "--validate-after-updates", str(int(SETTLED * updates))]
    after = unpruned_name(seed) if short else None
    made = Training(_name(method, count, seed), method, seed, count, flags, after, updates=updates)
    if count is None:
        return made
    if base(method) == "learned-start":
        return replace(made, source=("joint-dsp", count, made.mask_seed))
    return replace(made, source=(method.replace("+tuned", ""), count, seed)) if tuned else made


def _check_sources(made: Sequence[Training], methods: Sequence[str], seeds: Sequence[int]) -> None:
    for training in made:
        if training.source is None:
            continue
        method, _, seed = training.source
        if method not in methods or seed not in seeds:
            raise ValueError(f"{training.method} takes the heads of {method}, seed {seed}: compare these, too")


def _name(method: str, count: int | None, seed: int) -> str:
    return f"{method}-{seed}" if count is None else f"{method}-{count}-{seed}"
