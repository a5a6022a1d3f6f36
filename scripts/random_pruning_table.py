"""The README's tables of random pruning with fine-tuning, beside the paper's numbers (Budhraja et al. 2020)."""

from pathlib import Path
from typing import Any

from fairseq_headprune.files import read_json
from fairseq_headprune.report.tables import Marked, Table, mark_of
from fairseq_headprune.studies.folder import StudyFolder
from fairseq_headprune.studies.random_tables import by_item, differing_caption, kept_heads, samplings_table
from fairseq_headprune.studies.samplings import Item

_CONFIG_40, _CONFIG_60 = "config-ES=777322+ED=233777+DS=777332", "config-ES=555211+ED=112555+DS=555211"

#: item of a study -> differences from the baseline in the paper's Table 1 (EN-RU, EN-DE), or 2 and 3 (EN-RU only)
PAPER = {
    "random-25%": ("+0.50", "+0.24"),
    "random-35%": ("+0.20", "-0.01"),
    "random-50%": ("+0.29", "+0.07"),
    "random-55%": ("-0.09", "+0.29"),
    "random-60%": ("-0.15", "-0.07"),
    "random-75%": ("-0.87", "-0.46"),
    "random-81%": ("-1.12", "-1.15"),
    "random-87.5%-at-least-one": ("-1.62", "-1.03"),
    _CONFIG_40: ("+0.08", None),
    f"{_CONFIG_40}-mirror": ("+0.48", None),
    _CONFIG_60: ("-0.10", None),
    f"{_CONFIG_60}-mirror": ("-0.31", None),
    "triple-12,21,25": ("-0.61", None),
    "triple-21,12,25": ("-0.31", None),
    "triple-25,21,12": ("-0.61", None),
}


def random_pruning(results: Path) -> tuple[Table, str]:
    """Return the table of ``random.json`` and the note below it.

    Raises:
        FileNotFoundError: there is no such file.
    """
    value = read_json(results / "random.json")
    rows: list[list[Any]] = [["0%", "all (baseline)", f"{value['baseline']['score']:.2f}", None, None, None, None]]
    for item in value["items"]:
        difference = Marked(f"{item['delta']:+.2f}", mark_of(item["p"], item["p_holm"], value["alpha"]))
        spread = None if item["sd"] is None else f"{item['sd']:.2f}"
        paper = PAPER.get(item["item"], (None, None))
        rows.append([f"{item['percent']:.0f}%", kept_heads(item), f"{item['score']:.2f}", difference, spread, *paper])
    header = ["pruned", "heads kept", "BLEU", "difference", "sd", "EN-RU (paper)", "EN-DE (paper)"]
    samplings = max(item["samplings"] for item in value["items"])
    note = (
        f"Mean of {samplings} samplings, each fine-tuned; BLEU, {value['signature']}; ** the mean differs from the "
        f"baseline, which is not tuned further, at p < {value['alpha']:g} after Holm's correction, * only before it "
        "(paired bootstrap). The paper's columns: its differences from its own baselines."
    )
    return Table(header, rows, "llrrrrr"), note


def random_samplings(results: Path) -> tuple[Table, str]:
    """Return the table of the samplings in the study folder ``random-study``, which need not be finished, and its note.

    Raises:
        FileNotFoundError: there is no such folder.
    """
    folder = StudyFolder(results / "random-study")
    unpruned, items = by_item([Item(**item) for item in folder.settings["items"]], folder.cells())
    table = samplings_table(unpruned, list(items.values()), folder.settings["alpha"])
    papers = [(None, None), *(PAPER.get(name, (None, None)) for name in items)]
    rows = [[*row, *paper] for row, paper in zip(table.rows, papers, strict=True)]
    count = sum(map(len, items.values()))
    note = (
        f"Mean of the samplings; {unpruned['signature']}; {differing_caption(folder.settings, count)}. The paper's "
        "columns: its differences from its own baselines."
    )
    return Table([*table.header, "EN-RU (paper)", "EN-DE (paper)"], rows, "llrrrrrrr"), note
