"""Translating a split under a mask: the same sentences as fairseq-generate's, and settings that are refused."""

import pytest
from verbs import generated, refused, session, write_lively

from fairseq_headprune.evaluation.translate import Translator
from fairseq_headprune.parts import Part
from fairseq_headprune.report.document import Document

BEAM = ["--beam", "3", "--max-len-b", "12", "--batch-size", "3", "--cpu"]


def translator(run, *flags, split="test"):
    return Translator(session(run, *BEAM, *flags), split)


def called(run, *flags):
    """Arguments of fairseq-generate for the same."""
    return [run["data"], "--path", run["checkpoint"], *BEAM, "--task", "translation_headprune", *flags]


# sentencepiece joins these words, which have no mark of a beginning.
@pytest.mark.parametrize("flags", [[], ["--post-process", "sentencepiece"]], ids=["plain", "sentencepiece"])
def test_hypotheses_and_references_are_fairseq_generates(lively, flags):
    # Source: the D- and T- lines of fairseq-generate with the same flags.
    ours = translator(lively, *flags)
    found = ours.answers()
    assert found == generated("D", *called(lively, *flags)) and len(set(found)) > 3
    assert ours.references == generated("T", *called(lively, *flags))
    # Source: the text the data was made from.
    assert flags or ours.references == (lively["data"].parent / "test.yy").read_text().splitlines()


def test_a_mask_changes_translations_as_in_fairseq_generate(lively, tmp_path):
    # Source: fairseq-generate under the same mask file.
    loaded = session(lively, *BEAM)
    ours = Translator(loaded, "test")
    dropped = [Part("enc_dec", 0, 0), Part("dec_self", 1, 1), Part("dec_self", 0, 0), Part("dec_self", 0, 1)]
    mask = loaded.gates.mask().without(dropped)
    mask.save(tmp_path / "mask.json")
    full = ours.answers()
    with loaded.gates.masked(mask):
        found = ours.answers()
    assert found == generated("D", *called(lively, "--head-mask", tmp_path / "mask.json")) != full
    # Afterwards the mask is gone again.
    assert ours.answers() == full


def test_a_stock_checkpoint_is_translated_as_by_stock_fairseq(trained_stock, tmp_path):
    # Source: fairseq-generate with fairseq's own task and model.
    run = write_lively(trained_stock, tmp_path)
    assert translator(run).answers() == generated("D", *called(run, "--task", "translation"))


def test_the_largest_length_of_a_translation_is_fairseq_generates(lively):
    # Source: fairseq-generate, where it depends on the longest source sentence of a batch.
    flags = ["--max-len-a", "0.5", "--max-len-b", "1", "--max-tokens", "24", "--gen-subset", "valid"]
    loaded = session(lively, *flags)
    argv = [lively["data"], "--path", lively["checkpoint"], "--cpu", *flags]
    theirs = generated("D", *argv, "--task", "translation_headprune")
    lengths = {len(line.split()) for line in theirs}
    assert Translator(loaded, "valid").answers() == theirs and len(lengths) > 1
    assert loaded.answering()["batches"] == {"max_tokens": 24, "batch_size": None}


def test_batches_do_not_change_translations_and_nbest_gives_the_best(lively):
    # Source: a batch of one has no padding.
    single = translator(lively, "--batch-size", "1", split="valid").answers()
    assert translator(lively, "--batch-size", "8", "--nbest", "2", split="valid").answers() == single
    assert len(single) == 8


@pytest.mark.parametrize(
    "wrong, message",
    [
        (["--sampling"], "--sampling"),
        (["--score-reference"], "--score-reference translates nothing"),
        (["--replace-unk"], "--replace-unk is not supported"),
        (["--constraints"], "--constraints reads constraints from an input of its own"),
        (["--lm-path", "lm.pt"], "--lm-path is not supported here"),
        (["--beam", "0"], "--beam 0: it must be at least 1"),
        (["--prefix-size", "7"], "--prefix-size 7: 7 of 8 references have no more tokens"),
        (["--max-len-b", "-5"], "--max-len-b -5: it must be at least 1, as --min-len is 1 and --max-len-a is 0"),
        (["--max-len-a", "nan"], "--max-len-a nan: it must be at least 0"),
        (["--temperature", "0"], "generation: --temperature must be greater than 0"),
        (["--beam", "3", "--diverse-beam-groups", "2"], "--beam 3: it must be a multiple of --diverse-beam-groups 2"),
        (["--remove-bpe", "foo"], "--post-process foo: Unknown post_process option: foo"),
        (["--bpe", "sentencepiece"], "--bpe sentencepiece: "),
        (["--tokenizer", "moses"], "a flag that is missing): Error merging override tokenizer.source_lang=null"),
        (["--model-overrides", "foo"], "--model-overrides foo: give a Python dictionary, as in"),
        (["--model-overrides", "[1]"], "--model-overrides [1]: give a Python dictionary, as in"),
    ],
)
def test_settings_that_are_not_supported_are_refused_and_nothing_is_written(lively, wrong, message, tmp_path, capsys):
    flags = [lively["data"], "--path", lively["checkpoint"], *BEAM]
    assert message in refused(capsys, "prune", *flags, "-o", tmp_path / "s", *wrong)
    assert not (tmp_path / "s").exists()


def test_what_was_left_out_and_what_was_given_stands_in_the_document(lively):
    some = ["--prefix-size", "2", "--max-source-positions", "7", "--skip-invalid-size-inputs-valid-test"]
    loaded, plain = session(lively, *BEAM, *some), session(lively, *BEAM)
    lines = (lively["data"].parent / "test.xx").read_text().splitlines()
    short = sum(len(line.split()) + 1 <= 7 for line in lines)
    settings = {"data": loaded.data("test"), **loaded.answering()}
    text = Document("A study", provenance={"settings": settings}).render()
    assert f"{short} of 8 sentences were scored" in text and 0 < short < 8
    assert "the first 2 tokens of every reference were given to the search" in text
    assert not Document("A study", provenance={"settings": {"data": plain.data("test"), **plain.answering()}}).parts()
