"""GLUE's TSV files, good and bad. Reference: lines counted by hand."""

import gzip
import hashlib

import bert_models
import pytest
from glue_data import write_glue

from fairseq_headprune.glue.catalogue import TASKS, glue_task
from fairseq_headprune.glue.dataset import Holdout, read
from fairseq_headprune.glue.tsv import Example, read_split, split_path

SST = TASKS["SST-2"]
GOOD = "".join(f"line {i}\t{i % 2}\n" for i in range(300))


def parse(tmp_path, text, task=SST, stem="dev"):
    (tmp_path / f"{stem}.tsv").write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_split(split_path(tmp_path, task, stem), task, stem)


@pytest.mark.parametrize(
    "task, stem, text, expected",
    [
        ("CoLA", "train", "gj04\t1\t\tHe ran.\n", [(("He ran.",), "1")]),
        ("CoLA", "test", "index\tsentence\n0\tHe ran.\n", [(("He ran.",), None)]),
        ("SST-2", "dev", "sentence\tlabel\ngood \t1\n", [(("good",), "1")]),
        ("SST-2", "dev", "label\tsentence\n1\tgood\n", [(("good",), "1")]),  # by name, not by place
        ("MRPC", "train", "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\tA\tB\n", [(("A", "B"), "1")]),
        ("STS-B", "dev", "index\tsentence1\tsentence2\tscore\n0\ta\tb\t2.600\n", [(("a", "b"), 2.6)]),
        ("QNLI", "dev", "index\tquestion\tsentence\tlabel\n0\tq\ts\tentailment\n", [(("q", "s"), "entailment")]),
        ("QQP", "test", "id\tquestion1\tquestion2\n0\tq\tr\n", [(("q", "r"), None)]),
        (
            "MNLI",
            "dev_mismatched",
            "index\tsentence1\tsentence2\tlabel1\tgold_label\n0\ta\tb\tentailment\tneutral\n",
            [(("a", "b"), "neutral")],
        ),
    ],
)
def test_each_task_reads_its_columns(tmp_path, task, stem, text, expected):
    examples, faults = parse(tmp_path, text, TASKS[task], stem)
    assert examples == [Example(i, *row) for i, row in enumerate(expected)]
    assert faults.left_out == 0 and faults.bom == text.startswith("\ufeff")


def test_faults_are_counted_and_nothing_is_shifted(tmp_path):
    """300 good lines and one of each fault; quotation marks are part of the text."""
    bad = ["a\ttab in it\t1", "no label", "text\t2", " \t1", "text\tpositive", "text\t-1"]
    text = "\ufeffsentence\tlabel\n" + GOOD + '"quoted\t1\nhe said "so"\t0\n\'tis\u2028so\t1\r\n'
    (tmp_path / "dev.tsv").write_text(text)
    examples, faults = parse(tmp_path, text)
    assert [e.sentences[0] for e in examples[-3:]] == ['"quoted', 'he said "so"', "'tis\u2028so"]
    none = {"columns": 0, "label": 0}
    assert faults.to_dict() == {"bom": True, "quotes": 1, "empty": 0, "left_out": none}
    examples, faults = parse(tmp_path, text + "\n".join(bad[:4]) + "\n")
    assert [e.number for e in examples] == [*range(303), 306]
    assert (faults.columns, faults.label, faults.empty) == ([305, 306], [307], 1)
    assert str(faults) == (
        "a byte order mark, dropped; 1 lines with a leading quotation mark, taken literally; "
        "1 lines with an empty sentence; 2 lines left out with another number of columns (the first is line 305); "
        "1 lines left out with an unknown label (the first is line 307)"
    )
    with pytest.raises(ValueError, match="2 lines left out .* line 305.*3 lines left out .*more than 1 in 100"):
        parse(tmp_path, text + "\n".join(bad) + "\n")


