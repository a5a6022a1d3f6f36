"""What fairseq sees of the package: registration, ``--user-dir`` in all its forms, and checkpoints."""

import importlib
import pickle
import pkgutil
import shutil
from argparse import Namespace
from pathlib import Path

import fairseq.tasks
import fairseq.utils
import pytest
import tiny
import torch
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY
from fairseq.utils import import_user_module
from omegaconf import OmegaConf
from tiny import PACKAGE, Bomb

import fairseq_headprune
from fairseq_headprune import plugin
from fairseq_headprune.cli import main
from fairseq_headprune.models.transformer_gated import TransformerGatedModel
from fairseq_headprune.tasks.translation_headprune import TranslationHeadpruneTask

#: fairseq's own names with _gated after transformer.
ARCHITECTURES = [
    "transformer_gated", "transformer_gated_iwslt_de_en", "transformer_gated_tiny",
    "transformer_gated_vaswani_wmt_en_de_big", "transformer_gated_vaswani_wmt_en_fr_big",
    "transformer_gated_wmt_en_de", "transformer_gated_wmt_en_de_big",
]  # fmt: skip

#: Imports --user-dir (the arguments) as fairseq's commands do, and prints what is registered then.
LOAD = """
import sys
from argparse import Namespace
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.utils import import_user_module
for path in sys.argv[1:]:
    try:
        import_user_module(Namespace(user_dir=path))
    except ImportError as error:
        print(error)
print(*sorted(name for name in ARCH_MODEL_REGISTRY if name.startswith("transformer_gated")))
print(sys.modules["fairseq_headprune"].__file__)
"""


def load(*user_dirs, before="", cwd=None, path=""):
    """Load user directories in a fresh process whose Python path holds only ``path``; return the lines it prints."""
    done = tiny.run_python("-c", before + LOAD, *user_dirs, cwd=cwd, PYTHONPATH=str(path))
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def copy_package(folder):
    """Copy the package into a folder and return the copy's path."""
    shutil.copytree(PACKAGE, folder / "fairseq_headprune", ignore=shutil.ignore_patterns("__pycache__"))
    return folder / "fairseq_headprune"


def test_our_classes_are_the_registered_ones():
    # register_model with a name that is taken hands back the first class without a word.
    assert MODEL_REGISTRY["transformer_gated"] is TransformerGatedModel
    assert TransformerGatedModel.__module__ == "fairseq_headprune.models.transformer_gated"
    assert fairseq.tasks.TASK_REGISTRY["translation_headprune"] is TranslationHeadpruneTask
    ours = sorted(name for name, model in ARCH_MODEL_REGISTRY.items() if model is TransformerGatedModel)
    assert ours == ARCHITECTURES


def test_a_name_taken_by_another_plugin_is_an_error(monkeypatch):
    monkeypatch.setitem(MODEL_REGISTRY, "transformer_gated", MODEL_REGISTRY["transformer"])
    with pytest.raises(ImportError, match="'transformer_gated' is already registered with fairseq by fairseq.models"):
        plugin._check_registered()


def test_the_check_is_made_when_the_plugin_is_loaded():
    taken = """
from fairseq.models import register_model
from fairseq.models.transformer import TransformerModel
@register_model("transformer_gated")
class Other(TransformerModel):
    pass
"""
    done = tiny.run_python("-c", taken + "import fairseq_headprune.plugin", PYTHONPATH=str(tiny.ROOT))
    assert done.returncode == 1
    assert "'transformer_gated' is already registered with fairseq by __main__" in done.stderr.splitlines()[-1]


def test_every_module_imports():
    names = [m.name for m in pkgutil.walk_packages(fairseq_headprune.__path__, "fairseq_headprune.")]
    assert "fairseq_headprune.models.transformer_gated" in names and "fairseq_headprune.cli.mask" in names
    for name in names:
        if not name.endswith("__main__"):
            importlib.import_module(name)


