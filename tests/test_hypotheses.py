"""Reading references and translations, and what is said of them before anything is scored."""

import shutil

import pytest
from verbs import refused, run_json

from fairseq_headprune.evaluation.hypotheses import looks_detokenised, read_references, read_systems, warning
from fairseq_headprune.evaluation.translate import warn_of_form

# Written by hand in the form of fairseq-generate: longest sentence first, two hypotheses an id, a tab inside one.
GENERATED = """2024-01-01 10:00:00 | INFO | fairseq_cli.generate | loading
S-1\tein langer satz
T-1\ta long sentence
H-1\t-0.2\tbest\tone
D-1\t-0.2\tBest\tone.
P-1\t-0.1 -0.3
H-1\t-0.9\tsecond one
D-1\t-0.9\tSecond one.
S-2\tzwei
T-2\ttwo
H-2\t-inf\ttwo
D-2\t-inf\tTwo.
S-0\tnull
T-0\tzero
H-0\t-1e-05\t
D-0\t-1e-05\t
Generate test with beam=2: BLEU4 = 12.3
"""


@pytest.fixture
def write(tmp_path):
    def _write(text: str) -> str:
        path = tmp_path / "text"
        path.write_bytes(text.encode("utf-8"))
        return str(path)

    return _write


def test_generated_text_is_put_in_order_and_the_best_taken(write):
    read = read_systems(write(GENERATED))
    assert (read.lines, read.form) == (["", "Best\tone.", "Two."], "D")
    without = "".join(line + "\n" for line in GENERATED.splitlines() if not line.startswith("D-"))
    read = read_systems(write(without))
    assert (read.lines, read.form) == (["", "best\tone", "two"], "H")


def test_targets_are_the_references(write):
    read = read_references(write(GENERATED))
    assert (read.lines, read.form) == (["zero", "a long sentence", "two"], "T")
    with pytest.raises(ValueError, match="no T- line for id 0"):
        read_references(write("H-0\t-0.1\ta\n"))


def test_ids_are_numbers_not_text(write):
    lines = [f"H-{number}\t-0.5\tline {number}\n" for number in (10, 2, 0, 1, 9, 8, 7, 6, 5, 4, 3)]
    assert read_systems(write("".join(lines))).lines == [f"line {number}" for number in range(11)]


def test_a_missing_id_is_named(write):
    with pytest.raises(ValueError, match=r"no H- line for id 1 \(1 of 3 sentences\)"):
        read_systems(write("H-2\t-0.1\tc\nH-0\t-0.1\ta\n"))
    # A source without hypothesis, and a hypothesis that is detokenised in one place only.
    with pytest.raises(ValueError, match="no H- line for id 1"):
        read_systems(write("S-0\ta\nH-0\t-0.1\ta\nS-1\tb\n"))
    with pytest.raises(ValueError, match="no D- line for id 1"):
        read_systems(write("H-0\t-0.1\ta\nD-0\t-0.1\tA\nH-1\t-0.1\tb\n"))


def test_only_a_line_feed_ends_a_line(write):
    read = read_systems(write("one\u2028still one\ntwo\rstill two\nthree\x0cstill\n\nfive"))
    assert read.form == "text"
    assert read.lines == ["one\u2028still one", "two\rstill two", "three\x0cstill", "", "five"]


def test_plain_text_that_resembles_fairseqs(write):
    lines = ["H-2 visas are short", "T-1\tis a label"]
    assert read_systems(write("\n".join([*lines, ""]))).lines == lines


@pytest.mark.parametrize("sentences, detokenised", [
    (["I can't go."], True), (["I can &apos;t go ."], False), (["He is here , and she is n't ."], False),
    (["It 's fine"], False), (["low@@ er case"], False), (["▁low er ▁case"], False), (["Vraiment ? Oui !"], True),
    (["Well, 3.5 of 1,000 dogs."], True), (["no punctuation at all"], True), ([""], True), ([], True),
    (["Fine."] * 199 + ["AT&amp;T"], True),
])  # fmt: skip
def test_text_that_looks_tokenised(sentences, detokenised):
    # Source: read by eye.
    assert looks_detokenised(sentences) is detokenised


def test_warnings():
    assert warning(True, {"a": True}, tokenises=True) is None
    assert warning(False, {"a": False}, tokenises=False) is None
    assert "a tokenised" in warning(True, {"a": False, "b": True}, tokenises=True)
    assert "a detokenised" in warning(False, {"a": True}, tokenises=False)
    assert "--bleu tok" in warning(False, {"a": False}, tokenises=True)


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
