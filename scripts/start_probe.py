"""Run a job of a study until its first update or translation, and write its CPU seconds by part (bench_start.py).

``python -m start_probe training runs/NAME FILE.json``, or ``translating JOB.json FILE.json``.
"""

import os
import sys
import time
from typing import Any, NoReturn

_PARTS: dict[str, float] = {}
_FILE = sys.argv[-1]  # trainings change sys.argv


def _done(part: str) -> None:
    """Note the CPU seconds since the part before, of all threads; in a fork they count from the fork."""
    _PARTS[part] = time.process_time() - sum(_PARTS.values())


def _stop(*_: Any, **__: Any) -> NoReturn:
    from fairseq_headprune.files import write_json

    _done("data")
    write_json(_FILE, {**_PARTS, "total": sum(_PARTS.values())})
    os._exit(0)  # not as a process ends that has trained


def _training(place: str) -> None:
    import fairseq_cli.train
    from fairseq.trainer import Trainer

    from fairseq_headprune import plugin  # noqa: F401  (registers)
    from fairseq_headprune.jobs import train

    def noting(function: Any, part: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            _done(part)
            return function(*args, **kwargs)

        return call

    fairseq_cli.train.main = noting(fairseq_cli.train.main, "settings")
    Trainer.__init__ = noting(Trainer.__init__, "model")
    Trainer.train_step = _stop
    _done("imports")
    train.do(place)


def _translating(job: str) -> None:
    from fairseq_headprune import session  # noqa: F401  (with fairseq, which answers imports when it opens a model)
    from fairseq_headprune.files import read_json
    from fairseq_headprune.studies.pruners import answers

    parse, opened = session.convert_namespace_to_omegaconf, answers.open_model

    def settings(args: Any) -> Any:
        found = parse(args)
        _done("settings")
        return found

    def model(*args: Any) -> Any:
        found = opened(*args)
        _done("model")
        return found

    session.convert_namespace_to_omegaconf, answers.open_model = settings, model  # type: ignore[assignment]
    answers.answers_under = _stop  # type: ignore[assignment]
    _done("imports")
    answers.run(read_json(job))


if __name__ == "__main__":
    {"training": _training, "translating": _translating}[sys.argv[1]](sys.argv[2])
