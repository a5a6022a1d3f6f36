"""The table of a paired bootstrap as text, Markdown or LaTeX."""

import math
from collections.abc import Iterable, Sequence

from fairseq_headprune.evaluation.significance import SystemResult

#: The formats by name.
FORMATS = ("text", "markdown", "latex")

_HEADER = ["system", "score", "95% interval", "wins", "losses", "ties", "p", "p (Holm)", ""]


def significance_table(results: Sequence[SystemResult], alpha: float, resamples: int, form: str = "text") -> str:
    """Return one row a system, the baseline first; ``**`` = p (Holm) < alpha, ``*`` = only p < alpha.

    Raises:
        ValueError: unknown format.
    """
    if form not in FORMATS:
        raise ValueError(f"unknown table format {form!r}; known are {', '.join(FORMATS)}")
    rows = [_cells(result, alpha, resamples, len(results) - 1) for result in results]
    if form == "markdown":
        lines = [_HEADER, ["---"] + ["---:"] * (len(_HEADER) - 2) + ["---"], *([*map(_escape, row)] for row in rows)]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)
    if form == "latex":
        return _latex(rows)
    widths = [max(len(line[column]) for line in [_HEADER, *rows]) for column in range(len(_HEADER))]
    lines = ([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])] for line in [_HEADER, *rows])
    return "\n".join("  ".join(line).rstrip() for line in lines)


def too_few_resamples(results: Sequence[SystemResult], alpha: float, resamples: int) -> list[str]:
    """Return a note if p = 0 may not be significant only because there are too few resamples; else nothing."""
    note = coarse_zero([result.p_holm for result in results[1:]], len(results) - 1, alpha, resamples, "system")
    return [note] if note else []


def coarse_zero(p_holm: Iterable[float | None], tests: int, alpha: float, resamples: int, what: str) -> str:
    """Return a note if some p is 0, and so many tests and so few resamples make that no finding; else nothing.

    Args:
        p_holm: corrected values; None where there is none yet.
        tests: how many the correction is over.
        what: is tested.
    """
    if 2 * tests / resamples <= alpha or all(p is None or p > 0 for p in p_holm):
        return ""
    return (
        f"p = 0 means below {2 / resamples:.2g}; for {tests} {what}{'' if tests == 1 else 's'} that is below --alpha "
        f"after Holm's correction only with --resamples {math.ceil(2 * tests / alpha)} or more"
    )


def _cells(result: SystemResult, alpha: float, resamples: int, comparisons: int) -> list[str]:
    numbers = [f"{100 * share:.1f}%" for share in (result.wins, result.losses, result.ties)]
    p_values = bootstrap_p_values(result, resamples, comparisons)
    interval = f"{result.ci[0]:.2f}-{result.ci[1]:.2f}"
    return [result.name, f"{result.score:.2f}", interval, *numbers, *p_values, result.mark(alpha)]


def bootstrap_p_values(result: SystemResult, resamples: int, comparisons: int) -> list[str]:
    """Return p and p (Holm) as texts; 0 says no more than "below the smallest p that so many resamples can show"."""
    smallest = (2 / resamples, 2 / resamples * comparisons)
    return [
        f"{p:.3f}" if p > 0 else f"<{min(1, least):.2g}"
        for p, least in zip((result.p, result.p_holm), smallest, strict=True)
    ]


def _escape(cell: str) -> str:
    return cell.replace("|", "\\|").replace("*", "\\*")


def _latex(rows: Sequence[Sequence[str]]) -> str:
    special = {character: "\\" + character for character in "&%$#_{}"}
    special |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"$<$"}

    def line(cells: Sequence[str]) -> str:
        return " & ".join("".join(special.get(character, character) for character in cell) for cell in cells) + r" \\"

    body = [line(_HEADER), r"\hline", *map(line, rows)]
    return "\n".join([r"\begin{tabular}{l" + "r" * (len(_HEADER) - 2) + "l}", *body, r"\end{tabular}"])
