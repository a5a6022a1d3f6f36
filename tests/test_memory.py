"""A made-up GPU that others use too: what is taken of it, and what happens when it is full. Source: by hand."""

import contextlib
from argparse import Namespace

import numpy as np
import pytest
import torch
from bert_models import lively
from torch.cuda._utils import _get_device_index

from fairseq_headprune import session
from fairseq_headprune.cli import scale_flags
from fairseq_headprune.evaluation import memory
from fairseq_headprune.evaluation.memory import SHARE, WAITS, Card, Packer
from fairseq_headprune.glue.predict import Predictor
from fairseq_headprune.importance.settings import ScoreSettings
from fairseq_headprune.jobs import processes, train
from fairseq_headprune.studies import estimates

GIB = 2**30
CUDA = torch.device("cuda")


@pytest.fixture
def gpu(monkeypatch):
    """A GPU of 80 GiB: 40 are free; this process has 6, of which it uses 2. Fractions, releases and waits are noted."""
    state = Namespace(free=40 * GIB, reserved=6 * GIB, allocated=2 * GIB, fractions=[], released=0, waited=[])

    def set_fraction(fraction, device=None):
        if device is not None:
            _get_device_index(device)  # as torch does: a device without a number is refused
        state.fractions.append(fraction)

    readings = {
        "mem_get_info": lambda device: (state.free, 80 * GIB),
        "memory_reserved": lambda device: state.reserved,
        "memory_allocated": lambda device: state.allocated,
        "set_per_process_memory_fraction": set_fraction,
        "empty_cache": lambda: setattr(state, "released", state.released + 1),
    }
    for name, reading in readings.items():
        monkeypatch.setattr(torch.cuda, name, reading)
    monkeypatch.setattr(memory.time, "sleep", state.waited.append)
    return state


def failing(times):
    """Work that finds no memory so many times."""
    left = [torch.OutOfMemoryError("full")] * times

    def work(*_):
        if left:
            raise left.pop()
        return "done"

    return work


@pytest.mark.parametrize("jobs, share", [(1, 22), (2, 11)])
def test_a_share_of_what_is_free_is_taken_and_divided_by_the_jobs(gpu, jobs, share):
    assert SHARE == 0.5
    card = Card(CUDA, jobs)
    assert (card.free(), card.share()) == (44 * GIB, share * GIB)
    with card.limited():
        assert gpu.fractions == [(2 + share) / 80]
    assert gpu.fractions[1:] == [1.0]


def test_a_session_has_the_card_of_its_device_and_jobs(gpu):
    assert Card.of(Namespace(device=torch.device("cpu"), args=Namespace())) is None
    assert Card.of(Namespace(device=CUDA, args=Namespace())).share() == 22 * GIB
    assert Card.of(Namespace(device=CUDA, args=Namespace(jobs_on_gpu=4))).share() == 5.5 * GIB


def test_a_job_s_session_has_the_share_that_the_job_was_told(gpu, monkeypatch):
    monkeypatch.setenv(processes.JOBS_ON_GPU, "4")
    monkeypatch.setattr(session, "parse_generation_args", lambda *_: Namespace())
    monkeypatch.setattr(session, "Session", lambda args: Namespace(device=CUDA, args=args))
    assert Card.of(train.open_model("checkpoint.pt", ["data"], "test")).share() == 5.5 * GIB


def test_waits_while_others_hold_the_memory(gpu, caplog):
    assert Card(CUDA).patiently(failing(2)) == "done"
    assert gpu.waited == list(WAITS[:2]) and gpu.released == 3 and gpu.fractions == [1.0]
    assert "44.0 of 80.0 GiB are free, others hold 34.0; trying again in 5 s" in caplog.messages[0]


def test_estimates_wait_as_well(gpu, monkeypatch):
    work = failing(2)
    monkeypatch.setattr(estimates, "estimate", lambda *_: Namespace(found=work()))
    opened = Namespace(device=CUDA, args=Namespace(), model=0, gates=0, task=0, checkpoint={}, precision="fp16")
    assert estimates.estimate_scores(opened, ScoreSettings(estimator="weight-norm")).found == "done"
    assert gpu.waited == list(WAITS[:2])


@pytest.mark.parametrize("others, waits", [(34, list(WAITS)), (0.5, [])])
def test_gives_up_in_one_line_and_at_once_where_others_hold_nothing(gpu, others, waits):
    gpu.free = (74 - others) * GIB
    with pytest.raises(
        torch.OutOfMemoryError, match=r"are free, others hold .*fewer --jobs .*--masks-at-once 1"
    ) as found:
        Card(CUDA).patiently(failing(9))
    assert gpu.waited == waits and "\n" not in str(found.value)