def test_imported_package_and_user_dir_are_one():
    # fairseq#2081: executed twice under two names, an architecture would be registered twice.
    before = list(ARCH_MODEL_REGISTRY)
    for _ in range(2):
        import_user_module(Namespace(user_dir=str(PACKAGE)))
    assert list(ARCH_MODEL_REGISTRY) == before


def test_relative_path_with_a_blank_and_a_slash_at_the_end(tmp_path):
    copy = copy_package(tmp_path / "with blank")
    assert load("with blank/fairseq_headprune/", cwd=tmp_path) == [" ".join(ARCHITECTURES), str(copy / "__init__.py")]


def test_two_copies_are_refused_and_the_first_stays_whole(tmp_path):
    first, second = copy_package(tmp_path / "a"), copy_package(tmp_path / "b")
    refusal, *loaded = load("a/fairseq_headprune", "b/fairseq_headprune", cwd=tmp_path)
    assert refusal.startswith(f"Failed to import --user-dir={second} ") and "is not globally unique" in refusal
    assert loaded == [" ".join(ARCHITECTURES), str(first / "__init__.py")]


@pytest.mark.parametrize("before", ["", "import fairseq_headprune", "import fairseq, fairseq_headprune"])
def test_imported_before_and_given_by_path_and_links(tmp_path, before):
    # The package is imported from the clone; a link of another name and one of a folder above are the same package.
    (tmp_path / "heads").symlink_to(PACKAGE)
    (tmp_path / "above").symlink_to(PACKAGE.parent)
    paths = ["heads", PACKAGE, "above/fairseq_headprune/", "heads", "above/../heads"]
    architectures, place = load(*paths, before=before, cwd=tmp_path, path=tiny.ROOT if before else "")
    assert architectures == " ".join(ARCHITECTURES) and Path(place).parent == PACKAGE


def test_a_copy_of_another_name_is_refused(tmp_path):
    copy_package(tmp_path).rename(tmp_path / "heads")
    refusal, *_ = load("heads", before="import fairseq_headprune", cwd=tmp_path, path=tiny.ROOT)
    assert "heads is a copy of fairseq_headprune under another name; give the folder fairseq_headprune" in refusal


@pytest.mark.parametrize("before", ["", "import fairseq_headprune"])
def test_bare_name_from_any_folder(tmp_path, before):
    # A folder of links stands for site-packages: fairseq and the package side by side.
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    (site / "fairseq").mkdir(parents=True)
    elsewhere.mkdir()
    for child in Path(fairseq.utils.__file__).parent.iterdir():
        (site / "fairseq" / child.name).symlink_to(child)
    copy_package(site)
    architectures, place = load("fairseq_headprune", before=before, cwd=elsewhere, path=site)
    assert architectures == " ".join(ARCHITECTURES) and Path(place).resolve().is_relative_to(site)


@pytest.fixture(scope="module")
def both_forms(trained, tmp_path_factory):
    """The trained checkpoint with its settings as a Namespace and as an OmegaConf tree (fairseq#5610)."""
    folder = tmp_path_factory.mktemp("forms")
    state = torch.load(trained["checkpoint"], weights_only=True)
    assert type(state["cfg"]) is dict and isinstance(state["cfg"]["model"], Namespace)
    forms = {"namespace": state["cfg"], "tree": OmegaConf.create(state["cfg"] | {"model": vars(state["cfg"]["model"])})}
    for name, cfg in forms.items():
        torch.save(state | {"cfg": cfg}, folder / f"{name}.pt")
    return folder


def hypotheses(output):
    """Return the lines of hypotheses of fairseq-generate's output, without their scores."""
    return [line.split("\t")[::2] for line in output.splitlines() if line.startswith("H-")]


