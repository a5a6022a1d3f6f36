"""Translate a split: with fairseq's generator under the current mask, or under many masks at once."""

import logging
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from fairseq_cli.generate import get_symbols_to_strip_from_output
from torch import Tensor

from fairseq_headprune.evaluation.comet import Comet
from fairseq_headprune.evaluation.evaluator import AnswerMetric
from fairseq_headprune.evaluation.generation import built, check_generation, check_prefix
from fairseq_headprune.evaluation.hypotheses import empty_references, looks_detokenised, refuse_marks, warning
from fairseq_headprune.evaluation.many_masks import ManyMasks, obstacle
from fairseq_headprune.evaluation.memory import Card, Packer, fitting
from fairseq_headprune.evaluation.rests import Rests
from fairseq_headprune.evaluation.statistics import TOKENISED, Metric, corpus_metric
from fairseq_headprune.parts import Mask

logger = logging.getLogger(__name__)


class Translator:
    """Translates one split, any number of times, with all settings of fairseq-generate (beam, lenpen, post-process, …).

    Attributes:
        obstacle: why this model or these settings do not allow many masks at once; None if they do.
        references: the target side of the translated sentences, decoded in the same way (unknown words escaped as in
            fairseq-generate), in corpus order.
    """

    def __init__(self, session: Any, split: str, indices: Sequence[int] | None = None) -> None:
        """Batch the split (or the sentences ``indices`` of it) and build the generator.

        Raises:
            ValueError: the split is empty or has no target side, or a setting is not supported here.
        """
        cfg, args, task = session.cfg, session.args, session.task
        check_generation(cfg.generation)
        self._session = session
        self._batches = session.batches(split, indices)
        self._generator = built("generation", lambda: task.build_generator([session.model], cfg.generation))
        self.obstacle = obstacle(session.model, session.gates, self._generator)
        self._split = split
        self._tokenizer = built(f"--tokenizer {args.tokenizer}", lambda: task.build_tokenizer(cfg.tokenizer))
        self._bpe = built(f"--bpe {args.bpe}", lambda: task.build_bpe(cfg.bpe))
        # Reading a setting takes as long as decoding a short sentence.
        self._post_process = cfg.common_eval.post_process
        self._ignored = get_symbols_to_strip_from_output(self._generator)
        target = session.dataset(split).tgt
        self._indices = sorted(int(i) for group in self._batches.groups for i in group)
        check_prefix(cfg.generation.prefix_size, [len(target[i]) - 1 for i in self._indices])
        # fairseq checks the name of the post-processing only when it decodes.
        self.references = built(
            f"--post-process {args.post_process}",
            lambda: [self._decode(target[i].tolist(), escape_unk=True) for i in self._indices],
        )

        if not getattr(args, "keep_marks", False):
            refuse_marks(f"the references of {split}", self.references)

    @property
    def sources(self) -> list[str]:
        """The source side of the translated sentences as fairseq-generate prints it on its S- lines."""
        source, dictionary = self._session.dataset(self._split).src, self._session.task.source_dictionary
        return [dictionary.string(source[i], self._post_process) for i in self._indices]

    def metric(self, comparison: Any) -> Metric:
        """Return BLEU, bound to the references; warn if they are not of the form that its tokeniser expects."""
        warn_of_form(self.references, comparison.tokenize)
        return corpus_metric("bleu", self.references, comparison.tokenize)

    def beside(self) -> dict[str, AnswerMetric]:
        """Return chrF, and COMET if ``--comet`` asks for it, bound to the references."""
        found: dict[str, AnswerMetric] = {"chrf": corpus_metric("chrf", self.references)}
        model = getattr(self._session.args, "comet", None)
        if model is not None:
            gpus = int(self._session.device.type == "cuda")
            found["comet"] = Comet(model, self.sources, self.references, gpus)
        return found

    def answers(self) -> list[str]:
        """Return the best hypothesis of each sentence as fairseq-generate prints it on its D- line, in corpus order.

        The mask is the model's current one.

        Raises:
            FloatingPointError: the search does not end because the model's output is not finite.
        """
        found: dict[int, str] = {}
        for sample in self._batches:
            models, prefix = [self._session.model], self._prefix(sample)
            try:
                with torch.no_grad():
                    best = self._session.task.inference_step(self._generator, models, sample, prefix)
            except AssertionError as error:
                # fairseq asserts that the search ends; if every score is NaN, no hypothesis does.
                raise FloatingPointError(
                    f"fairseq's search found no translation ({error}): is the model finite?"
                ) from error
            for number, hypotheses in zip(sample["id"].tolist(), best, strict=True):
                found[number] = self._decode(hypotheses[0]["tokens"].tolist())
        return [found[i] for i in self._indices]

    def answers_of(self, masks: Sequence[Mask]) -> list[list[str]]:
        """Return for each mask what :meth:`answers` returns under it, translating under all masks at once.

        Maximum lengths are those of the batches of :meth:`answers`: with ``--max-len-a`` they depend on the longest
        sentence of the batch, and must not depend on how many masks share a batch here.

        Raises:
            ValueError: many masks at once are not supported (see :attr:`obstacle`), or a mask does not fit.
        """
        if self.obstacle:
            raise ValueError(f"many masks at once: {self.obstacle}")
        found: list[dict[int, str]] = [{} for _ in masks]

        def take(numbers: Tensor, rows: Tensor) -> None:
            for number, text in zip(numbers.tolist(), self._decode_all(rows), strict=True):
                sentence, mask = divmod(number, len(masks))
                found[mask][sentence] = text

        rests = Rests(take)
        sizes = self._session.dataset(self._split).src_sizes
        with self._many.under(masks) as begin:

            def work(sentences: Sequence[int], numbers: Sequence[int]) -> None:
                """Translate some sentences (corpus indices) under some masks, except for what ``rests`` sets aside."""
                sample = self._session.collate(self._split, sentences)
                limits = [self._limits[number] for number in sample["id"].tolist()]
                rests.run(begin(sample, numbers, limits, self._prefix(sample)))

            self._packer.run(self._indices, [int(sizes[i]) for i in self._indices], len(masks), work, rests)
        return [[of_mask[i] for i in self._indices] for of_mask in found]

    @cached_property
    def _many(self) -> ManyMasks:
        return ManyMasks(self._session.model, self._session.gates, self._generator)

    @cached_property
    def _packer(self) -> Packer:
        card = Card.of(self._session)
        return Packer(fitting(self._session.model, card, self._many.beam, self._many.limit), self._many.beam, card)

    @cached_property
    def _limits(self) -> dict[int, int]:
        """Return the maximum length of each sentence's translation in the batches of :meth:`answers`."""
        if not self._generator.max_len_a:
            return dict.fromkeys(self._indices, self._many.limit(0))
        widths = ((sample["id"].tolist(), sample["net_input"]["src_tokens"].size(1)) for sample in self._batches)
        return {number: self._many.limit(width) for ids, width in widths for number in ids}

    def _prefix(self, sample: dict[str, Any]) -> Any:
        size = self._session.cfg.generation.prefix_size
        return sample["target"][:, :size] if size > 0 else None

    def _decode_all(self, rows: Tensor) -> list[str]:
        """Convert padded rows of indices (n, tokens) to text; equal rows, of which there are many, are decoded once."""
        # As bytes: making and hashing lists of numbers takes many times as long.
        data, size = rows.to(torch.int32).cpu().numpy().tobytes(), 4 * rows.size(1)
        keys = [data[start : start + size] for start in range(0, len(data), size)]
        texts = {key: self._decode(np.frombuffer(key, np.int32).tolist()) for key in set(keys)}
        return [texts[key] for key in keys]

    def _decode(self, tokens: Sequence[int], escape_unk: bool = False) -> str:
        """Convert indices to text: dictionary, ``--post-process``, ``--bpe`` and ``--tokenizer``, in this order."""
        dictionary = self._session.task.target_dictionary
        text = dictionary.string(
            [token for token in tokens if token != dictionary.pad()],
            self._post_process,
            escape_unk=escape_unk,
            extra_symbols_to_ignore=self._ignored,
        )
        for step in (self._bpe, self._tokenizer):
            text = step.decode(text) if step is not None else text
        return text


def warn_of_form(references: list[str], tokenize: str) -> None:
    """Log a warning if sacrebleu would tokenise tokenised or escaped text, or if references are empty."""
    found = warning(looks_detokenised(references), {}, tokenises=tokenize not in (TOKENISED, "none"))
    for said in (found, empty_references(references)):
        if said:
            logger.warning(said)
