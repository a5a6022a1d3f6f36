"""Keep a given number of heads in each layer (Budhraja et al. 2020, Table 2)."""

from collections.abc import Callable

from fairseq_headprune.choosing.chance import draw, generator
from fairseq_headprune.choosing.scored import ranked
from fairseq_headprune.parts import Mask, Part
from fairseq_headprune.parts.notation import check_config
from fairseq_headprune.parts.scores import Scores

#: from the kept heads of one layer and a number to that many of them
Pick = Callable[[list[Part], int], list[Part]]


def keep_per_layer(mask: Mask, config: dict[str, list[int]], pick: Pick | None = None) -> Mask:
    """Keep the given number of heads in each layer; components that the configuration does not name stay as they are.

    Args:
        config: component -> heads to keep in each layer.
        pick: which ones; default: the first.

    Raises:
        ValueError: another number of layers, or more heads than a layer has left.
    """
    check_config(config, mask.shape)
    result = mask
    for component, counts in config.items():
        for layer, count in enumerate(counts):
            here = [head for head in mask.kept([component]) if head.layer == layer]
            if count > len(here):
                raise ValueError(
                    f"{component} layer {layer}: cannot keep {count} heads, {len(here)} are not pruned yet"
                )
            chosen = set(pick(here, count) if pick else here[:count])
            result = result.without(head for head in here if head not in chosen)
    return result


def picking_highest(mask: Mask, scores: Scores, config: dict[str, list[int]]) -> Pick:
    """Pick the highest-scored heads of a layer.

    Raises:
        ValueError: a component without scores; when picking, too few heads with a score.
    """
    missing = [component for component in config if component not in scores.rows]
    if missing:
        raise ValueError(f"the score file has no scores of {missing[0]}, which --config names")
    order = ranked(mask, scores)

    def pick(heads: list[Part], count: int) -> list[Part]:
        here = [head for head in order if head in heads]
        if count > len(here):
            where = f"{heads[0].component} layer {heads[0].layer}"
            raise ValueError(f"{where}: cannot keep {count} heads, {len(here)} of the kept ones have a score")
        return here[:count]

    return pick


def picking_by_chance(seed: int) -> Pick:
    """Pick heads of a layer by chance; one generator serves all layers in turn.

    Raises:
        ValueError: a negative seed.
    """
    chance = generator(seed)
    return lambda heads, count: draw(heads, count, chance)


def mirrored(config: dict[str, list[int]]) -> dict[str, list[int]]:
    """Return the adversarial twin of a configuration: the counts of each component reversed (Table 2)."""
    return {component: counts[::-1] for component, counts in config.items()}