def test_a_batch_keeps_to_the_share_and_the_end_of_a_run_releases_memory(gpu):
    batches = []
    packer = Packer(lambda lengths, rows: 2, 1, Card(CUDA))
    packer.run([0, 1, 2], [1, 1, 1], 1, lambda sentences, masks: batches.append((sentences, gpu.fractions[-1])))
    assert batches == [([2, 1], 0.3), ([0], 0.3)]
    assert gpu.fractions == [0.3, 1.0] * 2 and gpu.released == 1


def test_after_a_wait_and_in_the_next_run_batches_are_large_again(gpu):
    sizes, work = [], failing(4)

    def noted(sentences, masks):
        work()
        sizes.append(len(sentences))

    packer = Packer(lambda lengths, rows: 4, 1, Card(CUDA))
    # 4, 2 and 1 sentence fail, and 1 once more.
    packer.run(range(8), [1] * 8, 1, noted)
    assert sizes == [1, 1, 2, 4] and gpu.waited == [WAITS[0]]
    packer.rows = 1
    packer.run(range(4), [1] * 4, 1, noted)
    assert sizes[4:] == [4]


def predictor(tokens_that_fit, card, monkeypatch):
    """A predictor without a model, whose answers are the masks; and what it tried as (masks, tokens)."""
    found, tried = object.__new__(Predictor), []
    found._session, found._card = Namespace(task=Namespace(limit=10)), card
    monkeypatch.setattr(found, "_fitting", lambda: 160, raising=False)

    def predicted(masks, tokens):
        tried.append((len(masks), tokens))
        if len(masks) * tokens > tokens_that_fit:
            raise torch.OutOfMemoryError("full")
        return np.array(masks)[:, None]

    monkeypatch.setattr(found, "_predicted", predicted, raising=False)
    return found, tried


def test_predictions_go_on_with_fewer_tokens_then_fewer_masks(gpu, monkeypatch):
    found, tried = predictor(20, Card(CUDA), monkeypatch)
    assert found.predict_many([5, 6, 7, 8]).tolist() == [[5], [6], [7], [8]]
    assert tried == [(4, 40), (4, 20), (4, 10), (2, 10), (2, 10)] and gpu.fractions == [0.3, 1.0]
    found, tried = predictor(9, Card(CUDA), monkeypatch)
    with pytest.raises(torch.OutOfMemoryError, match="no GPU memory"):
        found.predict_many([5, 6])
    assert tried[:4] == [(2, 80), (2, 40), (2, 20), (2, 10)] and gpu.waited == list(WAITS)
    with contextlib.suppress(torch.OutOfMemoryError):
        predictor(9, None, monkeypatch)[0].predict_many([5, 6])
    assert gpu.waited == list(WAITS)


def test_tokens_of_a_pass_follow_from_the_share(gpu):
    found = object.__new__(Predictor)
    found._session, found._card = Namespace(model=lively(), task=Namespace(limit=10)), Card(CUDA)
    gpu.free, gpu.reserved = 10**7, gpu.allocated
    # 20 activations of width 24, 40 units twice, and 3 times the weights of 4 heads on 10 tokens; 4 bytes a number.
    assert found._fitting() == int(SHARE * 10**7) // (4 * (20 * 24 + 2 * 40 + 3 * 4 * 10)) < 2000
    gpu.free = 40 * GIB
    assert found._fitting() == 2**16
    found._card = None
    assert found._fitting() == 2**14


@pytest.mark.parametrize(
    "flags, environment, gpus, expected",
    [
        ({"jobs": 5}, {}, 2, 3),
        ({"jobs": 2}, {}, 0, 2),
        ({"jobs": 8, "launcher": "slurm"}, {}, 1, 1),
        ({"jobs": 4, "worker": True}, {processes.JOBS_ON_GPU: "2"}, 1, 2),
        ({"jobs": 4, "worker": True}, {}, 1, 1),
        ({}, {processes.JOBS_ON_GPU: "3"}, 1, 3),
        ({}, {"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4", "RANK": "1"}, 2, 2),
    ],
)
def test_jobs_on_a_gpu(monkeypatch, flags, environment, gpus, expected):
    for name in (processes.JOBS_ON_GPU, "WORLD_SIZE", "LOCAL_WORLD_SIZE", "RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(scale_flags, "gpus", lambda cpu: ["0"] * gpus)
    args = Namespace(**{"jobs": 1, "launcher": "processes", "worker": False, "cpu": False} | flags)
    assert scale_flags._jobs_on_gpu(args) == expected
