"""fairseq-generate's settings that have no place where translations are compared."""

import pytest
from verbs import refused, write_lively


@pytest.fixture(scope="module")
def flags(trained, tmp_path_factory):
    lively = write_lively(trained, tmp_path_factory.mktemp("lively"))
    return [lively["data"], "--path", lively["checkpoint"], "--beam", "2", "--max-len-b", "12", "--cpu"]


@pytest.mark.parametrize(
    "wrong, message",
    [
        (["--sampling"], "--sampling"),
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
def test_they_are_refused_and_nothing_is_written(flags, wrong, message, tmp_path, capsys):
    assert message in refused(capsys, "prune", *flags, "-o", tmp_path / "s", *wrong)
    assert not (tmp_path / "s").exists()
