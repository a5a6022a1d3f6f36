"""Studies for the report page, written by hand: their sentences try to be more than text."""

from ablations import SHAPE, write_ablation

from fairseq_headprune.parts import Mask, all_heads
from fairseq_headprune.report.tables import Marked, Table
from fairseq_headprune.studies.folder import StudyFolder

#: What would run, or load something, if it were not escaped.
HOSTILE = [
    "</script><script>window.hacked = 1</script>",
    '<img src="http://127.0.0.1:9/x.png" onerror="window.hacked = 2"> & "quoted"',
    "<!--<script> \u2028 ${1+1} $title",
]
SOURCES = ["der Hund", "die Katze", "<b>das</b> Haus"]
REFERENCES = [f"the dog {HOSTILE[0]}", f"the cat {HOSTILE[1]}", f"the house {HOSTILE[2]}"]

#: Differences in BLEU, and p, of the five heads of ``SHAPE``.
DELTAS = [-2.0, 0.25, -0.5, 0.0, 1.5]
P = [0.0, 0.5, 0.004, 1.0, 0.0]

#: BLEU at 0, 50 and 100% of five heads.
CURVE = [30.0, 21.25, 0.5]

COMPARISON = {"tokenize": "13a", "resamples": 1000, "seed": 12345, "alpha": 0.01}


def hand_ablation(path):
    """A finished study of ``headprune ablate`` with translations; every head changes its own sentences."""
    write_ablation(path, DELTAS, **COMPARISON)
    folder = StudyFolder(path)
    lines = [line.replace('"p": 0.5', f'"p": {p}') for line, p in zip(_lines(folder)[1:], P, strict=True)]
    (path / "cells.jsonl").write_text("".join([_lines(folder)[0], *lines]))
    folder.write_texts("test", SOURCES, REFERENCES)
    folder.write_hypotheses("unpruned", REFERENCES)
    for number, head in enumerate(all_heads(SHAPE)):
        translations = [f"{text} <i>{number}</i>" if i <= number else text for i, text in enumerate(REFERENCES)]
        folder.write_hypotheses("-".join(map(str, head)), translations)
    return path


def hand_pruning(path, order="scores", done=2, seeds=()):
    """A study of ``headprune prune`` in two steps, ``done`` of them finished; each further seed has 2 BLEU more."""
    settings = {
        "study": "prune", "checkpoint": "c" * 64, "start": Mask.full(SHAPE).rows, "components": "all",
        "step": "1/2", "order": order, "reestimate": False, "data": {"split": "test", "sha256": {"test.bin": "test"}},
        "generation": {"beam": 5}, **COMPARISON, **({"seeds": list(seeds)} if seeds else {}),
    }  # fmt: skip
    folder = StudyFolder.open(path, settings, {"python": "3.11", "command": f"headprune prune {HOSTILE[0]}"})
    for number, curve in enumerate([f"all-seed{seed}" for seed in seeds] or ["all"]):
        for step, pruned in list(enumerate((0, 2, 5)))[: done + 1]:
            score = CURVE[step] + 2 * number
            cell = {"id": f"{curve}-{step:02d}" if step else "unpruned", "curve": curve if step else None, "step": step}
            cell |= {"percent": 50.0 * step, "pruned": pruned, "score": score, "ci": [max(0, score - 1), score + 1]}
            folder.append({**cell, "p": 0.0 if step else 1.0, "signature": "s"})
    return path


#: Item of a study of random pruning -> scores and p of its samplings.
SAMPLINGS = {
    "control": [(31.0, 0.5), (32.0, 0.04), (33.0, 0.0005)],
    "random-60%": [(29.0, 0.5), (28.0, 0.2), (27.0, 0.0)],
    "random-20%": [(30.5, 0.6), (30.0, 1.0), (29.5, 0.6)],
}


def hand_random(path, done=9, **more):
    """A study of ``headprune random-study``: an unpruned model with a score of 30, and ``done`` of nine samplings."""
    items = [{"kind": name.split("-")[0], "text": name.partition("-")[2], "mirror": False} for name in SAMPLINGS]
    settings = {
        "study": "random-study", "checkpoint": "c" * 64, "data": {"split": "test"}, "items": items, "seeds": [1, 2, 3],
        "fine_tuning": {"limit": ["--max-epoch", "30"]}, **COMPARISON, **more,
    }  # fmt: skip
    folder = StudyFolder.open(path, settings, {"command": "headprune random-study"})
    first = {"id": "unpruned", "item": "unpruned", "kind": "unpruned", "percent": 0.0, "pruned": 0, "seed": 0}
    folder.append({**first, "score": 30.0, "ci": [29.0, 31.0], "p": 1.0, "signature": "s"})
    folder.write_hypotheses("unpruned", REFERENCES)
    cells = [
        {"id": f"{name}-{seed}", "item": name, **item, "seed": seed, "score": score, "p": p}
        for (name, found), item in zip(SAMPLINGS.items(), items, strict=True)
        for seed, (score, p) in enumerate(found, start=1)
    ]
    for cell in cells[:done]:
        percent = float(cell["text"].strip("%") or 0)
        ci = [cell["score"] - 1, cell["score"] + 1]
        folder.append({**cell, "percent": percent, "pruned": int(percent / 20), "ci": ci, "signature": "s"})
        folder.write_hypotheses(cell["id"], REFERENCES)
    return path


def told(study):
    """Yield the tables of a study in the page's document, as text."""
    for part in study["parts"]:
        if "table" in part:
            rows = [[Marked(cell["text"], cell["mark"]) for cell in row] for row in part["table"]["rows"]]
            yield Table(part["table"]["header"], rows, part["table"]["align"]).render()


def _lines(folder):
    return (folder.path / "cells.jsonl").read_text().splitlines(keepends=True)


def texts(table):
    """Return a table's cells as text, None where there is nothing."""
    return [[None if cell is None else str(cell) for cell in row] for row in table.rows]
