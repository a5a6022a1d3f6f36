"""What ``ablate`` and ``keep-one`` share: their flags, the opening of the study, provenance and text of the result."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from fairseq_headprune.cli.comparison_flags import (
    add_comparison_flags,
    add_study_flags,
    comparison_settings,
    progress,
)
from fairseq_headprune.cli.scale_flags import add_scale_flags, take_place


class Started(NamedTuple):
    """A study that is ready to run: everything it needs was checked before its folder was made or opened."""

    args: Any
    session: Any
    start: Any
    components: list[str]
    comparison: Any
    folder: Any
    bar: Callable


def add_flags(parser: Any) -> None:
    """Add the flags that both verbs have."""
    of_which = "whose heads are studied: all, or a comma-separated list of enc_self, enc_dec, dec_self"
    add_study_flags(parser.add_argument_group("study"), "all|LIST", of_which)
    add_comparison_flags(parser)
    add_scale_flags(parser)


def start_study(verb: str, args: Any, splits: Iterable[str], masks: Callable[[Any, list[str]], Any]) -> Started:
    """Load the model, refuse what would stop the study later, and open its folder.

    Args:
        splits: all splits that are translated, the one that is reported last.
        masks: of the study, called with the mask of the unpruned model and the components; raises if there are none.

    Raises:
        ValueError, KeyError, FileNotFoundError: wrong settings, or a folder of another study.
    """
    from fairseq_headprune.pruning import chosen_components
    from fairseq_headprune.session import open_session
    from fairseq_headprune.studies.ablate import study_settings
    from fairseq_headprune.studies.folder import StudyFolder
    from fairseq_headprune.studies.masked import Comparison, check_split
    from fairseq_headprune.studies.provenance import environment

    comparison = Comparison(**comparison_settings(args))
    take_place(args)
    session = open_session(args)
    start = session.gates.mask()
    components = chosen_components(args.components, list(start.shape))
    masks(start, components)
    splits = list(splits)
    if len(set(splits)) > 1 and len({str(session.data(split) | {"split": None}) for split in splits}) == 1:
        raise ValueError(
            f"{' and '.join(splits)} are the same examples: select on others (--select-subset train, or valid with "
            "--holdout N)"
        )
    evaluators = {split: check_split(session, split) for split in splits}
    settings = study_settings(session, verb, splits, components, comparison)
    folder = StudyFolder.open(args.output, settings, environment(args.headprune_command))
    for split, evaluator in evaluators.items():
        folder.write_texts(split, evaluator.sources, evaluator.references)
    bar = partial(progress, verb=verb, quiet=args.quiet or args.worker)
    return Started(args, session, start, components, comparison, folder, bar)


def provenance(study: Started, baseline: dict[str, Any]) -> dict[str, Any]:
    """Return how the numbers of a study were computed."""
    how, settings = study.comparison, study.folder.settings
    return {
        "alpha": how.alpha,
        "resamples": how.resamples,
        "seed": how.seed,
        "signature": baseline["signature"],
        "checkpoint": study.session.checkpoint,
        "data": settings["data"],
        "study": str(study.folder.path),
        "settings": settings,
        "runs": study.folder.runs,
    }
