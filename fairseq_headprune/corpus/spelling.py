"""Numbers, dates, times, money and units spelled out in German and English.

The words come from num2words, the names and their order from CLDR (through Babel). Every function returns the pair
(German, English). What num2words gets wrong is avoided here: see the comments.
"""

import datetime
import re

from babel.dates import format_date, format_time
from babel.numbers import get_currency_name
from babel.units import format_unit
from num2words import num2words

Pair = tuple[str, str]

_SPACES = re.compile("[\u00a0\u202f]")


def _plain(text: str) -> str:
    """CLDR's no-break spaces become spaces, so that a token is what stands between two spaces."""
    return _SPACES.sub(" ", text)


def number(value: int | float) -> Pair:
    """Spell a cardinal number, or a decimal fraction digit by digit ("zwei Komma fünf", "two point five").

    A number ending in 1 gets "eins": right when it stands alone, wrong before a noun ("einhunderteins Meter"), so
    keep those to places without a noun (:func:`fits_noun`).
    """
    # Thousands carry a comma in English ("one thousand, two hundred"); spoken text has none.
    return num2words(value, lang="de"), num2words(value, lang="en").replace(",", "")


def fits_noun(value: int) -> bool:
    """Tell whether the German number can stand before a plural noun: not 1, 101, 201, … (ein, not eins)."""
    return value % 100 != 1


def ordinal(value: int) -> Pair:
    """Spell an ordinal from 1 to 39 in the German weak form ("dritte", "third").

    Raises:
        ValueError: outside 1..39, where num2words is not always right.
    """
    if not 1 <= value <= 39:
        raise ValueError(f"ordinal {value} is outside 1..39; larger ones are not spelled reliably")
    return num2words(value, lang="de", to="ordinal"), num2words(value, lang="en", to="ordinal")


def year(value: int) -> Pair:
    """Spell a year ("neunzehnhundertfünf", "nineteen oh-five").

    Raises:
        ValueError: outside 1100..2099; num2words spells earlier years wrongly in German.
    """
    if not 1100 <= value <= 2099:
        raise ValueError(f"year {value} is outside 1100..2099; earlier ones are not spelled correctly in German")
    return num2words(value, lang="de", to="year"), num2words(value, lang="en", to="year")


def _spell_date(date: datetime.date, pattern_de: str, pattern_en: str) -> Pair:
    """Format a date and replace its digits by words: the year first, then the day (German "7.", English "7")."""
    german, english = format_date(date, pattern_de, locale="de"), format_date(date, pattern_en, locale="en")
    day = ordinal(date.day)
    if str(date.year) in german:
        spoken = year(date.year)
        german, english = german.replace(str(date.year), spoken[0]), english.replace(str(date.year), spoken[1])
    return _plain(german).replace(f"{date.day}.", f"{day[0]}n"), _plain(english).replace(str(date.day), day[1])


def day_and_month(date: datetime.date) -> Pair:
    """Spell day and month, German in the dative ("siebten März", "March seventh")."""
    return _spell_date(date, "d. MMMM", "MMMM d")


def long_date(date: datetime.date) -> Pair:
    """Spell a date in CLDR's order ("siebten März zweitausendeinundzwanzig", "March seventh, twenty twenty-one")."""
    return _spell_date(date, "long", "long")


def full_date(date: datetime.date) -> Pair:
    """Spell a date with its weekday, as it stands after "am" ("Sonntag, dem siebten März …", "Sunday, March …")."""
    german, english = _spell_date(date, "full", "full")
    return german.replace(", ", ", dem ", 1), english


def weekday(date: datetime.date) -> Pair:
    """Return the weekday's name ("Sonntag", "Sunday")."""
    return format_date(date, "EEEE", locale="de"), format_date(date, "EEEE", locale="en")


def month(date: datetime.date) -> Pair:
    """Return the month's name ("März", "March")."""
    return format_date(date, "MMMM", locale="de"), format_date(date, "MMMM", locale="en")


def clock(hour: int, minute: int) -> Pair:
    """Spell an official time: 24 hours in German, 12 in English ("vierzehn Uhr fünf", "two oh-five PM")."""
    time = datetime.time(hour, minute)
    digits, half = _plain(format_time(time, "short", locale="en")).split(" ")
    hour_en = int(digits.split(":")[0])
    german = f"{'ein' if hour == 1 else num2words(hour, lang='de')} Uhr"
    english = num2words(hour_en, lang="en")
    if minute:
        german += f" {num2words(minute, lang='de')}"
        english += f" oh-{num2words(minute, lang='en')}" if minute < 10 else f" {num2words(minute, lang='en')}"
    return german, f"{english} {half}"


def spoken_time(hour: int, minute: int) -> Pair:
    """Spell a time as people say it, hour 1..12: "halb drei" is half past TWO, "zehn vor drei" ten to three.

    Raises:
        ValueError: the minute is not a multiple of 5 between 5 and 55, or is 25 or 35 (said in two ways).
    """
    if not 1 <= hour <= 12 or minute not in (5, 10, 15, 20, 30, 40, 45, 50, 55):
        raise ValueError(f"{hour}:{minute:02d} has no common spoken form here")
    following = hour % 12 + 1
    if minute == 30:
        return f"halb {num2words(following, lang='de')}", f"half past {num2words(hour, lang='en')}"
    named = hour if minute < 30 else following
    distance = min(minute, 60 - minute)
    german, english = ("Viertel", "a quarter") if distance == 15 else number(distance)
    before = minute > 30
    return (
        f"{german} {'vor' if before else 'nach'} {num2words(named, lang='de')}",
        f"{english} {'to' if before else 'past'} {num2words(named, lang='en')}",
    )


def price(whole: int, cents: int, currency: str) -> Pair:
    """Spell an amount with its hundredths ("zwölf Euro und fünfzig Cent", "twelve euro and fifty cents").

    Args:
        currency: EUR, USD or GBP (num2words has no German for many others).

    Raises:
        ValueError: fewer than 2 hundredths or a whole part before which German would need "ein".
    """
    if not fits_noun(whole) or not 2 <= cents <= 99:
        raise ValueError(f"amount {whole}.{cents:02d}: whole part must fit a noun, hundredths must be 2..99")
    # num2words takes an int for hundredths and a float for units.
    amount = float(f"{whole}.{cents:02d}")
    german = num2words(amount, lang="de", to="currency", currency=currency)
    english = num2words(amount, lang="en", to="currency", currency=currency, separator=" and")
    # The plural here is that of CLDR and of whole_price.
    return german, english.replace(",", "").replace(" euro ", " euros ")


def whole_price(amount: int, currency: str) -> Pair:
    """Spell a whole amount with CLDR's name of the currency ("neunzig Schweizer Franken", "ninety Swiss francs")."""
    german, english = number(amount)
    return (
        f"{german} {get_currency_name(currency, 2, locale='de')}",
        f"{english} {get_currency_name(currency, 2, locale='en')}",
    )


def measure(value: int | float, unit: str) -> Pair:
    """Spell a measure with CLDR's name of the unit in the plural ("vierunddreißig Kilometer")."""
    # format_unit would print the number in digits with separators: only the name is taken, at the plural number 2.
    names = (_plain(format_unit(2, unit, "long", locale=locale)).removeprefix("2 ") for locale in ("de", "en"))
    german, english = (f"{word} {name}" for word, name in zip(number(value), names, strict=True))
    return german, english
