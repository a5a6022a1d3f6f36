"""Collect what glue.sh or multi30k.sh left in a folder in one small JSON file: ``gather.py OUT -o RESULTS/NAME.json``."""

import argparse
from pathlib import Path
from typing import Any

from fairseq_headprune.files import read_json, write_json
from fairseq_headprune.studies.folder import StudyFolder
from fairseq_headprune.studies.lottery import LotteryFind

#: what is kept of a cell
_KEPT = ("score", "ci", "p", "pruned", "kept", "weights")


def search(folder: Path) -> dict[str, Any]:
    """Return what one search found: model, splits, ticket."""
    stored = StudyFolder(folder)
    study = LotteryFind(stored.settings, folder=stored)
    document = study.result(study.cells())
    if document.missing:
        raise ValueError(f"{folder}: {document.missing[0]}")
    cells = {name: document.data[name] for name in ("baseline", "ticket")} | {
        f"reported_{name}": cell for name, cell in document.data.get("reported", {}).items()
    }
    return {
        "selected_on": study.select,
        "reported_on": study.split,
        "measure": study.measure,
        "checkpoint": study.settings["checkpoint"],
        "steps": len(document.data["steps"]),
        **{name: {key: cell[key] for key in _KEPT if key in cell} for name, cell in cells.items()},
    }


def tickets(path: Path) -> dict[str, Any]:
    """Return sizes, survival and agreement of the tickets of several searches."""
    found = read_json(path)
    about = {name: found.get(name) for name in ("seed", "stability", "survival")}
    masks = {file.stem: read_json(file) for file in path.with_suffix("").glob("super-survivors.json")}
    goods = [read_json(file) for file in sorted(path.with_suffix("").glob("*/good.json"))]
    parts = lambda mask: {name: mask[name] for name in ("heads", "ffn") if name in mask}  # noqa: E731
    return about | {"good": list(map(parts, goods)), **{name: parts(mask) for name, mask in masks.items()}}


def retrained(folder: Path) -> dict[str, Any]:
    """Return the settings of the retraining of one model, with the flags of its trainings."""
    settings = StudyFolder(folder).settings
    names = ("fine_tuning", "training_seed", "embeddings", "begin", "fresh", "majority", "data")
    return {name: settings.get(name) for name in names}


def main() -> None:
    """Read the folder and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    args = parser.parse_args()
    result: dict[str, Any] = {"searches": {}, "tickets": {}, "tables": {}, "retrained": {}}
    for study in sorted(args.folder.glob("search-*/**/study.json")):
        # search-SELECTION/MODEL/MODE, or search-SELECTION-MODE/MODEL
        name, model, *mode = study.relative_to(args.folder).parts[:-1]
        kind = "-".join([name.removeprefix("search-"), *mode])
        result["searches"].setdefault(kind, {})[model] = search(study.parent)
    for path in sorted(args.folder.glob("tickets-*.json")):
        result["tickets"][path.stem.removeprefix("tickets-")] = tickets(path)
    for path in sorted(args.folder.glob("table-*.json")):
        mode = path.stem.removeprefix("table-")
        result["tables"][mode] = read_json(path)
        result["retrained"][mode] = retrained(next(iter(sorted(args.folder.glob(f"retrain-{mode}/*")))))
    args.output.parent.mkdir(parents=True, exist_ok=True)
    write_json(args.output, result)


if __name__ == "__main__":
    main()
