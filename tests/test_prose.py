"""Numbers in the prose of pages with results: each is in the tables of its section or in the JSON files that it names.

Source: the tables between the markers, which scripts/tables.py writes, and the JSON files. Numbers with a
decimal point are compared, as they are rounded in the prose.
"""

import re

import pytest
import tiny

from fairseq_headprune.files import read_json

PAGES = [
    path
    for path in (tiny.ROOT / "README.md", *tiny.ROOT.glob("docs/**/*.md"), *tiny.ROOT.glob("examples/*/README.md"))
    if re.search(r"<!-- table|`examples/\w+/results/", path.read_text())
]
_TABLE = re.compile(r"<!-- table [^\n]* -->(.*?)<!-- end -->", re.DOTALL)
_MARKER = re.compile(r"<!-- table .* -->")
_NAMED = re.compile(r"`([\w/*.-]+\.json)`")
_NUMBER = re.compile(r"(?<![\w.§/-])\d[\d,]*\.\d+(?!\w|\.\d)")
#: code, formulas, targets of links, and numbers of sections, tables and figures
_NO_PROSE = re.compile(
    r"```.*?```|`[^`]*`|\$[^$]*\$|\]\([^)]*\)|(?:§|Tables? |Figures? |eqs?\. )[\d., and-]+", re.DOTALL
)
#: lists longer than this in a JSON file are data (heads, sentences), not results
_RESULTS = 30

#: page -> number -> why it is not where it is looked for; after "=": a calculation with numbers of the page's tables
ELSEWHERE = {
    "docs/export.md": {"0.001": "the limit of --check"},
    "docs/learned-gates.md": {
        "0.1": "Li et al. 2021, Table 2",
        "0.2": "Li et al. 2021, Table 2",
        "0.5": "Li et al. 2021, Table 2",
        "1.28": "standard deviation of Gumbel noise: pi over the root of 6",
    },
    "docs/release.md": {"3.11": "Python", "3.12": "Python"},
    "docs/statistics.md": {"2.5": "a quantile, by definition", "97.5": "a quantile, by definition"},
    "docs/papers/michel2019.md": {
        "0.56": "the paper, Figure 2",
        "0.68": "the paper, Figure 2",
        "1.175": "the paper, Table 4",
        "1.33": "Li et al. 2021, Figure 4",
        "6.2": "= 81.0 - 74.8",
        "0.2": "= 26.36 - 26.12",
        "7.5": "= 89.6 - 82.1",
    },
    "docs/papers/budhraja2020.md": {"2.5": "= 42.15 - 39.69"},
    "docs/papers/prasanna2020.md": {
        "0.67": "the paper, Table 2",
        "0.52": "the paper, Table 2",
        "0.15": "the paper, section 5.1",
        "0.81": "the paper, section 5.2",
        "0.74": "the paper, section 5.2",
        "0.29": "= 1 / 12**0.5",
        "0.19": "median of `importance` in STS-B-survivors.json",
        "0.24": "median of `importance` in CoLA-survivors.json",
    },
    "docs/papers/li2021.md": {"0.13": "the paper, Table 3b", "11.2": "the paper, Table 3b", "1.6": "= 89.22 - 87.61"},
    "examples/lottery/README.md": {
        "2.7": "largest difference of `scores` by seed in multi30k.json",
        "3.9": "= 33.21 - 29.36",
    },
}


def numbers(value):
    """Yield the numbers of a JSON value."""
    if isinstance(value, dict):
        value = list(value.values())
    elif isinstance(value, list) and len(value) > _RESULTS:
        return
    if isinstance(value, list):
        for inner in value:
            yield from numbers(inner)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield abs(value)


def holds(shown, text):
    """Whether one of the numbers, rounded as the text is, is the text."""
    digits, number = len(text.partition(".")[2]), float(text.replace(",", ""))
    return any(abs(found - number) <= 0.5 * 10**-digits + 1e-9 for found in shown)


def shown_in(text):
    """Return the numbers of the tables in a text."""
    tables = " ".join(_TABLE.findall(text))
    return [float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*\.?\d*", tables)]


def named_in(text, examples):
    """Return the numbers of the files that a text names, by their place in the repository or in the page's examples."""
    found = []
    for name in _NAMED.findall(text):
        places = [""] if name.startswith("examples/") else [f"examples/{e}/results/**/" for e in examples]
        for path in (path for place in places for path in tiny.ROOT.glob(place + name.removeprefix("results/"))):
            found += numbers(read_json(path))
    return found


def unbacked(text):
    """Yield the numbers that neither the tables of their section hold nor the files that their paragraph names.

    What stands above the first heading sums the page up. Yields (number as it is written, the numbers where it was
    looked for).
    """
    examples = {example for marker in _MARKER.findall(text) for example in re.findall(r"(\w+)/results/", marker)}
    summary, *sections = re.split(r"^## ", text, flags=re.MULTILINE)
    pieces = [(summary, shown_in(text) + named_in(text, examples))]
    for section in sections:
        shown = shown_in(section) or shown_in(text)
        for paragraph in re.split(r"\n\n|\n(?=[-|] )", _TABLE.sub("\n\n", section)):
            pieces.append((paragraph, shown + named_in(paragraph, examples)))
    for piece, shown in pieces:
        prose = _NO_PROSE.sub(" ", _TABLE.sub("", piece))
        yield from ((number, shown) for number in _NUMBER.findall(prose) if not holds(shown, number))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(tiny.ROOT)))
def test_numbers_in_prose_are_in_the_results(page):
    reasons, text = ELSEWHERE.get(str(page.relative_to(tiny.ROOT)), {}), page.read_text()
    assert {number for number, _ in unbacked(text)} == set(reasons)
    for number, reason in reasons.items():
        if reason.startswith("="):
            assert holds([eval(reason[1:].strip())], number)
            used = re.findall(r"\d+\.\d+", reason.replace("**0.5", ""))
            assert all(holds(shown_in(text), one) for one in used)


def test_a_number_without_a_source_is_found():
    # By hand: 12.3 is rounded from the table, 12.4 is from nowhere, 9.87 would be in the table of another section.
    table = "<!-- table any multi30k/results/any.json -->\n| 12.34 |\n<!-- end -->"
    text = (
        f"Up to 12.3.\n\n## One\n\n{table}\n\n- 12.3, not 12.4 (§4.1, `9.9`, $5.5$)\n- 9.87\n\n## Two\n\n12.34 again."
    )
    assert [number for number, _ in unbacked(text)] == ["12.4", "9.87"]
    named = "## One\n\n95% of `results/studies/effects.json` is above 0.28, below 0.64.\n"
    assert [number for number, _ in unbacked(f"{table}\n{named}")] == []


def test_long_lists_are_not_searched():
    assert list(numbers({"a": [1.5, {"b": True, "c": None}], "heads": [0.25] * 31})) == [1.5]
