"""Models side by side: timed in alternation on the same sentences, and their parameters and operations counted.

Translations have a fixed length.
"""

import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_headprune.modules.attach import GatedParts
from fairseq_headprune.progress import Bar
from fairseq_headprune.session import Session


def parameter_shares(model: nn.Module, gates: GatedParts) -> dict[str, Any]:
    """Return the number of parameters in total, in attention, and in one head (Michel et al. 2019, §4.3).

    Tied parameters count once. ``head`` is the mean over the remaining heads, 0 if there are none: rows of the q, k and
    v projections with their biases, and columns of out_proj, whose bias belongs to no head.
    """
    total = sum(parameter.numel() for parameter in {id(p): p for p in model.parameters()}.values())
    attention = heads = in_heads = 0
    for _, _, module in gates.items():
        mine = sum(parameter.numel() for parameter in module.parameters())
        bias = module.out_proj.bias
        attention += mine
        heads += module.num_heads
        in_heads += mine - (0 if bias is None else bias.numel())
    head = in_heads / heads if heads else 0.0
    return {
        "parameters": total,
        "attention_share": attention / total,
        "heads": heads,
        "parameters_per_head": head,
        "head_share": head / total,
    }


def multiply_adds(model: Any, gates: GatedParts, source: int, target: int) -> int:
    """Return the multiply-adds of translating one sentence with beam 1, from a formula that ignores layer norms.

    Encoder layer: S (4 d w + 2 d f) + 2 S² w. Decoder layer, step by step with a cache: T (4 d w + 2 d f) + T (T + 1) w
    for itself, and 2 T d w + 2 S e w + 2 S T w for the encoder's output. Output: T d V, or T times the weights of an
    adaptive softmax, since search computes all of its clusters. S and T are the lengths; d and e the widths of the
    model and its encoder; w the total width of the remaining heads; f the inner feed-forward width; V the vocabulary.

    Args:
        source, target: S and T, in tokens including end of sentence.
    """
    total = 0
    for component, _, module in gates.items():
        width, d = module.num_heads * module.head_dim, module.embed_dim
        if component == "enc_self":
            total += 4 * source * d * width + 2 * source**2 * width
        elif component == "dec_self":
            total += 4 * target * d * width + target * (target + 1) * width
        else:
            total += 2 * target * d * width + 2 * source * module.kdim * width + 2 * source * target * width
    total += source * _feed_forward(model.encoder.layers) + target * _feed_forward(model.decoder.layers)
    return total + target * _projection(model.decoder)


def encoder_multiply_adds(model: Any, gates: GatedParts, length: int) -> int:
    """Return the multiply-adds of classifying one example, from a formula that ignores layer norms.

    A layer: L (4 d w + 2 d f) + 2 L² w, in the notation of :func:`multiply_adds`. Pooler and classifier: d² + d C, for
    C classes.

    Args:
        length: L, in tokens including [CLS] and [SEP].
    """
    total = length * _feed_forward(model.encoder.layers)
    for _, _, module in gates.items():
        width = module.num_heads * module.head_dim
        total += 4 * length * module.embed_dim * width + 2 * length**2 * width
    heads = model.classification_heads.values()
    return total + model.encoder.pooler.weight.numel() + sum(head.out_proj.weight.numel() for head in heads)


def _projection(decoder: Any) -> int:
    """Return the number of weights of the output projection to the vocabulary."""
    if decoder.adaptive_softmax is None:
        return decoder.output_projection.weight.numel()
    return sum(weight.numel() for weight in decoder.adaptive_softmax.parameters() if weight.dim() == 2)


def _feed_forward(layers: Any) -> int:
    """Return the number of feed-forward weights; each is used once per token."""
    weights = [getattr(getattr(layer, name, None), "weight", None) for layer in layers for name in ("fc1", "fc2")]
    return sum(weight.numel() for weight in weights if weight is not None)


