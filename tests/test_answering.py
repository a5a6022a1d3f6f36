"""The one way to answers under masks: those of fairseq-generate for checkpoints of every kind, and GLUE's labels."""

import pytest
import torch
from learning import DSP, L0, train, weights
from tiny import DROPPED
from verbs import generated, session

from fairseq_headprune.evaluation.evaluator import answers_under, masks_at_once
from fairseq_headprune.evaluation.translate import Translator
from fairseq_headprune.jobs import train as jobs_train
from fairseq_headprune.parts import FFN, HEADS, Part
from fairseq_headprune.pruning import one_removed
from fairseq_headprune.removal.checkpoint import slim_checkpoint

SEARCH = {"bounded": ["--max-len-b", "12"], "by batch": "--max-len-a 0.9 --max-len-b 2 --batch-size 3".split()}


def written(lively, folder, kind):
    """Write a checkpoint of a kind: as it is, trained under a mask or with learned gates, or smaller."""
    gates = session(lively).gates
    heads, units = gates.full().without(DROPPED), gates.mask("units")
    masks = {
        "masked": heads,
        "blocks": gates.mask("blocks").without([*DROPPED, Part("dec_ffn", 1, 0)]),
        "units": units.without(part for part in units.kept(FFN) if part.index % 3 == 0),
    }
    if kind == "plain":
        return lively
    if kind == "slim":
        slim_checkpoint(lively["checkpoint"], folder / "slim.pt", masks["blocks"], ffn=True)
        return {"data": lively["data"], "checkpoint": folder / "slim.pt"}
    flags = {"dsp": [*DSP, "--heads-kept", "5"], "l0": [*L0, "--l0-target-heads", "5", "--gate-lr", "1"]}.get(kind)
    if flags is None:
        masks[kind].save(folder / "mask.json")
        flags = ["--criterion", "label_smoothed_cross_entropy", "--head-mask", folder / "mask.json"]
    # The weights are those of the lively model: translations of 12 updates are all alike.
    state = train(lively["data"], folder / "run", *flags)
    state["model"] |= weights(torch.load(lively["checkpoint"], weights_only=False))
    torch.save(state, folder / "lively.pt")
    return {"data": lively["data"], "checkpoint": folder / "lively.pt"}


@pytest.mark.parametrize("kind", ["plain", "masked", "blocks", "units", "dsp", "l0", "slim"])
def test_a_training_s_answers_are_fairseq_s(lively, tmp_path, monkeypatch, kind):
    # Source: fairseq-generate on the same checkpoint, which holds its mask.
    run = written(lively, tmp_path, kind)
    loaded = session(run)
    mask = loaded.gates.mask()
    assert bool(mask.dropped([*HEADS, *FFN])) == (kind != "plain")
    expected = []
    for search in SEARCH.values():
        flags = ["--task", "translation_headprune", "--beam", "4", "--cpu", *search]
        expected.append(generated("D", run["data"], "--path", run["checkpoint"], *flags, "--gen-subset", "test"))
    with monkeypatch.context() as patch:
        patch.setattr(Translator, "answers", lambda self: pytest.fail("by fairseq's generator"))
        for search, texts in zip(SEARCH.values(), expected, strict=True):
            generate = [str(run["data"]), "--beam", "4", "--cpu", *search]
            assert jobs_train.answers(run["checkpoint"], generate, "test") == texts
    assert expected[0] != expected[1]
    if kind in ("masked", "blocks", "units", "dsp", "l0"):
        # The mask makes a difference, so that it was in force.
        full = answers_under(loaded, loaded.evaluator("test"), [loaded.gates.full()])
        assert full != answers_under(loaded, loaded.evaluator("test"), [mask])


def test_one_by_one_where_it_is_asked_for_or_nothing_else_can(lively, monkeypatch):
    # Source: the masks in one batch.
    loaded = session(lively, "--beam", "2", "--max-len-b", "9")
    evaluator, masks = loaded.evaluator("test"), list(one_removed(loaded.gates.full(), HEADS).values())[:3]
    expected = answers_under(loaded, evaluator, masks)
    assert masks_at_once(loaded, evaluator) == 8
    monkeypatch.setattr(Translator, "answers_of", lambda self, masks: pytest.fail("in one batch"))
    loaded.args.masks_at_once = 1
    assert answers_under(loaded, evaluator, masks) == expected
    loaded.args.masks_at_once, evaluator.obstacle = 4, "another search"
    assert masks_at_once(loaded, evaluator) == 1 and answers_under(loaded, evaluator, masks) == expected
    assert loaded.gates.mask() == loaded.gates.full()


@pytest.mark.parametrize("task, mask", [("SST-2", None), ("MNLI", None), ("STS-B", "mask.json")])
def test_labels_are_those_of_fairseq_s_batches(tuned, task, mask):
    # Source: the model on fairseq's batches, the mask set on the whole model.
    checkpoint, generate = tuned / task / "checkpoint_last.pt", [str(tuned / "glue"), "--task", "glue", "--cpu"]
    if mask:
        generate += ["--head-mask", str(tuned / mask)]
    loaded = jobs_train.open_model(checkpoint, generate, "dev")
    expected = loaded.evaluator("dev").answers()
    assert jobs_train.answers(checkpoint, generate, "dev") == expected and len(set(expected)) > 1
    assert bool(loaded.gates.mask().dropped()) == bool(mask)
