"""Which trainings a comparison takes, and with which flags."""

import pytest

from fairseq_headprune.jobs.methods import DEFAULT, NAMES
from fairseq_headprune.studies.pruners.tasks import Translating
from fairseq_headprune.studies.pruners.trainings import trainings


def flag(training, name):
    """The value after a flag."""
    return training.flags[training.flags.index(name) + 1]


def test_all_trainings_of_a_comparison():
    """Counted by hand: five of the nine methods train for each number of heads: 2 seeds x (1 + 5 x 3)."""
    found = trainings(DEFAULT, [24, 4, 1], [1, 2], [], 1000, Translating())
    assert len(found) == 32 and len({training.name for training in found}) == 32
    # What pipelined DSP starts from comes first.
    assert [t.name for t in found[:2]] == ["unpruned-1", "unpruned-2"]
    per_method = {method: sum(t.method == method for t in found) for method in NAMES}
    six = dict.fromkeys(("joint-dsp", "ste", "l0", "pipelined-dsp", "random-start"), 6)
    assert {method: count for method, count in per_method.items() if count} == {"unpruned": 2, **six}


def test_budgets_and_settings_are_the_paper_s():
    """§4.3: joint methods as long as the unpruned model; pipelined DSP one epoch on the trained model."""
    found = {t.name: t for t in trainings(DEFAULT, [24], [3], [], 1000, Translating())}
    pipelined = found["pipelined-dsp-24-3"]
    assert pipelined.after == "unpruned-3" and flag(pipelined, "--max-epoch") == "1"
    assert "--gates-only" in pipelined.flags and "--validate-after-updates" not in pipelined.flags
    for name in ("unpruned-3", "joint-dsp-24-3", "ste-24-3", "l0-24-3", "random-start-24-3"):
        # Checkpoints are chosen among those of the second half, for all alike.
        assert flag(found[name], "--validate-after-updates") == "500" and found[name].after is None
    assert flag(found["joint-dsp-24-3"], "--heads-kept") == "24" == flag(found["l0-24-3"], "--l0-target-heads")
    assert "--straight-through" in found["ste-24-3"].flags and "--preset" not in found["ste-24-3"].flags


def test_fixed_penalties_are_trained_once_each():
    found = trainings(["l0-lambda"], [24, 12], [1], [0.001, 0.1], 100, Translating())
    assert [(t.name, t.count, t.penalty) for t in found[1:]] == [
        ("l0-lambda-0.001-1", None, 0.001),
        ("l0-lambda-0.1-1", None, 0.1),
    ]
    assert flag(found[2], "--l0-penalty") == "0.1"


def test_an_unknown_method_is_refused():
    with pytest.raises(ValueError, match="'magic'; known are unpruned, michel,"):
        trainings(["magic"], [1], [1], [], 100, Translating())
