"""Make the results of all examples on one machine with two GPUs, in less than an hour:  run_all.py [STEP…].

Wants what the examples' prepare.sh wrote, in examples/*/out, GLUE's folder as glue/out/data, and a Hugging Face folder
of BERT as glue/out/bert. Steps (steps.py) run side by side, each on its GPU, as soon as what they need is there; a step
that measures time has its GPU to itself. What is done is not done again; a step that fails stops those that need it and
no others. Results go to examples/*/results, logs to --logs.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from steps import STEPS, Step

HERE = Path(__file__).resolve().parent


class Runner:
    """Runs steps, each in a process group of its own.

    Args:
        steps: in order of preference.
        logs: gets NAME.log, and NAME.done when it has succeeded.
    """

    def __init__(self, steps: list[Step], logs: Path) -> None:
        self.logs = logs
        self.done = {step.name for step in STEPS + steps if (logs / f"{step.name}.done").exists()}
        self.waiting = [step for step in steps if step.name not in self.done]
        self.failed: list[str] = []
        self._running: dict[str, tuple[Step, subprocess.Popen, float]] = {}

    def run(self, limit: float) -> bool:
        """Run until all is done or failed, or for ``limit`` seconds; tell whether all is done."""
        self.logs.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        try:
            while (self.waiting or self._running) and time.monotonic() - began < limit:
                self._reap()
                self._drop_hopeless()
                while step := self.next():
                    self._start(step)
                time.sleep(0.1)
        finally:
            for _, process, _ in self._running.values():
                os.killpg(process.pid, signal.SIGTERM)
        return not self.waiting and not self._running and not self.failed

    def next(self) -> Step | None:
        """The first step that may start now; a quiet one that waits for its GPU keeps later ones from it."""
        busy = [step for step, _, _ in self._running.values()]
        kept: set[int | None] = {step.gpu for step in busy if step.quiet}
        used = {step.gpu for step in busy}
        for step in self.waiting:
            if not self.done.issuperset(step.needs) or any(self._ahead(name) for name in step.after):
                continue
            free = step.gpu is None or (step.gpu not in kept and not (step.quiet and step.gpu in used))
            if free:
                return step
            if step.quiet:
                kept.add(step.gpu)
        return None

    def _ahead(self, name: str) -> bool:
        """Tell whether a step is still to come or running."""
        return name in self._running or any(step.name == name for step in self.waiting)

    def _start(self, step: Step) -> None:
        self.waiting.remove(step)
        # A folder named by the caller's OUT would be taken by every script.
        settings = {name: value for name, value in os.environ.items() if name != "OUT"}
        if step.gpu is not None:
            settings["CUDA_VISIBLE_DEVICES"] = str(step.gpu)
        if step.quiet:
            # Multi-process service is for those that share a GPU.
            settings.pop("CUDA_MPS_PIPE_DIRECTORY", None)
        settings["PYTHON"] = sys.executable
        words = ["bash", "-euo", "pipefail", "-c", step.command]
        words = ["taskset", "-c", step.cores, *words] if step.cores and (os.cpu_count() or 1) >= 32 else words
        with open(self.logs / f"{step.name}.log", "w") as log:
            process = subprocess.Popen(
                words, cwd=HERE, env=settings, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._running[step.name] = step, process, time.monotonic()
        print(f"{step.name} starts", file=sys.stderr)

    def _reap(self) -> None:
        for name, (_, process, began) in list(self._running.items()):
            if process.poll() is None:
                continue
            del self._running[name]
            taken = time.monotonic() - began
            print(f"{name} {'done' if process.returncode == 0 else 'FAILED'} in {taken:.0f} s", file=sys.stderr)
            if process.returncode == 0:
                self.done.add(name)
                (self.logs / f"{name}.done").write_text(f"{taken:.0f}\n")
            else:
                self.failed.append(name)

    def _drop_hopeless(self) -> None:
        for step in list(self.waiting):
            missing = [need for need in step.needs if need in self.failed]
            if missing:
                print(f"{step.name} is left out: it needs {', '.join(missing)}", file=sys.stderr)
                self.waiting.remove(step)
                self.failed.append(step.name)


def main() -> int:
    """Run the steps that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [step.name for step in STEPS]
    parser.add_argument("steps", nargs="*", metavar="STEP", help=f"only these: {', '.join(names)}")
    parser.add_argument("--logs", type=Path, default=HERE / "multi30k" / "out" / "logs", help="(multi30k/out/logs)")
    parser.add_argument("--limit", type=float, default=7200, help="seconds after which it stops (7200)")
    args = parser.parse_args()
    unknown = [name for name in args.steps if name not in names]
    if unknown:
        parser.error(f"unknown step {', '.join(unknown)}; steps are {', '.join(names)}")
    chosen = [step for step in STEPS if not args.steps or step.name in args.steps]
    runner = Runner(chosen, args.logs)
    if runner.run(args.limit):
        return 0
    missing = [*(step.name for step in runner.waiting), *runner.failed]
    print(f"not done: {', '.join(missing) or 'what was stopped'}; see {args.logs}; run it again", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
