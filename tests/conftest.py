"""What the tests share. The makers behind the fixtures are in ``tiny.py`` and can be called directly."""

import pytest
import tiny
import torch

torch.set_num_threads(1)

#: Fixtures that train a model, start a cluster or a browser: tests that use one, directly or not, get the marker.
MARKED = {"trained": "slow", "trained_stock": "slow", "tuned": "slow", "slurm": "slurm", "chromium": "browser"}


def pytest_collection_modifyitems(items):
    """Mark tests by their fixtures, so that ``make quick`` can leave them out."""
    for item in items:
        for marker in {MARKED[name] for name in item.fixturenames if name in MARKED}:
            item.add_marker(marker)


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
def make_model():
    """The function ``make_model(arch="transformer_gated_tiny", seed=1, **fairseq_settings)``."""
    return tiny.make_model


@pytest.fixture
def tiny_model():
    """A gated model of 2 + 2 layers with 2 heads each, dropout off."""
    return tiny.make_model()


@pytest.fixture
def batch():
    """Three sentences as fairseq collates them; the last is padded."""
    return tiny.make_batch()


@pytest.fixture
def tiny_batch(batch):
    """Another name for ``batch``."""
    return batch


@pytest.fixture(scope="session")
def data_bin(tmp_path_factory):
    """A binarised made-up translation task, xx-yy."""
    return tiny.write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def trained(data_bin, tmp_path_factory):
    """A gated model after 5 updates: ``{"data", "checkpoint"}``."""
    save = tmp_path_factory.mktemp("trained")
    gated = ["--arch", "transformer_gated_tiny", "--task", "translation_headprune"]
    tiny.train(data_bin, save, *gated, "--user-dir", tiny.ROOT / "fairseq_headprune")
    return {"data": data_bin, "checkpoint": save / "checkpoint_last.pt"}


@pytest.fixture(scope="session")
def trained_stock(data_bin, tmp_path_factory):
    """A stock ``transformer_tiny`` of the stock task after 5 updates: ``{"data", "checkpoint"}``."""
    save = tmp_path_factory.mktemp("trained_stock")
    tiny.train(data_bin, save, "--arch", "transformer_tiny", "--task", "translation")
    return {"data": data_bin, "checkpoint": save / "checkpoint_last.pt"}


@pytest.fixture(scope="session")
def tuned(tmp_path_factory):
    """A folder with GLUE data, and BERT checkpoints of SST-2, STS-B and MNLI (see ``glue_data.write_tuned``)."""
    import glue_data  # most tests need none of it

    return glue_data.write_tuned(tmp_path_factory.mktemp("tuned"))
