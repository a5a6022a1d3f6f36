"""The study of ``headprune random-study``: draw masks, fine-tune, score (Budhraja et al. 2020, §3.1)."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from typing import Any

from fairseq_headprune.parts import HEADS, Mask, has_ffn
from fairseq_headprune.pruning import chosen_components
from fairseq_headprune.report.document import Document
from fairseq_headprune.report.marks import MARGIN, Family, TrainingTests
from fairseq_headprune.studies.curves import mean_of, share_chart
from fairseq_headprune.studies.fine_tuning import FineTuning
from fairseq_headprune.studies.mask_study import Comparison, MaskStudy, model_settings
from fairseq_headprune.studies.random_tables import (
    by_item,
    differing,
    differing_caption,
    mean_tests,
    paper_tables,
    samplings_table,
)
from fairseq_headprune.studies.samplings import CONTROL, Item, facts, samplings, summary
from fairseq_headprune.studies.study import UNPRUNED, Cell, Done

_UNTRAINED = (
    "All is compared with the checkpoint the study starts from, which need not have been trained for the task: see the "
    "row of all heads, fine-tuned (--control), and headprune random-study --baseline control."
)


class RandomStudy(MaskStudy):
    """Fine-tune a checkpoint under random masks, several samplings of each item.

    Attributes:
        generate: data folder and flags of fairseq-generate, used to run the fine-tuned models.
        base: the baseline of differences and tests of the means: ``unpruned`` or ``control``.
        margin: of equivalence, in points of the score.
    """

    name = "random-study"
    generate: Sequence[str] = ()
    base = UNPRUNED
    margin = MARGIN

    @classmethod
    def of(
        cls,
        session: Any,
        split: str,
        items: Sequence[Item],
        seeds: Sequence[int],
        how: FineTuning,
        comparison: Comparison,
        components: str | None = None,
    ) -> "RandomStudy":
        """Make the study of a loaded model; ``components``: whose parts are pruned (default: attention, all heads)."""
        drawn = {"items": [asdict(item) for item in items], "seeds": list(seeds), "fine_tuning": asdict(how)}
        if components:
            drawn["components"] = chosen_components(components, list(session.gates.shape))
        return cls({**model_settings(session, cls.name, split), **drawn, **vars(comparison)}, session)

    @property
    def components(self) -> Sequence[str]:
        """The components whose parts are pruned."""
        return self.settings.get("components", HEADS)

    @property
    def noun(self) -> str:
        """The word for what is pruned."""
        return "parts" if has_ffn(self.components) else "heads"

    @property
    def items(self) -> list[Item]:
        """What is sampled."""
        return [Item(**item) for item in self.settings["items"]]

    @cached_property
    def drawn(self) -> dict[str, tuple[Mask, dict[str, Any]]]:
        """Every sampling: cell id -> mask and facts; raises ValueError or KeyError if one cannot be drawn."""
        return samplings(self.start, self.items, self.settings["seeds"], self.components)

    def check(self) -> None:
        """Check that all samplings can be drawn for this model, and the flags of their trainings."""
        self.drawn  # noqa: B018
        FineTuning(**self.settings["fine_tuning"]).check_training(self.session)
        super().check()

    def planned(self) -> int:
        """A cell for each item and seed, and the unpruned model."""
        return 1 + len(self.settings["items"]) * len(self.settings["seeds"])

    def plan(self) -> list[Cell]:
        """The unpruned model, and a training for each item and seed."""
        unpruned = self.unpruned(**facts(Item(UNPRUNED), 0, self.start, self.start, self.components))
        how, start = FineTuning(**self.settings["fine_tuning"]), self.session and self.session.path
        return [
            unpruned,
            *(
                Cell(name, mask, found, job=how.job(self, name, mask, found["seed"], start))
                for name, (mask, found) in self.drawn.items()
            ),
        ]

    def result(self, cells: Mapping[str, Done]) -> Document:
        """Report how far random pruning can go; the means of a finished study are tested if its model is loaded."""
        settings = self.settings
        unpruned, found = by_item(self.items, cells)
        comparisons = sum(map(len, found.values()))
        missing = self.unfinished(len(cells))
        title = f"Random {self.noun}, fine-tuned ({' '.join(settings['fine_tuning']['limit'])}), on {self.split}"
        document = self.document(title, unpruned, missing, comparisons, len(cells))
        if unpruned is None or not found:
            return document
        if self.session is None or missing:
            self._tell_samplings(document, unpruned, list(found.values()), comparisons)
        else:
            self._tell_means(document, cells)
        # An encoder that was not fine-tuned on the task only guesses: beating it is not a finding.
        random = _random(list(found.values()))
        if random and not missing and "task" not in settings["data"] and self.base == UNPRUNED:
            document.findings.append(_found(unpruned, random, self.family(comparisons), self.noun))
        return document

    def compared_with(self, cell: Done) -> str:
        """Return the id of the control of the same seed, if that is the baseline, else of the unpruned model."""
        control = f"{CONTROL}-{cell['seed']}"
        return control if self.base == CONTROL and cell["item"] not in (CONTROL, UNPRUNED) else UNPRUNED

    def _tell_samplings(self, document: Document, unpruned: Done, items: list[list[Done]], comparisons: int) -> None:
        """Add the test of each sampling; the study may be unfinished."""
        caption = (
            f"{self.measure}: mean of the samplings of each row, each fine-tuned; difference with its 95% interval "
            "over them; sd: their standard deviation"
        )
        tests = self.family(comparisons)
        document.tables = [samplings_table(unpruned, items, tests, self.measure, caption)]
        untrained = [_UNTRAINED] if "task" in self.settings["data"] else []
        document.notes = [differing_caption(tests), *untrained]
        points = [{**unpruned, "p_holm": 1.0}, *map(_mean, _random(items))]
        document.charts = self._chart(points, None)

    def _tell_means(self, document: Document, cells: Mapping[str, Done]) -> None:
        """Add the tested means of a finished study as the paper's tables."""
        order = [UNPRUNED, *self.drawn]
        value = summary(self.scored(self.split), cells, order, self.items, self.base, self.margin)
        baseline, items, settings = value["baseline"], value["items"], self.settings
        tests = mean_tests(items, baseline, self.alpha, self.margin)
        document.tables = paper_tables(baseline["score"], self.start, items, tests, self.measure, self.noun)
        seeds, how = settings["seeds"], settings["fine_tuning"]
        document.notes = [
            f"{self.measure}: mean of {len(seeds)} samplings (seeds {', '.join(map(str, seeds))}), difference from "
            f"{baseline['id']} with its 95% interval over samplings; sd: standard deviation of the samplings, n: their "
            f"number; fine-tuned with {' '.join(how['limit'])}",
            f"the mean: {tests.legend(baseline['id'])}",
            baseline["signature"],
        ]
        random = [item for item in items if item["kind"] == "random"]
        points = [{"percent": 0.0, "score": baseline["score"]}, *random]
        document.charts = self._chart(points, "random")
        document.data |= value
        if random and ("task" not in settings["data"] or self.base != UNPRUNED):
            document.findings = [_equal(random, tests, baseline["id"], self.noun)]

    def _chart(self, points: list[Done], name: str | None) -> list[Any]:
        what, curves = f"{self.noun} pruned at random", {"Random": points}
        return [share_chart(self.measure, self.split, curves, self.alpha, name, what)] if len(points) > 1 else []


