"""Tables: expected texts were laid out by hand; numbers are from Michel et al. (2019), Table 1."""

import csv
import random
import re

import pytest
import tables
from verbs import refused_script

from fairseq_headprune.report.tables import Marked, Table, paper_head_table, render_parts

# Michel et al. (2019), Table 1: layer 1, heads 5 to 8, and layer 5, heads 1 and 3; marks and a pruned head added here.
DELTAS = [[0.03, -0.53, 0.09, -0.33], [-0.31, None, -0.04]]
MARKS = [["", "holm", "", "raw"], ["raw", "", ""]]


def test_text_lines_numbers_up_whatever_their_marks():
    table = Table(["system", "BLEU"], [["full", Marked("36.05", "holm")], ["pruned-50%", "9.10"]])
    assert table.render("text").split("\n") == [
        "system       BLEU", "----------  -------", "full        36.05**", "pruned-50%   9.10",
    ]  # fmt: skip


def test_wide_titles_and_texts_are_folded_and_numbers_are_not():
    title = "share of the sentences of the test set without a word"
    rows = [["a", Marked("1,234.5", "raw"), "word " * 12]]
    assert Table(["system", title, "what"], rows, "lrl").render("text").split("\n") == [
        f"{' ' * 14}share of the sentences of the test set",
        f"system{' ' * 32}without a word   what",
        f"------  {'-' * 45}  {'-' * 45}",
        f"a{' ' * 44}1,234.5*  {'word ' * 9}".rstrip(),
        f"{' ' * 55}word word word",
    ]


