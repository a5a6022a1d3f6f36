"""The embedded corpus: hand-written spellings, no overlap, determinism, checksums, and the folder on disk."""

import datetime
import hashlib
import importlib.metadata
import json

import pytest
import sentencepiece

from fairseq_headprune.cli import main, make_corpus
from fairseq_headprune.corpus import Settings, folder, generate, spelling, splits, words
from fairseq_headprune.corpus import make_corpus as make
from fairseq_headprune.corpus.pieces import encode, train_pieces
from fairseq_headprune.corpus.templates import TEMPLATES

SMALL = Settings(seed=0, train=300, valid=20, test=30, vocab=150)

# All spellings below are written by hand from the rules of the two languages.
SPELLED = [
    (spelling.number(34), ("vierunddreißig", "thirty-four")),
    (spelling.number(1), ("eins", "one")),
    (spelling.number(1234), ("eintausendzweihundertvierunddreißig", "one thousand two hundred and thirty-four")),
    (spelling.number(12.5), ("zwölf Komma fünf", "twelve point five")),
    (spelling.ordinal(1), ("erste", "first")),
    (spelling.ordinal(3), ("dritte", "third")),
    (spelling.ordinal(7), ("siebte", "seventh")),
    (spelling.ordinal(8), ("achte", "eighth")),
    (spelling.ordinal(12), ("zwölfte", "twelfth")),
    (spelling.ordinal(21), ("einundzwanzigste", "twenty-first")),
    (spelling.year(1905), ("neunzehnhundertfünf", "nineteen oh-five")),
    (spelling.year(1100), ("elfhundert", "eleven hundred")),
    (spelling.year(2003), ("zweitausenddrei", "two thousand and three")),
    (spelling.year(2021), ("zweitausendeinundzwanzig", "twenty twenty-one")),
    (spelling.day_and_month(datetime.date(2000, 3, 7)), ("siebten März", "March seventh")),
    (
        spelling.long_date(datetime.date(1990, 5, 1)),
        ("ersten Mai neunzehnhundertneunzig", "May first, nineteen ninety"),
    ),
    (  # 20 May 2020 was a Wednesday; day and year share their digits
        spelling.full_date(datetime.date(2020, 5, 20)),
        ("Mittwoch, dem zwanzigsten Mai zweitausendzwanzig", "Wednesday, May twentieth, twenty twenty"),
    ),
    (spelling.weekday(datetime.date(2020, 5, 20)), ("Mittwoch", "Wednesday")),
    (spelling.month(datetime.date(2020, 12, 1)), ("Dezember", "December")),
    (spelling.clock(14, 5), ("vierzehn Uhr fünf", "two oh-five PM")),
    (spelling.clock(0, 30), ("null Uhr dreißig", "twelve thirty AM")),
    (spelling.clock(1, 0), ("ein Uhr", "one AM")),
    (spelling.clock(12, 1), ("zwölf Uhr eins", "twelve oh-one PM")),
    (spelling.spoken_time(2, 30), ("halb drei", "half past two")),
    (spelling.spoken_time(12, 30), ("halb eins", "half past twelve")),
    (spelling.spoken_time(2, 45), ("Viertel vor drei", "a quarter to three")),
    (spelling.spoken_time(7, 10), ("zehn nach sieben", "ten past seven")),
    (spelling.price(12, 50, "EUR"), ("zwölf Euro und fünfzig Cent", "twelve euros and fifty cents")),
    (spelling.price(7, 5, "GBP"), ("sieben Pfund und fünf Pence", "seven pounds sterling and five pence")),
    (spelling.whole_price(90, "CHF"), ("neunzig Schweizer Franken", "ninety Swiss francs")),
    (spelling.measure(34, "length-kilometer"), ("vierunddreißig Kilometer", "thirty-four kilometers")),
    (spelling.measure(2.5, "volume-liter"), ("zwei Komma fünf Liter", "two point five liters")),
    (spelling.measure(8, "temperature-celsius"), ("acht Grad Celsius", "eight degrees Celsius")),
]


@pytest.mark.parametrize("found, expected", SPELLED, ids=[expected[1] for _, expected in SPELLED])
def test_spelling(found, expected):
    assert found == expected


def test_all_numbers_below_a_hundred_swap_tens_and_units():
    # German writes unit + "und" + tens; the words are listed by hand.
    units = "ein zwei drei vier fünf sechs sieben acht neun".split()
    tens = "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()
    expected = [unit + "und" + ten for ten in tens for unit in units]
    assert [spelling.number(value)[0] for value in range(21, 100) if value % 10] == expected


@pytest.mark.parametrize(
    "call, limit",
    [
        (lambda: spelling.ordinal(40), "1..39"),
        (lambda: spelling.year(1099), "1100..2099"),
        (lambda: spelling.price(101, 50, "EUR"), "101.50"),  # einhundertein Euro, not einhunderteins
        (lambda: spelling.price(5, 1, "EUR"), "5.01"),
        (lambda: spelling.spoken_time(3, 25), "3:25"),
    ],
)
def test_what_the_libraries_get_wrong_is_refused(call, limit):
    with pytest.raises(ValueError, match=limit):
        call()


@pytest.fixture(scope="module")
def default_text():
    return generate(Settings())