@pytest.mark.parametrize("form", ["namespace", "tree"])
def test_checkpoints_load_through_every_entry(trained, both_forms, form, tmp_path):
    checkpoint = both_forms / f"{form}.pt"
    output = tiny.fairseq_here("generate", trained["data"], "--path", checkpoint, "--cpu", "--user-dir", PACKAGE)
    assert len(hypotheses(output)) == 8  # test has 8 sentences

    tiny.train(trained["data"], tmp_path, *tiny.GATED, "--restore-file", checkpoint, "--max-update", "6")
    resumed = torch.load(tmp_path / "checkpoint_last.pt", weights_only=True)
    assert resumed["optimizer_history"][-1]["num_updates"] == 6  # 5 of the checkpoint and 1

    mask, slim, average = tmp_path / "m.json", tmp_path / "slim.pt", tmp_path / "average.pt"
    call = [str(trained["data"]), "--path", str(checkpoint), "--cpu", "--score-sentences", "8"]
    for words in (
        ["mask", "--like", checkpoint, "--drop", "E:1:1", "-o", mask],
        ["slim", checkpoint, "--mask", mask, "-o", slim],
        ["average", checkpoint, checkpoint, "-o", average],
        ["score", *call, "-o", tmp_path / "scores.json"],
    ):
        assert main([*map(str, words)]) == 0


def test_a_fresh_process_needs_the_user_dir_only_and_says_so(trained):
    # facebookresearch/fairseq#4114: without the plugin the message was about anything but the plugin.
    arguments = [trained["data"], "--path", trained["checkpoint"], "--cpu"]
    refused = tiny.fairseq_command("generate", *arguments)
    assert refused.returncode != 0 and "needs --user-dir fairseq_headprune" in refused.stderr
    done = tiny.fairseq_command("generate", *arguments, "--user-dir", PACKAGE)
    assert done.returncode == 0, done.stderr
    assert hypotheses(done.stdout) == hypotheses(tiny.fairseq_here("generate", *arguments))


@pytest.mark.parametrize("gates", ["mask", "learned"])
def test_a_stock_architecture_with_gates_names_the_plugin_too(trained_stock, tmp_path, gates):
    assert main(["mask", "--like", str(trained_stock["checkpoint"]), "--drop", "E:1:1", "-o", str(tmp_path / "m")]) == 0
    flags = {
        "mask": ["--head-mask", tmp_path / "m"],
        "learned": ["--criterion", "label_smoothed_cross_entropy_dsp", "--heads-kept", "5", "--tau-updates", "2"],
    }[gates]
    task = ["--arch", "transformer_tiny", *tiny.TASK]
    tiny.train(trained_stock["data"], tmp_path, *task, *flags)
    arguments = [trained_stock["data"], "--path", tmp_path / "checkpoint_last.pt", "--cpu"]
    refused = tiny.fairseq_command("generate", *arguments)
    assert refused.returncode != 0 and "needs --user-dir fairseq_headprune" in refused.stderr
    assert len(hypotheses(tiny.fairseq_here("generate", *arguments, "--task", "translation_headprune"))) == 8


def test_other_numbers_of_heads_than_the_checkpoints_are_refused(trained_stock, tmp_path):
    # Stock weights of 2 heads a layer fit a model of 4, which is another model.
    four = ["--encoder-attention-heads", "4", "--decoder-attention-heads", "4"]
    for start in ("--finetune-from-model", "--restore-file"):
        with pytest.raises(ValueError, match="encoder_attention_heads 4: the checkpoint was trained with 2 heads"):
            tiny.train(trained_stock["data"], tmp_path, *tiny.GATED, *four, start, trained_stock["checkpoint"])
    assert not list(tmp_path.glob("*.pt"))


def test_code_in_a_checkpoint_is_not_executed_by_fairseq(trained, tmp_path):
    """Nor by our verbs: test_checkpoints.py."""
    state = torch.load(trained["checkpoint"], weights_only=True)
    torch.save(state | {"cfg": state["cfg"] | {"model": Bomb(tmp_path / "proof")}}, tmp_path / "bad.pt")
    with pytest.raises(pickle.UnpicklingError, match="mkdir"):
        tiny.fairseq_here("generate", trained["data"], "--path", tmp_path / "bad.pt", "--cpu")
    assert not (tmp_path / "proof").exists()
