"""The embedded corpus: hand-written spellings, no overlap, determinism, checksums, and the folder on disk."""

import hashlib
import json
from datetime import date
from unittest.mock import Mock

import pytest
import sentencepiece
import tiny
from verbs import refused

from fairseq_headprune.cli import main
from fairseq_headprune.corpus import Settings, generate, sentences
from fairseq_headprune.corpus import make_corpus as make
from fairseq_headprune.corpus.sentences import clock, decimal, number, ordinal, spoken_time, year
from fairseq_headprune.sentencepieces import encode, train_pieces

SMALL = Settings(seed=0, train=300, valid=20, test=30, vocab=150)

# All spellings below are written by hand from the rules of the two languages.
SPELLED = [
    (number(34), "vierunddreißig", "thirty-four"),
    (number(1), "eins", "one"),
    (number(1234), "eintausendzweihundertvierunddreißig", "one thousand two hundred and thirty-four"),
    (number(10_001), "zehntausendeins", "ten thousand and one"),
    (decimal(125), "zwölf Komma fünf", "twelve point five"),
    (ordinal(1), "erste", "first"),
    (ordinal(3), "dritte", "third"),
    (ordinal(7), "siebte", "seventh"),
    (ordinal(8), "achte", "eighth"),
    (ordinal(12), "zwölfte", "twelfth"),
    (ordinal(20), "zwanzigste", "twentieth"),
    (ordinal(21), "einundzwanzigste", "twenty-first"),
    (year(1905), "neunzehnhundertfünf", "nineteen oh-five"),
    (year(1100), "elfhundert", "eleven hundred"),
    (year(2003), "zweitausenddrei", "two thousand and three"),
    (year(2021), "zweitausendeinundzwanzig", "twenty twenty-one"),
    (clock(14, 5), "vierzehn Uhr fünf", "two oh-five PM"),
    (clock(0, 30), "null Uhr dreißig", "twelve thirty AM"),
    (clock(1, 0), "ein Uhr", "one AM"),
    (clock(12, 1), "zwölf Uhr eins", "twelve oh-one PM"),
    (spoken_time(2, 30), "halb drei", "half past two"),
    (spoken_time(12, 30), "halb eins", "half past twelve"),
    (spoken_time(2, 45), "Viertel vor drei", "a quarter to three"),
    (spoken_time(7, 10), "zehn nach sieben", "ten past seven"),
]

#: SHA-256 of test.de and train.en by (seed, train, valid, test). The corpus was first written with num2words 0.5.14 and
#: Babel 2.19.0, from which these sums are; they are the same under Python 3.11 and 3.12.
CHECKSUMS = {
    (1, 14_000, 500, 500): (
        "e9569fde8609c27650146665b75338af4b8353041de180fa7857d33272acb64a",
        "fc8b319f08ad780bdd84588c760caa1c8baf2bf3ce824f607be9b44acece9e75",
    ),
    (2, 300, 20, 30): (
        "f386b5694e044728dc3a6a15717f51fc2037e2fca9053c215f7c2371365d3548",
        "d22aafab6458fbe7638ba0f63df6129707d91330ee51698d59e8e09d3757647c",
    ),
}


@pytest.mark.parametrize("found, german, english", SPELLED, ids=[expected[2] for expected in SPELLED])
def test_spelling(found, german, english):
    assert found == (german, english)


def test_all_numbers_below_a_hundred_swap_tens_and_units():
    # German writes unit + "und" + tens; the words are listed by hand.
    units = "ein zwei drei vier fünf sechs sieben acht neun".split()
    tens = "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()
    expected = [unit + "und" + ten for ten in tens for unit in units]
    assert [number(value)[0] for value in range(21, 100) if value % 10] == expected


def test_sentences_are_those_of_the_first_version(default_text):
    for sizes, expected in CHECKSUMS.items():
        text = default_text if Settings(*sizes) == Settings() else generate(Settings(*sizes))
        found = tuple(hashlib.sha256(text[name].encode()).hexdigest() for name in ("test.de", "train.en"))
        assert found == expected


def test_dates_are_of_the_calendar():
    # 20 May 2020 was a Wednesday; day and year share their words.
    fixed = Mock(randrange=lambda days: (date(2020, 5, 20) - date(1950, 1, 1)).days)
    expected = {"weekday": ("Mittwoch", "Wednesday"), "day": ("zwanzigste", "twentieth"), "month": ("Mai", "May")}
    assert sentences._date(fixed) == expected | {"in_year": ("zweitausendzwanzig", "twenty twenty")}


@pytest.fixture(scope="module")
def default_text():
    return generate(Settings())


def test_default_corpus_is_distinct_well_formed_and_within_length(default_text):
    for language in ("de", "en"):
        lines = {split: default_text[f"{split}.{language}"].splitlines() for split in ("train", "valid", "test")}
        assert [len(part) for part in lines.values()] == [14_000, 500, 500]
        everything = sum(lines.values(), [])
        assert len(set(everything)) == 15_000  # so no sentence is in two splits
        assert all(4 <= len(line.split(" ")) <= 20 for line in everything)
        assert all(line[0].isupper() and line.endswith(".") and "  " not in line for line in everything)
        assert not set("{}0123456789\u00a0\u202f\t") & set("".join(everything))