def test_default_corpus_has_the_stored_checksums(default_text):
    # Written down once, from the same text under Python 3.11 and 3.12.
    expected = {
        "train.de": "ae9e952a2039d4e36475b1df3aa132529ea2f57edb50bdbe614ed50d855de274",
        "test.en": "61845c7ad5b00de5351e23a46e38e6afbaaebd1ea67e6655bfa46c2a98ccd854",
    }
    assert {name: hashlib.sha256(default_text[name].encode()).hexdigest() for name in expected} == expected
    assert set(splits.CHECKSUMS[1, 14_000, 500, 500]) == set(default_text)


def test_default_corpus_is_distinct_well_formed_and_within_length(default_text):
    for language in ("de", "en"):
        lines = {split: default_text[f"{split}.{language}"].splitlines() for split in ("train", "valid", "test")}
        assert [len(part) for part in lines.values()] == [14_000, 500, 500]
        everything = sum(lines.values(), [])
        assert len(set(everything)) == 15_000  # so no sentence is in two splits
        assert all(4 <= len(line.split(" ")) <= 20 for line in everything)
        assert all(line[0].isupper() and line.endswith(".") and "  " not in line for line in everything)
        assert not set("{}0123456789\u00a0\u202f\t") & set("".join(everything))


def test_a_noun_never_follows_a_bare_eins(default_text):
    # "eins" may end a number that stands alone, before a clause's end, a decimal comma or a function word.
    text = "".join(content for name, content in default_text.items() if name.endswith(".de"))
    nouns = {noun for noun, _ in words.THINGS} | {"Euro", "Meter", "Kilometer", "Gramm", "Liter", "Prozent", "Dollar"}
    tokens = text.replace(".", "").split()
    # After a decimal comma the digit is read "eins" before a unit: "zwei Komma eins Kilometer".
    wrong = [
        (before, word, noun)
        for before, word, noun in zip(tokens, tokens[1:], tokens[2:], strict=False)
        if word.endswith("eins") and noun in nouns and before != "Komma" and before != "Uhr"
    ]
    assert wrong == []


def test_same_seed_same_text_other_seed_other_text():
    first = generate(SMALL)
    assert generate(SMALL) == first
    other = generate(Settings(seed=2, train=300, valid=20, test=30, vocab=150))
    assert other["test.de"] != first["test.de"]


def test_test_set_does_not_depend_on_the_size_of_train():
    assert generate(Settings(0, 40, 20, 30, 150))["test.en"] == generate(SMALL)["test.en"]


def test_every_template_names_the_same_things_in_both_languages():
    # Free slots (not finite verbs, whose names differ) must occur on both sides.
    verbs = set(words.FINITE_DE) | set(words.FINITE_EN) | {"done", "do", "did", "pronoun"}

    def slots(text):
        return {name for name, suffix in splits_of(text) if name not in verbs}

    def splits_of(text):
        from fairseq_headprune.corpus.sentences import _SLOT

        return _SLOT.findall(text)

    assert [german for _, german, english in TEMPLATES if slots(german) != slots(english)] == []


def test_too_many_pairs_are_refused(monkeypatch):
    monkeypatch.setattr(splits, "draw", lambda rng: ("Eins.", "One."))
    with pytest.raises(ValueError, match="5 distinct pairs asked for, but only 1 found"):
        splits.distinct_pairs(1, 5)


def test_other_library_versions_are_named(monkeypatch):
    real = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2.99" if name == "Babel" else real(name))
    with pytest.raises(ValueError, match=r"Babel 2\.99 is installed.*Babel 2\.19\.0"):
        generate(SMALL)


def test_another_text_than_the_checksum_is_refused(monkeypatch):
    monkeypatch.setitem(splits.CHECKSUMS, (0, 300, 20, 30), {"valid.en": "0" * 64})
    with pytest.raises(ValueError, match="valid.en was generated with SHA-256"):
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
    with pytest.raises(ValueError, match="test.de exists"):
        make(tmp_path, SMALL, binarise=False)
    assert [path.name for path in tmp_path.iterdir()] == ["test.de"]


def test_binary_data_has_a_joined_dictionary_and_all_sentences(tmp_path):
    make(tmp_path, SMALL)
    data = tmp_path / "data-bin"
    assert (data / "dict.de.txt").read_bytes() == (data / "dict.en.txt").read_bytes()
    from fairseq.data import Dictionary, data_utils

    dictionary = Dictionary.load(str(data / "dict.en.txt"))
    loaded = data_utils.load_indexed_dataset(str(data / "test.de-en.en"), dictionary)
    lines = [dictionary.string(loaded[i], "sentencepiece") for i in range(len(loaded))]
    assert lines == (tmp_path / "test.en").read_text().splitlines()
    assert [path for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    (data / "corpus.json").write_text("{}")
    with pytest.raises(ValueError, match="data-bin was made from another corpus"):
        make(tmp_path, SMALL)


def test_failed_preprocessing_is_said_and_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(folder, "LANGUAGES", ("de", "xx"))
    with pytest.raises(RuntimeError, match="fairseq-preprocess failed with status 1"):
        make(tmp_path, SMALL)
    assert not (tmp_path / "data-bin").exists()


@pytest.mark.parametrize(
    "flags, said",
    [(["--seed", "-1"], "seed -1"), (["--test", "0"], "test 0"), (["--vocab", "5"], "vocab 5")],
)
def test_wrong_settings(tmp_path, capsys, flags, said):
    assert main(["make-corpus", str(tmp_path / "c"), *flags]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "c").exists()


def test_help_states_the_defaults(capsys):
    with pytest.raises(SystemExit):
        make_corpus.run(["--help"])
    text = capsys.readouterr().out
    assert "14000" in text and "1000" in text and "(default: True)" in text
