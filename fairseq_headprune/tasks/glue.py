"""The GLUE tasks (Wang et al. 2019) with head masks and learned gates, for ``bert_gated``."""

import logging
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.distributed import utils as distributed
from fairseq.logging import metrics
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.tasks import FairseqTask, register_task
from omegaconf import II
from torch import Tensor

from fairseq_headprune.criterions.settings import setting
from fairseq_headprune.evaluation.evaluator import Evaluator
from fairseq_headprune.files import PathLike
from fairseq_headprune.glue.catalogue import GlueTask, glue_task
from fairseq_headprune.glue.dataset import ExampleLosses, GlueDataset, Holdout, read
from fairseq_headprune.glue.metrics import AND, metric_of, scores
from fairseq_headprune.glue.predict import noted_logits, of_all_ranks, predictions
from fairseq_headprune.glue.tsv import split_path
from fairseq_headprune.imports.bert import read_config
from fairseq_headprune.imports.wordpieces import WordPieceVocabulary
from fairseq_headprune.models.bert_gated import BertGatedModel
from fairseq_headprune.models.starting import state_to_start_from
from fairseq_headprune.tasks.gated import HEAD_MASK_HELP, WEIGHT_MASK_HELP, GatedTask
from fairseq_headprune.training.fast import CUDA_GRAPHS_HELP, MODES

logger = logging.getLogger(__name__)

#: keys of a validation's predictions and labels; the underscore hides them from logs
_FOUND, _TARGET = "_found", "_target"


@dataclass
class GlueConfig(FairseqDataclass):
    """Settings of the GLUE tasks."""

    data: str = setting("", "GLUE's folder (with a folder a task), or that of the task")
    glue_task: Optional[str] = setting(None, "CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE or WNLI (required)")
    metric: Optional[str] = setting(
        None,
        "what 'score' is, for --best-checkpoint-metric: accuracy, f1, matthews, pearson, spearman, or the mean of "
        "several joined by + (default: GLUE's own of the task)",
    )
    max_positions: Optional[int] = setting(
        None, "pieces of an example; of longer pairs the longer sentence is cut first (default: 128)"
    )
    holdout: Optional[float] = setting(
        None, "share (or number) of train that is 'valid', so that dev only reports (default: 0: 'valid' is dev)"
    )
    holdout_seed: Optional[int] = setting(None, "seed of that draw (default: 1)")
    head_mask: Optional[str] = setting(None, HEAD_MASK_HELP)
    weight_mask: Optional[str] = setting(None, WEIGHT_MASK_HELP)
    cuda_graphs: MODES = setting("off", CUDA_GRAPHS_HELP)  # type: ignore[valid-type]
    train_subset: str = II("dataset.train_subset")


class Labels:
    """The label dictionary that fairseq's criterion expects; labels are numbers already."""

    nspecial = 0

    def string(self, labels: Tensor) -> str:
        """Convert label numbers to text."""
        return " ".join(map(str, labels.tolist()))


