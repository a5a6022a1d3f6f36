"""The last translations of all batches under many masks, which go on together."""

import pytest
import torch
from verbs import session

from fairseq_headprune.evaluation import rests
from fairseq_headprune.evaluation.many_masks import ManyMasks
from fairseq_headprune.evaluation.search import Search
from fairseq_headprune.evaluation.translate import Translator
from fairseq_headprune.pruning import one_removed

SETTINGS = {
    "beam 1": ["--beam", "1", "--max-len-b", "40"],
    "beam 4": ["--beam", "4", "--max-len-b", "40"],
    "limit by batch": ["--beam", "3", "--max-len-a", "3", "--max-len-b", "1", "--batch-size", "3"],
    "penalties": "--beam 3 --lenpen 0.3 --unkpen 2 --min-len 4 --temperature 1.3 --max-len-b 30".split(),
    "no normalisation": ["--beam", "3", "--unnormalized", "--max-len-b", "40"],
    "prefix": ["--beam", "4", "--prefix-size", "3", "--max-len-b", "40"],
}


def ending(run, *flags):
    """A session whose translations often end early: the end's logit is larger than the model says."""
    loaded = session(run, *flags)

    def more(module, given, logits):
        logits[..., 2] += 1.7
        return logits

    loaded.model.decoder.output_projection.register_forward_hook(more)
    return loaded


def in_batches(loaded, rows):
    """A translator with so many rows in a batch, a sentence under a mask each; its masks; and the parts that are made.

    Parts are noted as (step, rows).
    """
    translator, full = Translator(loaded, "test"), loaded.gates.full()
    masks = [full, *one_removed(full, ["dec_self", "enc_self"]).values()][:7] + [full.without(full.kept(["enc_dec"]))]
    translator._packer._fitting = lambda lengths, of_each: rows * translator._many.beam // of_each
    return translator, masks


@pytest.fixture
def parts(monkeypatch):
    """What goes on from rests, as (step, rows)."""
    found, part = [], Search.part

    def noted(search, rows):
        found.append((search.step, len(rows)))
        return part(search, rows)

    monkeypatch.setattr(Search, "part", noted)
    return found


@pytest.mark.parametrize("flags", SETTINGS.values(), ids=SETTINGS.keys())
def test_translations_are_those_of_one_run_a_mask(lively, flags, parts, monkeypatch):
    # Source: fairseq's own generator, one mask after the other. Source sentences have 4 to 9 tokens: some batches have
    # room for 8 keys, others for 16, and some have no padding.
    monkeypatch.setattr(rests, "_FEW", 0.6)
    loaded = ending(lively, *flags)
    translator, masks = in_batches(loaded, 30)
    expected = []
    for mask in masks:
        with loaded.gates.masked(mask):
            expected.append(translator.answers())
    assert translator.answers_of(masks) == expected
    assert len(parts) > 1 and (translator._many.beam == 1 or len({step for step, _ in parts}) > 1)


def lengths(monkeypatch, wanted):
    """Let translations have certain lengths: ``wanted`` is told numbers of rows (n,), and returns a tensor (n,)."""
    probabilities = Search._log_probabilities

    def forced(search, features):
        found = probabilities(search, features)
        rows = search._numbers[search._beams.sentences].repeat_interleave(search._beams.beam)
        ends = wanted(rows) <= search.step
        end = found[:, 2].clone()
        found[ends] = -torch.inf
        found[:, 2] = torch.where(ends, end, -torch.inf)
        return found

    monkeypatch.setattr(Search, "_log_probabilities", forced)


def test_the_last_translations_of_all_batches_take_their_steps_once(lively, parts, monkeypatch):
    # Source: by hand: 4 batches of 2 sentences under 8 masks. Translations have 3 tokens in the first 4 sentences and 6
    # in the others, so they take 4 and 7 steps with the end; but all 40 of mask 5 in every second sentence.
    loaded, calls = session(lively, "--beam", "2", "--max-len-b", "40"), []
    translator, masks = in_batches(loaded, 16)
    loaded.model.decoder.register_forward_hook(lambda *_: calls.append(1))
    monkeypatch.setattr(translator._session.dataset("test"), "src_sizes", [9] * 8)

    def wanted(rows):
        sentence, mask = rows // 8, rows % 8
        short = torch.where(sentence < 4, 3, 6)
        return torch.where((mask == 5) & (sentence % 2 == 1), 40, short)

    lengths(monkeypatch, wanted)
    found = translator.answers_of(masks)
    assert len(masks) == 8
    assert [len(line.split()) for line in found[5]] == [3, 40, 3, 40, 6, 40, 6, 40]
    assert {len(line.split()) for mask in (0, 7) for line in found[mask]} == {3, 6}
    # One row of 16 is few.
    assert parts == [(4, 1), (4, 1), (7, 1), (7, 1)] and len(calls) == 2 * 4 + 2 * 7 + (41 - 4)
    # None at all: each batch goes on alone.
    calls.clear()
    monkeypatch.setattr(rests, "_FEW", 0)
    assert translator.answers_of(masks) == found and len(calls) == 4 * 41


