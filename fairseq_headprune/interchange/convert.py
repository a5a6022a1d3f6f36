"""``headprune import``: convert a Hugging Face folder to a fairseq checkpoint, dictionaries and ``prepare.sh``."""

import json
import os
import stat
import warnings
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from fairseq_headprune.files import PathLike, write_json, write_text, write_with
from fairseq_headprune.imports.dictionary import BYTES, ImportedDictionary
from fairseq_headprune.imports.families import family_of
from fairseq_headprune.imports.folder import copy_small_files, optional_json, read_config, read_weights
from fairseq_headprune.imports.pieces import FILE, FOLDER
from fairseq_headprune.imports.vocabulary import Vocabulary
from fairseq_headprune.imports.weights import to_fairseq

#: the checkpoint's name
CHECKPOINT = "model.pt"

_PREPARE = """#!/usr/bin/env bash
# Turns raw text, one sentence a line, into a data folder of fairseq with the numbers of this model:
#   bash prepare.sh --testpref raw/test --destdir data-bin
# reads raw/test.{source} and raw/test.{target}; --trainpref and --validpref work alike, --help tells more.
set -euo pipefail
here="$(cd "$(dirname "${{BASH_SOURCE[0]}}")" && pwd)"
exec "${{PYTHON:-python3}}" -m fairseq_headprune.cli.prepare "$here" "$@"
"""


def import_folder(
    folder: PathLike, output: Path, source_lang: str | None = None, target_lang: str | None = None
) -> dict[str, Any]:
    """Write an imported model into an existing empty folder, and describe what was written.

    Raises:
        ValueError, FileNotFoundError: the folder cannot be imported; the message says why.
    """
    folder = Path(folder)
    config = read_config(folder)
    family = family_of(config)
    settings, ties = family.settings(config), family.ties(config)
    size = config.get("vocab_size")
    if not isinstance(size, int) or size < 4:
        raise ValueError(f"config.json: vocab_size is {size!r}; the number of embeddings is expected")
    vocabulary = family.vocabulary(folder, config)
    source_lang, target_lang = _languages(folder, vocabulary, source_lang, target_lang)
    sides = {"source": (source_lang, vocabulary.source), "target": (target_lang, vocabulary.target)}
    dictionaries = {}
    for side, (language, symbols) in sides.items():
        dictionaries[side] = ImportedDictionary(symbols, vocabulary.about)
        dictionaries[side].language(language)
        dictionaries[side].save(output / f"dict.{language}.txt")
    sizes = (len(vocabulary.source), len(vocabulary.target))
    weights = to_fairseq(read_weights(folder), settings, family, sizes, ties)
    args = Namespace(
        arch=family.arch, imported_config=json.dumps(config, ensure_ascii=False, sort_keys=True), **settings
    )
    state = {**_state(args, output, source_lang, target_lang, dictionaries), "model": weights}
    write_with(output / CHECKPOINT, lambda stream: torch.save(state, stream))
    copied = _write_preparation(folder, output, vocabulary.pieces, source_lang, target_lang)
    return {
        "model_type": config["model_type"],
        "arch": family.arch,
        "source_lang": source_lang,
        "target_lang": target_lang,
        "parameters": sum({t.data_ptr(): t.numel() for n, t in weights.items() if not n.endswith(".version")}.values()),
        "vocabulary": {"source": sizes[0], "target": sizes[1]},
        "post_process": BYTES if config["model_type"] == "bart" else "sentencepiece",
        "generate": generation_flags(config),
        "copied": copied,
    }


def _write_preparation(
    folder: Path, output: Path, pieces: Mapping[str, str], source_lang: str, target_lang: str
) -> list[str]:
    """Write ``prepare.sh`` and its input files, and return the names of the copied files."""
    (output / FOLDER).mkdir()
    copied = copy_small_files(folder, output / FOLDER)
    write_json(output / FILE, {**pieces, "source_lang": source_lang, "target_lang": target_lang})
    prepare = output / "prepare.sh"
    write_text(prepare, _PREPARE.format(source=source_lang, target=target_lang))
    prepare.chmod(prepare.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP)
    return copied


