"""Translating a split under a mask: the same sentences as fairseq-generate's."""

import pytest
from verbs import generated, write_lively

from fairseq_headprune.evaluation.translate import Translator
from fairseq_headprune.parts import Part
from fairseq_headprune.report.document import Document
from fairseq_headprune.session import Session, parse_generation_args


@pytest.fixture(scope="module")
def lively(trained, tmp_path_factory):
    return write_lively(trained, tmp_path_factory.mktemp("lively"))


BEAM = ["--beam", "3", "--max-len-b", "12", "--batch-size", "3", "--cpu"]


def session(run, *flags):
    argv = [str(run["data"]), "--path", str(run["checkpoint"]), *BEAM, *map(str, flags)]
    return Session(parse_generation_args("score", argv, lambda parser: None, "a test"))


def test_hypotheses_and_references_are_fairseq_generates(lively):
    # Source: the D- and T- lines of fairseq-generate with the same flags.
    ours = Translator(session(lively), "test")
    flags = [lively["data"], "--path", lively["checkpoint"], *BEAM, "--task", "translation_headprune"]
    found = ours.answers()
    assert found == generated("D", *flags) and len(set(found)) > 3
    assert ours.references == generated("T", *flags)
    # Source: the text the data was made from.
    assert ours.references == (lively["data"].parent / "test.yy").read_text().splitlines()


def test_a_mask_changes_translations_as_in_fairseq_generate(lively, tmp_path):
    # Source: fairseq-generate under the same mask file.
    loaded = session(lively)
    ours = Translator(loaded, "test")
    dropped = [Part("enc_dec", 0, 0), Part("dec_self", 1, 1), Part("dec_self", 0, 0), Part("dec_self", 0, 1)]
    mask = loaded.gates.mask().without(dropped)
    mask.save(tmp_path / "mask.json")
    full = ours.answers()
    with loaded.gates.masked(mask):
        found = ours.answers()
    flags = [lively["data"], "--path", lively["checkpoint"], *BEAM, "--task", "translation_headprune"]
    assert found == generated("D", *flags, "--head-mask", tmp_path / "mask.json") != full
    # Afterwards the mask is gone again.
    assert ours.answers() == full


def test_a_stock_checkpoint_is_translated_as_by_stock_fairseq(trained_stock, tmp_path):
    # Source: fairseq-generate with fairseq's own task and model.
    run = write_lively(trained_stock, tmp_path)
    flags = [run["data"], "--path", run["checkpoint"], *BEAM, "--task", "translation"]
    assert Translator(session(run), "test").answers() == generated("D", *flags)


def test_the_largest_length_of_a_translation_is_fairseq_generates(lively):
    # Source: fairseq-generate, where it depends on the longest source sentence of a batch.
    flags = ["--max-len-a", "0.5", "--max-len-b", "1", "--max-tokens", "24", "--cpu", "--gen-subset", "valid"]
    argv = [str(lively["data"]), "--path", str(lively["checkpoint"]), *flags]
    loaded = Session(parse_generation_args("score", argv, lambda parser: None, "a test"))
    theirs = generated("D", *argv, "--task", "translation_headprune")
    lengths = {len(line.split()) for line in theirs}
    assert Translator(loaded, "valid").answers() == theirs and len(lengths) > 1
    assert loaded.answering()["batches"] == {"max_tokens": 24, "batch_size": None}


def test_batches_do_not_change_translations_and_nbest_gives_the_best(lively):
    # Source: a batch of one has no padding.
    single = Translator(session(lively, "--batch-size", "1"), "valid").answers()
    assert Translator(session(lively, "--batch-size", "8", "--nbest", "2"), "valid").answers() == single
    assert len(single) == 8


def test_post_processing_is_fairseq_generates(lively):
    # Source: fairseq-generate; sentencepiece joins these words, which have no mark of a beginning.
    flags = ["--post-process", "sentencepiece"]
    ours = Translator(session(lively, *flags), "test")
    theirs = [lively["data"], "--path", lively["checkpoint"], *BEAM, *flags]
    assert ours.answers() == generated("D", *theirs)
    assert ours.references == generated("T", *theirs)


@pytest.mark.parametrize(
    "flags, message",
    [(["--sampling"], "--sampling"), (["--score-reference"], "--score-ref"), (["--replace-unk"], "--repl")],
)
def test_settings_without_a_place_here_are_refused(lively, flags, message):
    with pytest.raises(ValueError, match=message):
        Translator(session(lively, *flags), "test")


def test_what_was_left_out_and_what_was_given_stands_in_the_document(lively):
    loaded = session(
        lively, "--prefix-size", "2", "--max-source-positions", "7", "--skip-invalid-size-inputs-valid-test"
    )
    lines = (lively["data"].parent / "test.xx").read_text().splitlines()
    short = sum(len(line.split()) + 1 <= 7 for line in lines)
    settings = {"data": loaded.data("test"), **loaded.answering()}
    text = Document("A study", provenance={"settings": settings}).render()
    assert f"{short} of 8 sentences were scored" in text and 0 < short < 8
    assert "the first 2 tokens of every reference were given to the search" in text
    plain = session(lively)
    assert not Document("A study", provenance={"settings": {"data": plain.data("test"), **plain.answering()}}).parts()