class _Counter(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += not func.is_view
        return func(*args, **(kwargs or {}))


def operations(work: Callable[[], object]) -> int:
    """Count the operations that torch runs, except views: roughly the number of kernels launched on a GPU."""
    with _Counter() as counter:
        work()
    return counter.count


def median_and_range(values: Sequence[float]) -> dict[str, float]:
    """Return median, smallest and largest."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def conditions(session: Session) -> dict[str, Any]:
    """Describe what times depend on besides the model: the device, its precision, and torch's threads."""
    return {"device": session.device.type, "precision": session.precision, "threads": torch.get_num_threads()}


class Side:
    """One of the models that are timed.

    Every hypothesis gets exactly ``length`` tokens, so that all models do the same number of steps: otherwise models
    of different quality would end their sentences at different lengths.
    """

    def __init__(self, session: Session, split: str, length: int, beams: Sequence[int]) -> None:
        """Load one generator per beam size.

        Raises:
            ValueError: the model does not have that many positions.
        """
        most = session.model.max_decoder_positions()
        if length > most:
            raise ValueError(f"--length {length}: the model translates to {most} tokens at most")
        self.session, self.split = session, split
        self.length: int | None = length
        generation = session.cfg.generation
        generation.min_len, generation.max_len_a, generation.max_len_b = length - 1, 0, length - 1
        self.generators: dict[int | None, Any] = {}
        for beam in beams:
            generation.beam = beam
            self.generators[beam] = session.task.build_generator([session.model], generation)

    def batches(self, sentences: int, batch_size: int) -> list[dict[str, Any]]:
        """Return the first sentences of the split, ``batch_size`` per batch (0: as many as --max-tokens allows)."""
        dataset = self.session.cfg.dataset
        before = dataset.batch_size, dataset.max_tokens
        if batch_size:
            dataset.batch_size, dataset.max_tokens = batch_size, None
        try:
            total = min(sentences, len(self.session.dataset(self.split)))
            return list(self.session.batches(self.split, np.arange(total)))
        finally:
            dataset.batch_size, dataset.max_tokens = before

    def step(self, batch: dict[str, Any], beam: int | None) -> None:
        """Translate one batch."""
        self.session.task.inference_step(self.generators[beam], [self.session.model], batch)

    def operations(self, batch: dict[str, Any], beam: int | None) -> int:
        """Count the operations for one batch; translate it once before to exclude one-time work after loading."""
        with torch.no_grad():
            return operations(lambda: self.step(batch, beam))

    def seconds(self, batches: list[dict[str, Any]], beam: int | None) -> float:
        """Process the batches once, and return the seconds taken."""
        cuda = self.session.device.type == "cuda"
        if cuda:
            torch.cuda.synchronize()
        began = time.perf_counter()
        with torch.no_grad():
            for batch in batches:
                self.step(batch, beam)
        if cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - began

    def multiply_adds(self) -> int:
        """Return the multiply-adds of one translation with beam 1, with a source as long as the target."""
        length = self.length or 0
        return multiply_adds(self.session.model, self.session.gates, length, length)

    def facts(self, path: str) -> dict[str, Any]:
        """Return size and multiply-adds."""
        return {
            **self.session.checkpoint,
            "bytes": os.path.getsize(path),
            **parameter_shares(self.session.model, self.session.gates),
            "multiply_adds": self.multiply_adds(),
        }


def measure(
    sides: dict[str, Side], sentences: int, batch_sizes: Sequence[int], beams: Sequence[int | None], rounds: int
) -> list[dict[str, Any]]:
    """Time every model at every batch size and beam: one warm-up round, then ``rounds`` in rotating order.

    Returns:
        One row per model, batch size (0: by --max-tokens) and beam: seconds of the rounds; median sentences and tokens
        per second (None if there is no fixed length); the speed ratio to the first model, round by round (median,
        smallest, largest); and on CUDA the peak memory in bytes, including the models.
    """
    rows = []
    names = list(sides)
    quiet, total = sides[names[0]].session.args.quiet, len(beams) * len(batch_sizes) * (rounds + 1)
    bar = Bar("timing", "round", total=total, quiet=quiet)
    for beam in beams:
        for size in batch_sizes:
            batches = {name: side.batches(sentences, size) for name, side in sides.items()}
            times: dict[str, list[float]] = {name: [] for name in sides}
            peaks = dict.fromkeys(sides, 0)
            bar.part(f"models: {len(names)}, batch size {size}" + ("" if beam is None else f", beam {beam}"))
            for number in range(rounds + 1):
                turn = number % len(names)
                for name in names[turn:] + names[:turn]:
                    if torch.cuda.is_available():
                        torch.cuda.reset_peak_memory_stats()
                    taken = sides[name].seconds(batches[name], beam)
                    if torch.cuda.is_available():
                        peaks[name] = max(peaks[name], torch.cuda.max_memory_allocated())
                    if number:
                        times[name].append(taken)
                bar.update()
            count = sum(len(batch["id"]) for batch in batches[names[0]])
            rows += [_row(name, size, beam, times, count, sides[name].length, peaks) for name in names]
    bar.close()
    return rows


def _row(
    name: str,
    size: int,
    beam: int | None,
    times: dict[str, list[float]],
    count: int,
    length: int | None,
    peaks: dict[str, int],
) -> dict[str, Any]:
    mine, first = times[name], next(iter(times.values()))
    ratios = [base / own for base, own in zip(first, mine, strict=True)]
    middle = statistics.median(mine)
    return {
        "model": name,
        "batch_size": size,
        "beam": beam,
        "sentences": count,
        "seconds": [round(value, 6) for value in mine],
        "sentences_per_second": count / middle,
        "tokens_per_second": None if length is None else count * length / middle,
        "speed": median_and_range(ratios),
        "peak_bytes": peaks[name] or None,
    }


class ClassifierSide(Side):
    """A BERT model that is timed: one pass over unchanged examples, the same for all models."""

    def __init__(self, session: Session, split: str) -> None:
        """Use the session's model."""
        self.session, self.split, self.length = session, split, None

    def step(self, batch: dict[str, Any], beam: int | None) -> None:
        """Predict one batch."""
        self.session.model(**batch["net_input"])

    def multiply_adds(self) -> int:
        """Return the multiply-adds for an example of the split's mean length."""
        mean = round(float(self.session.dataset(self.split).sizes.mean()))
        return encoder_multiply_adds(self.session.model, self.session.gates, mean)
