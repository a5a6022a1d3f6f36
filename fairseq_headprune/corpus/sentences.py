"""Draws sentence pairs: a template, then a value for each of its slots, in both languages at once."""

import datetime
import random
import re
from collections.abc import Callable

from fairseq_headprune.corpus import spelling, words
from fairseq_headprune.corpus.spelling import Pair
from fairseq_headprune.corpus.templates import TEMPLATES

_SLOT = re.compile(r"{([a-z_]+)(2?)}")
_WEIGHTS = [weight for weight, _, _ in TEMPLATES]

#: Slot name -> text, one dictionary a language.
Fill = tuple[dict[str, str], dict[str, str]]


def _value(rng: random.Random) -> int:
    """Draw a number of 2 or more, small ones more often: half below 100, a tenth with four digits."""
    low, high = rng.choice([(2, 21), (2, 100), (21, 100), (100, 1000), (21, 1000), (1000, 10000)])
    return rng.randrange(low, high)


def _count(rng: random.Random, highest: int = 10000) -> int:
    """Draw a number that can stand before a plural noun in German."""
    while True:
        value = _value(rng)
        if value <= highest and spelling.fits_noun(value):
            return value


def _date(rng: random.Random) -> datetime.date:
    return datetime.date(1950, 1, 1) + datetime.timedelta(days=rng.randrange(100 * 365))


def _measure(rng: random.Random, *units: str, highest: int = 1000) -> Pair:
    """Draw a measure: a whole number, or tenths up to 20 in one of four."""
    unit = rng.choice(units)
    if rng.randrange(4) == 0:
        tenths = rng.randrange(20, 200)
        if tenths % 10:
            return spelling.measure(tenths / 10, unit)
    return spelling.measure(_count(rng, highest), unit)


def _article(rng: random.Random) -> Pair:
    article, noun, english = rng.choice(words.ARTICLES)
    adjective_de, adjective_en = rng.choice(words.ADJECTIVES)
    return f"{article} {adjective_de} {noun}", f"the {adjective_en} {english}"


def _spoken(rng: random.Random) -> Pair:
    return spelling.spoken_time(rng.randrange(1, 13), rng.choice([5, 10, 15, 20, 30, 40, 45, 50, 55]))


def _price(rng: random.Random) -> Pair:
    return spelling.price(_count(rng, 999), rng.randrange(2, 100), rng.choice(["EUR", "EUR", "USD", "GBP"]))


#: Slots that need nothing but chance.
_FREE: dict[str, Callable[[random.Random], Pair]] = {
    "count": lambda rng: spelling.number(_count(rng)),
    "percent": lambda rng: spelling.number(rng.randrange(2, 100)),
    "number": lambda rng: spelling.number(_value(rng)),
    "ordinal": lambda rng: spelling.ordinal(rng.randrange(1, 32)),
    "year": lambda rng: spelling.year(rng.randrange(1100, 2050)),
    "long_date": lambda rng: spelling.long_date(_date(rng)),
    "full_date": lambda rng: spelling.full_date(_date(rng)),
    "day_month": lambda rng: spelling.day_and_month(_date(rng)),
    "weekday": lambda rng: spelling.weekday(_date(rng)),
    "month": lambda rng: spelling.month(_date(rng)),
    "clock": lambda rng: spelling.clock(rng.randrange(24), rng.randrange(60)),
    "spoken": _spoken,
    "price": _price,
    "whole_price": lambda rng: spelling.whole_price(_count(rng), rng.choice(["EUR", "USD", "CHF"])),
    "distance": lambda rng: _measure(rng, "length-kilometer", "length-meter", "length-mile"),
    "length": lambda rng: _measure(rng, "length-meter", highest=400),
    "weight": lambda rng: _measure(rng, "mass-kilogram", "mass-gram"),
    "volume": lambda rng: _measure(rng, "volume-liter"),
    "temperature": lambda rng: spelling.measure(rng.randrange(2, 40), "temperature-celsius"),
    "duration": lambda rng: spelling.measure(
        rng.randrange(2, 100), f"duration-{rng.choice(['second', 'minute', 'hour', 'day', 'week', 'month', 'year'])}"
    ),
    "article": _article,
    "things": lambda rng: rng.choice(words.THINGS),
    "event": lambda rng: rng.choice(words.EVENTS),
    "vehicle": lambda rng: rng.choice(words.VEHICLES),
    "town": lambda rng: rng.choice(words.TOWNS),
    "group": lambda rng: rng.choice(words.GROUPS),
}


def _fill_subject(rng: random.Random, fill: Fill, suffix: str) -> None:
    """Draw a subject and set the finite verbs that agree with it."""
    taken = fill[1].get("subject")
    german, english, person = rng.choice([subject for subject in words.SUBJECTS if subject[1] != taken])
    fill[0][f"subject{suffix}"], fill[1][f"subject{suffix}"] = german, english
    for texts, table in zip(fill, (words.FINITE_DE, words.FINITE_EN), strict=True):
        texts.update({f"{verb}{suffix}": forms[person] for verb, forms in table.items()})


def _fill_action(rng: random.Random, fill: Fill, suffix: str) -> None:
    done_de, do_de, did_en, done_en, do_en = rng.choice(words.ACTIONS)
    fill[0].update({f"done{suffix}": done_de, f"do{suffix}": do_de})
    fill[1].update({f"did{suffix}": did_en, f"done{suffix}": done_en, f"do{suffix}": do_en})


def _fill_building(rng: random.Random, fill: Fill) -> None:
    fill[0]["building"], fill[1]["building"], fill[0]["pronoun"] = rng.choice(words.BUILDINGS)


def _fill_sum(rng: random.Random, fill: Fill) -> None:
    first, second = _value(rng), _value(rng)
    for name, value in (("number", first), ("number2", second), ("sum", first + second)):
        fill[0][name], fill[1][name] = spelling.number(value)


def _fill_free(rng: random.Random, fill: Fill, slot: str, suffix: str) -> None:
    """Draw a value for a slot of its own; the second of a kind differs from the first."""
    pair = _FREE[slot](rng)
    while suffix and pair[1] == fill[1].get(slot):
        pair = _FREE[slot](rng)
    fill[0][slot + suffix], fill[1][slot + suffix] = pair


def _fill(rng: random.Random, german: str) -> Fill:
    """Draw all that a template names, in the order of the German text (so the draw depends on nothing else)."""
    fill: Fill = ({}, {})
    if "{sum}" in german:
        _fill_sum(rng, fill)
    for slot, suffix in _SLOT.findall(german):
        if slot + suffix in fill[0]:
            continue
        if slot in ("done", "do"):
            _fill_action(rng, fill, suffix)
        elif slot == "building":
            _fill_building(rng, fill)
        elif slot in _FREE:
            _fill_free(rng, fill, slot, suffix)
    return fill


def draw(rng: random.Random) -> Pair:
    """Draw one sentence pair (German, English), capitalised and with a full stop."""
    ((_, german, english),) = rng.choices(TEMPLATES, weights=_WEIGHTS)
    fill: Fill = _fill(rng, german)
    for suffix in ("", "2"):
        if f"{{subject{suffix}}}" in german:
            _fill_subject(rng, fill, suffix)
    texts = (text.format_map(values) for text, values in zip((german, english), fill, strict=True))
    first, second = (text[0].upper() + text[1:] for text in texts)
    return first, second
