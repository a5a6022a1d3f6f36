"""Time ``headprune compare``'s bootstrap and compare-mt's on the same systems, sentences and resamples.

Our time covers all systems at once, from text to p-values (including tokenisation). compare-mt compares two systems
at a time and takes seconds per pair: it is timed on a few pairs, on text tokenised beforehand (in its favour), and
the time for all pairs is extrapolated and labelled as such.
"""

import argparse
import random
import statistics
import sys
from pathlib import Path

import script_flags
from benchmarks import command, environment, seconds, spread
from shown import BOOTSTRAP, tell

from fairseq_headprune.evaluation.compare_mt import SAMPLE_FRACTION, compare_mt_bootstrap
from fairseq_headprune.evaluation.significance import paired_bootstrap
from fairseq_headprune.evaluation.statistics import bleu_tokeniser
from fairseq_headprune.files import read_lines, write_json


def main() -> None:
    """Run the benchmark and print its JSON."""
    args = _arguments()
    chance = random.Random(args.seed)
    references = _references(args, chance)
    systems = {f"system {number}": [_damage(line, chance) for line in references] for number in range(args.systems)}
    _warm_up()
    ours, theirs = [], []
    for repeat in range(args.repeats):
        ours.append(seconds(lambda: paired_bootstrap("bleu", references, systems, args.resamples, args.seed)))
        print(f"repeat {repeat + 1}: ours {ours[-1]:.2f} s for {args.systems} systems", file=sys.stderr)
        theirs += _time_pairs(args, references, systems)
    pairs = args.systems - 1
    result = {
        "command": command(),
        "systems": args.systems,
        "sentences": len(references),
        "resamples": args.resamples,
        "repeats": args.repeats,
        "text": Path(args.text).name if args.text else "generated",
        "seed": args.seed,
        "ours_seconds_all_systems": spread(ours),
        "compare_mt_seconds_per_pair": spread(theirs),
        "compare_mt_pairs_timed": args.pairs,
        "compare_mt_sample_fraction": args.sample_fraction,
        "compare_mt_seconds_all_pairs_extrapolated": pairs * statistics.median(theirs),
        "times_faster_extrapolated": pairs * statistics.median(theirs) / statistics.median(ours),
        "environment": environment("numpy", "sacrebleu", "compare-mt"),
    }
    if args.output:
        write_json(args.output, result)
    tell(BOOTSTRAP, result)


def _arguments() -> argparse.Namespace:
    parser = script_flags.new_parser(__doc__)
    parser.add_argument("--text", help="a text file whose first lines are the references; generated when left away")
    parser.add_argument("--systems", type=int, default=145, help="number of systems, the baseline included")
    parser.add_argument("--sentences", type=int, default=1000, help="number of sentences")
    parser.add_argument("--resamples", type=int, default=1000, help="number of resamples")
    parser.add_argument("--pairs", type=int, default=2, help="pairs that compare-mt is timed on, in every repeat")
    parser.add_argument(
        "--sample-fraction", type=float, default=SAMPLE_FRACTION, help="size of compare-mt's resamples; ours have all"
    )
    parser.add_argument("--repeats", type=int, default=3, help="repeats of both sides, in turn")
    parser.add_argument("--seed", type=int, default=1, help="seed of the systems and of the resamples")
    parser.add_argument("--output", help="write the result to this JSON file")
    args = parser.parse_args()
    script_flags.check(args, "repeats", "pairs", "sentences", "resamples")
    if args.pairs >= args.systems:
        raise ValueError(f"--pairs {args.pairs}: it must be less than --systems, {args.systems}")
    return args


def _references(args: argparse.Namespace, chance: random.Random) -> list[str]:
    if args.text:
        lines = [line for line in read_lines(args.text) if line.strip()][: args.sentences]
        if len(lines) < args.sentences:
            raise ValueError(f"{args.text}: {len(lines)} sentences, --sentences asks for {args.sentences}")
        return lines
    words = ["".join(chance.choices("abcdefghijklmnoprstuw", k=chance.randint(2, 9))) for _ in range(5000)]
    return [" ".join(chance.choices(words, k=chance.randint(6, 30))) + "." for _ in range(args.sentences)]


def _damage(sentence: str, chance: random.Random) -> str:
    # Drop one word in ten, and swap one pair of neighbours.
    words = [word for word in sentence.split() if chance.random() > 0.1] or sentence.split()[:1]
    if len(words) > 1:
        place = chance.randrange(len(words) - 1)
        words[place], words[place + 1] = words[place + 1], words[place]
    return " ".join(words)


def _time_pairs(args: argparse.Namespace, references: list[str], systems: dict[str, list[str]]) -> list[float]:
    tokens = bleu_tokeniser("13a")
    expected = [tokens(line) for line in references]
    baseline, *others = ([tokens(line) for line in lines] for lines in list(systems.values())[: args.pairs + 1])
    taken = []
    for other in others:
        run = (expected, baseline, other, args.resamples, args.seed, args.sample_fraction)
        taken.append(seconds(lambda run=run: compare_mt_bootstrap(*run)))
        print(f"compare-mt {taken[-1]:.2f} s a pair", file=sys.stderr)
    return taken


def _warm_up() -> None:
    # The first call on either side pays for imports, which are not part of the comparison.
    paired_bootstrap("bleu", ["a b", "c d"], {"system": ["a b", "c d"]}, resamples=1)
    compare_mt_bootstrap([["a"], ["b"]], [["a"], ["b"]], [["a"], ["b"]], resamples=1)


if __name__ == "__main__":
    script_flags.run(main)
