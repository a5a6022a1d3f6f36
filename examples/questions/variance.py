"""How much of a score's variance is the mask's, and how much the seed's:  variance.py COMPARISON.json [-o OUT.json]

For every method with options mask=N: masks x seeds, one training each, by a two-way analysis of variance with random
effects. learned-start and its variants have as many heads in every component under masks of one number N: for all of
them together the mask's variance is divided into that of these numbers of heads, and that of the heads with the same
numbers (nested). The components are those of the expected mean squares (Searle, Casella and McCulloch 1992, §4.2), at
least 0; p is that of the F test of mean squares, None where they do not vary.
"""

import argparse
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from fairseq_headprune.evaluation.p_values import positive
from fairseq_headprune.files import read_json, sha256, write_json
from fairseq_headprune.jobs.methods import base
from fairseq_headprune.provenance import script_environment


def shares(scores: np.ndarray) -> dict[str, float | None]:
    """Return the variances of mask, seed and rest in scores (masks, seeds), two shares, and the mask's p."""
    (masks, seeds), found = scores.shape, _variances(scores)
    total = sum(found.values()) or 1.0
    p = _p(seeds * scores.mean(axis=1).var(ddof=1), found["rest"], masks - 1, (masks - 1) * (seeds - 1))
    return {**found, "share_mask": found["mask"] / total, "share_seed": found["seed"] / total, "p_mask": p}


def nested(scores: np.ndarray) -> dict[str, float | None]:
    """Return the same for scores (numbers, sets, seeds), where the mask's variance is that of numbers and that of sets.

    Args:
        scores: numbers of heads in the components, sets of heads with these numbers, and seeds.
    """
    numbers, sets, seeds = scores.shape
    found = _variances(scores.reshape(-1, seeds))
    among = sets * seeds * scores.mean(axis=(1, 2)).var(ddof=1)
    within = seeds * scores.mean(axis=2).var(axis=1, ddof=1).mean()
    parts = {"numbers": (among - within) / (sets * seeds), "sets": (within - found["rest"]) / seeds}
    parts = {name: max(0.0, float(value)) for name, value in parts.items()}
    found = {**found, "mask": sum(parts.values())}
    total = sum(found.values()) or 1.0
    freedom = numbers * (sets - 1)
    return {
        **found,
        **{f"share_{name}": value / total for name, value in (found | parts).items() if name != "rest"},
        "p_numbers": _p(among, within, numbers - 1, freedom),
        "p_sets": _p(within, found["rest"], freedom, (numbers * sets - 1) * (seeds - 1)),
    }


def _variances(scores: np.ndarray) -> dict[str, float]:
    masks, seeds = scores.shape
    by_mask, by_seed, whole = scores.mean(axis=1), scores.mean(axis=0), scores.mean()
    rest = ((scores - by_mask[:, None] - by_seed[None] + whole) ** 2).sum() / ((masks - 1) * (seeds - 1))
    mask = max(0.0, float(by_mask.var(ddof=1) - rest / seeds))
    seed = max(0.0, float(by_seed.var(ddof=1) - rest / masks))
    return {"mask": mask, "seed": seed, "rest": float(rest)}


def _p(among: float, within: float, *freedom: int) -> float | None:
    """Return the p of the F test of two mean squares."""
    from scipy.special import fdtrc

    return positive(float(fdtrc(*freedom, among / within))) if within > 0 else None


def tables(rows: list[dict[str, Any]]) -> dict[tuple[str, int], np.ndarray]:
    """Return method and number of heads -> scores (masks, seeds), where no training is missing."""
    found: dict[tuple[str, int], dict[tuple[int, int], float]] = defaultdict(dict)
    for row in rows:
        mask = re.search(r"\+mask=(\d+)", row["method"])
        if mask:
            method = row["method"].replace(mask.group(), "")
            found[method, row["count"]][int(mask.group(1)), row["seed"]] = row["score"]
    result = {}
    for key, cells in found.items():
        masks, seeds = (sorted({cell[axis] for cell in cells}) for axis in (0, 1))
        if len(cells) == len(masks) * len(seeds) and min(len(masks), len(seeds)) > 1:
            result[key] = np.array([[cells[mask, seed] for seed in seeds] for mask in masks])
    return result


def analysed(found: dict[tuple[str, int], np.ndarray]) -> list[dict[str, Any]]:
    """Return a row for each table, and one for all variants of a method together."""
    rows, together = [], defaultdict(list)
    for (method, heads), scores in sorted(found.items()):
        rows.append(
            {"method": method, "heads": heads, "masks": len(scores), "seeds": scores.shape[1], **shares(scores)}
        )
        together[base(method), heads].append(scores)
    for (method, heads), variants in sorted(together.items()):
        if len(variants) > 1 and len({scores.shape for scores in variants}) == 1:
            scores = np.stack(variants, axis=1)
            about = {"method": f"{method} and variants", "heads": heads, "masks": len(scores) * len(variants)}
            rows.append({**about, "seeds": scores.shape[2], **nested(scores)})
    return rows


def main() -> None:
    """Analyse, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("comparison", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    rows = analysed(tables(read_json(args.comparison)["rows"]))
    for row in rows:
        text = f"{row['share_mask']:.0%} mask, {row['share_seed']:.0%} seed ({row['masks']} x {row['seeds']} trainings)"
        if "share_numbers" in row:
            text += f"; {row['share_numbers']:.0%} numbers by component, {row['share_sets']:.0%} which heads"
        print(f"{row['method']:40} {row['heads']:>4}  {text}")
    if args.output:
        of = {args.comparison.name: sha256(args.comparison)}
        write_json(args.output, {"of": of, "rows": rows, "environment": script_environment()})


if __name__ == "__main__":
    main()
