"""The samplings of a random pruning study (Budhraja et al. 2020, Tables 1 to 6), and means over them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fairseq_headprune.choosing.per_layer import keep_per_layer, mirrored, picking_by_chance, prune_layers
from fairseq_headprune.choosing.random_heads import keep_random, parse_amount, prune_random
from fairseq_headprune.evaluation.p_values import LEAST, corrected
from fairseq_headprune.evaluation.trainings import against_value, hierarchical_bootstrap, paired, spread
from fairseq_headprune.parts import HEADS, Mask
from fairseq_headprune.parts.notation import format_config, parse_config, parse_triple
from fairseq_headprune.studies.results import ScoredSplit, with_holm
from fairseq_headprune.studies.study import UNPRUNED, Done

#: Suffix of a share or number of heads to prune: every layer keeps at least one head.
AT_LEAST_ONE = ":at-least-one"
#: The item that prunes nothing, but fine-tunes in the same way.
CONTROL = "control"


@dataclass(frozen=True)
class Item:
    """One thing that is sampled several times.

    Attributes:
        kind: ``random``, ``config``, ``triple``, ``layers`` (all heads of some layers are pruned; only fine-tuning
            depends on the seed), or ``control`` (nothing is pruned, but the model is fine-tuned in the same way).
        text: as the user wrote it.
        mirror: the adversarial twin of a configuration.
    """

    kind: str
    text: str = ""
    mirror: bool = False

    @property
    def name(self) -> str:
        """A name that is valid in file names."""
        text = "+".join(self.text.replace(AT_LEAST_ONE, "-at-least-one").split()).replace(":", "")
        return "-".join(part for part in (self.kind, text, "mirror" if self.mirror else "") if part)

    def mask(self, start: Mask, seed: int, components: Sequence[str] = HEADS) -> Mask:
        """Draw the mask for a seed.

        Args:
            components: components to which a share, a number or a set of layers refers.

        Raises:
            ValueError, KeyError: malformed text, or a request that this model cannot meet.
        """
        present = [component for component in components if component in start.rows]
        if self.kind == "random":
            amount, at_least_one = self.text.removesuffix(AT_LEAST_ONE), self.text.endswith(AT_LEAST_ONE)
            mask = prune_random(start, parse_amount(amount), [present], seed, at_least_one)
        elif self.kind == "config":
            config = parse_config([self.text])
            mask = keep_per_layer(start, mirrored(config) if self.mirror else config, picking_by_chance(start, seed))
        elif self.kind == "triple":
            mask = keep_random(start, parse_triple(self.text), seed)
        elif self.kind == "layers":
            mask, layers = prune_layers(start, self.text, present)
        else:
            mask = start.without([])
        drawn = {"kind": self.kind, "text": self.text, "mirror": self.mirror, "seed": seed}
        mask.source = {"drawn": drawn | ({"pruned_layers": layers} if self.kind == "layers" else {})}
        return mask


def items(
    random: Iterable[str],
    configs: Iterable[str],
    triples: Iterable[str],
    layers: Iterable[str],
    mirror: bool,
    control: bool,
) -> list[Item]:
    """List the items in the order of the tables; with ``mirror`` each configuration is followed by its twin.

    Raises:
        ValueError: no items, or a duplicate.
    """
    found = [Item(CONTROL)] if control else []
    found += [Item("random", text) for text in random]
    for text in configs:
        found += [Item("config", text), Item("config", text, mirror=True)] if mirror else [Item("config", text)]
    found += [Item("triple", text) for text in triples]
    found += [Item("layers", text) for text in layers]
    if not any(item.kind != CONTROL for item in found):
        raise ValueError("nothing to sample: give --random, --config, --triple or --layers")
    twice = [item.name for place, item in enumerate(found) if item in found[:place]]
    if twice:
        raise ValueError(f"{twice[0]} is given twice")
    return found


def facts(item: Item, seed: int, start: Mask, mask: Mask, components: Sequence[str] = HEADS) -> dict[str, Any]:
    """Facts stored with a sampling's cell; ``percent`` is the exact share of these components' parts."""
    play = len(start.kept(components))
    pruned = play - len(mask.kept(components))
    return {
        "item": item.name,
        "kind": item.kind,
        "text": item.text,
        "mirror": item.mirror,
        "seed": seed,
        "percent": 100 * pruned / play,
        "pruned": pruned,
        "kept": {component: n["kept"] for component, n in mask.counts().items()},
        "config": format_config(mask),
    }


def samplings(
    start: Mask, chosen: Sequence[Item], seeds: Sequence[int], components: Sequence[str] = HEADS
) -> dict[str, tuple[Mask, dict[str, Any]]]:
    """Draw every mask of a study: cell id -> mask and facts.

    Raises:
        ValueError, KeyError: an item that this model cannot meet, or a duplicate seed.
    """
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"a seed is given twice: {' '.join(map(str, seeds))}")
    drawn = {}
    for item in chosen:
        for seed in seeds:
            mask = item.mask(start, seed, components)
            drawn[f"{item.name}-{seed}"] = (mask, facts(item, seed, start, mask, components))
    return drawn


def over_samplings(items: Sequence[Done], baseline: Mapping[str, Any], margin: float) -> list[Done]:
    """Return the items with the statistics of their ``scores``, one a sampling.

    ``score``, ``sd``, ``ci`` (95%, Student's t), ``delta`` and ``difference`` (a
    :class:`~fairseq_headprune.evaluation.trainings.Difference` as a dict): from the control of the same seed (paired
    t-test), or from the score of the unpruned checkpoint (one-sample t-test). Holm's correction is over the items.

    Args:
        baseline: ``score``, and for a control ``scores``.
    """
    differences = []
    for item in items:
        scores = dict(enumerate(item["scores"]))
        if "scores" in baseline:
            differences.append(paired(dict(enumerate(baseline["scores"])), scores, margin))
        else:
            differences.append(against_value(baseline["score"], item["scores"], margin))
    found = []
    for item, difference in zip(items, corrected(differences), strict=True):
        over = spread(item["scores"])
        values = {"score": over.mean, "sd": over.sd, "ci": over.ci, "samplings": over.n}
        found.append({**item, **values, "delta": difference.mean, "difference": asdict(difference)})
    return found


def summary(
    here: ScoredSplit, cells: Mapping[str, Done], plan: Sequence[str], items: Sequence[Item], base: str, margin: float
) -> Done:
    """Summarise the cells: the baseline, every sampling with ``p_holm``, and one entry per item with its mean.

    A sampling is tested over its sentences (that model against that model), with Holm's correction over all of them; an
    item over its samplings (:func:`over_samplings`).

    Args:
        here: the scored outputs of a finished random pruning study.
        plan: ids of all cells in the order of the study, the unpruned model's first.
        base: ``unpruned``, the original checkpoint; or ``control``, the fine-tuned unpruned models, each compared with
            the sampling of the same seed. Its score is only in ``baseline``.
    """
    unpruned, *others = [cells[name] for name in plan]
    baseline, partner = unpruned, dict.fromkeys(plan, UNPRUNED)
    if base == CONTROL:
        controls = {cell["seed"]: cell["id"] for cell in others if cell["item"] == CONTROL}
        scores = [here.score(name) for name in controls.values()]
        over = spread(scores)
        baseline = {"id": CONTROL, "score": over.mean, "sd": over.sd, "ci": over.ci, "scores": scores}
        baseline |= {"samplings": over.n, "signature": unpruned["signature"]}
        others = [cell for cell in others if cell["item"] != CONTROL]
        items = [item for item in items if item.name != CONTROL]
        partner = {cell["id"]: controls[cell["seed"]] for cell in others}
        others = [{**cell, **here.tested(cell["id"], partner[cell["id"]])} for cell in others]
    others = [{**cell, "delta": cell["score"] - cells[partner[cell["id"]]]["score"]} for cell in with_holm(others)]
    entries = []
    for item in items:
        found = [cell for cell in others if cell["item"] == item.name]
        shared = {key: found[0][key] for key in ("item", "kind", "text", "mirror", "percent", "pruned")}
        names = [cell["id"] for cell in found]
        # The number of heads kept in each layer, if equal in all samplings (as in those of a configuration).
        config = found[0]["config"] if all(cell["config"] == found[0]["config"] for cell in found) else None
        entry = {**shared, "config": config, "scores": [here.score(name) for name in names]}
        both = None
        if len(names) > 1:
            bases, mine = [here.of(partner[name]) for name in names], [here.of(name) for name in names]
            both = hierarchical_bootstrap(here.metric.score, bases, mine, LEAST, here.comparison.seed)
        entries.append({**entry, "both_levels": both})
    return {
        "margin": margin,
        "baseline": baseline,
        "items": over_samplings(entries, baseline, margin),
        "cells": others,
    }
