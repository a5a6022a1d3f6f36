"""Running our verbs and fairseq-generate in this process (a fresh one takes seconds to start)."""

import contextlib
import io
import json
import shutil

import tiny
import torch

from fairseq_headprune.cli import main
from fairseq_headprune.evaluation.translate import Translator
from fairseq_headprune.jobs.claims import lock_is_held
from fairseq_headprune.parts import Mask
from fairseq_headprune.session import Session, parse_generation_args

BEAM = ["--beam", "2", "--max-len-b", "10", "--cpu"]


def run_json(*argv):
    """Run ``headprune … --json``, which has to succeed, and return its document."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        assert main([*map(str, argv), "--json"]) == 0
    return json.loads(output.getvalue())


def session(run, *flags):
    """Open the checkpoint of a run, as the verbs do under these flags."""
    argv = [str(run["data"]), "--path", str(run["checkpoint"]), "--cpu", *map(str, flags)]
    return Session(parse_generation_args("score", argv, lambda parser: None, "a test"))


def write_lively(run, folder):
    """Write a checkpoint whose translations depend on the source and on every mask: large random weights."""
    state = torch.load(run["checkpoint"], weights_only=False)
    generator = torch.Generator().manual_seed(3)
    for name, weight in state["model"].items():
        if weight.dim() == 2 and ".layers." in name:
            weight += 0.3 * torch.randn(weight.shape, generator=generator)
    torch.save(state, folder / "lively.pt")
    return {"data": run["data"], "checkpoint": folder / "lively.pt"}


def living_workers(study):
    """The names of the processes that now work in a study folder, in the order of their names."""
    return [lock.stem for lock in sorted((study / "workers").glob("*.lock")) if lock_is_held(lock)]


def refused(capsys, *argv):
    """Run ``headprune …``, which has to refuse its input: status 2, no result, one line of error, which is returned."""
    return _refused(capsys, "headprune ", main, argv)


def refused_script(capsys, name, *words):
    """The same of a script in scripts/."""
    script = tiny.ROOT / "scripts" / f"{name}.py"
    return _refused(capsys, f"{name}.py: ", lambda given: tiny.run_script(script, *given), words)


def _refused(capsys, start, run, words):
    capsys.readouterr()
    try:
        status = run([*map(str, words)])
    except SystemExit as leave:  # as argparse leaves
        status = leave.code
    out, err = capsys.readouterr()
    *logs, line = err.splitlines()
    assert (status, out) == (2, "") and line.startswith(start), (status, out, err)
    assert not any(log.startswith((start, "usage", "Traceback")) for log in logs), err
    return line


def generated(kind, *argv):
    """The lines that fairseq-generate prints with this letter (D, T, …): the sentences in corpus order.

    Some releases of fairseq leave a last batch out that is no multiple of 8, unless told otherwise.
    """
    output = tiny.fairseq_here("generate", *argv, "--required-batch-size-multiple", "1")
    rows = [line.split("\t") for line in output.splitlines() if line.startswith(f"{kind}-")]
    return [row[-1] for row in sorted(rows, key=lambda row: int(row[0][2:]))]


def count_masks(monkeypatch):
    """Note how many masks each pack holds that is translated from now on."""
    packs, translate = [], Translator.answers_of
    monkeypatch.setattr(
        Translator, "answers_of", lambda self, masks: packs.append(len(masks)) or translate(self, masks)
    )
    return packs


def cells(folder):
    """The cells of a study without their times."""
    found = [json.loads(line) for line in (folder / "cells.jsonl").read_text().splitlines()]
    return [{key: value for key, value in cell.items() if key != "seconds"} for cell in found]


def mask(folder, cell):
    """The mask of a cell of a study."""
    return Mask.load(folder / "masks" / f"{cell}.json")


def stopped(study, folder, count, part=0):
    """Copy a study as if it had stopped after ``count`` cells and ``part`` letters of the next; return the copy."""
    shutil.copytree(study, folder)
    lines = (folder / "cells.jsonl").read_text().splitlines(keepends=True)
    (folder / "cells.jsonl").write_text("".join(lines[:count]) + "".join(lines[count:])[:part])
    return folder


def holm_by_hand(p):
    """Holm's correction from the smallest p on, in the order of these p."""
    corrected, running = [0.0] * len(p), 0.0
    for rank, place in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        running = max(running, min(1.0, (len(p) - rank) * p[place]))
        corrected[place] = running
    return corrected
