"""Forward and backward pass of a micro-batch as one function of a padded batch, which can be recorded."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import is_not
from typing import Any, Optional

import torch
from torch import Tensor, nn

from fairseq_headprune.cuda_graphs import AssumePadding, first_line, ran_out_of_memory
from fairseq_headprune.modules.multihead import GatedMultiheadAttention
from fairseq_headprune.modules.short_attention import AddedMasks
from fairseq_headprune.training.recording import BatchShape, PaddedBatch, Recordings, loose_tensors

logger = logging.getLogger(__name__)


class Gradients:
    """One tensor with the gradients of all parameters of a dtype, and a view of it for each parameter.

    A parameter that no pass has reached has no gradient (``p.grad`` is None), as in eager mode.

    Attributes:
        parameters: the parameters.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = list(parameters)
        self._views: list[Tensor] = [torch.empty(0)] * len(self.parameters)
        self._flat: list[Tensor] = []
        #: places of the parameters that a pass has reached
        self._reached: set[int] = set()
        alike: dict[tuple, list[int]] = {}
        for place, parameter in enumerate(self.parameters):
            alike.setdefault((parameter.dtype, parameter.device), []).append(place)
        for places in alike.values():
            mine = [self.parameters[place] for place in places]
            flat = torch.zeros(sum(p.numel() for p in mine), dtype=mine[0].dtype, device=mine[0].device)
            self._flat.append(flat)
            parts = flat.split([p.numel() for p in mine])
            for place, part, parameter in zip(places, parts, mine, strict=True):
                self._views[place] = part.view_as(parameter)

    def clear(self) -> None:
        """Begin an update: set all to 0."""
        for flat in self._flat:
            flat.zero_()

    def attach(self) -> None:
        """Attach them again, if the optimizer has dropped them."""
        for place in self._reached:
            self.parameters[place].grad = self._views[place]

    def unreached(self) -> list[nn.Parameter]:
        """Return the parameters that no pass has reached."""
        if len(self._reached) == len(self.parameters):
            return []  # as in nearly every update
        return [p for place, p in enumerate(self.parameters) if place not in self._reached]

    def add(self, found: Sequence[Optional[Tensor]]) -> None:
        """Add the gradients of one pass; None for parameters that it did not reach."""
        for place, gradient in enumerate(found):
            if gradient is not None and place not in self._reached:
                self._reach(place)
        views = [view for view, gradient in zip(self._views, found, strict=True) if gradient is not None]
        torch._foreach_add_(views, [gradient for gradient in found if gradient is not None])

    def _reach(self, place: int) -> None:
        parameter, view = self.parameters[place], self._views[place]
        if parameter.grad is not None:  # of a pass of this update that ran eagerly
            view.add_(parameter.grad)
        parameter.grad = view
        self._reached.add(place)


#: Attributes of gated modules that a recording depends on; learned gates are read from a tensor instead.
_SET = ("row_keep", "row_block", "head_gate", "on_weights", "ffn_keep", "unit_gate", "block_gate")
#: While gates are learned, this one is used only in evaluation.
_MASK = "head_keep"


class PaddedPass:
    """One pass over a padded batch: writes losses and adds gradients at fixed addresses.

    Attributes:
        scale: factor of the loss in the backward pass, a tensor.
        numbers: of the last pass, float32: unscaled loss, negative log-likelihood, and the gradient w.r.t. each learned
            gate. They are kept together since they are read together.
    """

    def __init__(
        self,
        model: nn.Module,
        criterion: Any,
        parameters: Sequence[nn.Parameter],
        gates: Any = None,
    ) -> None:
        """Make the tensors.

        Args:
            gates: learned gates at fixed addresses (see ``LearnedGates``).
        """
        self._model, self._criterion, self._gates = model, criterion, gates
        self.gradients = Gradients(parameters)
        device = next(model.parameters()).device
        self.scale = torch.ones((), device=device)
        self.numbers = torch.zeros(2 + (0 if gates is None else len(gates.learner.heads)), device=device)
        self._attention = [m for m in model.modules() if isinstance(m, GatedMultiheadAttention)]
        sides: list[Any] = [getattr(model, side, None) for side in ("encoder", "decoder")]
        #: the last modules before the layers of encoder and decoder
        self._embedding = [side.dropout_module for side in sides if hasattr(side, "dropout_module")]

    @contextmanager
    def _without_copies(self) -> Iterator[None]:
        masks = AddedMasks()
        hooks = [module.register_forward_hook(_store_time_first) for module in self._embedding]
        for module in self._attention:
            module.masks_of_pass = masks
        try:
            yield
        finally:
            for module in self._attention:
                module.masks_of_pass = None
            for hook in hooks:
                hook.remove()

    def __call__(self, batch: PaddedBatch) -> None:
        """Run the pass; on a GPU, launch it."""
        leaves: list[Tensor] = list(self.gradients.parameters)
        with AssumePadding(), self._without_copies():
            if self._gates is not None:
                leaves.append(self._gates.put())
            output = self._model(**batch.sample["net_input"])
            loss, nll_loss = self._criterion.compute_loss(self._model, output, batch.sample)
            scale = self.scale.to(loss.dtype)
            found = torch.autograd.grad(loss, leaves, grad_outputs=scale, allow_unused=True)
        with torch.no_grad():
            numbers = [loss.detach().view(1), nll_loss.detach().view(1)]
            if self._gates is not None:
                self._gates.take_off()
                numbers.append(found[-1])
            self.gradients.add(found[: len(self.gradients.parameters)])
            torch.cat(numbers, out=self.numbers)


