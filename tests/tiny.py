"""Tiny models, batches and data for the tests, all made on the spot."""

import contextlib
import importlib.util
import io
import os
import random
import runpy
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from unittest.mock import patch

import torch
from fairseq.data import Dictionary, LanguagePairDataset
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.tasks.translation import TranslationConfig, TranslationTask

import fairseq_headprune  # noqa: F401  (registers the gated architectures)
from fairseq_headprune.parts import HEADS, Mask, Part

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "fairseq_headprune"

#: fairseq's flags: of the plugin; of our task, too; of a training of a gated model
PLUGIN = ["--user-dir", PACKAGE]
TASK = [*PLUGIN, "--task", "translation_headprune"]
GATED = ["--arch", "transformer_gated_tiny", *TASK]
#: what --train-flags of our studies needs
TRAIN = "--arch transformer_gated_tiny --share-all-embeddings --optimizer adam --lr 0.01 --batch-size 16 --cpu "
TRAIN += "--num-workers 0"

#: heads of transformer_tiny, whose width is 64
SHAPE = {"enc_self": [2, 2], "enc_dec": [2, 2], "dec_self": [2, 2]}
#: heads that are pruned: unevenly, and all of a layer
DROPPED = [Part("enc_self", 0, 1), Part("enc_dec", 1, 0), Part("dec_self", 0, 0), Part("dec_self", 0, 1)]
#: ES=01 ED=12 DS=10, so 5 of 12 heads stay: a layer of each kind of self-attention is empty
FEW = Mask({"enc_self": [[0, 0], [0, 1]], "enc_dec": [[0, 1], [1, 1]], "dec_self": [[1, 0], [0, 0]]})

WORDS = [f"w{i}" for i in range(20)]

#: (source, target) word numbers: sentence 2 is the short one, so it is the padded one.
SENTENCES = [([1, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2]), ([7, 8, 9, 1, 2, 3], [3, 2, 1, 9, 8]), ([4, 5, 6], [6, 5])]

#: all 144 heads of the model of Budhraja et al. 2020 (§2.2)
PAPER = Mask.full({component: [8] * 6 for component in HEADS})


class Bomb:
    """Pickles as a call that makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def make_dictionary() -> Dictionary:
    """Return a dictionary of ``WORDS``."""
    dictionary = Dictionary()
    for word in WORDS:
        dictionary.add_symbol(word)
    dictionary.finalize()
    return dictionary


def make_model(arch: str = "transformer_gated_tiny", seed: int = 1, **args):
    """Build a model of two layers with dropout off and weights fixed by the seed, in evaluation mode.

    Args:
        args: fairseq settings such as ``encoder_attention_heads=4``; the architecture's defaults otherwise.
    """
    settings = Namespace(arch=arch, dropout=0.0, attention_dropout=0.0, activation_dropout=0.0, **args)
    ARCH_CONFIG_REGISTRY[arch](settings)
    dictionary = make_dictionary()
    task = TranslationTask(TranslationConfig(), dictionary, dictionary)
    torch.manual_seed(seed)
    model = ARCH_MODEL_REGISTRY[arch].build_model(settings, task).eval()
    model.settings = settings  # what fairseq would save
    return model


def make_task():
    """Return our translation task with a dictionary of ``WORDS`` on both sides."""
    from fairseq_headprune.tasks.translation_headprune import TranslationHeadpruneConfig, TranslationHeadpruneTask

    return TranslationHeadpruneTask(TranslationHeadpruneConfig(), make_dictionary(), make_dictionary())


def make_batch(sentences=SENTENCES) -> dict:
    """Collate sentences as fairseq does: padding on the left of ``src_tokens``, on the right of the targets."""
    dictionary = make_dictionary()
    sides = []
    for side in zip(*sentences, strict=True):
        rows = [torch.tensor([dictionary.index(WORDS[i]) for i in words] + [dictionary.eos()]) for words in side]
        sides += [rows, [len(row) for row in rows]]
    source, source_sizes, target, target_sizes = sides
    data = LanguagePairDataset(source, source_sizes, dictionary, target, target_sizes, dictionary, shuffle=False)
    return data.collater([data[i] for i in range(len(data))])


def environment(**more: str) -> dict[str, str]:
    """Return the variables of a fresh process that finds the repository's package."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **more}


def run_python(*arguments: str, cwd=None, **more: str) -> subprocess.CompletedProcess:
    """Run this Python in such a process, and capture its output."""
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=environment(**more), capture_output=True, text=True)


def fairseq_command(verb: str, *arguments, cwd=None) -> subprocess.CompletedProcess:
    """Run ``fairseq-<verb>`` in a fresh process."""
    return run_python("-c", f"from fairseq_cli.{verb} import cli_main; cli_main()", *arguments, cwd=cwd)


def fairseq_here(verb: str, *arguments) -> str:
    """Run ``fairseq-<verb>`` in this process, which saves the seconds of starting one, and return its stdout."""
    module = importlib.import_module(f"fairseq_cli.{verb}")
    # A worker process for eight sentences takes longer to start than all the rest.
    workers = ["--num-workers", "0"] if verb in ("generate", "validate", "interactive") else []
    with called(f"fairseq-{verb}", *workers, *arguments), contextlib.redirect_stdout(io.StringIO()) as output:
        module.cli_main()
    return output.getvalue()


def called(program, *words):
    """Context manager: the command line of this process is that of a program."""
    return patch.object(sys, "argv", [str(program), *map(str, words)])


def example_script(place):
    """Import a script of the examples."""
    spec = importlib.util.spec_from_file_location(Path(place).stem, ROOT / "examples" / place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_script(path, *words) -> int:
    """Run a script in this process and return its exit status."""
    with called(path, *words):
        try:
            runpy.run_path(str(path), run_name="__main__")
        except SystemExit as leave:
            return leave.code or 0
    return 0


def run_main(script, *words):
    """Run the main function of a script that is imported already, and return what it returns."""
    with called(script.__file__, *words):
        return script.main()


def write_data(folder: Path) -> Path:
    """Write and binarise a made-up task (the target is the source reversed); return the data-bin folder.

    The splits: 60 pairs of train, 8 of valid, 8 of test, 3 to 8 words each, one dictionary for both languages.
    """
    draw = random.Random(1)
    for split, count in (("train", 60), ("valid", 8), ("test", 8)):
        lines = [[draw.choice(WORDS) for _ in range(draw.randint(3, 8))] for _ in range(count)]
        (folder / f"{split}.xx").write_text("".join(" ".join(line) + "\n" for line in lines))
        (folder / f"{split}.yy").write_text("".join(" ".join(reversed(line)) + "\n" for line in lines))
    splits = [f"--{split}pref={folder / split}" for split in ("train", "valid", "test")]
    languages = ["--source-lang=xx", "--target-lang=yy", "--joined-dictionary", f"--destdir={folder / 'data-bin'}"]
    fairseq_here("preprocess", *languages, *splits)
    return folder / "data-bin"


def train(data: Path, save: Path, *arguments, epochs: bool = False) -> None:
    """Train on the CPU for 5 updates, or as the arguments say; with ``epochs`` a checkpoint of each epoch is kept."""
    flags = "--cpu --optimizer adam --lr 0.01 --batch-size 16 --seed 1 --max-update 5 --share-all-embeddings "
    flags += "--num-workers 0 --no-progress-bar" + ("" if epochs else " --no-epoch-checkpoints")
    fairseq_here("train", data, "--save-dir", save, *flags.split(), *arguments)