def test_test_set_does_not_depend_on_the_size_of_train():
    assert generate(Settings(0, 40, 20, 30, 150))["test.en"] == generate(SMALL)["test.en"]


def test_too_many_pairs_are_refused(monkeypatch):
    monkeypatch.setattr(sentences, "draw_pair", lambda rng: ("Eins.", "One."))
    with pytest.raises(ValueError, match="only 1 distinct sentence pairs were found"):
        generate(SMALL)


def test_pieces_decode_to_the_text_exactly():
    # sentencepiece's own decoder is the other program.
    text = generate(SMALL)["train.de"]
    model = train_pieces(text, 200)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    assert processor.get_piece_size() == 200
    lines = encode(model, text).splitlines()
    assert [processor.decode(line.split(" ")) for line in lines] == text.splitlines()
    assert train_pieces(text, 200) == model


def test_vocabulary_larger_than_the_text_allows():
    with pytest.raises(ValueError, match="no sentencepiece vocabulary of 5000"):
        train_pieces("eins zwei\n", 5000)


def test_folder_is_complete_and_reused(tmp_path):
    description = make(tmp_path / "c", SMALL, binarise=False)
    expected = {f"{s}.{k}{lang}" for s in ("train", "valid", "test") for k in ("", "spm.") for lang in ("de", "en")}
    assert {path.name for path in (tmp_path / "c").iterdir()} == expected | {"spm.model", "corpus.json"}
    assert json.loads((tmp_path / "c" / "corpus.json").read_text()) == description
    assert description["sentences"] == {"train": 300, "valid": 20, "test": 30}
    before = (tmp_path / "c" / "train.de").stat().st_mtime_ns
    assert make(tmp_path / "c", SMALL, binarise=False) == description
    assert (tmp_path / "c" / "train.de").stat().st_mtime_ns == before


def test_interrupted_writing_is_completed(tmp_path):
    description = make(tmp_path, SMALL, binarise=False)
    (tmp_path / "corpus.json").unlink()
    (tmp_path / "spm.model").unlink()
    assert make(tmp_path, SMALL, binarise=False) == description


def test_another_corpus_is_refused_and_left_alone(tmp_path, capsys):
    make(tmp_path, SMALL, binarise=False)
    content = (tmp_path / "test.de").read_bytes()
    arguments = ["make-corpus", str(tmp_path), "--train", "200", "--valid", "20", "--test", "30", "--vocab", "150"]
    assert main([*arguments, "--no-binarise"]) == 2
    error = capsys.readouterr().err
    assert "another corpus" in error and "--force" in error and error.count("\n") == 1
    assert (tmp_path / "test.de").read_bytes() == content
    assert main([*arguments, "--no-binarise", "--force", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["seed"] == 1
    assert (tmp_path / "test.de").read_bytes() != content


def test_a_foreign_file_is_not_overwritten(tmp_path):
    (tmp_path / "test.de").write_text("mine\n")
    with pytest.raises(ValueError, match="test.de is of another corpus"):
        make(tmp_path, SMALL, binarise=False)
    assert [path.name for path in tmp_path.iterdir()] == ["test.de"]


def test_binary_data_is_what_fairseq_preprocess_makes(tmp_path, monkeypatch):
    make(tmp_path, SMALL)
    languages = ["--source-lang=de", "--target-lang=en", "--joined-dictionary", f"--destdir={tmp_path / 'theirs'}"]
    splits = [f"--{split}pref={tmp_path / split}.spm" for split in ("train", "valid", "test")]
    tiny.fairseq_here("preprocess", *languages, *splits)
    ours, theirs = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("data-bin", "theirs")
    )
    assert ours.pop("corpus.json") and theirs.pop("preprocess.log") and ours == theirs and len(ours) == 14
    assert [path for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    (tmp_path / "data-bin" / "corpus.json").write_text("{}")
    with pytest.raises(ValueError, match="data-bin is of another corpus"):
        make(tmp_path, SMALL)

    def fail(*_):
        raise OSError("no space left")

    # A failure leaves no half of a folder.
    monkeypatch.setattr("fairseq.data.indexed_dataset.make_builder", fail)
    with pytest.raises(OSError, match="no space left"):
        make(tmp_path, SMALL, force=True)
    assert not (tmp_path / "data-bin").exists()


@pytest.mark.parametrize(
    "flags, said", [(["--seed", "-1"], "seed -1"), (["--test", "0"], "test 0"), (["--vocab", "5"], "vocab 5")]
)
def test_wrong_settings(tmp_path, capsys, flags, said):
    assert said in refused(capsys, "make-corpus", tmp_path / "c", *flags)
    assert not (tmp_path / "c").exists()