def test_rests_go_on_in_between_where_they_are_many_and_are_set_aside_again(lively, parts, monkeypatch):
    # Source: by hand: 8 batches of a sentence under 8 masks, of which 4 rows are left after 4 steps: two batches' rests
    # are as many as a batch. Of these one row goes on after 11 steps, which is few; and is done with the others' at the
    # end.
    loaded, calls = session(lively, "--beam", "2", "--max-len-b", "40"), []
    translator, masks = in_batches(loaded, 8)
    loaded.model.decoder.register_forward_hook(lambda *_: calls.append(1))
    monkeypatch.setattr(translator._session.dataset("test"), "src_sizes", [9] * 8)
    monkeypatch.setattr(rests, "_FEW", 0.5)

    def wanted(rows):
        sentence, mask = rows // 8, rows % 8
        long = torch.where((mask == 0) & (sentence % 2 == 0), 40, 10)
        return torch.where(mask < 4, long, 3)

    lengths(monkeypatch, wanted)
    found = translator.answers_of(masks)
    assert [len(line.split()) for line in found[0]] == [40, 10] * 4
    assert {len(line.split()) for line in found[1]} == {10} and {len(line.split()) for line in found[4]} == {3}
    assert parts == [(4, 4), (4, 4), (4, 4), (4, 4), (11, 1), (4, 4), (4, 4), (11, 2), (4, 4), (4, 4), (11, 3)]
    assert len(calls) == 8 * 4 + 4 * 7 + (41 - 11)


@pytest.mark.parametrize("of", ["batches", "masks", "rests"])
def test_memory_that_runs_out_changes_no_translation(lively, of, parts, monkeypatch):
    # Source: the same without such an end.
    loaded = ending(lively, "--beam", "3", "--max-len-b", "40")
    translator, masks = in_batches(loaded, 24)
    monkeypatch.setattr(rests, "_FEW", 0.6)
    expected, refused = translator.answers_of(masks), []
    joined = max(rows for _, rows in parts)
    begin, run = ManyMasks._begin, Search.run
    most = {"batches": 16, "masks": 5}.get(of, 10**6)

    def no_more_than(many, rows, sample, numbers, *args):
        if len(sample["id"]) * len(numbers) > most:
            refused.append(len(numbers))
            raise torch.OutOfMemoryError("a made-up end of memory")
        return begin(many, rows, sample, numbers, *args)

    def in_the_middle(search, until=None, few=0.0):
        run(search, until, few)
        if of == "rests" and search.rows > 5 and until is not None:
            refused.append(search.rows)
            raise torch.OutOfMemoryError("a made-up end of memory")

    monkeypatch.setattr(ManyMasks, "_begin", no_more_than)
    monkeypatch.setattr(Search, "run", in_the_middle)
    parts.clear()
    assert translator.answers_of(masks) == expected and refused and parts and joined > 1


def test_a_rest_that_is_not_finite_is_an_error_that_names_it(lively, monkeypatch):
    # Source: by hand: sentence 3 under mask 5 goes on to the end, and is not finite from token 8 on.
    loaded = session(lively, "--beam", "2", "--max-len-b", "20")
    translator, masks = in_batches(loaded, 16)
    lengths(monkeypatch, lambda rows: torch.where(rows == 3 * 8 + 5, 20, 3))
    translator.answers_of(masks)
    forced = Search._log_probabilities

    def broken(search, features):
        rows = search._numbers[search._beams.sentences].repeat_interleave(search._beams.beam)
        return forced(search, features).masked_fill((rows == 3 * 8 + 5)[:, None] & (search.step > 8), torch.nan)

    monkeypatch.setattr(Search, "_log_probabilities", broken)
    with pytest.raises(FloatingPointError, match="sentence 3 has no translation under mask 5 of 8"):
        translator.answers_of(masks)
