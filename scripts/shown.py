"""How the results of benchmarks are shown: one description each, for the terminal and the manual's tables.

A benchmark prints its own result by its description here; tables.py shows several results together by the same one.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import benchmarks  # noqa: F401  (puts the repository's root on sys.path)

from fairseq_headprune.report.described import Column, Described, Row
from fairseq_headprune.report.document import Document
from fairseq_headprune.report.speed import TIMES

Values = Mapping[str, Mapping[str, Any]]


def tell(described: Described, value: Mapping[str, Any]) -> None:
    """Print the result of a benchmark."""
    print(Document("", [described.table({"": value})]).render())


def where(row: Row) -> str:
    """Return the GPU, or the number of CPU threads if known, and the precision."""
    threads = row.get("threads", row["environment"].get("threads"))
    gpu = row["environment"]["gpu"] if row.get("device") != "cpu" else None
    return f"{gpu or (f'{threads} CPU threads' if threads else 'CPU')}, {row['precision']}"


def _extra_peak(peaks: Mapping[str, int]) -> str | None:
    return f"{(peaks['score'] - peaks['plain']) / 2**20:+,.1f}" if peaks["score"] else None


def _floors(values: Values) -> str:
    """Explain a table of speeds: what multiply-adds promise, and operations of a batch in the last rows if counted."""
    counts = ""
    for value in values.values():
        last = value["rows"][-1]
        if "operations" in last:
            same = [row for row in value["rows"] if all(row[key] == last[key] for key in ("beam", "batch_size"))]
            counts = f" Operations of a batch with beam {last['beam']}, unpruned and then as in the columns: "
            counts += ", ".join(f"{row['operations']:,}" for row in same) + "."
    _, *models = value["models"].items()
    floors = ", ".join(f"{name} {model['floor_speed']:.2f}" for name, model in models)
    return (
        "Speed against the unpruned model: median (min-max) of interleaved rounds. By multiply-adds: " + floors + "."
    ) + counts


_DEVICE = Column("device", form=where)
#: the same where the number of threads says nothing
_WITHOUT_THREADS = Column("device", form=lambda row: where(row.new_child({"threads": None})))
_ROUNDS = "Median (min-max) of {rounds} interleaved rounds."

TRAIN = Described(
    [
        _DEVICE,
        Column("model", "@sides"),
        Column("ms/update", "ms_per_update", ",.1f"),
        Column("words/s", "words_per_second", ",.0f"),
        Column("speed (stock = 1)", "speed_to_stock", ",.2f"),
        Column("speed (gated = 1)", "speed_to_gated", ",.2f"),
        Column("speed (graphs = 1)", "speed_to_gated-graphs", ",.2f"),
        Column("operations", "operations_an_update", ","),
        Column("the GPU works, ms", "gpu_ms_per_update", ",.1f"),
        Column("median update, ms", "median_update_ms", ",.1f"),
        Column("stalled in an epoch, s", "stalled_seconds", ",.2f"),
        Column("validation, s", "validation_seconds", ",.2f"),
        Column("first two epochs, s", "first_epochs_seconds", ",.2f"),
        Column("measured", "ms_per_update.runs", "d"),
    ],
    rows="sides",
    align="ll",
    note="Median (min-max) of what was measured: rounds of updates, or later epochs of whole trainings.",
)


def _template(row: Row) -> str | None:
    return f"{row['template']['median']:.1f}" if row["start"] == "fork" else None


START = Described(
    [
        _WITHOUT_THREADS,  # processes have one
        Column("before the first", "job", lambda job: {"training": "update"}.get(job, "translation")),
        Column("process", "start", lambda start: {"own": "of its own"}.get(start, start)),
        Column("imports", "imports", ".2f"),
        Column("settings", "settings", ".2f"),
        Column("model", "model", ".2f"),
        Column("data, device, optimizer", "data", ".2f"),
        Column("CPU seconds", "total", ".2f"),
        Column("template, once", form=_template),
    ],
    rows="rows",
    align="lll",
    note="CPU seconds of one process, median (min-max) of {rounds} rounds; {arch} on the embedded corpus. Template: "
    "what it takes once for all forks of a study.",
)

HOST = Described(
    [Column("side", "side"), Column("the GPU waits, ms", "waits", ".2f"), Column("the GPU works, ms", "works", ".2f")],
    rows="rows",
    align="l",
    note="The host's work in an update on one CPU core: median (min-max) of {rounds} rounds' medians over {updates} "
    "updates.",
)

SCORE = Described(
    [
        _DEVICE,
        Column("seconds", "seconds.score", ",.2f"),
        Column("time / plain", "time_to_plain", ",.2f"),
        Column("time / stock", "time_to_stock", ",.2f"),
        Column("extra peak MiB", "peak_bytes", _extra_peak),
        Column("gates", "gates", lambda gates: f"{gates['layers']} x {gates['bytes_per_layer'] / 1024:.1f} KiB"),
    ],
    note=_ROUNDS,
)

BOOTSTRAP = Described(
    [
        Column("systems", "systems"),
        Column("headprune compare, all, s", "ours_seconds_all_systems", ",.2f"),
        Column("compare-mt, one pair, s", "compare_mt_seconds_per_pair", ",.2f"),
        Column("compare-mt, all pairs (extrapolated), s", "compare_mt_seconds_all_pairs_extrapolated", ",.0f"),
        Column("times faster (extrapolated)", "times_faster_extrapolated", ",.0f"),
    ],
    align="r",
    note="{sentences} sentences, {resamples} resamples, {environment[cpus]} CPUs; median (min-max) of {repeats} "
    "repeats.",
)


def _errors(found: Mapping[str, Any]) -> str:
    low, high = (100 * end for end in found["ci"])
    return f"{100 * found['share']:.1f}% [{low:.1f}, {high:.1f}]"


#: What type_1_errors.py found; the columns are the levels.
TYPE_1_ERRORS = Described(
    [
        Column("test", "test"),
        Column("trainings", "trainings"),
        Column("at 5%", form=lambda row: _errors(row["0.05"])),
        Column("at 1%", form=lambda row: _errors(row["0.01"])),
    ],
    rows="rows",
    align="ll",
    note="Share of {rows[0][trials]} trials without a difference that the test rejects, with its exact 95% interval; "
    "of bootstraps {sentences} sentences, {resamples} resamples.",
)

SWEEP = Described(
    [
        Column("epochs", "checkpoints", lambda checkpoints: len(checkpoints)),
        Column("sweep, s", "seconds.sweep", ",.1f"),
        Column("separate curves, s", "seconds.curves", ",.1f"),
        Column("sweep / curves", "sweep_to_curves", ",.2f"),
    ],
    align="r",
    note=_ROUNDS,
)

FIND = Described(
    [
        Column("models", "models", len),
        Column("searches", "searches", len),
        Column("masks", "searches", lambda found: sum(search["cells"] for search in found)),
        Column("seconds", "seconds", ",.1f"),
    ],
    align="r",
    note="Median (min-max) of {rounds} runs of the whole command.",
)

ABLATION = Described(
    [
        _WITHOUT_THREADS,  # the check runs on few sentences
        Column("masks x sentences", form=lambda row: f"{row['masks']} x {row['sentences']}"),
        Column("in one batch, s", "seconds.many", ",.1f"),
        Column("one by one, s", "seconds.loop", ",.1f"),
        Column("faster", "speedup", ",.1f"),
        Column("floor, s", "floor_seconds", ".1f"),
        Column("equal", "identical_hypotheses", ".3%"),
        Column("equal on control masks", "control_many_identical_hypotheses", ".3%"),
        Column("one by one twice", "control_identical_hypotheses", ".3%"),
        Column("BLEU differs by", "largest_bleu_difference", ".3f"),
    ],
    note="Beam {beam}; median (min-max) of {rounds} rounds; floor: its arithmetic at the speed of one large matrix "
    "product; equal: translations that are the same on both sides; one by one twice: the same for the loop at two "
    "batch sizes, on the control masks; BLEU differs by: at most, over the masks.",
)

FINETUNE = Described(
    [
        _DEVICE,
        Column("task", "task"),
        Column("loop", "@sides"),
        Column("examples/s", "examples_per_second", ",.0f"),
        Column("speed", "speed_to_huggingface", ",.2f"),
    ],
    rows="sides",
    align="lll",
    note="The same batches; median (min-max) of {rounds} interleaved rounds.",
)

#: Results of ``headprune bench`` side by side: a column for each model but the first.
SPEED = replace(
    TIMES,
    columns=[_DEVICE, *TIMES.columns[1:3], replace(TIMES.columns[-1], title="", over=True)],
    across=TIMES.columns[0],
    only=lambda row: row["model"] != next(iter(row["models"])),
    order=lambda row: (where(row), row["beam"] or 0, row["batch_size"] or math.inf),
    note=_floors,
)
