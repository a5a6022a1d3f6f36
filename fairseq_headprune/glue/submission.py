"""Output files of an evaluation: one per split, and those that GLUE's server expects for the unlabelled test sets."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fairseq_headprune.files import PathLike, check_output, write_text
from fairseq_headprune.glue.catalogue import GlueTask


def submission_paths(task: GlueTask, path: PathLike) -> dict[str, Path]:
    """Return the file of each test set: ``path``, or GLUE's file names if it is a folder.

    Raises:
        ValueError: a single file for a task with two test sets.
        FileNotFoundError: a file in a folder that is not there.
    """
    names = {stem: task.submission.get(stem, f"{task.name}.tsv") for stem in task.test}
    return output_paths("--submission", path, names, f"{task.name} has {len(names)} test sets")


def write_submission(path: PathLike, task: GlueTask, numbers: Sequence[int], predicted: np.ndarray) -> None:
    """Write predictions, one per line, in the order of the test file; scores are clipped to GLUE's range, 0 to 5.

    Args:
        numbers: line numbers of the examples in the file, from 0.
        predicted: class numbers, or scores, (examples,).
    """
    if task.is_regression:
        answers = [f"{value:.3f}" for value in np.clip(predicted, 0.0, 5.0)]
    else:
        answers = [task.labels[int(number)] for number in predicted]
    lines = [f"{number}\t{answer}\n" for number, answer in zip(numbers, answers, strict=True)]
    write_text(path, "index\tprediction\n" + "".join(lines))


def output_paths(flag: str, path: PathLike, names: Mapping[str, str], what: str) -> dict[str, Path]:
    """Return the file of each split: ``path``, or the split's own file name if it is a folder.

    Args:
        flag: the flag of the path, for the message.
        names: split -> file name in a folder.
        what: start of the message if there are several splits, such as "MNLI has 2 test sets".

    Raises:
        ValueError: a single file for several splits, or a path that is not a file.
        FileNotFoundError: a file in a folder that is not there.
    """
    path = Path(path)
    if path.is_dir():
        return {split: path / name for split, name in names.items()}
    if len(names) > 1:
        raise ValueError(f"{flag} {path}: {what}; name an existing folder")
    check_output(path)
    return {split: path for split in names}
