"""The architectures of imported models: fairseq's transformer with gated heads and small modifications."""

from argparse import Namespace
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.models import register_model, register_model_architecture
from fairseq.models.transformer import transformer_legacy
from torch import Tensor, nn

from fairseq_headprune.imports.families import FAMILIES
from fairseq_headprune.imports.weights import halves
from fairseq_headprune.models.starting import settings_to_start_from
from fairseq_headprune.models.transformer_gated import TransformerGatedModel


class HalvesPositions(nn.Module):
    """Position embeddings that number real tokens from 0, wherever a sentence's padding is.

    Nothing depends on Python arithmetic with lengths, so that the module can be traced.

    Attributes:
        padding_idx: -1, since the first row of the table is the first position.
        weights: the table, (positions, width); computed, never saved.
        max_positions: maximum sentence length.
    """

    weights: Tensor

    def __init__(self, positions: int, width: int, pad: int) -> None:
        super().__init__()
        self.register_buffer("weights", halves(positions, width), persistent=False)
        self.pad, self.padding_idx, self.max_positions = pad, -1, positions

    def forward(self, tokens: Tensor, incremental_state=None, timestep=None, positions=None) -> Tensor:
        """Return the embeddings of all positions, or of the last one in incremental decoding.

        Args:
            tokens: (batch, time); in incremental decoding the whole prefix, which has no padding.
        """
        if incremental_state is not None:
            places = torch.ones_like(tokens).cumsum(dim=1)[:, -1:] - 1
        else:
            places = (tokens.ne(self.pad).long().cumsum(dim=1) - 1).clamp(min=0)
        return nn.functional.embedding(places, self.weights)


#: setting names: the JSON configuration of the model's original folder, and the form of its positions
CONFIG, POSITIONS = "imported_config", "imported_positions"

#: settings of the model's structure: training takes them from the checkpoint that it starts from
STRUCTURE = (
    CONFIG,
    POSITIONS,
    "activation_fn",
    "no_scale_embedding",
    "layernorm_embedding",
    "share_all_embeddings",
    "share_decoder_input_output_embed",
    "max_source_positions",
    "max_target_positions",
    "decoder_input_dim",
    "decoder_output_dim",
    *(
        f"{side}_{name}"
        for side in ("encoder", "decoder")
        for name in ("embed_dim", "layers", "attention_heads", "ffn_embed_dim", "learned_pos", "normalize_before")
    ),
)


class StartEmbedding(nn.Embedding):
    """The decoder's embeddings, where the end of sentence is replaced by the model's start symbol.

    fairseq starts every target with the end of sentence, which does not occur elsewhere in a decoder's input.
    """

    def __init__(self, table: nn.Embedding, eos: int, start: int) -> None:
        super().__init__(table.num_embeddings, table.embedding_dim, table.padding_idx, _weight=table.weight)
        self.weight, self.eos, self.start = table.weight, eos, start

    def forward(self, tokens: Tensor) -> Tensor:
        """Return (batch, time, d)."""
        return super().forward(tokens.masked_fill(tokens.eq(self.eos), self.start))


@register_model("transformer_imported")
class ImportedModel(TransformerGatedModel):
    """An imported model; its sizes are in its checkpoint, or in the one that training starts from."""

    @classmethod
    def build_model(cls, args: Namespace, task: Any) -> "ImportedModel":
        """Build the model.

        Raises:
            ValueError: there is no checkpoint with its sizes.
        """
        if not hasattr(args, CONFIG):
            start = settings_to_start_from(args)
            if not hasattr(start, CONFIG):
                raise ValueError(
                    f"--arch {args.arch} takes its sizes from an imported checkpoint; name it: --finetune-from-model"
                )
            for name in STRUCTURE:
                if hasattr(start, name):
                    setattr(args, name, getattr(start, name))
        return super().build_model(args, task)

    @classmethod
    def adapt(cls, model: Any, args: Namespace, task: Any) -> None:
        """Apply the differences from fairseq's transformer, in place."""
        if args.activation_fn == "swish":
            # fairseq returns a class here, not a function.
            for layer in [*model.encoder.layers, *model.decoder.layers]:
                layer.activation_fn = F.silu
        if getattr(args, POSITIONS, None):
            for part, length in ((model.encoder, "max_source_positions"), (model.decoder, "max_target_positions")):
                width = part.embed_tokens.embedding_dim
                part.embed_positions = HalvesPositions(getattr(args, length), width, part.padding_idx)
        dictionary, decoder = task.target_dictionary, model.decoder
        start = dictionary.start(task.cfg.target_lang) if hasattr(dictionary, "start") else dictionary.eos()
        if start != dictionary.eos():
            decoder.embed_tokens = StartEmbedding(decoder.embed_tokens, dictionary.eos(), start)
        if FAMILIES[args.imported_family].bias:
            weight = decoder.output_projection.weight
            decoder.output_projection.bias = nn.Parameter(weight.new_zeros(weight.size(0)), requires_grad=False)


def _register(family: str) -> Callable[[Namespace], None]:
    @register_model_architecture("transformer_imported", FAMILIES[family].arch)
    def defaults(args: Namespace) -> None:
        args.imported_family = family
        transformer_legacy.base_architecture(args)

    return defaults


for _family in FAMILIES:
    _register(_family)
