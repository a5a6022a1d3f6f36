"""Compare methods over trainings:  over_trainings.py COMPARISON.json --against METHOD [--margin BLEU] [-o OUT.json]

COMPARISON.json is what headprune compare-pruners wrote. The unit is a training (a seed): samplings of it (options
order=N and mask=N) are averaged first, and a training without all of them is left out. Every method is compared with
METHOD over the seeds that both have (paired t-test, 95% interval; Holm's correction over all rows): at every number of
heads, and in the mean over those that all methods have. With --margin, p_equivalent is that of two one-sided tests
(TOST): below .05 they are the same within it.
"""

import argparse
import re
import sys
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from statistics import mean
from typing import Any

from fairseq_headprune.evaluation.p_values import corrected, p_number
from fairseq_headprune.evaluation.trainings import paired, spread
from fairseq_headprune.files import read_json, sha256, write_json
from fairseq_headprune.jobs.methods import in_order
from fairseq_headprune.provenance import script_environment

#: heads kept, or None in the mean over all -> seed -> score
Scores = dict[int | None, dict[int, float]]


def by_method(rows: list[dict[str, Any]]) -> dict[str, Scores]:
    """Return method (without the options that number its samplings) -> scores."""
    drawn: dict[str, Any] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for row in rows:
        method = re.sub(r"\+(order|mask)=\d+", "", row["method"])
        drawn[method][row["count"]][row["seed"]].append(row["score"])
    found: dict[str, Scores] = {}
    for method, of_count in drawn.items():
        found[method] = {count: _averaged(f"{method}, {count} heads", of) for count, of in of_count.items()}
    counts = [set(scores) for scores in found.values() if None not in scores]
    shared = set.intersection(*counts) if counts else set()
    for scores in found.values():
        if None not in scores and shared:
            seeds = set.intersection(*(set(scores[count]) for count in shared))
            scores[None] = {seed: mean(scores[count][seed] for count in shared) for seed in sorted(seeds)}
    return found


def _averaged(name: str, drawn: dict[int, list[float]]) -> dict[int, float]:
    """Return seed -> mean over its samplings; seeds that lack some are left out, and told."""
    whole = max(map(len, drawn.values()))
    left = [str(seed) for seed, scores in drawn.items() if len(scores) < whole]
    if left:
        print(f"{name}: left out are trainings without all {whole} samplings: {', '.join(left)}", file=sys.stderr)
    return {seed: mean(scores) for seed, scores in drawn.items() if len(scores) == whole}


def compare(rows: list[dict[str, Any]], against: str, margin: float | None) -> list[dict[str, Any]]:
    """Return a row for every method and number of heads (None: the mean over all).

    Raises:
        ValueError: the method is not among those compared.
    """
    methods = by_method(rows)
    if against not in methods:
        raise ValueError(f"--against {against}: compared are {', '.join(methods)}")
    base, result, differences = methods[against], [], []
    for method in in_order(methods):
        for count, scores in sorted(methods[method].items(), key=lambda item: -(item[0] or 0)):
            # A method that prunes nothing is compared at every number of heads.
            other = base.get(count) or (base.get(None, {}) if len(base) == 1 else {})
            result.append({"method": method, "heads": count, **asdict(spread(list(scores.values())))})
            differences.append(paired(other, scores, margin) if method != against else None)
    found = iter(corrected([difference for difference in differences if difference is not None]))
    for row, difference in zip(result, differences, strict=True):
        row["difference"] = None if difference is None else asdict(next(found))
    return result


def line(row: dict[str, Any]) -> str:
    """Return a row as text."""
    heads = "all" if row["heads"] is None else row["heads"]
    deviation = "" if row["sd"] is None else f"sd {row['sd']:.2f}, "
    text = f"{row['method']:40} {heads:>4}  {row['mean']:6.2f} ({deviation}n {row['n']})"
    found = row["difference"]
    if found is None or found["ci"] is None:
        return text
    text += f"  {found['mean']:+.2f} ({found['ci'][0]:+.2f} to {found['ci'][1]:+.2f}), p {p_number(found['p_holm'])}"
    return text + ("" if found["p_equivalent"] is None else f", equivalent: p {p_number(found['p_equivalent'])}")


def main() -> None:
    """Compare, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("comparison", type=Path)
    parser.add_argument("--against", required=True, metavar="METHOD")
    parser.add_argument("--margin", type=float)
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    value = read_json(args.comparison)
    rows = compare(value["rows"], args.against, args.margin)
    print("\n".join(map(line, rows)))
    if args.output:
        of = {args.comparison.name: sha256(args.comparison)}
        facts = {"of": of, "split": value["split"], "against": args.against, "margin": args.margin}
        write_json(args.output, {**facts, "rows": rows, "environment": script_environment()})


if __name__ == "__main__":
    main()