def test_columns_that_do_not_fit_come_below_with_the_labels():
    number = "1" * 30
    lines = Table(["task", "seed", *"abc"], [["CoLA", "1", *[number] * 3]], "llrrr").render("text").split("\n")
    first, last = "task  seed" + " " * 31, " " * 31
    assert lines == [
        f"{first}a{last}b", "----  ----" + f"  {'-' * 30}" * 2, f"CoLA  1     {number}  {number}", "",
        f"{first}c", f"----  ----  {'-' * 30}", f"CoLA  1     {number}",
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_no_table_is_wider_than_100_columns_and_nothing_is_lost(seed):
    draw = random.Random(seed)

    def cell(longest):
        text = " ".join("x" * draw.randint(1, longest) for _ in range(draw.randint(0, 4)))
        return draw.choice([None, draw.randint(0, 10**9), text, Marked(text, draw.choice(["raw", "holm"]))])

    for _ in range(20):
        columns, longest = draw.randint(1, 12), draw.choice([5, 20, 150])
        align = "".join(draw.choice("lcr") for _ in range(columns))
        rows = [[cell(longest) for _ in range(columns)] for _ in range(draw.randint(0, 5))]
        table = Table(["x " * draw.randint(0, 12) for _ in range(columns)], rows, align)
        text = table.render("text")
        assert max(map(len, text.split("\n"))) <= 100
        letters = re.sub(r"[^x0-9]", "", "".join(str(c) for row in [table.header, *rows] for c in row if c is not None))
        assert len(re.sub(r"[^x0-9]", "", text)) >= len(letters)  # labels may be repeated


@pytest.mark.parametrize("page", tables.pages(), ids=lambda path: path.name)
def test_the_tables_of_the_manual_fit_with_their_numbers_to_the_right(page):
    number = re.compile(r"[-+<]?[\d.,]+[%x]?")
    documents = [found for line in page.read_text().splitlines() if (found := tables.marked(line, "here"))]
    for table in (table for document in documents for table in document.tables):
        assert max(map(len, table.render("text").split("\n"))) <= 100
        labels = min(2, len(table.align) - len(table.align.lstrip("l")))
        for title, align, *cells in list(zip(table.header, table.align, *table.rows, strict=True))[labels:]:
            shown = [str(cell) for cell in cells if cell is not None]
            assert align == "r" or not shown or not all(map(number.fullmatch, shown)), title
    assert documents


def test_paper_form_counts_from_one_and_shows_pruned_and_missing_heads():
    assert paper_head_table(DELTAS, MARKS).render("text").split("\n") == [
        "Layer/Head      1       2        3      4",
        "----------  ------  -------  -----  ------",
        "         1  +0.03   -0.53**  +0.09  -0.33*",
        "         2  -0.31*      -    -0.04",
    ]


@pytest.mark.parametrize(
    ("cells", "align"),
    [(["0%", "-1.5", "1,234"], "r"), ([None, "5"], "l"), (["1-3", "4"], "l"), (["60% (3 heads)"], "l"), ([], "l")],
)
def test_a_first_column_of_numbers_only_stands_to_the_right(cells, align):
    # Source: by hand: "-", a range of layers and a text with a number are labels.
    assert Table(["a", "b"], [[cell, "1"] for cell in cells]).align == f"{align}r"


def test_markdown_marks_and_escapes():
    table = Table(["a|b", "x_1"], [["<i>", Marked("-0.31")], ["two\nlines", None]], "lc")
    assert table.render("markdown").split("\n") == [
        r"| a\|b | x\_1 |", "| :-- | :-: |", r"| \<i\> | -0.31\* |", "| two lines | - |",
    ]  # fmt: skip


def test_latex_underlines_as_the_paper_and_sets_minus_signs():
    assert paper_head_table(DELTAS, MARKS).render("latex").split("\n") == [
        r"\begin{tabular}{rrrrr}",
        r"\toprule",
        r"Layer/Head & 1 & 2 & 3 & 4 \\",
        r"\midrule",
        r"1 & +0.03 & \underline{\textbf{$-$0.53}} & +0.09 & \underline{$-$0.33} \\",
        r"2 & \underline{$-$0.31} & -- & $-$0.04 &  \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_csv_is_read_back_with_marks_beside_bare_numbers():
    # Source: Python's csv reader.
    table = Table(["Pruned", "All, jointly"], [["0%", "25.10"], ["10%", Marked("24.00", "holm")], ["20%", None]])
    text = render_parts(["a note", table, table], "csv")
    comment, *lines, gap = text.splitlines()[:6]
    assert (comment, gap) == ("# a note", "") and text.splitlines()[6:] == lines
    rows = [["Pruned", "All, jointly", "All, jointly (mark)"], ["0%", "25.10", ""], ["10%", "24.00", "**"]]
    assert list(csv.reader(lines)) == [*rows, ["20%", "", ""]]


def test_latex_escapes_every_special_character():
    # The ten special characters of LaTeX (Lamport, section 2.1) and the three that its default font encoding misprints.
    cell = Table(["c"], [[r"\ ~ ^ & % $ # _ { } < > |"]]).render("latex").split("\n")[4]
    assert cell == (
        r"\textbackslash{} \textasciitilde{} \textasciicircum{} \& \% \$ \# \_ \{ \} "
        r"\textless{} \textgreater{} \textbar{} \\"
    )


def test_format_of_numbers_is_the_callers():
    assert paper_head_table([[0.12345]], fmt=".3f").rows == [["1", Marked("0.123", "")]]


def test_no_layers_and_no_rows_are_still_tables():
    assert paper_head_table([]).render("text") == "Layer/Head\n----------"
    assert Table(["a", "b"], []).render("markdown") == "| a | b |\n| :-- | --: |"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Table(["a", "b"], [["1"]]), "row 1 has 1 cells, the header has 2"),
        (lambda: Table(["a"], [], "x"), "alignment 'x' does not fit"),
        (lambda: Table(["a"], []).render("html"), "unknown table form 'html'; forms are text, markdown, latex"),
        (lambda: Marked("1", "yes"), "unknown mark 'yes'"),
    ],
)
def test_wrong_input_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "a.json: there is no such file or folder"),
        ("{", "a.json: not a JSON file"),
        ("[]", "heads: not all of these files are such results"),
        ("{}", "heads: not all of these files are such results"),
    ],
)
def test_results_that_make_no_table_are_refused_in_one_line(text, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / "a.json").write_text(text)
    assert refused_script(capsys, "tables", "heads", "a.json").startswith(f"tables.py: {said}")