def _store_time_first(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
    """Store embeddings (batch, time, d) as (time, batch, d), into which fairseq transposes them for the layers.

    As a mere view of the other order they would be copied before every product and layer normalisation, and every
    residual connection would add tensors of two orders.
    """
    return output.transpose(0, 1).contiguous().transpose(0, 1)


class Passes:
    """Runs padded batches, and records them if their shape is frequent enough."""

    def __init__(
        self, work: PaddedPass, model: nn.Module, recorder: Any, pad: int, eos: int, learned: bool = False
    ) -> None:
        """Start without recordings.

        Args:
            learned: whether gates are learned: masks then change with every validation, and have no effect in training.
        """
        self._work, self._model, self._recorder, self._pad, self._eos = work, model, recorder, pad, eos
        self.recordings: Recordings[tuple[PaddedBatch, Callable[[], None], list[Tensor]]] = Recordings()
        self.failure: Optional[str] = None
        places = (place for module in model.modules() for place in (vars(module), module._buffers))
        names = _SET if learned else (*_SET, _MASK)
        self._places = [(place, name) for place in places for name in names if name in place]
        self._state = [place[name] for place, name in self._places]

    def run(self, sample: dict[str, Any], shape: BatchShape) -> None:
        """Run one batch, padded to a shape.

        Random numbers and results are the same whether recorded or not.
        """
        self._notice_masks()
        known = self.recordings.get(shape)
        if known is None and self._recorder is not None and self.recordings.is_due(shape):
            known = self._record(sample, shape)
        if known is not None:
            batch, replay, _ = known
            batch.load(sample)
            replay()
            return
        batch = PaddedBatch(shape, sample, self._pad, self._eos)
        batch.load(sample)
        self._work(batch)

    def _record(self, sample: dict[str, Any], shape: BatchShape) -> Any:
        batch = PaddedBatch(shape, sample, self._pad, self._eos)
        batch.load(sample)
        failure: Optional[str] = None
        try:
            replay = self._recorder.record(lambda: self._work(batch))
        except RuntimeError as error:
            failure, memory = first_line(error), ran_out_of_memory(error)
        # Outside the handler, which would keep the tensors of the failed pass alive.
        if failure is not None:
            if not memory or not self._record_fewer():
                # Too little memory for any, or an operation waits for the device.
                self.failure, self._recorder = failure, None
                self.recordings.clear()
            return None
        recording = batch, replay, loose_tensors(self._model)
        self.recordings.add(shape, recording)
        return recording

    def _record_fewer(self) -> bool:
        """Go on with half as many recordings; return whether that is possible."""
        count = len(self.recordings)
        if not self.recordings.halve():
            return False
        try:
            self._recorder.renew()
        except RuntimeError:
            return False
        logger.warning(f"--cuda-graphs: out of memory with {count} recordings; from now on {count // 2} are kept")
        return True

    def _notice_masks(self) -> None:
        """Drop recordings that were made under another mask."""
        state = [place[name] for place, name in self._places]
        if any(map(is_not, state, self._state)):
            if not all(map(_same, state, self._state)):
                self.recordings.clear()
            self._state = state


def _same(a: Any, b: Any) -> bool:
    return a is b or (isinstance(a, Tensor) and isinstance(b, Tensor) and a.shape == b.shape and torch.equal(a, b))
