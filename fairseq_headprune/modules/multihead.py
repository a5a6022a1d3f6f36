"""fairseq's multi-head attention with a gate on every head, on every code path."""

from collections.abc import Callable
from typing import Any, Optional

import torch
import torch.nn.functional as F
from fairseq.modules import FairseqDropout, MultiheadAttention
from torch import Tensor, nn

from fairseq_headprune.modules import short_attention
from fairseq_headprune.modules.attention import (
    apply_gate,
    attend,
    attend_without_heads,
    attention_weights,
    combine_masks,
    counted_weights,
)
from fairseq_headprune.modules.cache import BeamCache
from fairseq_headprune.modules.gated_module import GatedModule
from fairseq_headprune.parts import attention_place

#: incremental state of one decoder, as fairseq keeps it
State = Optional[dict[str, dict[str, Optional[Tensor]]]]


class GatedMultiheadAttention(GatedModule, MultiheadAttention):
    """Multi-head attention whose heads can be gated before ``out_proj`` (Michel et al. 2019, §2.3).

    Parameters, their names and initial values are those of fairseq's ``MultiheadAttention``, which is converted in
    place (:meth:`adopt`). Training, teacher forcing and incremental decoding share one function, so no path bypasses
    the gates. Pruned heads leave ``out_proj``'s bias unchanged.

    Attributes:
        head_keep: None (keep every head) or bool (heads,). Saved in checkpoints when set.
        keep_source: where ``head_keep`` comes from. Saved with it, in the state dict's metadata.
        row_keep: None or bool (batch, heads), a mask for each row, which overrides ``head_keep``. Never saved.
        head_gate: None or a float gate, (heads,), (batch, heads) or (batch, heads, tgt). Never saved.
        learned_weight: None or ``out_proj``'s weight, its columns scaled by gates that are being learned (see
            ``learning.learned``): in training it replaces ``head_gate`` and ``head_keep``, which apply in evaluation
            mode. Never saved.
        indices, original_count: see :class:`GatedModule`. Saved in the state dict's metadata.
        masks_of_pass: set during a pass that is, or may be, recorded in a CUDA graph (see ``short_attention``).
        on_weights: None or a function called with the module and its attention weights (batch, heads, tgt, src).
    """

    KEEP, PARTS = "head_keep", "heads"

    masks_of_pass: Optional[short_attention.AddedMasks] = None

    # Attributes of fairseq's module, which has no annotations.
    num_heads: int
    head_dim: int
    embed_dim: int
    kdim: Optional[int]
    scaling: float
    dropout_module: FairseqDropout
    q_proj: nn.Linear
    k_proj: nn.Linear
    v_proj: nn.Linear
    out_proj: nn.Linear

    head_keep: Optional[Tensor]
    row_keep: Optional[Tensor]
    head_gate: Optional[Tensor]
    learned_weight: Optional[Tensor]
    on_weights: Optional[Callable[["GatedMultiheadAttention", Tensor], None]]

    @classmethod
    def adopt(cls, module: MultiheadAttention) -> "GatedMultiheadAttention":
        """Turn a stock module into a gated one, in place; its parameters stay the same objects.

        Raises:
            ValueError: the module has another class, or computes attention with xFormers.
        """
        if type(module) is not MultiheadAttention:
            raise ValueError(
                f"cannot attach gates to {type(module).__name__}: only fairseq's MultiheadAttention is known"
            )
        if getattr(module, "use_xformers", False):
            raise ValueError("cannot attach gates to attention computed by xFormers; build the model without it")
        module.__class__ = cls
        module.prepare(module.num_heads)
        module.register_buffer("head_gate", None, persistent=False)
        module.learned_weight = None
        module.on_weights = module.row_keep = None
        return module

    @property
    def output_layer(self) -> nn.Linear:
        """The layer whose columns are the heads: ``out_proj``."""
        return self.out_proj

    def forward(
        self,
        query: Tensor,
        key: Optional[Tensor],
        value: Optional[Tensor],
        key_padding_mask: Optional[Tensor] = None,
        incremental_state: State = None,
        need_weights: bool = True,
        static_kv: bool = False,
        attn_mask: Optional[Tensor] = None,
        before_softmax: bool = False,
        need_head_weights: bool = False,
    ) -> tuple[Tensor, Optional[Tensor]]:
        """Attend as fairseq's ``MultiheadAttention.forward`` does, with gates.

        Args:
            query: (tgt, batch, d).
            key, value: (src, batch or kv_batch, d); not read if a static cache holds them. In encoder-decoder attention
                batch may be a multiple of kv_batch: each key row then serves batch / kv_batch consecutive queries.
            key_padding_mask, attn_mask: see :func:`combine_masks`.
            need_weights: also return the weights, averaged over the kept heads: (batch, tgt, src), float32, before
                dropout.
            need_head_weights: return them per head instead: (kept heads, batch, tgt, src), on every code path.
            before_softmax: return the masked scores (batch * heads, tgt, src) and the values
                (kv_batch * heads, src, head_dim) instead.

        Raises:
            ValueError: a gate that does not fit the batch.
        """
        need_weights = need_weights or need_head_weights
        if not self.num_heads:
            return attend_without_heads(self, query, key, need_weights, need_head_weights, before_softmax)
        if isinstance(incremental_state, BeamCache):
            return incremental_state.attend(self, query), None
        wants_weights = need_weights or before_softmax or self.on_weights is not None
        if self.masks_of_pass is not None and not wants_weights and short_attention.can_attend(self, query, key):
            assert key is not None
            heads = short_attention.attend(self, query, key, self.masks_of_pass, key_padding_mask, attn_mask)
            return self._output(heads), None
        q, k, v, mask, beams = self._read(query, key, value, key_padding_mask, attn_mask, incremental_state, static_kv)
        if not wants_weights:
            return self._output(self._split(self._attend(q, k, v, mask), beams, query.size(0))), None
        weights, scores = attention_weights(q, k, self.scaling, mask)
        if before_softmax:
            return self._split(scores, beams, query.size(0)).flatten(0, 1), v.flatten(0, 1)
        output, weights = self._attend_with(weights, v, beams, query.size(0))
        return output, self._returned(weights, need_head_weights) if need_weights else None

    def _read(self, query, key, value, key_padding_mask, attn_mask, incremental_state, static_kv):
        """Return queries, all keys and values of each head, the combined mask, and the beams that share keys."""
        q, k, v, key_padding_mask = self._project(query, key, value, key_padding_mask, incremental_state, static_kv)
        if incremental_state is not None:
            k, v, key_padding_mask = self._cache(k, v, key_padding_mask, incremental_state, static_kv)
        if self.bias_k is not None or self.add_zero_attn:
            k, v, key_padding_mask, attn_mask = self._extra_keys(k, v, key_padding_mask, attn_mask)
        beams = q.size(0) // k.size(0)
        if beams > 1:
            # (kv_batch, beams) queries share keys: treat the beams as additional target positions.
            q = q.reshape(k.size(0), beams, *q.shape[1:]).transpose(1, 2).flatten(2, 3)
            attn_mask = None if attn_mask is None else attn_mask.repeat(beams, 1)
        return q, k, v, combine_masks(key_padding_mask, attn_mask, q.dtype), beams

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor]) -> Tensor:
        """Attend without computing the weights, by the fastest way for this length."""
        dropout = self.dropout_module
        active = self.training or dropout.apply_during_inference
        return attend(q, k, v, self.scaling, mask, dropout.p if active else 0.0)

    def _attend_with(self, weights: Tensor, v: Tensor, beams: int, length: int) -> tuple[Tensor, Tensor]:
        """Return the output for attention weights, and these weights without beams, after ``on_weights`` saw them."""
        heads = torch.matmul(self.dropout_module(weights.to(v.dtype)), v)
        weights = self._split(weights, beams, length)
        if self.on_weights is not None:
            self.on_weights(self, weights)
        return self._output(self._split(heads, beams, length)), weights

    def _returned(self, weights: Tensor, by_head: bool) -> Tensor:
        """Return the weights of the kept heads as fairseq does, from (batch, heads, tgt, src); see :meth:`forward`."""
        weights = counted_weights(weights, self.head_keep if self.row_keep is None else self.row_keep)
        return weights.transpose(0, 1) if by_head else weights.mean(dim=1)

    def _output(self, heads: Tensor) -> Tensor:
        """Gate the heads, (batch, heads, tgt, head_dim), and project them to (tgt, batch, d)."""
        learned = self.learned_weight if self.training else None
        if learned is None:
            heads = apply_gate(heads, self.head_gate, self.head_keep if self.row_keep is None else self.row_keep)
        merged = heads.permute(2, 0, 1, 3).flatten(2).contiguous()  # see _project
        return self.out_proj(merged) if learned is None else F.linear(merged, learned, self.out_proj.bias)

    @staticmethod
    def _split(rows: Tensor, beams: int, length: int) -> Tensor:
        """Separate beams from target positions: (kv_batch, heads, beams * tgt, x) -> (batch, heads, tgt, x)."""
        if beams == 1:
            return rows
        kv_batch, heads, _, width = rows.shape
        return rows.view(kv_batch, heads, beams, length, width).transpose(1, 2).reshape(-1, heads, length, width)

    def _heads_first(self, x: Tensor) -> Tensor:
        """(time, batch, heads * head_dim) -> (batch, heads, time, head_dim), without copying."""
        return x.view(x.size(0), x.size(1), self.num_heads, self.head_dim).permute(1, 2, 0, 3)

    def _project(self, query, key, value, key_padding_mask, incremental_state, static_kv):
        """Return queries, keys and values of each head; keys and values are None if a static cache holds them."""
        if self.self_attention:
            # Of an input in another layout torch copies the numbers for each product, and adds the bias after rounding:
            # in half precision results would depend on whether a mask has made a copy before.
            key = value = query = query.contiguous()
        elif self.encoder_decoder_attention:
            if static_kv and "prev_key" in self._get_input_buffer(incremental_state):
                return self._heads_first(self.q_proj(query)), None, None, key_padding_mask
            beam_size = getattr(self, "beam_size", 1)
            if beam_size > 1 and incremental_state is not None and query.size(1) == key.size(1):
                # The encoder's output is repeated for each beam; one copy per sentence is enough. (The beam size stays
                # set after a search: in teacher forcing, sentences must not be mistaken for beams.)
                key = key.view(key.size(0), -1, beam_size, key.size(2))[:, :, 0]
                if key_padding_mask is not None:
                    key_padding_mask = key_padding_mask.view(-1, beam_size, key_padding_mask.size(1))[:, 0]
            value = key
        q, k, v = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        return self._heads_first(q), self._heads_first(k), self._heads_first(v), key_padding_mask

    def _cache(self, k, v, key_padding_mask, incremental_state, static_kv):
        """Append this step's keys and values to the cache, in fairseq's format, and return all of them."""
        saved = self._get_input_buffer(incremental_state)
        if "prev_key" in saved:
            k = saved["prev_key"] if static_kv else torch.cat([saved["prev_key"], k], dim=2)
            v = saved["prev_value"] if static_kv else torch.cat([saved["prev_value"], v], dim=2)
        key_padding_mask = self._append_prev_key_padding_mask(
            key_padding_mask=key_padding_mask,
            prev_key_padding_mask=saved.get("prev_key_padding_mask"),
            batch_size=k.size(0),
            src_len=k.size(2),
            static_kv=static_kv,
        )
        saved["prev_key"], saved["prev_value"], saved["prev_key_padding_mask"] = k, v, key_padding_mask
        self._set_input_buffer(incremental_state, saved)
        return k, v, key_padding_mask

    def _extra_keys(self, k, v, key_padding_mask, attn_mask):
        """Append the learned pair (``add_bias_kv``) and the zero pair (``add_zero_attn``) to every sentence's keys."""
        extra = 0
        if self.bias_k is not None:
            k = torch.cat([k, self._heads_first(self.bias_k).expand(k.size(0), -1, -1, -1)], dim=2)
            v = torch.cat([v, self._heads_first(self.bias_v).expand(v.size(0), -1, -1, -1)], dim=2)
            extra += 1
        if self.add_zero_attn:
            k, v = F.pad(k, (0, 0, 0, 1)), F.pad(v, (0, 0, 0, 1))
            extra += 1
        if key_padding_mask is not None:
            key_padding_mask = F.pad(key_padding_mask.to(torch.bool), (0, extra))
        if attn_mask is not None:
            attn_mask = F.pad(attn_mask, (0, extra))
        return k, v, key_padding_mask, attn_mask

    def reorder_incremental_state(self, incremental_state: State, new_order: Tensor) -> State:
        """Reorder the cache, if there is one: without heads there is none."""
        return super().reorder_incremental_state(incremental_state, new_order) if self.num_heads else incremental_state

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        # The weights do not show how many heads they have; the metadata does, and stock fairseq ignores it.
        metadata = getattr(destination, "_metadata", None)
        if metadata is not None:
            metadata[prefix[:-1]]["num_heads"] = self.num_heads
            if self.num_heads < self.original_count:
                metadata[prefix[:-1]]["original_heads"] = list(self.indices)

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing, unexpected, errors) -> None:
        problem = self._differing_heads(state_dict.get(prefix + "out_proj.weight"), local_metadata)
        if problem:
            component, place = attention_place(prefix[:-1])
            errors.append(f"{prefix[:-1]}: {problem}" + (f" ({component} layer {place[-1]})" if place else ""))
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing, unexpected, errors)

    def _differing_heads(self, weight: Optional[Tensor], metadata: dict) -> str:
        """Describe how the heads of a state dict differ from the module's; empty if they do not."""
        found = metadata.get("num_heads", self.num_heads)
        if found == self.num_heads and weight is not None and weight.dim() == 2:
            found = weight.size(1) / self.head_dim
        if found != self.num_heads:
            return f"the checkpoint has {found:g} heads, the model was built with {self.num_heads}"
        heads = metadata.get("original_heads", self.indices)
        if heads != self.indices:
            return f"the checkpoint has the original heads {heads}, the model was built with {self.indices}"
        return ""