@register_task("glue", dataclass=GlueConfig)
class GlueSentencePredictionTask(GatedTask, FairseqTask):
    """Classify (or, for STS-B, score) sentences and sentence pairs.

    Tokens have BERT's own ids. The vocabulary is stored in every checkpoint's ``task_state``, so that evaluation needs
    only a checkpoint and the data. Splits are ``train``, ``valid``, ``dev``, ``test`` and file names.

    Attributes:
        glue: GLUE's description of the task.
        metric: the metric reported as ``score``.
        limit, holdout: ``--max-positions`` and ``--holdout`` or their defaults.
        vocabulary: None until a model is built or a checkpoint is loaded.
    """

    cfg: GlueConfig
    default_subset = "dev"  # GLUE's test sets have no labels
    as_trained = ("glue_task", "metric", "max_positions", "holdout", "holdout_seed")

    def __init__(self, cfg: GlueConfig, **kwargs: Any) -> None:
        """Check the settings; the keywords of fairseq's ``setup_task`` are not used."""
        super().__init__(cfg)
        self.glue: GlueTask = glue_task(cfg.glue_task)
        self.metric = metric_of(self.glue, cfg.metric)
        self.vocabulary: Optional[WordPieceVocabulary] = None
        self.label_dictionary = Labels()
        self._predicted: list[tuple[Tensor, Tensor]] = []
        self.limit = 128 if cfg.max_positions is None else cfg.max_positions
        self.holdout = Holdout(cfg.holdout or 0.0, 1 if cfg.holdout_seed is None else cfg.holdout_seed)
        if self.limit < 8:
            raise ValueError(f"--max-positions {self.limit}: examples need at least 8 pieces")

    @property
    def name(self) -> str:
        """The task's name in GLUE's spelling."""
        return self.glue.name

    @property
    def labels(self) -> list[str]:
        """Label names in the order of the logits."""
        return list(self.glue.labels)

    @property
    def source_dictionary(self) -> None:
        """None: the vocabulary is BERT's."""

    @property
    def target_dictionary(self) -> None:
        """None."""

    @property
    def pad(self) -> int:
        """The index of padding."""
        return self._known_vocabulary().pad

    @property
    def edges(self) -> Collection[int]:
        """[CLS] and [SEP]."""
        return self._known_vocabulary().edges

    def _known_vocabulary(self) -> WordPieceVocabulary:
        if self.vocabulary is None:
            raise ValueError("the vocabulary is not known before build_model, which takes it from the checkpoint")
        return self.vocabulary

    def losses(self, loss: str, smoothing: float) -> ExampleLosses:
        """Return the losses of examples; each has one label, so sum and mean are the same.

        Raises:
            ValueError: label smoothing is not supported.
        """
        if loss == "label-smoothed":
            raise ValueError("--loss label-smoothed is for translation; examples of GLUE have one loss")
        return ExampleLosses(self.pad, self.glue.is_regression)

    def sides(self, sample: dict[str, Any]) -> dict[str, tuple[Tensor, Tensor]]:
        """Return the tokens, which all attend to each other."""
        tokens = sample["net_input"]["src_tokens"]
        return {"enc_self": (tokens, tokens)}

    def words(self, tokens: Tensor, side: str) -> list[str]:
        """Return the word piece of each token."""
        pieces = self._known_vocabulary().pieces()
        return [pieces[int(token)] for token in tokens]

    def answer_settings(self, session: Any) -> dict[str, Any]:
        """Return the metric of the predictions."""
        return {"metric": self.metric}

    def read_split(self, split: str, saved: Any) -> None:
        """Load a split for evaluation, not training: examples of similar length share a batch."""
        super().read_split(split, saved)
        self.datasets[split].shuffle = False

    def identity(self, split: str) -> dict[str, Any]:
        """Identify a split by its file's hash (not its path); include what was skipped and truncated."""
        about = dict(self.open_split(split, None).split.about)
        name, digest = Path(about.pop("path")).name.removesuffix(".gz"), about.pop("sha256")
        return {"split": split, "task": self.glue.name, "sha256": {name: digest}, **about}

    def split_files(self, split: str) -> list[Path]:
        """Return the split's file; empty if there is none."""
        try:
            path = split_path(self.cfg.data, self.glue, self.glue.stem(split))
        except (KeyError, FileNotFoundError):
            return []
        return [path]

    def evaluator(self, session: Any, split: str) -> Evaluator:
        """Return the predictor of a split's labels."""
        from fairseq_headprune.glue.predict import Predictor

        return Predictor(session, split)

    def max_positions(self) -> int:
        """Return the maximum number of word pieces of an example."""
        return self.limit

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Build the model, and read its vocabulary unless a checkpoint's was loaded.

        Raises:
            ValueError: the model is not ``bert_gated``, or has fewer positions than ``--max-positions``.
        """
        arch = getattr(cfg, "arch", None) or getattr(cfg, "_name", None)
        if ARCH_MODEL_REGISTRY.get(arch) is not BertGatedModel:
            raise ValueError(f"--arch {arch}: the task glue is for bert_gated, bert_gated_base and bert_gated_mini")
        if self.vocabulary is None:
            self.vocabulary = _vocabulary(cfg)
        model = super().build_model(cfg, from_checkpoint)
        if model.max_positions() < self.limit:
            raise ValueError(f"--max-positions {self.limit}: the model has {model.max_positions()} positions")
        return model

    def build_criterion(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Build the criterion and set whether this is regression."""
        criterion = super().build_criterion(cfg, from_checkpoint)
        criterion.regression_target = self.glue.is_regression
        return criterion

    def load_dataset(self, split: str, combine: bool = False, **kwargs: Any) -> None:
        """Read and encode a split, and log the faults of its file.

        Raises:
            KeyError: no such split.
            FileNotFoundError, ValueError: its file is missing, damaged, or too many of its lines cannot be used.
        """
        vocabulary = self._known_vocabulary()
        found = read(self.cfg.data, self.glue, split, vocabulary, self.limit, self.holdout)
        about = found.about
        logger.info(
            f"{split}: {about['examples']} examples of {about['path']}, {about['cut']} cut at {about['limit']} pieces"
        )
        if found.note:
            logger.warning(f"{about['path']}: {found.note}")
        self.datasets[split] = GlueDataset(found, split, vocabulary.pad, split == self.cfg.train_subset)

    def can_reuse_epoch_itr(self, dataset: Any) -> bool:
        """Whether epochs share batches: not in training, where a resumed run has new ones too."""
        return not dataset.shuffle

    def valid_step(self, sample: dict, model: Any, criterion: Any) -> tuple:
        """Validate on one batch, and collect the predictions of all ranks."""
        with noted_logits(model) as logits:
            loss, sample_size, logged = super().valid_step(sample, model, criterion)
        # A rank that has run out of batches gets one of train, which is ignored.
        is_dummy = sample["split"] == self.cfg.train_subset and distributed.get_data_parallel_world_size() > 1
        found = predictions(logits[-1], self.glue.is_regression)
        self._predicted += of_all_ranks(None if is_dummy else (found, sample["target"].cpu()))
        return loss, sample_size, logged

    def reduce_metrics(self, logging_outputs: list[dict], criterion: Any) -> None:
        """Log the criterion's metrics and, for a validation, GLUE's (in percent), over all its examples."""
        super().reduce_metrics(logging_outputs, criterion)
        predicted, self._predicted = self._predicted, []
        if not predicted:
            return
        for name, parts in zip((_FOUND, _TARGET), zip(*predicted, strict=True), strict=True):
            metrics.log_concat_tensor(name, torch.cat(parts))
        for name in dict.fromkeys([*self.glue.metrics, *self.metric.split(AND), "score"]):
            if name == "accuracy":
                continue  # fairseq's criterion logs it, rounded
            metrics.log_derived(name, lambda meters, name=name: self._scores(meters)[name])

    def _scores(self, meters: Any) -> dict[str, float]:
        return self.score(meters[_FOUND].tensor.numpy(), meters[_TARGET].tensor.numpy())

    def score(self, found: Any, target: Any) -> dict[str, float]:
        """Return GLUE's metrics and ``score``, in percent, of predictions (examples,)."""
        return scores(self.glue, self.metric, found, target)

    def state_dict(self) -> dict:
        """Return the task's state for checkpoints: the vocabulary and the mask's origin."""
        state = super().state_dict()
        return state if self.vocabulary is None else {**state, "vocabulary": self.vocabulary.to_text()}

    def load_state_dict(self, state_dict: dict) -> None:
        """Load the vocabulary of a checkpoint."""
        state = dict(state_dict)
        text = state.pop("vocabulary", None)
        if text is not None:
            self.vocabulary = WordPieceVocabulary(text, "the checkpoint's vocabulary")
        super().load_state_dict(state)


def _vocabulary(cfg: Any) -> WordPieceVocabulary:
    """Return the vocabulary for training: that of the checkpoint it starts from, otherwise that of a folder or file.

    Raises:
        ValueError: none of them is given.
    """
    state = state_to_start_from(cfg) or {}
    text = (state.get("task_state") or {}).get("vocabulary")
    if text is not None:
        return WordPieceVocabulary(text, "the vocabulary of the checkpoint to start from")
    path: Optional[PathLike] = getattr(cfg, "bert", None) or getattr(cfg, "vocabulary", None)
    if path is None:
        raise ValueError("no vocabulary: name a Hugging Face folder with --bert DIR, or a file with --vocabulary FILE")
    if getattr(cfg, "bert", None):
        read_config(path)  # another kind of model has another kind of vocabulary; report the wrong model first
    return WordPieceVocabulary.from_folder(path)
