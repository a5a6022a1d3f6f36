"""Studies for the report page, written by hand: their sentences try to be more than text."""

from ablations import SHAPE, write_ablation

from fairseq_headprune.heads import HeadMask, all_heads
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
        "study": "prune", "checkpoint": "c" * 64, "start": HeadMask.full(SHAPE).heads, "components": "all",
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


def _lines(folder):
    return (folder.path / "cells.jsonl").read_text().splitlines(keepends=True)
