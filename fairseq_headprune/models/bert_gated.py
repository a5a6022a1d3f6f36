"""BERT with a gate on every attention head, for sentence classification and regression."""

import logging
from argparse import ArgumentParser, Namespace
from typing import Any, Optional

import torch
from fairseq.models import FairseqEncoderModel, register_model, register_model_architecture
from torch import Tensor, nn

from fairseq_headprune.errors import errors_of
from fairseq_headprune.imports import bert as bert_folder
from fairseq_headprune.imports.bert import HEAD, read_weights, to_ours
from fairseq_headprune.models.starting import carry_out_layouts, settings_to_start_from, take_layouts
from fairseq_headprune.modules.attach import attach_gates
from fairseq_headprune.modules.bert_encoder import BertEncoder, ClassificationHead
from fairseq_headprune.parts import Mask
from fairseq_headprune.parts.layout import SETTING, Layout

logger = logging.getLogger(__name__)

#: setting names: the label names, in the order of the logits (a single one means regression), and the task
LABELS, TASK = "bert_labels", "bert_task"


@register_model("bert_gated")
class BertGatedModel(FairseqEncoderModel):
    """BERT (Devlin et al. 2019) as a fairseq model whose encoder self-attention is gated (component ``enc_self``).

    Its hidden states, pooled output and logits are those of Hugging Face's ``BertForSequenceClassification`` with the
    same weights. Sizes are in the model settings of every checkpoint, so that loading needs nothing else.
    """

    def __init__(self, settings: Namespace) -> None:
        super().__init__(BertEncoder(settings))
        width, classes = settings.encoder_embed_dim, len(getattr(settings, LABELS))
        head = ClassificationHead(width, classes, settings.pooler_dropout)
        self.classification_heads = nn.ModuleDict({HEAD: head})
        self._fresh_head = False

    @staticmethod
    def add_args(parser: ArgumentParser) -> None:
        """Add the model's flags."""
        add = parser.add_argument
        add(
            "--bert",
            metavar="DIR",
            help="Hugging Face folder of a BERT model: config.json, model.safetensors (or pytorch_model.bin), "
            "tokenizer.json or vocab.txt; read when training starts, not needed afterwards",
        )
        add(
            "--random-weights",
            action="store_true",
            help="take sizes and vocabulary of --bert, but not its weights (default: the weights, too)",
        )
        add("--vocabulary", metavar="FILE", help="tokenizer.json or vocab.txt, for a model that starts untrained")
        text = "(default: what the folder's config.json says, or 0.1)"
        add("--dropout", type=float, metavar="P", help=f"dropout {text}")
        add("--attention-dropout", type=float, metavar="P", help=f"dropout of attention weights {text}")
        add("--pooler-dropout", type=float, metavar="P", help=f"dropout before the classifier {text}")

    @classmethod
    def build_model(cls, args: Namespace, task: Any) -> "BertGatedModel":
        """Build the model from a checkpoint's settings or, when training starts, from a folder or an architecture.

        Training takes sizes and heads from the checkpoint that it starts from, if there is one, otherwise weights and
        sizes from ``--bert``.

        Raises:
            ValueError: settings, folder and task do not match.
            FileNotFoundError: the folder lacks a file.
        """
        folder = None
        if not hasattr(args, SETTING):
            folder = _settle(args, task)
        elif getattr(args, TASK) != task.name:
            raise ValueError(
                f"the model was trained for {getattr(args, TASK)}; its classifier says nothing of {task.name}"
            )
        model = cls(args)
        carry_out_layouts(args, attach_gates(model))
        if folder is not None:
            model.take_weights(folder, getattr(args, LABELS))
        model._fresh_head = getattr(args, "bert_fresh_head", False)
        args.bert_fresh_head = False
        return model

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Optional[Tensor] = None,
        token_types: Optional[Tensor] = None,
        features_only: bool = False,
        classification_head_name: Optional[str] = None,
        return_all_hiddens: bool = False,
    ) -> tuple[Tensor, dict[str, list[Tensor]]]:
        """Return logits (batch, classes), or with ``features_only`` and no head's name the last hidden states
        (batch, time, d), and what the encoder returned.
        """
        encoded = self.encoder(src_tokens, src_lengths, token_types, return_all_hiddens)
        if features_only and classification_head_name is None:
            return encoded["encoder_out"][0].transpose(0, 1), encoded
        head = self.classification_heads[classification_head_name or HEAD]
        return head(encoded["pooled"][0]), encoded

    def train(self, mode: bool = True) -> "BertGatedModel":
        """Set the mode; do nothing if every module is in it already, since fairseq sets it twice per update."""
        return self if all(module.training == mode for module in self.modules()) else super().train(mode)

    def set_num_updates(self, num_updates: int) -> None:
        """Do nothing: no module depends on the number of updates, and fairseq would visit all modules each time."""

    def get_normalized_probs(self, net_output: Any, log_probs: bool, sample: Optional[dict] = None) -> Tensor:
        """Return probabilities of the classes, or their logarithms, (batch, classes), in float32."""
        logits = net_output[0].float()
        return torch.log_softmax(logits, dim=-1) if log_probs else torch.softmax(logits, dim=-1)

    def upgrade_state_dict_named(self, state_dict: dict, name: str) -> None:
        """Replace the classifier by a new one when training starts from another task's checkpoint."""
        super().upgrade_state_dict_named(state_dict, name)
        if self._fresh_head:
            logger.warning("the checkpoint's classifier is of another task: training starts with a fresh one")
            state_dict.update(self.classification_heads.state_dict(prefix="classification_heads."))
            self._fresh_head = False

    def take_weights(self, folder: str, labels: list[str]) -> None:
        """Load the weights of a Hugging Face folder; a classifier with other labels is omitted, with a warning.

        Labels are compared by name, regardless of order and case.

        Raises:
            ValueError: weights do not fit; all are listed.
            FileNotFoundError: a file is missing.
        """
        config, weights = bert_folder.read_config(folder), read_weights(folder)
        names = {str(label).lower(): int(row) for row, label in (config.get("id2label") or {}).items()}
        mine_too = set(names) == {label.lower() for label in labels}
        for kind in ("weight", "bias"):
            found = weights.pop(f"classifier.{kind}", None)
            if found is not None and mine_too:
                weights[f"classifier.{kind}"] = found[[names[label.lower()] for label in labels]]
            elif found is not None and kind == "weight":
                logger.warning(
                    f"--bert {folder}: its classifier is left out, since its labels are {', '.join(names)}, not "
                    f"{', '.join(labels)}"
                )
        mine = dict(self.state_dict())
        with errors_of(f"--bert {folder}"):
            ours = to_ours(weights, mine, len(self.encoder.layers))
        self.load_state_dict({**mine, **ours})
        fresh = [name for name in mine if name not in ours]
        if fresh:
            logger.warning(f"--bert {folder} has no {', '.join(fresh)}: they start from random values")


