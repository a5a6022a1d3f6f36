"""The verb ``headprune compare``."""

import hashlib
import json
import math
from pathlib import Path

import pytest
from sacrebleu.metrics import BLEU, CHRF
from verbs import refused, run_json

from fairseq_headprune.cli import main
from fairseq_headprune.evaluation.statistics import METRICS

REFERENCES = [
    "The cat sat on the mat.", "A dog runs very fast, I think.", "We can't see it.", "One, two, three, four.",
] * 3  # fmt: skip
SYSTEM = ["The cat sat on a mat.", "A dog runs very fast, I think.", "We can't see that.", "One, two, three, four."] * 3
WORSE = ["The cat on the mat.", "A dog walks very fast, we think.", "We can't see.", "One, two, three, five."] * 3


@pytest.fixture
def files(tmp_path):
    paths = {}
    for name, lines in (("ref", REFERENCES), ("base", WORSE), ("sys", SYSTEM)):
        path = tmp_path / name
        path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        paths[name] = str(path)
    return paths


def compared(*argv, resamples=50):
    return run_json("compare", "--resamples", resamples, *argv)


def test_json_has_the_fixed_keys_and_sacrebleus_scores(files):
    command = (files["ref"], files["base"], files["sys"])
    value = compared(*command, "--seed", "0", resamples=200)
    assert (value["resamples"], value["seed"], value["baseline"]) == (200, 0, files["base"])
    bleu = BLEU()
    for row, lines in zip(value["systems"], (WORSE, SYSTEM), strict=True):
        # Source: sacrebleu on the whole text.
        assert row["score"] == pytest.approx(bleu.corpus_score(lines, [REFERENCES]).score, abs=1e-9)
        assert row["wins"] + row["losses"] + row["ties"] == pytest.approx(1)
        assert row["ci"][0] <= row["score"] <= row["ci"][1]
        assert row["sha256"] == hashlib.sha256(Path(row["name"]).read_bytes()).hexdigest()
    assert value["signature"] == bleu.get_signature().format()
    baseline, system = value["systems"]
    assert (baseline["name"], baseline["p"], baseline["p_holm"], baseline["ties"]) == (files["base"], 1, 1, 1)
    # SYSTEM is better in three sentences of four and worse in none, so no resample of 12 is likely to be lost.
    assert system["wins"] > 0.95 and system["losses"] == 0
    assert system["p"] == system["p_holm"] == pytest.approx(2 * (200 * system["ties"] + 1) / 201)
    assert value["detokenised"] == {"reference": True, "systems": True}
    assert compared(*command, "--seed", "0", resamples=200) == value
    assert compared(*command, "--seed", "1", resamples=200)["systems"] != value["systems"]


def test_a_file_against_itself(files, capsys):
    value = compared(files["ref"], files["sys"], files["sys"])
    assert [row["name"] for row in value["systems"]] == [files["sys"], files["sys"] + " (2)"]
    assert (value["systems"][1]["p"], value["systems"][1]["ties"]) == (1, 1)
    assert main(["compare", files["ref"], files["sys"], files["sys"]]) == 0
    assert "no difference" in capsys.readouterr().out


def test_chrf_and_tokenised_bleu(files, tmp_path):
    value = compared(files["ref"], files["base"], files["sys"], "--metric", "chrf")
    assert value["systems"][1]["score"] == pytest.approx(CHRF().corpus_score(SYSTEM, [REFERENCES]).score, abs=1e-9)
    tokenised = {
        "r": ["the cat sat on the mat today .", "a dog runs very fast ."],
        "h": ["the cat sat on the the mat .", "a dog runs fast"],
    }
    for name, lines in tokenised.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    paths = (tmp_path / "r", tmp_path / "h", tmp_path / "r")
    value = compared(*paths, "--bleu", "tok")
    # Source: counted by hand, see test_statistics.py.
    expected = 100 * math.exp(1 - 14 / 12) * (11 / 12 * 7 / 10 * 4 / 8 * 2 / 6) ** 0.25
    assert value["systems"][0]["score"] == pytest.approx(expected, abs=1e-9)
    assert "tok:none|smooth:none" in value["signature"]
    assert compared(*paths, "--tokenize", "tok")["systems"] == value["systems"]


def test_generated_output_is_read_in_order(files, tmp_path):
    generated = tmp_path / "generated"
    lines = [f"H-{number}\t-0.5\t{SYSTEM[number]}\n" for number in reversed(range(len(SYSTEM)))]
    generated.write_text("".join(lines), encoding="utf-8")
    value = compared(files["ref"], files["sys"], generated)
    assert value["systems"][1]["ties"] == 1
    assert [row["lines"] for row in value["systems"]] == ["text", "H"]


