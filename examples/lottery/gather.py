"""Collect what glue.sh or multi30k.sh left in a folder in one small JSON file (``gather.py OUT -o NAME.json``)."""

import argparse
import re
from pathlib import Path
from typing import Any

from fairseq_headprune.files import read_json, write_json
from fairseq_headprune.parts import Mask
from fairseq_headprune.provenance import script_environment
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
    folder = path.with_suffix("")
    about["good"] = [Mask.load(file).rows for file in sorted(folder.glob("*/good.json"))]
    return about | {file.stem: Mask.load(file).rows for file in folder.glob("super-survivors.json")}


def retrained(folder: Path) -> dict[str, Any]:
    """Return the settings of the retraining of one model, with the flags of its trainings."""
    settings = StudyFolder(folder).settings
    names = ("fine_tuning", "training_seed", "embeddings", "begin", "fresh", "majority", "data")
    return {name: settings.get(name) for name in names}


def survivors(folder: Path) -> dict[str, Any]:
    """Return what survivors.sh left: what survives, and the patterns of each model's heads."""
    found = {path.stem.removeprefix("patterns-"): read_json(path) for path in sorted(folder.glob("patterns-*.json"))}
    return {"survival": read_json(folder / "survival.json"), "patterns": found}


def without_places(value: Any, folder: Path) -> Any:
    """Return a JSON value without this machine's paths, which may be words of a command."""
    if isinstance(value, dict):
        return {key: without_places(entry, folder) for key, entry in value.items()}
    if isinstance(value, list):
        return [without_places(entry, folder) for entry in value]
    if isinstance(value, str):
        return re.sub(r"(?<![^\s=])/[^\s=]+", lambda found: _without_place(Path(found[0]), folder), value)
    return value


def _without_place(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else path.name


def searched(folder: Path) -> dict[str, Any]:
    """Return searches, tickets, tables and settings."""
    result: dict[str, Any] = {"searches": {}, "tickets": {}, "tables": {}, "retrained": {}}
    for study in sorted(folder.glob("search-*/**/study.json")):
        # search-SELECTION/MODEL/MODE, or search-SELECTION-MODE/MODEL
        name, model, *mode = study.relative_to(folder).parts[:-1]
        kind = "-".join([name.removeprefix("search-"), *mode])
        result["searches"].setdefault(kind, {})[model] = search(study.parent)
    for path in sorted(folder.glob("tickets-*.json")):
        result["tickets"][path.stem.removeprefix("tickets-")] = tickets(path)
    for path in sorted(folder.glob("table-*.json")):
        mode = path.stem.removeprefix("table-")
        result["tables"][mode] = read_json(path)
        result["retrained"][mode] = retrained(next(iter(sorted(folder.glob(f"retrain-{mode}/*")))))
    return result


def main() -> None:
    """Read the folder and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--survivors", action="store_true", help="collect what survivors.sh left instead")
    args = parser.parse_args()
    args.output.parent.mkdir(parents=True, exist_ok=True)
    found = survivors(args.folder) if args.survivors else searched(args.folder)
    found["environment_of_gathering"] = script_environment()
    write_json(args.output, without_places(found, args.folder.resolve()))


if __name__ == "__main__":
    main()
