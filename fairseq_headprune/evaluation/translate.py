"""Translate a split with fairseq's generator under the mask in force."""

from typing import Any

import torch
from fairseq import utils
from fairseq_cli.generate import get_symbols_to_strip_from_output

from fairseq_headprune.session import Session


class Translator:
    """Translates one split again and again, with all of fairseq-generate's settings (beam, lenpen, post-process, …).

    Attributes:
        references: the target side, decoded in the same way (unknown words escaped as fairseq-generate does), for the
            sentences that are translated, in corpus order.
    """

    def __init__(self, session: Session, split: str) -> None:
        """Batch the split and build the generator.

        Raises:
            ValueError: an empty split, one without a target side, or a setting that has no place here.
        """
        _check_settings(session.cfg.generation)
        self._session = session
        self._batches = session.batches(split)
        self._generator = session.task.build_generator([session.model], session.cfg.generation)
        self._tokenizer = session.task.build_tokenizer(session.cfg.tokenizer)
        self._bpe = session.task.build_bpe(session.cfg.bpe)
        target = session.dataset(split).tgt
        self._indices = sorted(int(i) for group in self._batches.groups for i in group)
        self.references = [self._decode(target[i], escape_unk=True) for i in self._indices]

    def translate(self) -> list[str]:
        """Return the best hypothesis of each sentence as fairseq-generate prints it on its D- line, in corpus order.

        The mask is the model's present one.
        """
        found: dict[int, str] = {}
        prefix_size = self._session.cfg.generation.prefix_size
        for sample in self._batches:
            prefix = sample["target"][:, :prefix_size] if prefix_size > 0 else None
            with torch.no_grad():
                best = self._session.task.inference_step(self._generator, [self._session.model], sample, prefix)
            for number, hypotheses in zip(sample["id"].tolist(), best, strict=True):
                found[number] = self._decode(hypotheses[0]["tokens"])
        return [found[i] for i in self._indices]

    def _decode(self, tokens: Any, escape_unk: bool = False) -> str:
        """Turn indices into text: dictionary, ``--post-process``, ``--bpe`` and ``--tokenizer``, in this order."""
        dictionary = self._session.task.target_dictionary
        tokens = utils.strip_pad(torch.as_tensor(tokens), dictionary.pad()).int().cpu()
        text = dictionary.string(
            tokens,
            self._session.cfg.common_eval.post_process,
            escape_unk=escape_unk,
            extra_symbols_to_ignore=get_symbols_to_strip_from_output(self._generator),
        )
        for step in (self._bpe, self._tokenizer):
            text = step.decode(text) if step is not None else text
        return text


def _check_settings(generation: Any) -> None:
    if generation.sampling:
        raise ValueError("--sampling makes every translation another one; compare masks by beam search")
    if generation.score_reference:
        raise ValueError("--score-reference translates nothing; leave it away")
    if generation.replace_unk is not None:
        raise ValueError("--replace-unk is not supported here; leave it away")
