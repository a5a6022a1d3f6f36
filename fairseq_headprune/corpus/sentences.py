"""Draws sentence pairs: a template from ``language.txt``, then a value for each slot in both languages."""

import datetime
import random
import re
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

Pair = tuple[str, ...]

#: The numbers below 100.
_DE = "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn"
_EN = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
DE, EN = f"{_DE} achtzehn neunzehn".split(), f"{_EN} eighteen nineteen".split()
for _ten in "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split():
    DE += [_ten, *(f"{'ein' if unit == 1 else DE[unit]}und{_ten}" for unit in range(1, 10))]
for _ten in "twenty thirty forty fifty sixty seventy eighty ninety".split():
    EN += [_ten, *(f"{_ten}-{EN[unit]}" for unit in range(1, 10))]
#: Two English digits after an hour or a century ("oh-five"), nothing for 0.
_MINUTES = ["", *(f" oh-{word}" for word in EN[1:10]), *(f" {word}" for word in EN[10:])]
_DE_ORDINALS = {1: "erste", 3: "dritte", 7: "siebte", 8: "achte"}
_EN_ORDINALS = {"one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth"}
_EN_ORDINALS |= {"nine": "ninth", "twelve": "twelfth"}


def number(value: int) -> Pair:
    """A whole number. A German number ending in 1 ("eins") cannot be used before a noun ("ein")."""
    if value < 100:
        return DE[value], EN[value]
    size, *names = (1000, "tausend", "thousand") if value >= 1000 else (100, "hundert", "hundred")
    (german, english), rest = number(value // size), value % size
    more = number(rest) if rest else ("", "")
    link = "" if not rest else " and " if rest < 100 else " "
    return f"{'ein' if value // size == 1 else german}{names[0]}{more[0]}", f"{english} {names[1]}{link}{more[1]}"


def decimal(tenths: int) -> Pair:
    """A decimal fraction: 25 is "zwei Komma fünf", "two point five"."""
    return f"{DE[tenths // 10]} Komma {DE[tenths % 10]}", f"{EN[tenths // 10]} point {EN[tenths % 10]}"


def ordinal(value: int) -> Pair:
    """An ordinal below 100 in the German weak form ("dritte", "third")."""
    head, dash, last = EN[value].rpartition("-")
    last = _EN_ORDINALS.get(last) or last.removesuffix("y") + ("ieth" if last.endswith("y") else "th")
    return _DE_ORDINALS.get(value) or DE[value] + ("te" if value < 20 else "ste"), head + dash + last


def year(value: int) -> Pair:
    """A year from 1100 to 2099 ("neunzehnhundertfünf", "nineteen oh-five")."""
    century, rest = divmod(value, 100)
    german = number(value)[0] if century == 20 else f"{DE[century]}hundert{DE[rest] if rest else ''}"
    return german, number(value)[1] if 2000 <= value < 2010 else EN[century] + (_MINUTES[rest] or " hundred")


def clock(hour: int, minute: int) -> Pair:
    """An official time: 24 hours in German, 12 in English ("vierzehn Uhr fünf", "two oh-five PM")."""
    german = f"{'ein' if hour == 1 else DE[hour]} Uhr{f' {DE[minute]}' if minute else ''}"
    return german, f"{EN[(hour - 1) % 12 + 1]}{_MINUTES[minute]} {'AM' if hour < 12 else 'PM'}"


def spoken_time(hour: int, minute: int) -> Pair:
    """A time as people say it, hour 1..12: "halb drei" is half past TWO, "zehn vor drei" ten to three."""
    following = hour % 12 + 1
    if minute == 30:
        return f"halb {DE[following]}", f"half past {EN[hour]}"
    named, after, past = (hour, "nach", "past") if minute < 30 else (following, "vor", "to")
    distance = min(minute, 60 - minute)
    german, english = ("Viertel", "a quarter") if distance == 15 else number(distance)
    return f"{german} {after} {DE[named]}", f"{english} {past} {EN[named]}"


_SLOT = re.compile(r"{([a-z_]+)(2?)}")
_LINES = Path(__file__).with_name("language.txt").read_text(encoding="utf-8").replace("\n    ", " ").splitlines()
#: [weight, German, English] for each template.
TEMPLATES = [line.split(" | ") for line in _LINES if line[:1].isdigit()]
#: Name of a list -> its entries, each the forms of one word.
WORDS = {
    name: [tuple(entry.split(":")) for entry in entries.split(", ")]
    for name, _, entries in (line.partition(" = ") for line in _LINES if line[:1].isalpha())
}


def _value(rng: random.Random) -> int:
    """Draw a number of 2 or more, small ones more often: half below 100, a tenth with four digits."""
    return rng.randrange(*rng.choice([(2, 21), (2, 100), (21, 100), (100, 1000), (21, 1000), (1000, 10000)]))


def _count(rng: random.Random, highest: int = 10000) -> Pair:
    """Draw a number that can precede a German noun: not 101, 201, … (ein, not eins)."""
    while (value := _value(rng)) > highest or value % 100 == 1:
        pass
    return number(value)


def _join(form: Pair, parts: Iterable[Pair]) -> Pair:
    """Put values into a form: the German ones into the German form, the English ones into the English form."""
    return tuple(text.format(*words) for text, *words in zip(form, *parts, strict=True))


def _date(rng: random.Random, *form: str) -> Pair:
    """Draw a day between 1950 and 2049; a form has {0} for the day, {1} the month, {2} the year, {3} the weekday."""
    day = datetime.date(1950, 1, 1) + datetime.timedelta(days=rng.randrange(100 * 365))
    month, weekday = WORDS["month"][day.month - 1], WORDS["weekday"][day.weekday()]
    return _join(form, [ordinal(day.day), month, year(day.year), weekday])


def _measure(rng: random.Random, units: str, highest: int = 1000) -> Pair:
    """Draw a measure: a whole number, or in one of four cases tenths up to 20."""
    unit, tenths = rng.choice(WORDS[units]), rng.randrange(20, 200) if rng.randrange(4) == 0 else 0
    return _join(unit, [decimal(tenths) if tenths % 10 else _count(rng, highest)])


#: Slots that are not simply a word from the list of the same name; arguments are drawn in the order they stand in.
_DRAWN: dict[str, Callable[[random.Random], Pair]] = {
    "count": _count,
    "percent": lambda rng: number(rng.randrange(2, 100)),
    "degrees": lambda rng: number(rng.randrange(2, 40)),
    "number": lambda rng: number(_value(rng)),
    "ordinal": lambda rng: ordinal(rng.randrange(1, 32)),
    "year": lambda rng: year(rng.randrange(1100, 2050)),
    "long_date": lambda rng: _date(rng, "{0}n {1} {2}", "{1} {0}, {2}"),
    "full_date": lambda rng: _date(rng, "{3}, dem {0}n {1} {2}", "{3}, {1} {0}, {2}"),
    "day_month": lambda rng: _date(rng, "{0}n {1}", "{1} {0}"),
    "weekday": lambda rng: _date(rng, "{3}", "{3}"),
    "month": lambda rng: _date(rng, "{1}", "{1}"),
    "clock": lambda rng: clock(rng.randrange(24), rng.randrange(60)),
    "spoken": lambda rng: spoken_time(rng.randrange(1, 13), rng.choice([5, 10, 15, 20, 30, 40, 45, 50, 55])),
    "goods": lambda rng: _join(("{} {}", "{} {}"), [_count(rng), rng.choice(WORDS["things"])]),
    "price": lambda rng: _join(
        parts=[_count(rng, 999), number(rng.randrange(2, 100))], form=rng.choice(WORDS["cents"])
    ),
    "whole_price": lambda rng: _join(parts=[_count(rng)], form=rng.choice(WORDS["currency"])),
    "length": lambda rng: _measure(rng, "length", highest=400),
    **{units: partial(_measure, units=units) for units in ("distance", "weight", "volume")},
    "duration": lambda rng: _join(parts=[number(rng.randrange(2, 100))], form=rng.choice(WORDS["duration"])),
    "article": lambda rng: _join(rng.choice(WORDS["article"]), [rng.choice(WORDS["adjective"])]),
}


def _fill(rng: random.Random, german: str) -> dict[str, Pair]:
    """Draw a value for every slot, in the order of the German text (so that the draw depends on nothing else)."""
    found: dict[str, Pair] = {}
    slots = _SLOT.findall(german)
    if ("sum", "") in slots:
        first, second = _value(rng), _value(rng)
        found = {"number": number(first), "number2": number(second), "sum": number(first + second)}
    for slot, suffix in slots:
        if slot + suffix in found or slot == "subject":
            continue
        pair: Pair = ()
        if slot in ("done", "do"):
            done, do, *english = rng.choice(WORDS["action"])
            forms = zip(("did", "done", "do"), ("", done, do), english, strict=True)
            found |= {form + suffix: texts for form, *texts in forms}
        elif slot in _DRAWN or slot in WORDS:
            while not pair or (suffix and pair[1] == found[slot][1]):  # the second of a kind differs from the first
                pair = _DRAWN[slot](rng) if slot in _DRAWN else rng.choice(WORDS[slot])
            found |= {slot + suffix: pair, **({"pronoun": pair[2:] * 2} if pair[2:] else {})}  # of a building
    for suffix in (suffix for slot, suffix in sorted(slots) if slot == "subject"):
        *name, person = rng.choice([subject for subject in WORDS["subject"] if subject[:2] != found.get("subject")])
        found |= {forms[0] + suffix: (forms[int(person)],) * 2 for forms in WORDS["verbs"]}
        found["subject" + suffix] = tuple(name)
    return found


def draw(rng: random.Random) -> Pair:
    """Draw one sentence pair (German, English), capitalised and ending in a full stop."""
    ((_, *texts),) = rng.choices(TEMPLATES, weights=[int(weight) for weight, *_ in TEMPLATES])
    found = _fill(rng, texts[0])
    texts = [text.format_map({slot: pair[side] for slot, pair in found.items()}) for side, text in enumerate(texts)]
    return tuple(text[0].upper() + text[1:] for text in texts)


def distinct_pairs(seed: int, count: int, patience: int = 10_000) -> list[Pair]:
    """Draw sentence pairs of at most 20 words per side; no German and no English sentence is repeated.

    Raises:
        ValueError: the templates do not give that many: ``patience`` draws in a row gave no new pair.
    """
    rng, pairs, seen, misses = random.Random(seed), list[Pair](), set[tuple[int, str]](), 0
    while len(pairs) < count:
        if misses == patience:
            raise ValueError(f"{count} distinct pairs asked for, but only {len(pairs)} found; ask for fewer")
        pair, misses = draw(rng), misses + 1
        if seen.isdisjoint(enumerate(pair)) and all(len(text.split()) <= 20 for text in pair):
            pairs.append(pair)
            misses = 0
            seen.update(enumerate(pair))
    return pairs