def _random(items: list[list[Done]]) -> list[list[Done]]:
    """The samplings of percentages, sorted by percentage."""
    return sorted((cells for cells in items if cells[0]["kind"] == "random"), key=lambda cells: cells[0]["percent"])


def _mean(cells: list[Done]) -> Done:
    """A point of the curve: the mean with its standard deviation, or the only sampling."""
    if len(cells) == 1:
        return cells[0]
    same = {name: cells[0][name] for name in ("percent", "pruned")}
    return {**same, **mean_of(cells), "seeds": [cell["seed"] for cell in cells]}


def _equal(random: list[Done], tests: TrainingTests, base: str, noun: str) -> str:
    """Report how far random pruning is shown to make no difference, over samplings."""
    reached = None
    for item in sorted(random, key=lambda item: item["percent"]):
        if not tests.equivalent(item["difference"]):
            break
        reached = item["percent"]
    number = min(item["samplings"] for item in random)
    within = f"within ±{tests.margin:g} of {base} over {number} samplings each (TOST, p < {tests.alpha:g})"
    if reached is None:
        return f"Random {noun}: at no share is the mean shown to be {within}."
    return f"Random {noun}: up to {reached:.0f}% pruned the mean is {within}."


def _found(unpruned: Done, random: list[list[Done]], tests: Family, noun: str) -> str:
    """Report how far random pruning can go before a sampling is significantly worse."""
    reached = None
    for cells in random:
        if differing(unpruned, cells, tests)[0]:
            break
        reached = cells[0]["percent"]
    if reached is None:
        share = f"{random[0][0]['percent']:.0f}%"
        return f"Random {noun}: at {share} pruned a sampling is significantly worse already."
    nothing = "no sampling is significantly worse than the unpruned model"
    return f"Random {noun}: up to {reached:.0f}% pruned {nothing}{tests.too_few}."
