"""The README's table of speed and size by heads kept, from results/speed-by-heads-*.json."""

from pathlib import Path

from fairseq_headprune.files import read_json
from fairseq_headprune.report.speed_by_heads import levels_note, levels_table
from fairseq_headprune.report.tables import Table


def speed_by_heads(results: Path) -> tuple[Table, str]:
    """Return the rows of all devices and the note below them.

    Raises:
        FileNotFoundError: there are no results.
    """
    values = [read_json(path) for path in sorted(results.glob("speed-by-heads-*.json"))]
    if not values:
        raise FileNotFoundError(f"{results}/speed-by-heads-*.json")
    tables = []
    for value in sorted(values, key=lambda value: value["unpruned"]["parameters"]):
        where = value["environment"]["gpu"] if value["device"] == "cuda" else f"{value['threads']} CPU threads"
        tables.append(levels_table(value, f"{where}, {value['precision']}"))
    header = list(max((table.header for table in tables), key=len))
    # Not all devices were measured at all sizes of batches.
    rows = [
        [dict(zip(table.header, row, strict=True)).get(name) for name in header]
        for table in tables
        for row in table.rows
    ]
    return Table(header, rows, "ll" + "r" * (len(header) - 2)), levels_note(*values)
