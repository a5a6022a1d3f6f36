"""Runs a comparison: trainings side by side, then masks and translations, then tests and tables."""

import json
import shlex
import sys
import time
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tqdm import tqdm

import fairseq_headprune
from fairseq_headprune.comparison.masks import random_mask
from fairseq_headprune.comparison.methods import AFTER_TRAINING, Training, random_mask_name, trainings, unpruned_name
from fairseq_headprune.files import read_json, write_json
from fairseq_headprune.heads import HeadMask
from fairseq_headprune.studies.side_by_side import Command, run_side_by_side

_USER_DIR = str(Path(fairseq_headprune.__path__[0]).resolve())
_KEEP_BEST_ONLY = ["--no-epoch-checkpoints", "--no-last-checkpoints", "--no-save-optimizer-state"]


class Driver:
    """One comparison in one working folder; what is done is not done again.

    Args of the namespace: ``data``, ``work``, ``methods``, ``counts``, ``seeds``, ``lambdas``, ``train_flags``,
    ``updates``, ``jobs``, ``split``, ``generate_flags``, ``step``, ``sentences``.
    """

    def __init__(self, args: Namespace) -> None:
        self.args, self.work = args, Path(args.work)
        self.trainings = trainings(args.methods, args.counts, args.seeds, args.lambdas, epoch_share=0.5)

    def command(self, training: Training) -> list[str]:
        """Return the command of a training."""
        words = [sys.executable, "-m", "fairseq_cli.train", self.args.data, "--user-dir", _USER_DIR]
        words += ["--task", "translation_headprune", *self.args.train_flags, "--seed", str(training.seed)]
        words += ["--max-update", str(self.args.updates), "--save-dir", str(self.folder(training.name))]
        flags = list(training.flags)
        if "--head-mask" in flags:
            place = flags.index("--head-mask") + 1
            flags[place] = str(self.work / flags[place])
        if training.needs:
            flags += ["--finetune-from-model", str(self.checkpoint(training.needs))]
        return [*words, *_KEEP_BEST_ONLY, *flags]

    def folder(self, name: str) -> Path:
        """Return the folder of a training."""
        return self.work / "runs" / name

    def checkpoint(self, name: str) -> Path:
        """Return the checkpoint of a training that is used: the best on the validation set, under its hard mask."""
        return self.folder(name) / "checkpoint_best.pt"

    def done(self, name: str) -> bool:
        """Whether a training has ended."""
        return (self.folder(name) / "done.json").exists()

    def train(self) -> None:
        """Train everything that is not trained; those first that others start from.

        Raises:
            RuntimeError: some trainings failed, after the others have ended.
        """
        for needy in (False, True):
            mine = [t for t in self.trainings if bool(t.needs) == needy and not self.done(t.name)]
            missing = [t.needs for t in mine if t.needs and not self.done(t.needs)]
            if missing:
                raise RuntimeError(f"{missing[0]} has not been trained, from which others start")
            self._run(mine)

    def _run(self, mine: list[Training]) -> None:
        began: dict[str, float] = {}
        commands = {t.name: self.command(t) for t in mine}
        jobs = [Command(name, words, self.work / "logs" / f"{name}.log") for name, words in commands.items()]
        bar = tqdm(total=len(jobs), desc="trainings", file=sys.stderr, disable=not jobs)
        with bar:
            for name in run_side_by_side(jobs, self.args.jobs, lambda n: began.__setitem__(n, time.monotonic())):
                seconds = round(time.monotonic() - began[name], 1)
                command = shlex.join(commands[name][1:]).replace(_USER_DIR, "fairseq_headprune")
                write_json(self.folder(name) / "done.json", {"command": command, "train_seconds": seconds})
                bar.update()

    def write_random_masks(self, shape: dict[str, list[int]]) -> None:
        """Write the masks of ``random-start``."""
        for training in self.trainings:
            if training.method == "random-start":
                path = self.work / random_mask_name(training.count or 0, training.seed)
                path.parent.mkdir(parents=True, exist_ok=True)
                mask = random_mask(shape, training.count or 0, training.seed)
                HeadMask(mask.heads, {"random": {"heads": training.count, "seed": training.seed}}).save(path)

    def _rows(self) -> Iterable[dict[str, Any]]:
        """What is to be translated: one row a method, number of heads and seed."""
        for training in self.trainings:
            if self.done(training.name):
                base = {"method": training.method, "seed": training.seed, "count": training.count}
                facts = read_json(self.folder(training.name) / "done.json")
                yield {**base, **facts, "needs": training.needs, "checkpoint": str(self.checkpoint(training.name))}
        for seed in self.args.seeds:
            name = unpruned_name(seed)
            if not self.done(name):
                continue
            for method in AFTER_TRAINING:
                for count in self.args.counts if method in self.args.methods else ():
                    base = {"method": method, "seed": seed, "count": count}
                    yield {**base, "needs": name, "checkpoint": str(self.checkpoint(name))}

    def translate(self) -> list[dict[str, Any]]:
        """Translate what is trained and not translated yet; return all rows."""
        finished = {_key(row): row for row in self._translated()}
        waiting = [row for row in self._rows() if _key(row) not in finished]
        groups = self._groups(waiting)
        jobs = []
        for number, rows in enumerate(groups):
            name = f"translate-{len(finished)}-{number}"
            spec = {
                "generate": [self.args.data, *self.args.generate_flags],
                "split": self.args.split,
                "rows": rows,
                "step": self.args.step,
                "sentences": self.args.sentences,
                "folder": str(self.work / "hyps"),
                "product": str(self.work / "rows" / f"{name}.json"),
            }
            for folder in ("hyps", "rows", "jobs"):
                (self.work / folder).mkdir(parents=True, exist_ok=True)
            write_json(self.work / "jobs" / f"{name}.json", spec)
            words = [sys.executable, "-m", "fairseq_headprune.comparison.translate"]
            words.append(str(self.work / "jobs" / f"{name}.json"))
            jobs.append(Command(name, words, self.work / "logs" / f"{name}.log"))
        for name in run_side_by_side(jobs, self.args.jobs, lambda name: None):
            print(f"{name} done", file=sys.stderr)
        return self._translated()

    def _groups(self, rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
        """Share the rows among processes: the methods that score a model by themselves, the others evenly."""
        alone: dict[tuple, list] = {}
        rest = []
        for row in rows:
            if row["method"] in AFTER_TRAINING:
                alone.setdefault((row["method"], row["seed"]), []).append(row)
            else:
                rest.append(row)
        slots = max(1, self.args.jobs - len(alone))
        return [*alone.values(), *(part for part in (rest[k::slots] for k in range(slots)) if part)]

    def _translated(self) -> list[dict[str, Any]]:
        found = [row for path in sorted((self.work / "rows").glob("*.json")) for row in read_json(path)["rows"]]
        return sorted(found, key=lambda row: (row["method"], row["seed"], -(row["count"] or 0)))


def _key(row: dict[str, Any]) -> str:
    return json.dumps([row["method"], row["seed"], row["count"]])