@pytest.mark.parametrize(
    "text, stem, message",
    [
        ("", "dev", "must name the columns sentence, label"),
        ("sentence\tlabel\n", "dev", "no line that can be used .the file is empty"),
        ("sentence\tLabel\na\t1\n", "dev", "each once; not so label .it reads: sentence | Label"),
        ("sentence\tlabel\tlabel\na\t1\t1\n", "dev", "each once; not so label"),
        ("index\tsentence\n" + "0\ta\n" * 300 + "broken\n", "test", "every line of a test set has to be answered"),
        ("sentence\tlabel\n" + "a\tentailment\n" * 9, "dev", "no line that can be used .9 lines left out with"),
        (b"sentence\tlabel\n\xff\t1\n", "dev", "not a UTF-8 text file"),
    ],
)
def test_files_that_cannot_be_used_are_refused(tmp_path, text, stem, message):
    with pytest.raises(ValueError, match=message):
        parse(tmp_path, text, stem=stem)


def test_packed_files_are_read_and_damaged_ones_refused(tmp_path):
    data = gzip.compress(("sentence\tlabel\n" + GOOD).encode())
    (tmp_path / "dev.tsv.gz").write_bytes(data)
    assert len(read_split(split_path(tmp_path, SST, "dev"), SST, "dev")[0]) == 300
    (tmp_path / "dev.tsv.gz").write_bytes(data[:100])
    with pytest.raises(ValueError, match="damaged or truncated"):
        read_split(split_path(tmp_path, SST, "dev"), SST, "dev")
    with pytest.raises(FileNotFoundError, match="neither SST-2/train.tsv nor train.tsv is there"):
        split_path(tmp_path, SST, "train")


def test_scores_outside_of_0_to_5_are_no_labels(tmp_path):
    head, row = "index\tsentence1\tsentence2\tscore\n", "0\ta\tb\t"
    text = head + f"{row}5.0\n{row}0\n" * 150 + f"{row}5.1\n{row}nan\n{row}x\n"
    examples, faults = parse(tmp_path, text, TASKS["STS-B"])
    assert len(examples) == 300 and len(faults.label) == 3


def test_a_split_knows_its_file_what_was_cut_and_its_labels(tmp_path):
    data, vocabulary = write_glue(tmp_path / "glue"), bert_models.vocabulary(tmp_path)
    split = read(data, SST, "valid", vocabulary, 8, Holdout())
    text = gzip.decompress((data / "SST-2/dev.tsv.gz").read_bytes())
    assert split.about["sha256"] == hashlib.sha256(text).hexdigest()
    labels = [int(line.split("\t")[1]) for line in text.decode().splitlines()[1:]]
    assert split.targets.tolist() == labels and split.numbers == list(range(12))
    whole = read(data, SST, "dev", vocabulary, 99, Holdout())
    assert split.about["cut"] == sum(len(e.ids) > 8 for e in whole.encoded) > 0 == whole.about["cut"]
    rte = read(data, TASKS["RTE"], "train", vocabulary, 20, Holdout())
    assert rte.targets.tolist() == [1, 0] * 16  # entailment is 0: alphabetical order; the file begins with the other
    assert read(data, TASKS["MNLI"], "dev_mismatched", vocabulary, 20, Holdout()).targets.tolist() == [2, 1, 0] * 4
    with pytest.raises(KeyError, match="SST-2 has no split 'dev_matched'; there are train, valid, dev, test"):
        read(data, SST, "dev_matched", vocabulary, 20, Holdout())
    with pytest.raises(ValueError, match="--glue-task AX: no task of GLUE; known are CoLA, SST-2"):
        glue_task("AX")


@pytest.mark.parametrize("amount, count", [(0.25, 14), (10, 10)])
def test_a_holdout_divides_train(tmp_path, amount, count):
    data, vocabulary = write_glue(tmp_path / "glue"), bert_models.vocabulary(tmp_path)
    parts = {s: read(data, SST, s, vocabulary, 24, Holdout(amount, 3)) for s in ("train", "valid", "dev")}
    numbers = {split: part.numbers for split, part in parts.items()}
    assert len(numbers["valid"]) == count and len(numbers["dev"]) == 12
    assert sorted(numbers["train"] + numbers["valid"]) == list(range(56))
    assert numbers["valid"] != read(data, SST, "valid", vocabulary, 24, Holdout(amount, 4)).numbers
    for wrong in (56, -1):
        with pytest.raises(ValueError, match=f"--holdout {wrong}: of 56 examples"):
            read(data, SST, "train", vocabulary, 24, Holdout(wrong))