def _settle(args: Namespace, task: Any) -> Optional[str]:
    """Complete the settings of a model to be trained; return the folder with its weights, if any."""
    arch, folder = args.arch, getattr(args, "bert", None)
    setattr(args, LABELS, list(task.labels))
    setattr(args, TASK, task.name)
    start = settings_to_start_from(args)
    take_layouts(args, start)
    if start is not None:
        if not hasattr(start, "bert_vocabulary"):
            raise ValueError(f"--arch {arch}: the checkpoint to start from is no BERT model")
        found = {name: getattr(start, name) for name in (*bert_folder.STRUCTURE, *bert_folder.DROPOUTS.values())}
        args.bert_fresh_head = getattr(start, TASK) != task.name
        folder = None
    elif folder is not None:
        config = bert_folder.read_config(folder)
        found = bert_folder.settings(config)
        _take_pruned_heads(args, found, bert_folder.pruned_heads(config))
        if getattr(args, "random_weights", False):
            folder = None
    elif hasattr(args, "encoder_layers"):
        found = {"bert_vocabulary": len(task.vocabulary), "bert_pad": task.vocabulary.pad}
    else:
        raise ValueError(
            f"--arch {arch} takes its sizes from a Hugging Face folder: name it with --bert DIR, or choose "
            "bert_gated_base or bert_gated_mini"
        )
    _fill_in(args, found)
    _check_vocabulary(args, task.vocabulary)
    return folder


def _check_vocabulary(args: Namespace, vocabulary: Any) -> None:
    if len(vocabulary) > args.bert_vocabulary or vocabulary.pad != args.bert_pad:
        raise ValueError(
            f"the vocabulary has {len(vocabulary)} pieces and [PAD] {vocabulary.pad}, the model {args.bert_vocabulary} "
            f"embeddings and pad_token_id {args.bert_pad}: they do not belong together"
        )


def _fill_in(args: Namespace, found: dict[str, Any]) -> None:
    """Set what flags and architecture leave open.

    Raises:
        ValueError: the architecture's size differs from that of the folder or checkpoint.
    """
    for name, value in found.items():
        mine = getattr(args, name, None)
        if mine is None:
            setattr(args, name, value)
        elif name in bert_folder.STRUCTURE and mine != value:
            raise ValueError(f"--arch {args.arch} has {name} {mine}, the model to start from {value}: use bert_gated")
    for name in bert_folder.DROPOUTS.values():
        if getattr(args, name, None) is None:
            setattr(args, name, 0.1)


def _take_pruned_heads(args: Namespace, found: dict[str, Any], pruned: dict[int, list[int]]) -> None:
    if not pruned:
        return
    shape = {"enc_self": [found["encoder_attention_heads"]] * found["encoder_layers"]}
    mask = Mask.full(shape, {"pruned_heads": f"{args.bert}/config.json"})
    for layer, heads in pruned.items():
        for head in heads:
            mask.rows["enc_self"][layer][head] = 0
    setattr(args, SETTING, Layout.full(shape).under(mask, mask.source).to_dict())


def _sized(layers: int, width: int, heads: int) -> dict[str, Any]:
    return {
        "encoder_layers": layers,
        "encoder_embed_dim": width,
        "encoder_ffn_embed_dim": 4 * width,
        "encoder_attention_heads": heads,
        "bert_positions": 512,
        "bert_token_types": 2,
        "activation_fn": "gelu",
        "layer_norm_eps": 1e-12,
    }


def _set_defaults(args: Namespace, sizes: dict[str, Any]) -> None:
    for name, value in sizes.items():
        setattr(args, name, getattr(args, name, value))


@register_model_architecture("bert_gated", "bert_gated")
def bert_gated(args: Namespace) -> None:
    """BERT with the sizes of ``--bert``."""


@register_model_architecture("bert_gated", "bert_gated_base")
def bert_gated_base(args: Namespace) -> None:
    """BERT-base: 12 layers of 12 heads, width 768 (Devlin et al. 2019)."""
    _set_defaults(args, _sized(12, 768, 12))


@register_model_architecture("bert_gated", "bert_gated_mini")
def bert_gated_mini(args: Namespace) -> None:
    """BERT-mini: 4 layers of 4 heads, width 256 (Turc et al. 2019)."""
    _set_defaults(args, _sized(4, 256, 4))
