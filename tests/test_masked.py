"""What is said of references before translations are scored."""

import shutil

import pytest
from verbs import refused, run_json

from fairseq_headprune.evaluation.translate import warn_of_form

TOKENS = ["A boy runs .", "Two men , it 's said ."]
TEXT = ["A boy runs.", "Two men, it's said."]


# Source: sacrebleu's 13a expects detokenised text; tokenised BLEU ("tok") expects tokens.
@pytest.mark.parametrize(("references", "tokenize", "warned"), [
    (TOKENS, "13a", "use --bleu tok"), (TEXT, "13a", ""), (TOKENS, "tok", ""),
    ([*TOKENS, " "], "tok", "1 of 3 references are empty: BLEU counts the words"),
])  # fmt: skip
def test_text_of_another_kind_is_pointed_out(references, tokenize, warned, caplog):
    warn_of_form(references, tokenize)
    assert warned in caplog.text and bool(caplog.text) == bool(warned)


def test_marks_of_subwords_are_refused(trained_stock, tmp_path, capsys):
    """One marked reference of eight, in what fairseq-generate would decode without --post-process."""
    data = tmp_path / "data"
    shutil.copytree(trained_stock["data"], data)
    for name in ("dict.xx.txt", "dict.yy.txt"):
        path = data / name
        path.write_text(path.read_text(encoding="utf-8").replace("w7 ", "w7@@ "), encoding="utf-8")
    flags = [data, "--path", trained_stock["checkpoint"], "--cpu", "--components", "dec_self", "--quiet"]
    lines = (trained_stock["data"].parent / "test.yy").read_text().splitlines()
    marked = sum("w7" in line.split() for line in lines)
    line = refused(capsys, "ablate", *flags, "-o", tmp_path / "s")
    assert f"the references of test: {marked} of 8 sentences have marks of subwords" in line and marked
    assert not (tmp_path / "s").exists()
    few = ["--resamples", "9", "--max-len-b", "5"]
    kept = run_json("ablate", *flags, "-o", tmp_path / "s", "--keep-marks", *few)
    joined = run_json("ablate", *flags, "-o", tmp_path / "j", "--remove-bpe", *few)
    assert len(kept["cells"]) == len(joined["cells"]) == 5
