"""Numbers, dates and times in words. Every function returns the pair (German, English)."""

Pair = tuple[str, ...]

#: The numbers below 100.
_DE = "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn"
_EN = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
DE, EN = f"{_DE} achtzehn neunzehn".split(), f"{_EN} eighteen nineteen".split()
for _ten in "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split():
    DE += [_ten, *(f"{'ein' if unit == 1 else DE[unit]}und{_ten}" for unit in range(1, 10))]
for _ten in "twenty thirty forty fifty sixty seventy eighty ninety".split():
    EN += [_ten, *(f"{_ten}-{EN[unit]}" for unit in range(1, 10))]
_DE_ORDINALS = {1: "erste", 3: "dritte", 7: "siebte", 8: "achte"}
_EN_ORDINALS = {"one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth"}
_EN_ORDINALS |= {"nine": "ninth", "twelve": "twelfth"}


def number(value: int) -> Pair:
    """A whole number. In German one that ends in 1 ("eins") is wrong before a noun ("ein")."""
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


def _minutes(value: int) -> str:
    """Two English digits after an hour or a century ("oh-five"), nothing for 0."""
    return f" oh-{EN[value]}" if 0 < value < 10 else f" {EN[value]}" if value else ""


def year(value: int) -> Pair:
    """A year from 1100 to 2099 ("neunzehnhundertfünf", "nineteen oh-five")."""
    century, rest = divmod(value, 100)
    german = number(value)[0] if century == 20 else f"{DE[century]}hundert{DE[rest] if rest else ''}"
    return german, number(value)[1] if 2000 <= value < 2010 else EN[century] + (_minutes(rest) or " hundred")


def clock(hour: int, minute: int) -> Pair:
    """An official time: 24 hours in German, 12 in English ("vierzehn Uhr fünf", "two oh-five PM")."""
    german = f"{'ein' if hour == 1 else DE[hour]} Uhr{f' {DE[minute]}' if minute else ''}"
    return german, f"{EN[(hour - 1) % 12 + 1]}{_minutes(minute)} {'AM' if hour < 12 else 'PM'}"


def spoken_time(hour: int, minute: int) -> Pair:
    """A time as people say it, hour 1..12: "halb drei" is half past TWO, "zehn vor drei" ten to three."""
    following = hour % 12 + 1
    if minute == 30:
        return f"halb {DE[following]}", f"half past {EN[hour]}"
    named, after, past = (hour, "nach", "past") if minute < 30 else (following, "vor", "to")
    distance = min(minute, 60 - minute)
    german, english = ("Viertel", "a quarter") if distance == 15 else number(distance)
    return f"{german} {after} {DE[named]}", f"{english} {past} {EN[named]}"
