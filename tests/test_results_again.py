"""What results say over trainings and over heads is made again from the scores that the repository holds.

Source: the results themselves; where the statistics are tested, see test_trainings.py and test_statistics.py.
"""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import tiny

from fairseq_headprune.evaluation.correlation import correlations
from fairseq_headprune.files import read_json, sha256
from fairseq_headprune.studies.pruners.points import costs, over_trainings

EXAMPLES = tiny.ROOT / "examples"
FILES = {str(path.relative_to(EXAMPLES)): read_json(path) for path in sorted(EXAMPLES.glob("*/results/**/*.json"))}
#: made from another result
DERIVED = [name for name, value in FILES.items() if "of" in value]
COMPARED = [name for name, value in FILES.items() if value.get("statistics_file") or value.get("statistics")]
COMPARED = [name for name in COMPARED if "points" in FILES[name] and "rows" in FILES[name]]
EFFECTS = [name for name in FILES if name.endswith("/effects.json")]


def alike(found, stored):
    """Whether two JSON values are equal, numbers up to rounding."""
    if isinstance(stored, dict):
        return isinstance(found, dict) and set(found) == set(stored) and all(alike(found[k], stored[k]) for k in stored)
    if isinstance(stored, list):
        return len(found) == len(stored) and all(map(alike, found, stored))
    return found == (pytest.approx(stored, rel=1e-6, abs=1e-9) if isinstance(stored, float) else stored)


@pytest.mark.parametrize("name", DERIVED)
def test_what_is_made_of_a_comparison(name):
    value = FILES[name]
    ((source, digest),) = value["of"].items()
    path = (EXAMPLES / name).with_name(source)
    assert sha256(path) == digest
    rows = read_json(path)["rows"]
    if "against" in value:
        found = tiny.example_script("over_trainings.py").compare(rows, value["against"], value["margin"])
    else:
        variance = tiny.example_script("questions/variance.py")
        found = variance.analysed(variance.tables(rows))
    assert alike(json.loads(json.dumps(found)), value["rows"])


@pytest.mark.parametrize("name", COMPARED)
def test_means_tests_and_costs_of_a_comparison(name):
    value = FILES[name]
    found = over_trainings(value["rows"], value["margin"])
    # What sentences say needs the counts of each, which the command makes again.
    stored = [{k: p for k, p in point.items() if k not in ("both_levels", "sentences")} for point in value["points"]]
    assert alike(json.loads(json.dumps(found)), stored)
    assert alike(json.loads(json.dumps(costs(value["rows"], value["settings"]["updates"]))), value["costs"])


@pytest.mark.parametrize("name", EFFECTS)
def test_correlations_of_the_effects_of_heads(name):
    value, folder = FILES[name], (EXAMPLES / name).parent
    sides = []
    for study in value["studies"]:
        cells = {json.dumps([cell[k] for k in ("component", "layer", "head")]): cell["delta"]
                 for cell in read_json(folder / f"{Path(study['study']).stem}.json")["cells"]}  # fmt: skip
        sides.append(
            [cells[json.dumps([head[k] for k in ("component", "layer", "head")])] for head in value["effects"]]
        )
    assert [list(pair) for pair in zip(*sides, strict=True)] == [head["delta"] for head in value["effects"]]
    for kind, found in correlations(*sides).items():
        assert alike(json.loads(json.dumps(asdict(found))), value[kind])


def test_all_kinds_are_there():
    assert len(DERIVED) >= 18 and len(COMPARED) >= 10 and len(EFFECTS) == 5
