"""What the report page shows of a study of ``headprune random-study``."""

from typing import Any

from fairseq_headprune.studies.folder import StudyFolder
from fairseq_headprune.studies.random_study import RandomStudy


def random_study(folder: StudyFolder) -> dict[str, Any]:
    """Collect a study, finished or not."""
    document = RandomStudy(folder.settings, folder=folder).result(folder.cells())
    state, shown = document.state, document.to_dict()
    baseline = None if state["unpruned"] is None else {"score": state["unpruned"], "signature": state["signature"]}
    return {
        "heading": document.title,
        "baseline": baseline,
        **{name: state[name] for name in ("done", "planned", "comparisons")},
        "missing": document.missing,
        "found": document.findings,
        "maps": [],
        "charts": shown["charts"],
        "parts": document.parts(),
    }
