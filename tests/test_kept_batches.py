"""Batches that are kept in memory. Reference: fairseq's own iterator over the same sentences."""

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary, LanguagePairDataset, ListDataset
from fairseq.data.iterators import EpochBatchIterator

from fairseq_headprune.jobs.train import end_loaders
from fairseq_headprune.tasks.translation_headprune import TranslationHeadpruneConfig, TranslationHeadpruneTask
from fairseq_headprune.training.kept_batches import KeptBatches, keep_batches, keep_order


@pytest.fixture(autouse=True)
def no_loaders_left():
    """As garbage, a loader's process costs 5 seconds."""
    yield
    end_loaders()


class Counted(ListDataset):
    """Sentences, and how often they are read."""

    read = 0

    def __getitem__(self, index):
        Counted.read += 1
        return super().__getitem__(index)


class Other(LanguagePairDataset):
    pass


def make_iterator(kind=LanguagePairDataset, **settings):
    words = Dictionary()
    lengths = [3 + number % 5 for number in range(22)]
    source = [torch.full((length,), 4 + number) for number, length in enumerate(lengths)]
    target = [torch.full((length + 1,), 40 + number) for number, length in enumerate(lengths)]
    longer = [length + 1 for length in lengths]
    data = kind(Counted(source, lengths), lengths, words, ListDataset(target, longer), longer, words)
    batches = [list(range(start, min(start + 4, 22))) for start in range(0, 22, 4)]
    return EpochBatchIterator(data, data.collater, batches, seed=7, **settings)


def kept(limit=10**6, **settings):
    iterator = make_iterator(**settings)
    keep_batches(iterator, limit)
    keep_batches(iterator, limit)  # as in every epoch: once is enough
    return iterator


def epoch(iterator, count=None, shuffle=True):
    """Return the next epoch's batches as numbers, or the first ones."""
    found = iterator.next_epoch_itr(shuffle=shuffle)
    taken = []
    while found.has_next() and len(taken) != count:
        batch = next(found)
        taken.append((batch["id"].tolist(), batch["target"].tolist(), batch["net_input"]["src_tokens"].tolist()))
    return taken


def reads(work):
    before = Counted.read
    result = work()
    return result, Counted.read - before


@pytest.mark.parametrize("settings", [{}, {"num_workers": 1, "reuse_dataloader": True}, {"skip_remainder_batch": True},
                                      {"num_shards": 2, "shard_id": 1}, {"buffer_size": 2}],
                         ids=["plain", "workers", "remainder", "shards", "buffer"])  # fmt: skip
def test_epochs_are_fairseqs(settings):
    mine, reference = kept(**settings), make_iterator(**settings)
    for number in range(1, 5):
        assert epoch(mine) == epoch(reference)
        assert (mine.epoch, mine.end_of_epoch(), mine.n) == (number, True, reference.n)
        assert mine.state_dict() == reference.state_dict()


def test_sentences_are_read_once():
    iterator = kept()
    assert reads(lambda: epoch(iterator))[1] == 22
    (again, ordered), count = reads(lambda: (epoch(iterator), epoch(iterator, shuffle=False)))
    assert count == 0
    assert sorted(ids for ids, *_ in again) == sorted(ids for ids, *_ in ordered) and again != ordered


def test_a_resumed_epoch_goes_on_where_it_was():
    mine, reference, whole = kept(), make_iterator(), make_iterator()
    assert epoch(mine, 2) == epoch(reference, 2) == epoch(whole)[:2]
    resumed = kept()
    for iterator in (resumed, reference):
        iterator.load_state_dict(mine.state_dict())
    assert epoch(resumed) == epoch(reference)
    # The first two batches were never seen here: the second epoch reads all, the third one none.
    for expected in (22, 0):
        found, count = reads(lambda: epoch(resumed))
        assert count == expected and found == epoch(reference)
    # Within an epoch of kept batches, too.
    epoch(resumed, 3), epoch(reference, 3)
    again = kept()
    again.load_state_dict(resumed.state_dict())
    resumed.load_state_dict(resumed.state_dict())
    assert epoch(resumed) == epoch(again)


def test_epochs_in_order_come_before_shuffled_ones():
    """As with --curriculum 2, resumed within the first epoch."""
    ordered = make_iterator(reuse_dataloader=True)
    keep_order(ordered)
    keep_order(ordered)
    for mine in (kept(10**6, reuse_dataloader=True), kept(1000, reuse_dataloader=True), ordered):
        reference = make_iterator()
        for iterator in (mine, reference):
            iterator.load_state_dict({"epoch": 1, "iterations_in_epoch": 2, "shuffle": False})
        for shuffle in (False, False, True, True, False):
            assert epoch(mine, shuffle=shuffle) == epoch(reference, shuffle=shuffle)


def test_kept_batches_hold_no_open_files():
    iterator = kept(num_workers=1, reuse_dataloader=True)
    epoch(iterator)
    for batch in iterator._get_iterator_for_epoch._kept.values():
        assert not batch["target"].is_shared() and not batch["net_input"]["src_tokens"].is_shared()


def test_too_many_bytes_are_not_kept():
    iterator, reference = kept(limit=1000), make_iterator()
    for _ in range(3):
        found, count = reads(lambda: epoch(iterator))
        assert count == 22 and found == epoch(reference)
    assert not iterator._get_iterator_for_epoch._kept


def test_a_dataset_that_may_change_its_sentences_is_loaded_anew():
    iterator = kept(kind=Other)
    assert [reads(lambda: epoch(iterator))[1] for _ in range(2)] == [22, 22]


@pytest.mark.parametrize("settings", [{}, {"disable_iterator_cache": True}, {"update_epoch_batch_itr": True}],
                         ids=["shared", "parts of a corpus", "new in every epoch"])  # fmt: skip
def test_batches_are_kept_where_epochs_share_them(settings):
    # Source: fairseq makes the batches of an epoch with the seed plus the epoch's number.
    dataset, seeds = make_iterator().dataset, []
    dataset.ordered_indices = lambda: seeds.append(np.random.get_state()[1][0]) or np.arange(22)
    settings_of_task = TranslationHeadpruneConfig(cuda_graphs="on", train_subset="train")
    task = TranslationHeadpruneTask(settings_of_task, dataset.src_dict, dataset.tgt_dict)
    task.datasets = {"train": dataset}
    of_training = {"update_epoch_batch_itr": False, **settings}  # as fairseq's trainer gives it
    iterator = task.get_batch_iterator(dataset, max_sentences=4, seed=7, epoch=3, **of_training)
    assert isinstance(iterator._get_iterator_for_epoch, KeptBatches) == (not settings)
    assert seeds == [10 if settings else 8] and iterator.seed == 7
    # Validation on the training set has batches of its own, which are kept apart.
    found = [task.get_batch_iterator(dataset, max_sentences=5, epoch=1) for _ in range(2)]
    assert found[0] is found[1] is not iterator and len(found[0]) == 5 and len(iterator) == 6
    assert settings or task.get_batch_iterator(dataset, max_sentences=4, epoch=4, **of_training) is iterator
