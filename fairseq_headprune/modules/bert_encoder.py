"""BERT's encoder (Devlin et al. 2019) built from fairseq's layers, and the classifier on its pooled output."""

from typing import Any, Optional

import torch
import torch.nn.functional as F
from fairseq.models import FairseqEncoder
from fairseq.models.transformer import TransformerConfig
from fairseq.modules import LayerNorm
from fairseq.modules.fairseq_dropout import FairseqDropout
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from fairseq.modules.transformer_sentence_encoder import init_bert_params
from torch import Tensor, nn


class BertLayer(TransformerEncoderLayerBase):
    """fairseq's encoder layer, post-norm, with BERT's epsilon."""

    def __init__(self, cfg: TransformerConfig, eps: float) -> None:
        super().__init__(cfg)
        self.self_attn_layer_norm.eps = self.final_layer_norm.eps = eps
        if cfg.activation_fn == "gelu":
            self.activation_fn = F.gelu  # fairseq's makes a float32 copy, also of float64


class BertEncoder(FairseqEncoder):
    """Embeddings of words, positions and token types; the layers; and the pooler.

    Args:
        settings: the model's settings, named as in :mod:`fairseq_headprune.imports.bert`.
    """

    def __init__(self, settings: Any) -> None:
        super().__init__(None)
        width = settings.encoder_embed_dim
        self.pad: int = settings.bert_pad
        self.embed_tokens = nn.Embedding(settings.bert_vocabulary, width, padding_idx=settings.bert_pad)
        self.embed_positions = nn.Embedding(settings.bert_positions, width)
        self.embed_token_types = nn.Embedding(settings.bert_token_types, width)
        self.layernorm_embedding = LayerNorm(width, eps=settings.layer_norm_eps)
        self.dropout_module = FairseqDropout(settings.dropout, module_name=type(self).__name__)
        cfg = TransformerConfig.from_namespace(settings)
        cfg.encoder.normalize_before, cfg.activation_dropout = False, 0.0
        eps = settings.layer_norm_eps
        self.layers = nn.ModuleList(BertLayer(cfg, eps) for _ in range(settings.encoder_layers))
        self.pooler = nn.Linear(width, width)
        self.apply(init_bert_params)

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Optional[Tensor] = None,
        token_types: Optional[Tensor] = None,
        return_all_hiddens: bool = False,
    ) -> dict[str, list[Tensor]]:
        """Encode a batch.

        Args:
            src_tokens: (batch, time), padded on the right.
            token_types: (batch, time); None means all 0.

        Returns:
            as fairseq's encoders: ``encoder_out`` [(time, batch, d)], ``encoder_padding_mask`` [(batch, time)],
            ``encoder_states`` (the embeddings and every layer's output, if requested), and ``pooled`` [(batch, d)].
        """
        padded = src_tokens.eq(self.pad)
        positions = torch.arange(src_tokens.size(1), device=src_tokens.device)
        types = torch.zeros_like(src_tokens) if token_types is None else token_types
        x = self.embed_tokens(src_tokens) + self.embed_token_types(types) + self.embed_positions(positions)
        x = self.dropout_module(self.layernorm_embedding(x)).transpose(0, 1)
        states = [x]
        for layer in self.layers:
            x = layer(x, encoder_padding_mask=padded)
            states.append(x)
        return {
            "encoder_out": [x],
            "encoder_padding_mask": [padded],
            "encoder_states": states if return_all_hiddens else [],
            "pooled": [torch.tanh(self.pooler(x[0]))],
        }

    def max_positions(self) -> int:
        """Return the number of positions that have an embedding."""
        return self.embed_positions.num_embeddings


class ClassificationHead(nn.Module):
    """A linear layer on the pooled output, after dropout."""

    def __init__(self, width: int, classes: int, dropout: float) -> None:
        super().__init__()
        self.dropout_module = FairseqDropout(dropout, module_name=type(self).__name__)
        self.out_proj = nn.Linear(width, classes)
        self.apply(init_bert_params)

    def forward(self, pooled: Tensor) -> Tensor:
        """Return logits (batch, classes)."""
        return self.out_proj(self.dropout_module(pooled))
