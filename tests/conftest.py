"""What the tests share. The makers behind the fixtures are in ``tiny.py`` and can be called directly."""

import copy
import functools
import multiprocessing
import subprocess
import sys
import types
from pathlib import Path

import pytest
import tiny
import torch
import verbs
from hydra._internal.config_repository import CachingConfigRepository
from hydra.core.override_parser.overrides_parser import OverridesParser

torch.set_num_threads(1)

# transformers imports torchaudio wherever it is installed, and its CUDA build does not load beside a CPU torch.
# None is Python's own word for a module that is not to be imported.
sys.modules.setdefault("torchaudio", None)


def quick_hydra():
    """Let hydra parse a setting once a process: every verb hands it the same 250, most of a verb's time here."""
    parse = functools.cache(lambda text, rule: parse_rule(OverridesParser.create(), text, rule))
    parse_rule = OverridesParser.parse_rule
    OverridesParser.parse_rule = lambda self, text, rule: copy.copy(parse(text, rule))

    def begin(self, delegate):
        # Its sources are replaced, not changed: no deep copy of them is needed.
        self.delegate, self.cache = copy.copy(delegate), {}

    CachingConfigRepository.__init__ = begin


quick_hydra()

#: Fixtures that train, start a cluster or a browser: tests that use one, directly or not, get the marker.
MARKED = {"tuned": "slow", "slurm": "slurm", "chromium": "browser"}

#: Helpers of the tests, and functions of Python, that train a model or start a process.
STARTERS = {"train", "run_python", "fairseq_command"}
PROCESSES = {subprocess.run, subprocess.Popen, subprocess.check_output, multiprocessing.get_context}


def pytest_collection_modifyitems(items):
    """Mark tests, so that ``make quick`` can leave them out: what trains or starts processes is slow."""
    for item in items:
        fixtures = [found[-1].func for found in item._fixtureinfo.name2fixturedefs.values()]
        if any(starts_something(function, set()) for function in [item.function, *fixtures]):
            item.add_marker("slow")
        for marker in {MARKED[name] for name in item.fixturenames if name in MARKED}:
            item.add_marker(marker)


def is_ours(file):
    return Path(file).parent == Path(__file__).parent


def may_start(module):
    """Tell whether to look into a module: others would load what they have for the first time."""
    return module in (subprocess, multiprocessing) or is_ours(getattr(module, "__file__", None) or "")


def starts_something(function, seen):
    """Tell whether a function, or a function of the tests that it calls, trains a model or starts a process."""
    if function in PROCESSES or not isinstance(function, types.FunctionType) or function in seen:
        return function in PROCESSES
    seen.add(function)
    ours = is_ours(function.__code__.co_filename)
    if not ours or function.__name__ in STARTERS:
        return ours
    names, code = set(), [function.__code__]
    while code:
        names.update(code[-1].co_names)
        code += [inner for inner in code.pop().co_consts if isinstance(inner, types.CodeType)]
    known = [function.__globals__[name] for name in names if name in function.__globals__]
    modules = [value for value in known if isinstance(value, types.ModuleType) and may_start(value)]
    known += [getattr(module, name) for module in modules for name in names if hasattr(module, name)]
    return any(starts_something(value, seen) for value in known if callable(value))


@pytest.fixture(autouse=True)
def one_thread():
    """Back to one thread after a test of something that chooses their number: sums depend on it in the last digits."""
    yield
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def dictionary():
    """A dictionary of 20 words."""
    return tiny.make_dictionary()


@pytest.fixture
def tiny_model():
    """A gated model of 2 + 2 layers with 2 heads each, dropout off."""
    return tiny.make_model()


@pytest.fixture
def batch():
    """Three sentences as fairseq collates them; the last is padded."""
    return tiny.make_batch()


@pytest.fixture(scope="session")
def data_bin(tmp_path_factory):
    """A binarised made-up translation task, xx-yy."""
    return tiny.write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def trained(data_bin, tmp_path_factory):
    """A gated model after 5 updates: ``{"data", "checkpoint"}``."""
    save = tmp_path_factory.mktemp("trained")
    tiny.train(data_bin, save, *tiny.GATED)
    return {"data": data_bin, "checkpoint": save / "checkpoint_last.pt"}


@pytest.fixture(scope="session")
def trained_stock(data_bin, tmp_path_factory):
    """A stock ``transformer_tiny`` of the stock task after 5 updates: ``{"data", "checkpoint"}``."""
    save = tmp_path_factory.mktemp("trained_stock")
    tiny.train(data_bin, save, "--arch", "transformer_tiny", "--task", "translation")
    return {"data": data_bin, "checkpoint": save / "checkpoint_last.pt"}


@pytest.fixture(scope="session")
def lively(trained, tmp_path_factory):
    """The gated model with large random weights, so that translations depend on the source and on every mask."""
    return verbs.write_lively(trained, tmp_path_factory.mktemp("lively"))


@pytest.fixture(scope="session")
def flags(lively):
    """Data, checkpoint and search of the studies of ``lively``, whose tests draw 50 resamples."""
    return [lively["data"], "--path", lively["checkpoint"], *verbs.BEAM, "--resamples", "50"]


@pytest.fixture(scope="session")
def ablated(flags, tmp_path_factory):
    """``headprune ablate`` of every head on test, by one process: ``{"folder", "document"}``."""
    folder = tmp_path_factory.mktemp("ablated") / "study"
    return {"folder": folder, "document": verbs.run_json("ablate", *flags, "-o", folder)}


@pytest.fixture(scope="session")
def tuned(tmp_path_factory):
    """A folder with GLUE data, and BERT checkpoints of SST-2, STS-B and MNLI (see ``glue_data.write_tuned``)."""
    import glue_data  # most tests need none of it

    return glue_data.write_tuned(tmp_path_factory.mktemp("tuned"))


@pytest.fixture
def recorded():
    """Let a CPU record the passes of ``--cuda-graphs``, which it runs anew each time."""
    import recording

    with recording.on_cpu():
        yield
