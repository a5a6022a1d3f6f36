"""Compare the normalisers over trainings:  decide.py RESULTS

Reads what normalizers.sh left in RESULTS, one file a corpus, prints a table and writes decision.json. The score of a
normaliser on a model is the mean BLEU on valid over all numbers of heads; differences from --normalize layer are paired
by model, with a 95% interval (Student's t over models).
"""

import sys
from collections import defaultdict
from pathlib import Path
from statistics import mean, stdev

from scipy.stats import t

from fairseq_headprune.files import read_json, sha256, write_json


def compared(rows: list[dict]) -> list[dict]:
    """Return, for every method, its mean score over models and numbers of heads, and its difference from ``layer``."""
    scores: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row["count"] is not None:
            scores[row["method"]][row["seed"]].append(row["score"])
    means = {method: {seed: mean(found) for seed, found in of.items()} for method, of in scores.items()}
    result = []
    for method, of_seed in means.items():
        against = means.get("michel+layer" + ("+once" if method.endswith("+once") else ""), {})
        seeds = sorted(of_seed.keys() & against.keys())
        found = {"method": method, "seeds": sorted(of_seed), "score": mean(of_seed.values())}
        differences = [of_seed[seed] - against[seed] for seed in seeds]
        if len(seeds) > 1 and method.startswith("michel") and of_seed is not against:
            half = t.ppf(0.975, len(seeds) - 1) * stdev(differences) / len(seeds) ** 0.5
            middle = mean(differences)
            found |= {
                "difference": middle,
                "interval": [middle - half, middle + half],
                "better_on": sum(d > 0 for d in differences),
            }
        result.append(found)
    return sorted(result, key=lambda one: -one["score"])


def main() -> None:
    """Compare all corpora in the folder."""
    folder = Path(sys.argv[1])
    files = [path for path in sorted(folder.glob("*.json")) if path.name != "decision.json"]
    found = {path.stem: compared(read_json(path)["rows"]) for path in files}
    write_json(folder / "decision.json", {"of": {path.name: sha256(path) for path in files}, "corpora": found})
    for corpus, methods in found.items():
        print(f"{corpus}: mean BLEU on valid over all numbers of heads; difference from layer, paired by model")
        for one in methods:
            more = ""
            if "difference" in one:
                low, high = one["interval"]
                more = f"{one['difference']:+.2f} ({low:+.2f} to {high:+.2f}), "
                more += f"better on {one['better_on']} of {len(one['seeds'])}"
            print(f"  {one['method']:28} {one['score']:6.2f}  {more}")


main()
