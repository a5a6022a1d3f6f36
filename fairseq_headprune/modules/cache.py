"""Keys and values of a beam search in which the hypotheses of a sentence share one list of keys.

fairseq gives every hypothesis its own keys, and copies all of them in every step, since hypotheses change places. Here
the keys of all hypotheses of a sentence stay where they are, and each hypothesis remembers which of them are its own:
reordering changes these marks only, and the hypotheses of a sentence attend in one product instead of one each.
"""

import copy
from functools import partial
from typing import Any, Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_headprune.modules.attention import alike, apply_gate, together
from fairseq_headprune.modules.blocks import Blocks, write_rows

#: Number of steps for which there is room before keys are moved; kept small because unused room is moved, too.
_STEPS = 4

#: Numbers of keys are filled up to multiples of this, with keys that nobody attends to: in half precision, products on
#: CUDA are slow for rows of other lengths.
_ALIGNED = 8


class BeamCache(dict):
    """The incremental state of a decoder with gated attention, for :class:`GatedMultiheadAttention`.

    Attention modules find their keys and values here (:meth:`attend`); the dictionary itself, in which fairseq's other
    modules would look for theirs, stays empty. In a step all sentences have the same number of hypotheses.
    """

    def __init__(self, padding: Tensor, expected: int = 0) -> None:
        """Start without keys.

        Args:
            padding: bool (sentences, src): the padding of the encoder outputs that sentences attend to.
            expected: keys of all sentences together for which room is made at once; there may be more.
        """
        super().__init__()
        # A softmax over nothing is NaN; where there is nothing to attend to, the values are 0 instead.
        nothing = padding.all(1)
        self._nothing = nothing if bool(nothing.any()) else None
        padding = F.pad(padding & ~nothing[:, None], (0, -padding.size(1) % _ALIGNED), value=True)
        self._padding = padding if bool(padding.any()) else None
        self._width, self._device = padding.size(1), padding.device
        #: None (one hypothesis a sentence), or bool (sentences, beam, keys): the keys of others, or of nobody
        self._others: Optional[Tensor] = None
        self._sentences, self._beam, self._start, self._keys = padding.size(0), 1, 0, 0
        self._apart = False
        #: (beam,) where this step's keys go, if all steps use the same tensors (see :meth:`hold`)
        self._places: Optional[Tensor] = None
        #: of self-attention, of which the last keys are not used yet, and of encoder-decoder attention
        self._own, self._encoded = Blocks(expected), Blocks(padding.numel())
        #: module -> weights and bias of queries, keys and values in one
        self._joined: dict[Any, tuple[Tensor, Optional[Tensor]]] = {}

    def encode(self, module: Any, encoded: Tensor, outputs: Tensor) -> None:
        """Project each encoder output once for an encoder-decoder attention.

        Args:
            encoded: (src, outputs, d).
            outputs: (sentences,) the index of the output that each sentence attends to.
        """
        encoded = F.pad(encoded, (0, 0, 0, 0, 0, -encoded.size(0) % _ALIGNED))
        for place, layer in enumerate((module.k_proj, module.v_proj)):
            projected = module._heads_first(layer(encoded))
            shape = (outputs.numel(), *projected.shape[1:])
            self._encoded.put(module, place, shape, projected, partial(write_rows, projected, outputs))
        if self._nothing is not None:
            self._encoded[module][1].masked_fill_(self._nothing[:, None, None, None], 0.0)

    def begin(self, beam: int) -> None:
        """Begin a step with that many hypotheses per sentence, each of which adds a key; call :meth:`follow` between.

        After a step with one hypothesis per sentence there may be more: they share its key.
        """
        self._beam, self._start, self._keys = beam, self._keys, self._keys + beam
        self._apart = False
        if self._places is not None:
            self._places += beam

    def follow(self, keep: Tensor, order: Tensor, beam: int) -> None:
        """Continue with some sentences, and with other hypotheses of each.

        Args:
            keep: indices of the sentences that remain, ascending.
            order: (len(keep) * beam,) index over all sentences of the hypothesis that each new one continues.
            beam: new hypotheses per sentence.
        """
        count = order.numel() // beam
        if self._places is not None and self._others is not None and count == self._sentences and not self.full:
            others = self._others.flatten(0, 1)
            others.copy_(others.index_select(0, order))
            self._others.index_copy_(2, self._places + beam, self._only_mine(beam, beam).expand(count, -1, -1))
            return
        self.release()
        if beam > 1:
            new = self._only_mine(beam, _aligned(self._keys + beam) - self._keys).expand(count, -1, -1)
            if self._others is None:
                before = new.new_zeros(count, beam, self._keys)
            else:
                before = self._others[:, :, : self._keys].flatten(0, 1).index_select(0, order)
                before = before.unflatten(0, (count, beam))
            self._others = torch.cat([before, new], 2)
        if keep.numel() != self._sentences:
            self._sentences = keep.numel()
            self._own.select(keep)
            self._encoded.select(keep)
            if self._padding is not None:
                self._padding = self._padding.index_select(0, keep)

    def _only_mine(self, beam: int, keys: int) -> Tensor:
        """Return marks of a step's keys, (beam, keys): each hypothesis has its own one; the rest is nobody's."""
        return torch.ones(beam, keys, dtype=torch.bool, device=self._device).fill_diagonal_(False)

    def hold(self, most: int) -> None:
        """Between steps: let the following ones use the same tensors, so that a step can be recorded.

        There is room for as many keys again, but not for more than ``most`` keys. Where a step's keys go is read from a
        tensor. This ends where sentences are dropped or joined.
        """
        self.release()
        count, beam = self._sentences, 1 if self._others is None else self._others.size(1)
        room = _aligned(max(self._keys + beam, min(2 * self._keys, most)))
        others = torch.ones(count, beam, room, dtype=torch.bool, device=self._device)
        others[:, :, : self._keys + beam] = False if self._others is None else self._others[:, :, : self._keys + beam]
        self._others = others
        self._places = torch.arange(self._keys - beam, self._keys, device=self._device)
        for module in self._own:
            for place, old in enumerate(self._own[module]):
                shape = count, old.size(1), room, old.size(3)
                self._own.put(module, place, shape, old, partial(_widen, old, self._keys))

    @property
    def full(self) -> bool:
        """Whether :meth:`hold` is not in force, or left no room for another step."""
        return self._places is None or self._others is None or self._keys + self._others.size(1) > self._others.size(2)

    def release(self) -> None:
        """Between steps: end :meth:`hold`, if it is in force."""
        if self._places is not None and self._others is not None:
            beam = self._others.size(1)
            self._others = None if beam == 1 else self._others[:, :, : _aligned(self._keys + beam)]
        self._places = None

    def compact(self) -> None:
        """Between steps: release all memory that the keys of the sentences that are left do not need."""
        self.release()
        self._joined.clear()
        self._own.compact(self._keys)
        self._encoded.compact()

    def part(self, keep: Tensor) -> "BeamCache":
        """Return a copy with some sentences, for whose keys there is no more room than they need."""
        new = copy.copy(self)
        new._sentences = keep.numel()
        new._own, new._encoded = self._own.part(keep), self._encoded.part(keep)
        for name in ("_padding", "_others"):
            rows = getattr(self, name)
            setattr(new, name, None if rows is None else rows.index_select(0, keep))
        return new

    def join(self, other: "BeamCache") -> None:
        """Append the sentences of another search; both are between steps, and had as many steps and hypotheses."""
        self.release()
        width = max(self._width, other._width)
        if self._padding is not None or other._padding is not None or self._width != other._width:
            self._padding = torch.cat([self._padded(width), other._padded(width)])
        self._own.join(other._own, self._keys)
        self._encoded.join(other._encoded, width)
        if self._others is not None and other._others is not None:
            self._others = torch.cat([self._others, other._others])
        self._sentences, self._width = self._sentences + other._sentences, width

    def _padded(self, width: int) -> Tensor:
        """Return the padding, (sentences, width)."""
        padding = self._padding
        if padding is None:
            padding = torch.zeros(self._sentences, self._width, dtype=torch.bool, device=self._device)
        return F.pad(padding, (0, width - self._width), value=True)

    def repeat(self) -> None:
        """Repeat this step: a hypothesis that is not finite reaches no other one then, as it does otherwise.

        The others' weights of its values are 0, but 0 times NaN is NaN. So such a value is stored as 0, and the output
        of its own hypothesis is made NaN instead; this takes time, so it is done only where it is needed.
        """
        self._apart = True

    def attend(self, module: Any, query: Tensor) -> Tensor:
        """Return the output of an attention module, (1, sentences * beam, d), for queries of the same shape.

        A mask of its rows (``row_keep``) has one row per sentence here.
        """
        rows, lost = query[0].unflatten(0, (-1, self._beam)), None
        if module.self_attention:
            q, *new = (_heads_first(module, x) for x in self._project(module, rows))
            if self._apart:
                lost = ~new[1].isfinite().all(-1, keepdim=True)
                new[1] = new[1].masked_fill(lost, 0.0)
            blocked = self._others
            keys = self._keys if blocked is None else blocked.size(2)
            key, value = (room[:, :, :keys] for room in self._append(module, new))
        else:
            q = _heads_first(module, module.q_proj(rows))
            key, value = self._encoded[module]
            blocked = None if self._padding is None else self._padding[:, None]
        heads = self._mix(module, q, key, value, blocked)
        heads = heads if lost is None else heads.masked_fill(lost, torch.nan)
        heads = apply_gate(heads, module.head_gate, module.head_keep if module.row_keep is None else module.row_keep)
        return module.out_proj(heads.transpose(1, 2).reshape(1, -1, heads.size(1) * heads.size(3)))

    def _project(self, module: Any, rows: Tensor) -> tuple[Tensor, ...]:
        layers = module.q_proj, module.k_proj, module.v_proj
        if not alike(*layers):
            return tuple(layer(rows) for layer in layers)
        if module not in self._joined:
            self._joined[module] = together(*layers)
        return F.linear(rows, *self._joined[module]).chunk(3, dim=-1)

    def _append(self, module: Any, new: list[Tensor]) -> list[Tensor]:
        """Append the keys and values of this step, and return the module's rooms."""
        if self._places is not None:
            for room, x in zip(self._own[module], new, strict=True):
                room.index_copy_(2, self._places, x)
            return self._own[module]
        if module not in self._own or self._own[module][0].size(2) < self._keys:
            size = _aligned(self._start + _STEPS * self._beam)
            for place, x in enumerate(new):
                old = self._own[module][place] if self._start else x
                shape = x.size(0), x.size(1), size, x.size(3)
                self._own.put(module, place, shape, x, partial(_widen, old, self._start))
        for room, x in zip(self._own[module], new, strict=True):
            room[:, :, self._start : self._keys] = x
        return self._own[module]

    @staticmethod
    def _mix(module: Any, q: Tensor, key: Tensor, value: Tensor, blocked: Optional[Tensor]) -> Tensor:
        """Return softmax(q k / scale) v, (sentences, heads, beam, head_dim); ``blocked``: bool (sentences, beam, keys).

        With half precision the softmax computes in float32, and only its result is rounded.
        """
        scaled = torch.mul(q, module.scaling, out=torch.empty(q.shape, dtype=q.dtype, device=q.device))
        scores = torch.bmm(scaled.flatten(0, 1), key.flatten(0, 1).transpose(1, 2))
        if blocked is not None:
            scores.unflatten(0, q.shape[:2]).masked_fill_(blocked[:, None], -torch.inf)
        weights = module.dropout_module(torch.softmax(scores, dim=-1))
        return torch.bmm(weights, value.flatten(0, 1)).unflatten(0, q.shape[:2])


def _aligned(keys: int) -> int:
    return keys + -keys % _ALIGNED


def _widen(old: Tensor, keys: int, new: Tensor) -> None:
    new[:, :, :keys] = old[:, :, :keys]
    # Nobody attends to the rest, but 0 times NaN is NaN.
    new[:, :, keys:] = 0


def _heads_first(module: Any, x: Tensor) -> Tensor:
    """(sentences, beam, heads * head_dim) -> (sentences, heads, beam, head_dim), without copying."""
    return x.unflatten(-1, (module.num_heads, module.head_dim)).transpose(1, 2)
