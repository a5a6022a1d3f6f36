"""How much of a score's variance is the mask's, and how much the seed's:  variance.py COMPARISON.json [-o OUT.json]

For every method with options mask=N: masks x seeds, one training each, by a two-way analysis of variance with random
effects. The components are those of the expected mean squares (Searle, Casella and McCulloch 1992, §4.2), at least 0.
"""

import argparse
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from fairseq_headprune.files import read_json, sha256, write_json
from fairseq_headprune.provenance import script_environment


def shares(scores: np.ndarray) -> dict[str, float]:
    """Return the variances of mask, seed and rest in scores (masks, seeds), and the shares of mask and seed."""
    masks, seeds = scores.shape
    by_mask, by_seed, whole = scores.mean(axis=1), scores.mean(axis=0), scores.mean()
    rest = ((scores - by_mask[:, None] - by_seed[None] + whole) ** 2).sum() / ((masks - 1) * (seeds - 1))
    mask = max(0.0, float(by_mask.var(ddof=1) - rest / seeds))
    seed = max(0.0, float(by_seed.var(ddof=1) - rest / masks))
    total = mask + seed + float(rest) or 1.0
    return {"mask": mask, "seed": seed, "rest": float(rest), "share_mask": mask / total, "share_seed": seed / total}


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


def main() -> None:
    """Analyse, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("comparison", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    rows = [
        {"method": method, "heads": heads, "masks": len(scores), "seeds": scores.shape[1], **shares(scores)}
        for (method, heads), scores in sorted(tables(read_json(args.comparison)["rows"]).items())
    ]
    for row in rows:
        text = f"{row['share_mask']:.0%} mask, {row['share_seed']:.0%} seed ({row['masks']} x {row['seeds']} trainings)"
        print(f"{row['method']:40} {row['heads']:>4}  {text}")
    if args.output:
        of = {args.comparison.name: sha256(args.comparison)}
        write_json(args.output, {"of": of, "rows": rows, "environment": script_environment()})


if __name__ == "__main__":
    main()
