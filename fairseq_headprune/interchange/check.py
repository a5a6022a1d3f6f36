"""``headprune import --check``: compare an imported model's ids, logits and translations with transformers."""

import importlib.util
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from fairseq_headprune.files import read_lines
from fairseq_headprune.imports.pieces import Numbers
from fairseq_headprune.interchange.convert import CHECKPOINT

#: tolerance between logits in float32
TOLERANCE = 1e-3

#: maximum number of tokens of the check's translations, including start and end of sentence
LENGTH = 64


def load_transformers() -> Any:
    """Import transformers, even if an installed torchaudio, which it imports, does not fit torch.

    Raises:
        ValueError: it is not installed.
    """
    if importlib.util.find_spec("transformers") is None:
        raise ValueError("--check needs transformers: pip install transformers")
    try:
        import torchaudio  # noqa: F401
    except Exception:
        # In sys.modules, None marks a module that must not be imported.
        sys.modules["torchaudio"] = None  # type: ignore[assignment]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers


def read_check(path: str, count: int) -> list[str]:
    """Return the first lines of the text to compare on; requires transformers.

    Raises:
        ValueError, FileNotFoundError: no lines, no such file, or no transformers.
    """
    if count < 1:
        raise ValueError(f"--check-lines {count}: give 1 or more")
    load_transformers()
    lines = read_lines(path)[:count]
    if not lines:
        raise ValueError(f"--check {path}: there is no line in it")
    return lines


def check(folder: Path, output: Path, lines: list[str], value: dict[str, Any]) -> dict[str, Any]:
    """Compare an import with the folder it was made from.

    Returns:
        how many lines differ in ids and in translations, and the largest difference of logits.

    Raises:
        RuntimeError: the logits differ by more than the tolerance.
    """
    transformers = load_transformers()
    languages = {"src_lang": value["source_lang"], "tgt_lang": value["target_lang"]}
    ours, task = load_import(output, value)
    given = {} if task.source_dictionary.about["language"] is None else languages
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, **given)
        theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, local_files_only=True).float().eval()
    numbers = Numbers(output, "source", task.source_dictionary, value["source_lang"])(lines)
    other = [i for i, line in enumerate(lines) if tokenizer(line)["input_ids"] != numbers[i]]
    rows = [row for row in numbers if len(row) <= ours.max_positions()[0]]
    if not rows:
        raise ValueError("--check: every line is longer than the model's positions")
    with torch.no_grad():
        found = translations(ours, task, rows)
        expected = generated(theirs, task, rows)
        difference = logit_difference(ours, theirs, task, rows, found)
    if not difference <= TOLERANCE:
        raise RuntimeError(f"logits of the imported model differ from those of transformers by up to {difference:.2g}")
    ended = [pair for pair in zip(found, expected, strict=True) if max(map(len, pair)) < LENGTH - 1]
    counts = {
        "lines are too long for the model": len(lines) - len(rows),
        f"translations reach the limit of {LENGTH} tokens and do not count": len(rows) - len(ended),
    }
    return {
        "transformers": transformers.__version__,
        "lines": len(lines),
        "other_numbers": len(other),
        "logits": difference,
        "other_translations": sum(one != two for one, two in ended),
        "search": {"beam": 4, "early_stopping": True, "max_length": LENGTH},
        "remarks": [f"{count} {what}" for what, count in counts.items() if count],
    }


def load_import(output: Path, value: dict[str, Any]) -> tuple[Any, Any]:
    """Return the fairseq model of an import, in evaluation mode, and its task."""
    from fairseq import checkpoint_utils

    from fairseq_headprune.checkpoints import allow_settings
    from fairseq_headprune.tasks.translation_headprune import TranslationHeadpruneConfig, TranslationHeadpruneTask

    allow_settings()
    languages = {"source_lang": value["source_lang"], "target_lang": value["target_lang"]}
    task = TranslationHeadpruneTask.setup_task(TranslationHeadpruneConfig(data=str(output), **languages))
    models, _ = checkpoint_utils.load_model_ensemble([str(output / CHECKPOINT)], task=task)
    return models[0].float().eval(), task


def padded(rows: list[list[int]], pad: int) -> Tensor:
    """Return sentences as one batch (batch, time), padded on the right."""
    width = max(map(len, rows))
    return torch.tensor([row + [pad] * (width - len(row)) for row in rows])


def translations(model: Any, task: Any, rows: list[list[int]], beam: int = 4, penalty: float = 1.0) -> list[list[int]]:
    """Return the best translation of each sentence by fairseq's search, with settings that transformers has as well."""
    settings = SimpleNamespace(beam=beam, max_len_a=0, max_len_b=LENGTH - 2, min_len=0, lenpen=penalty)
    tokens = padded(rows, task.source_dictionary.pad())
    sample = {"net_input": {"src_tokens": tokens, "src_lengths": torch.tensor([len(row) for row in rows])}}
    found = task.build_generator([model], settings).generate([model], sample)
    return [hypotheses[0]["tokens"].tolist() for hypotheses in found]


def generated(model: Any, task: Any, rows: list[list[int]], beam: int = 4, penalty: float = 1.0) -> list[list[int]]:
    """Return the output of transformers' ``generate`` with the same settings."""
    dictionary = task.target_dictionary
    pad, eos, language = dictionary.pad(), dictionary.eos(), task.cfg.target_lang
    tokens = padded(rows, task.source_dictionary.pad())
    found = model.generate(
        input_ids=tokens,
        attention_mask=tokens.ne(task.source_dictionary.pad()).long(),
        decoder_start_token_id=dictionary.start(language),
        forced_bos_token_id=dictionary.forced(language),
        forced_eos_token_id=eos,
        num_beams=beam,
        early_stopping=beam > 1,
        length_penalty=penalty,
        max_length=LENGTH,
        min_length=0,
        no_repeat_ngram_size=0,
        do_sample=False,
        bad_words_ids=[[pad]],
        renormalize_logits=False,
    )
    return [[token for token in row[1:] if token != pad] for row in found.tolist()]


def logit_difference(ours: Any, theirs: Any, task: Any, rows: list[list[int]], targets: list[list[int]]) -> float:
    """Return the largest difference of logits, teacher-forced on a padded batch of unequal lengths."""
    source, dictionary = padded(rows, task.source_dictionary.pad()), task.target_dictionary
    target = padded(targets, dictionary.pad())
    start = torch.full((len(target), 1), dictionary.eos())
    previous = torch.cat([start, target[:, :-1]], dim=1)
    mine = ours(source, torch.tensor([len(row) for row in rows]), previous)[0]
    begun = previous.clone()
    begun[:, 0] = dictionary.start(task.cfg.target_lang)
    mask = source.ne(task.source_dictionary.pad()).long()
    other = theirs(input_ids=source, attention_mask=mask, decoder_input_ids=begun).logits
    real = target.ne(dictionary.pad())
    return float((mine - other)[real].abs().max())