def _languages(folder: Path, vocabulary: Vocabulary, source: str | None, target: str | None) -> tuple[str, str]:
    """Return the names of the languages, from the flags or from the tokenizer's files.

    Raises:
        ValueError: they are unknown, or both are the same.
    """
    tokenizer = optional_json(folder, "tokenizer_config.json")
    several = vocabulary.about["language"] is not None
    given: dict[str, str] = {}
    for side, keys in (("source", ("source_lang", "src_lang")), ("target", ("target_lang", "tgt_lang"))):
        noted = next((tokenizer[key] for key in keys if tokenizer.get(key)), None)
        # The languages saved with a multilingual tokenizer say nothing about which ones are to be translated.
        named = {"source": source, "target": target}[side]
        name = named or (None if several else noted)
        if name is None:
            how = f", one of {', '.join(vocabulary.about['languages'][:4])}, …" if several else " (xx will do)"
            raise ValueError(f"{folder} does not tell the {side} language: name it with --{side}-lang{how}")
        if not name or set("-./ ") & set(name):
            raise ValueError(f"--{side}-lang {name}: a name without '-', '.', '/' and spaces is expected")
        given[side] = name
    if given["source"] == given["target"]:
        raise ValueError(f"source and target language are both {source or given['source']}: name them with two names")
    return given["source"], given["target"]


def _state(
    args: Namespace, output: Path, source_lang: str, target_lang: str, dictionaries: Mapping[str, ImportedDictionary]
) -> dict[str, Any]:
    """Return a checkpoint without weights, as fairseq-train would have written it."""
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from fairseq.models import ARCH_CONFIG_REGISTRY
    from omegaconf import OmegaConf

    from fairseq_headprune import plugin  # noqa: F401  (registers)
    from fairseq_headprune.checkpoints import GatedSettings
    from fairseq_headprune.stored.dictionaries import hash_symbols

    ARCH_CONFIG_REGISTRY[args.arch](args)
    task = {"task": "translation_headprune", "source_lang": source_lang, "target_lang": target_lang}
    whole = Namespace(**vars(args), data=os.fspath(output), **task)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Hydra's remarks about fairseq's configuration
        cfg: Any = OmegaConf.to_container(convert_namespace_to_omegaconf(whole), resolve=True, enum_to_str=True)
    cfg["model"] = GatedSettings(**vars(whole), _name=args.arch)
    cfg["task"]["data"] = ""
    cfg["model"].data = ""
    history = {"criterion_name": "LabelSmoothedCrossEntropyCriterion", "optimizer_name": "none (imported)"}
    return {
        "args": None,
        "cfg": cfg,
        "criterion": None,
        "optimizer_history": [{**history, "lr_scheduler_state": {}, "num_updates": 0}],
        "last_optimizer_state": {},
        "task_state": {
            "dictionaries": {side: hash_symbols(dictionary.symbols) for side, dictionary in dictionaries.items()}
        },
        "extra_state": {"train_iterator": {"epoch": 0, "iterations_in_epoch": 0}},
    }


def generation_flags(config: Mapping[str, Any]) -> list[str]:
    """Return the flags of fairseq-generate that correspond to the folder's settings of ``generate``."""
    found = {**config, **(config.get("generation") or {})}
    flags = ["--beam", str(found.get("num_beams") or 1), "--lenpen", str(found.get("length_penalty", 1.0))]
    length = found.get("max_length") or found.get("max_new_tokens") or 200
    # Start and end of sentence do not count in fairseq.
    flags += ["--max-len-a", "0", "--max-len-b", str(max(1, int(length) - 2))]
    if found.get("no_repeat_ngram_size"):
        flags += ["--no-repeat-ngram-size", str(found["no_repeat_ngram_size"])]
    # In transformers the start token counts, too; fairseq's default is 1, no empty translation.
    return [*flags, "--min-len", str(max(0, int(found.get("min_length") or 0) - 1))]
