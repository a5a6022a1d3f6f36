"""Recorded decoder steps: a CPU runs a recording's work anew in each step, from and to the same tensors."""

import logging

import pytest
import torch
from test_many_masks import SETTINGS, one_by_one, some_masks, without_a_token
from test_rests import lengths
from untrained import write_checkpoint
from verbs import session, write_lively

from fairseq_headprune.cuda_graphs import PlainRecorder
from fairseq_headprune.evaluation import recorded_step
from fairseq_headprune.evaluation.recorded_step import RecordedStep, StepRecorder
from fairseq_headprune.evaluation.translate import Translator


@pytest.fixture
def runs(monkeypatch):
    """The steps in which a recording was made, and those in which one was run."""
    made, replayed, record, run = [], [], StepRecorder.record, RecordedStep.run

    def recorded(recorder, step, beams):
        made.append(beams.step)
        return record(recorder, step, beams)

    def ran(recording, beams):
        replayed.append(beams.step)
        return run(recording, beams)

    monkeypatch.setattr(StepRecorder, "record", recorded)
    monkeypatch.setattr(RecordedStep, "run", ran)
    monkeypatch.setattr(recorded_step, "CudaRecorder", PlainRecorder)
    return made, replayed


def recording(loaded):
    """A translator that records the steps of its model."""
    translator = Translator(loaded, "test")
    translator._many._recorder = StepRecorder(loaded.model.decoder)
    return translator


@pytest.mark.parametrize(
    "name", ["beam 1", "beam 5, some end early and some never", "limit by batch", "penalties", "prefix"]
)
def test_translations_are_those_of_one_run_a_mask(lively, name, runs):
    # Source: fairseq's own generator, one mask after the other.
    loaded = session(lively, *SETTINGS[name])
    translator, masks = recording(loaded), some_masks(loaded.gates)[::4]
    table = loaded.model.decoder.embed_positions.weights.clone()
    assert translator.answers_of(masks) == one_by_one(loaded, translator, masks)
    made, replayed = runs
    assert 0 < len(made) < len(replayed)
    assert torch.equal(loaded.model.decoder.embed_positions.weights, table)


@pytest.mark.parametrize("flags", ["--decoder-learned-pos", "--no-token-positional-embeddings"])
def test_other_positions(data_bin, tmp_path, flags, runs):
    # Source: fairseq's own generator.
    untrained = write_checkpoint(data_bin, tmp_path / "model.pt", *"--arch transformer_gated_tiny".split(), flags)
    run = write_lively({"data": data_bin, "checkpoint": untrained}, tmp_path)
    loaded = session(run, "--beam", "3", "--max-len-b", "12")
    translator, masks = recording(loaded), some_masks(loaded.gates)[:4]
    assert translator.answers_of(masks) == one_by_one(loaded, translator, masks)
    assert runs[1]


@pytest.mark.parametrize(
    ("ended", "made", "without"), [(0, [2, 4, 8, 16], []), (3, [2, 4, 8, 16], []), (4, [2, 4, 7, 16], [6])]
)
def test_a_recording_serves_until_its_keys_are_full_or_half_of_the_rows_ended(
    lively, ended, made, without, runs, monkeypatch
):
    # By hand: some of 8 sentences end in step 5, the others in 19. In step 0 a sentence has one hypothesis, so after
    # step n it has 2 n + 1 keys. There is room for twice as many, in multiples of 8, or for all 40: 8 after step 1, 16
    # after 3, 32 after 6 or 7. The step after rows changed is not recorded.
    loaded = session(lively, "--beam", "2", "--max-len-b", "19")
    lengths(monkeypatch, lambda rows: torch.where(rows < ended, 5, 19))
    [found] = recording(loaded).answers_of([loaded.gates.full()])
    assert sum(len(line.split()) == 19 for line in found) == 8 - ended
    assert runs == (made, [step for step in range(2, 20) if step not in without])


def test_a_hypothesis_that_is_not_finite_is_repeated_without_the_recording(lively, runs):
    # Source: fairseq's own generator, which gives every hypothesis keys and values of its own.
    loaded = session(lively, "--beam", "4", "--max-len-b", "10")
    translator, full, found = recording(loaded), loaded.gates.full(), 0
    for expected in without_a_token(loaded, translator, (4, 6, 8, 10, 12)):
        if expected is not None:
            assert translator.answers_of([full]) == expected
            found += 1
    assert found > 1 and runs[1]


def hidden(message):
    """The error of ending a recording in which memory ran out."""
    error = RuntimeError(message)
    error.__context__ = torch.OutOfMemoryError("no memory")
    return error


@pytest.mark.parametrize(("error", "said"), [(RuntimeError, 1), (torch.OutOfMemoryError, 0), (hidden, 0)])
def test_what_cannot_be_recorded_runs_without(lively, error, said, runs, monkeypatch, caplog):
    # Source: the same without a recorder; a lack of memory may pass, so it is tried again.
    def fails(recorder, work):
        raise error("cannot\nbe recorded")

    monkeypatch.setattr(PlainRecorder, "record", fails)
    loaded = session(lively, "--beam", "2", "--max-len-b", "12")
    expected = Translator(loaded, "test").answers_of(some_masks(loaded.gates)[:3])
    with caplog.at_level(logging.WARNING):
        assert recording(loaded).answers_of(some_masks(loaded.gates)[:3]) == expected
    lines = [line for line in caplog.messages if "steps of the decoder are not recorded" in line]
    assert lines == ["steps of the decoder are not recorded: cannot"] * said
    assert (len(runs[0]) == 1) == (said == 1) and not runs[1]


def test_a_decoder_with_hooks_is_not_recorded(lively, runs):
    # A hook may do anything, such as waiting for the device.
    loaded = session(lively, "--beam", "2", "--max-len-b", "12")
    loaded.model.decoder.layers[0].register_forward_hook(lambda *_: None)
    recording(loaded).answers_of([loaded.gates.full()])
    assert runs == ([], [])
