"""The studies by verb, and reading stored studies."""

from fairseq_headprune.files import PathLike
from fairseq_headprune.report.document import Document
from fairseq_headprune.studies.ablate import Ablate
from fairseq_headprune.studies.examples import with_examples
from fairseq_headprune.studies.folder import StudyFolder
from fairseq_headprune.studies.keep_one import KeepOne
from fairseq_headprune.studies.lottery import LotteryFind
from fairseq_headprune.studies.lottery_retrain import LotteryRetrain
from fairseq_headprune.studies.prune import Prune
from fairseq_headprune.studies.random_study import RandomStudy
from fairseq_headprune.studies.study import Study
from fairseq_headprune.studies.sweep import Sweep

_STUDIES: tuple[type[Study], ...] = (Ablate, KeepOne, Prune, Sweep, RandomStudy, LotteryFind, LotteryRetrain)

#: verb -> its study
KINDS: dict[str, type[Study]] = {study.name: study for study in _STUDIES}


def read_study(path: PathLike) -> Study:
    """Open a stored study, without its model.

    Raises:
        FileNotFoundError, ValueError: the folder holds no study, or one of an unknown verb.
    """
    try:
        folder = StudyFolder(path)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error}; name folders that headprune {', '.join(KINDS)} made") from error
    kind = folder.settings.get("study")
    if kind not in KINDS:
        raise ValueError(f"{path} is a study of headprune {kind}; a report shows studies of {', '.join(KINDS)}")
    return KINDS[kind](folder.settings, folder=folder)


def page_result(study: Study, examples: int) -> Document:
    """Return the document of a stored study for the report page, which counts layers and heads from 0.

    Args:
        examples: maximum number of example sentences for each mask of one head.

    Raises:
        ValueError: the folder is damaged.
    """
    study.first = 0
    try:
        return with_examples(study.result(study.cells()), study.folder, examples)
    except KeyError as error:
        raise ValueError(f"{study.folder.path} is damaged: {error} is not in it; make the study again") from error
