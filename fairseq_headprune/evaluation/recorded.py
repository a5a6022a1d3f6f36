"""The sentence statistics behind p values, small enough for a result file, so that every p can be computed again."""

import base64
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fairseq_headprune.evaluation.evaluator import AnswerMetric
from fairseq_headprune.evaluation.significance import bootstrap_statistics

#: recipe of a metric -> its score of sums of statistics
Score = Callable[[Mapping[str, Any]], Callable[[np.ndarray], np.ndarray]]


def packed(
    metric: AnswerMetric,
    statistics: Mapping[str, np.ndarray],
    against: Mapping[str, str],
    resamples: int,
    seed: int,
    fraction: float = 1.0,
) -> dict[str, Any]:
    """Return the statistics of systems and the settings of their tests as JSON values.

    Integers are stored as differences from the system compared with (most masks change few sentences), column by
    column, compressed by zlib, in base64.

    Args:
        statistics: system -> (sentences, stats).
        against: system -> the one it is compared with; one that is missing is compared with nothing.
        fraction: size of a resample as a share of the sentences.
    """
    whole = all(np.array_equal(rows, np.rint(rows)) for rows in statistics.values())
    dtype = np.dtype("<i4" if whole else "<f8")
    rows = {name: np.asarray(values, dtype=dtype) for name, values in statistics.items()}
    systems = {}
    for name, values in rows.items():
        base = against.get(name)
        change = values - rows[base] if whole and base not in (None, name) else values
        data = zlib.compress(np.ascontiguousarray(change.T).tobytes(), 9)
        systems[name] = {"against": base, "data": base64.b64encode(data).decode("ascii")}
    shape = list(next(iter(rows.values())).shape)
    settings = {"resamples": resamples, "seed": seed, "sample_fraction": fraction}
    return {
        "recipe": dict(metric.recipe),
        "signature": metric.signature,
        **settings,
        "shape": shape,
        "dtype": dtype.str,
        "systems": systems,
    }


def unpacked(record: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return the statistics of each system, (sentences, stats).

    Raises:
        ValueError: a system's data is damaged, or the one it is compared with is missing.
    """
    rows, columns = record["shape"]
    dtype, stored = np.dtype(record["dtype"]), {}
    for name, system in record["systems"].items():
        try:
            data = zlib.decompress(base64.b64decode(system["data"], validate=True))
            stored[name] = np.frombuffer(data, dtype=dtype).reshape(columns, rows).T
        except (ValueError, zlib.error) as error:
            raise ValueError(f"the statistics of {name} are damaged ({error})") from error
    if dtype.kind == "f":
        return stored
    against = {name: system["against"] for name, system in record["systems"].items()}
    return {name: _whole(stored, against, name) for name in stored}


def _whole(stored: Mapping[str, np.ndarray], against: Mapping[str, str | None], name: str) -> np.ndarray:
    """Return the statistics of a system that is stored as a difference, perhaps from another difference."""
    base = against[name]
    if base is None or base == name:
        return stored[name]
    if base not in stored:
        raise ValueError(f"the statistics of {base}, which {name} is compared with, are missing")
    return stored[name] + _whole(stored, against, base)


def recomputed(record: Mapping[str, Any], score: Score) -> dict[str, dict[str, Any]]:
    """Return ``score``, ``base`` (score of the system compared with) and ``p`` of each system that is compared.

    Args:
        score: returns a metric's score by its recipe.
    """
    statistics, scored, found = unpacked(record), score(record["recipe"]), {}
    for name, system in record["systems"].items():
        base = system["against"]
        if base not in (None, name):
            pair = {"base": statistics[base], "mine": statistics[name]}
            first, second = bootstrap_statistics(
                scored, pair, record["resamples"], record["seed"], sample_fraction=record["sample_fraction"]
            )
            found[name] = {"score": second.score, "base": first.score, "p": second.p}
    return found
