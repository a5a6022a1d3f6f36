"""How the scores of trained models, and of what was removed from them, are shown in the manual's tables."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import benchmarks  # noqa: F401  (puts the repository's root on sys.path)

from fairseq_headprune.evaluation.trainings import spread, welch
from fairseq_headprune.report.described import Column, Described, Row
from fairseq_headprune.report.marks import difference_text, p_said, small
from fairseq_headprune.report.tables import mean_and_sd

_TEST_SETS = ("test2016", "test2017", "mscoco2017")


def _mean(numbers: Sequence[float]) -> str:
    """Return mean ± standard deviation (number)."""
    found = spread(numbers)
    return f"{mean_and_sd(found.mean, found.sd)} ({found.n})"


def _counted(row: Row) -> str:
    """Return parameters in millions and their change by pruning."""
    before, after = row["parameters"]["before"], row["parameters"]["after"]
    return f"{after / 1e6:.1f} M ({after / before - 1:+.0%})"


def _machines(values: Mapping[str, Any]) -> str:
    places = [
        f"{value['environment']['gpu'] or 'CPU'}, torch {value['environment']['torch']}" for value in values.values()
    ]
    return "; ".join(dict.fromkeys(places))


def _trained(values: Mapping[str, Any]) -> str:
    (value,) = values.values()
    sides = [[run for run in value["runs"] if ("gated" in run["arch"]) is gated] for gated in (False, True)]
    texts = []
    for name in _TEST_SETS:
        found = welch(*([run[name]["bleu"] for run in side] for side in sides))
        assert found.mean is not None
        texts.append(f"{name} {difference_text(found.mean, found.ci)}, {p_said(small(found.p))}")
    signature, python = value["runs"][0]["test2016"]["signature"], value["environment"]["python"]
    return (
        f"BLEU, {signature}; {_machines(values)}, Python {python}. Gated minus stock, means with 95% intervals, "
        f"Welch's t-test over seeds: {'; '.join(texts)}."
    )


TRAINED = Described(
    [
        Column("architecture", "arch"),
        Column("seed", "seed"),
        *(Column(name, f"{name}.bleu", ".2f") for name in _TEST_SETS),
        Column("best epoch", "best_epoch"),
        Column("valid loss", "valid_loss", ".3f"),
    ],
    rows="runs",
)

TRAINED_MEANS = Described(
    [
        Column("architecture", "arch"),
        *(Column(name, f"{name}.bleu", _mean, over=True) for name in _TEST_SETS),
        Column("valid loss", "valid_loss", lambda found: f"{statistics.mean(found):.3f}", over=True),
    ],
    rows="runs",
    note=_trained,
)

SLIM = Described(
    [
        Column("", "commands.unpruned", lambda command: "fp16" if "--fp16" in command else "fp32"),
        Column("removed", "percent", lambda percent: f"{percent}%"),
        Column("heads kept", "config", lambda config: " ".join(f"{part}={kept}" for part, kept in config.items())),
        Column("parameters", form=_counted),
        Column("file", "bytes.after", lambda size: f"{size / 2**20:.0f} MiB"),
        Column("BLEU unpruned", "bleu_unpruned", ".2f"),
        Column("masked", "bleu_masked", ".2f"),
        Column("slim", "bleu_slim", ".2f"),
        Column("equal translations", form=lambda row: f"{row['identical']} of {row['sentences']}"),
    ],
    rows="rows",
    align="lll",
    note=lambda values: f"BLEU, {next(iter(values.values()))['signature']}; {_machines(values)}.",
)

#: What ``headprune evaluate`` (tuned-TASK-SEED.json) and reference.py (reference-TASK-SEED.json) found.
FINE_TUNED = Described(
    [
        Column("task", "task"),
        Column("metric", "metric"),
        Column("bert_gated", "results.0.scores.score", _mean, over=True),
        Column("transformers", "best.score", _mean, over=True),
    ],
    align="ll",
    note="Best epoch of three on the development set: mean ± standard deviation (number of seeds).",
)
