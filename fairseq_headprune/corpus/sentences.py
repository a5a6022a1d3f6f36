"""Draws sentence pairs: a template from ``language.txt``, then a value for each slot in both languages."""

import datetime
import random
import re
from collections.abc import Callable, Iterator
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
_EN_TH = dict(one="first", two="second", three="third", five="fifth", eight="eighth", nine="ninth", twelve="twelfth")


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
    last = _EN_TH.get(last) or last.removesuffix("y") + ("ieth" if last.endswith("y") else "th")
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
#: Names of a list -> its entries, each the forms of one word.
WORDS = {
    names: [tuple(entry.split(":")) for entry in entries.split(", ")]
    for names, _, entries in (line.partition(" = ") for line in _LINES if line[:1].isalpha())
}
_LIST_OF = {name: names for names in WORDS for name in names.split("/")}


def _value(rng: random.Random) -> int:
    """Draw a number of 2 or more, small ones more often: half below 100, a tenth with four digits."""
    return rng.randrange(*rng.choice([(2, 21), (2, 100), (21, 100), (100, 1000), (21, 1000), (1000, 10000)]))


def _count(rng: random.Random, highest: int = 10000) -> Pair:
    """Draw a number that can precede a German noun: not 101, 201, … (ein, not eins)."""
    while (value := _value(rng)) > highest or value % 100 == 1:
        pass
    return number(value)


def _amount(rng: random.Random, highest: int = 1000) -> Pair:
    """Draw a whole number, or in one of four cases tenths up to 20."""
    tenths = rng.randrange(20, 200) if rng.randrange(4) == 0 else 0
    return decimal(tenths) if tenths % 10 else _count(rng, highest)


def _date(rng: random.Random) -> dict[str, Pair]:
    """Draw a day between 1950 and 2049."""
    day = datetime.date(1950, 1, 1) + datetime.timedelta(days=rng.randrange(100 * 365))
    month, weekday = WORDS["month"][day.month - 1], WORDS["weekday"][day.weekday()]
    return {"day": ordinal(day.day), "month": month, "in_year": year(day.year), "weekday": weekday}


def _sum(rng: random.Random) -> dict[str, Pair]:
    first, second = _value(rng), _value(rng)
    return {"first": number(first), "second": number(second), "sum": number(first + second)}


#: Slots that are not a word from a list; arguments are drawn in the order they stand in.
_DRAWN: dict[str, Callable[[random.Random], Pair | dict[str, Pair]]] = {
    "count": _count,
    "few": lambda rng: number(rng.randrange(2, 100)),
    "degrees": lambda rng: number(rng.randrange(2, 40)),
    "number": lambda rng: number(_value(rng)),
    "amount": _amount,
    "metres": lambda rng: _amount(rng, 400),
    "ordinal": lambda rng: ordinal(rng.randrange(1, 32)),
    "year": lambda rng: year(rng.randrange(1100, 2050)),
    "clock": lambda rng: clock(rng.randrange(24), rng.randrange(60)),
    "spoken": lambda rng: spoken_time(rng.randrange(1, 13), rng.choice([5, 10, 15, 20, 30, 40, 45, 50, 55])),
    "goods": lambda rng: _fill(rng, ("{count} {things}", "{count} {things}")),
    "price": lambda rng: _fill(
        rng, known={"a": _count(rng, 999), "b": number(rng.randrange(2, 100))}, form=rng.choice(WORDS["cents"])
    ),
    "first": _sum,
    **dict.fromkeys(("weekday", "day", "month"), _date),
}


def _draw(rng: random.Random, slot: str) -> dict[str, Pair]:
    """Draw a value for a slot and for those that come with it."""
    if slot in _DRAWN:
        return found if isinstance(found := _DRAWN[slot](rng), dict) else {slot: found}
    forms = rng.choice(WORDS[_LIST_OF[slot]])
    pairs = zip(forms[::2], forms[1::2] + forms[-1:], strict=False)  # a last form without English: the pronoun
    return {name: _fill(rng, pair) for name, pair in zip(_LIST_OF[slot].split("/"), pairs, strict=True)}


def _fill(rng: random.Random, form: Pair, known: dict[str, Pair] | None = None) -> Pair:
    """Draw a value for every other slot, in the order of the German text (so that it depends on nothing else)."""
    found, slots = dict(known or {}), _SLOT.findall(form[0])
    for slot, suffix in slots:
        if slot + suffix not in found and slot in _DRAWN | _LIST_OF and slot != "subject":
            drawn = _draw(rng, slot)
            while suffix and slot != "do" and drawn[slot] == found[slot]:  # only an action may come twice
                drawn = _draw(rng, slot)
            found |= {name + suffix: pair for name, pair in drawn.items()}
    for suffix in (suffix for slot, suffix in sorted(slots) if slot == "subject"):
        *name, person = rng.choice([subject for subject in WORDS["subject"] if subject[:2] != found.get("subject")])
        found |= {forms[1] + suffix: (forms[int(person)],) * 2 for forms in WORDS["verbs"]}
        found["subject" + suffix] = tuple(name)
    return tuple(text.format_map({slot: pair[side] for slot, pair in found.items()}) for side, text in enumerate(form))


def draw_pair(rng: random.Random) -> Pair:
    """Draw one sentence pair (German, English), capitalised and ending in a full stop."""
    ((_, *form),) = rng.choices(TEMPLATES, weights=[int(weight) for weight, *_ in TEMPLATES])
    return tuple(text[0].upper() + text[1:] for text in _fill(rng, tuple(form)))


def distinct_pairs(seed: int, patience: int = 10_000) -> Iterator[Pair]:
    """Draw sentence pairs of at most 20 words per side; no German and no English sentence is repeated.

    Raises:
        ValueError: the templates do not give more: ``patience`` draws in a row gave no new pair.
    """
    rng, seen, misses = random.Random(seed), set[tuple[int, str]](), 0
    while misses < patience:
        pair, misses = draw_pair(rng), misses + 1
        if seen.isdisjoint(enumerate(pair)) and all(len(text.split()) <= 20 for text in pair):
            yield pair
            misses = 0
            seen.update(enumerate(pair))
    raise ValueError(f"only {len(seen) // 2} distinct sentence pairs were found; ask for fewer")