def test_a_byte_order_mark_is_no_text_and_empty_references_are_told(files, tmp_path, capsys):
    marked, generated = tmp_path / "marked", tmp_path / "generated"
    marked.write_text("\ufeff" + "".join(f"{line}\n" for line in REFERENCES), encoding="utf-8")
    lines = "".join(f"H-{number}\t-0.5\t{line}\n" for number, line in enumerate(REFERENCES))
    generated.write_text("\ufeff" + lines, encoding="utf-8")
    value = compared(files["ref"], marked, generated)
    assert [row["score"] for row in value["systems"]] == pytest.approx([100, 100])
    # Source: sacrebleu, which counts 6 of 18 words as wrong in one metric and leaves them out in the other.
    for name, text in (("r", "One, two, three, four.\n\n"), ("h", "One, two, three, four.\nOne, two, three\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    paths = [str(tmp_path / name) for name in "rhh"]
    scores = {m: compared(*paths, "--metric", m)["systems"][0]["score"] for m in METRICS}
    assert scores["chrf"] == pytest.approx(100) and scores["bleu"] == pytest.approx(
        BLEU().corpus_score(["One, two, three, four.", "One, two, three"], [["One, two, three, four.", ""]]).score
    )
    assert main(["compare", *paths, "--resamples", "9"]) == 0
    assert "1 of 2 references are empty: BLEU counts the words" in capsys.readouterr().out


def test_tokenised_against_detokenised_warns_in_one_line(tmp_path, capsys):
    (tmp_path / "ref").write_text("I can't go.\nI can't.\n", encoding="utf-8")
    (tmp_path / "hyp").write_text("I can &apos;t go .\nI can &apos;t .\n", encoding="utf-8")
    paths = [str(tmp_path / "ref"), str(tmp_path / "ref"), str(tmp_path / "hyp")]
    assert main(["compare", *paths, "--json", "--resamples", "10"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["detokenised"] == {"reference": True, "systems": False}
    assert len(captured.err.splitlines()) == 1 and "warning" in captured.err


def test_compare_mt_stands_beside_ours(files, capsys):
    command = (files["ref"], files["base"], files["sys"], "--engine", "compare-mt")
    value = compared(*command)
    theirs = value["systems"][1]["compare_mt"]
    assert "compare_mt" not in value["systems"][0]
    assert (value["sample_fraction"], theirs["sample_fraction"]) == (1.0, 0.5)
    # No sentence is shorter than 4 tokens and every order has matches: both BLEUs are the same number.
    assert theirs["score"] == pytest.approx(value["systems"][1]["score"], abs=1e-9)
    assert theirs["wins"] + theirs["losses"] + theirs["ties_corrected"] == pytest.approx(1)
    # Its p is 0 if no resample is against the difference: then it is only known to be below one of them.
    assert theirs["p"] == max(1 - max(theirs["wins"], theirs["losses"]), 1 / value["resamples"])
    assert theirs["p_is_bound"] == (max(theirs["wins"], theirs["losses"]) == 1)
    assert compared(*command) == value
    assert "compares BLEU only" in refused(capsys, "compare", *command, "--metric", "chrf")


def test_table_formats(files, capsys):
    command = ["compare", files["ref"], files["base"], files["sys"], "--resamples", "1000"]
    assert main(command) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[0].split()[:2] == ["system", "score"]
    assert text.splitlines()[2].split()[3:] == ["-"] * 5  # the baseline is not tested
    assert "smooth:exp" in text and "seed 12345" in text
    assert "--resamples" not in text
    assert main([*command, "--format", "markdown"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert len(rows) == 4 and len({line.replace("\\|", "").count("|") for line in rows}) == 1
    assert main([*command, "--format", "latex"]) == 0
    latex = capsys.readouterr().out
    assert latex.startswith(r"\begin{tabular}{lrrrrrrrl}") and r"95\% interval" in latex


def test_wrong_input_is_one_line_and_status_2(files, tmp_path, capsys):
    short, empty, latin, missing, marked = (
        tmp_path / name for name in ("short", "empty", "latin", "missing", "marked")
    )
    short.write_text("a\n", encoding="utf-8")
    empty.write_text("", encoding="utf-8")
    latin.write_bytes(b"caf\xe9\n")
    marked.write_text("".join(f"{line}\n" for line in [*SYSTEM[:-1], "One, two, th@@ ree, four."]), encoding="utf-8")
    two = [files["ref"], files["base"]]
    three = [*two, files["sys"]]
    for call, message in (
        ([*two, missing], str(missing)),
        ([*two, short], "1 hypotheses for 12 references"),
        ([short, *three[1:]], "12 hypotheses for 1 references"),
        ([empty] * 3, "0 hypotheses for 0 references"),
        ([short] * 3, "at least 2 sentences"),
        ([*two, marked], f"{marked}: 1 of 12 sentences have marks of subwords (@@ or ▁; the first is line 12)"),
        ([*two, latin], "not a UTF-8"),
        ([*three, "--metric", "ter"], "'ter'"),
        ([*three, "--tokenize", "14a"], "unknown tokeniser '14a'"),
        ([*three, "--bleu", "tok", "--tokenize", "13a"], "does not tokenise"),
        ([*three, "--metric", "chrf", "--bleu", "tok"], "no tokeniser"),
        ([*three, "--resamples", "0"], "got 0"),
        ([*three, "--alpha", "1"], "--alpha"),
        (two, "required: SYS"),
    ):
        assert message in refused(capsys, "compare", *call)
    assert main(["compare", *two, str(marked), "--keep-marks", "--resamples", "9"]) == 0


def test_p_of_zero_is_not_shown_as_zero(files, tmp_path, capsys, monkeypatch):
    (tmp_path / "empty").write_text("\n" * 12, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    command = ["compare", "ref", "sys", "empty", "base"]
    assert main([*command, "--resamples", "100"]) == 0
    text = capsys.readouterr().out
    row = next(line for line in text.splitlines() if line.startswith("empty "))
    # The empty translation loses every resample. Smallest p above 0: 2/100; for two systems 4/100; 4/.01 = 400.
    # No mark either: 0.02 is above .01, too.
    assert row.split()[-2:] == ["<0.02", "<0.04"]
    assert "for 2 tests it takes 400 or more (--resamples)" in text and "**" not in text
    assert main([*command, "--resamples", "400"]) == 0
    text = capsys.readouterr().out
    row = next(line for line in text.splitlines() if line.startswith("empty "))
    assert row.split()[-3:] == ["<0.005", "<0.01", "**"] and "it takes" not in text
