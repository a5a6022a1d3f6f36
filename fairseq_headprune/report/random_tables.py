"""The tables of Budhraja et al. (2020): pruned percentages (1), configurations (2), triples (3), layers (5, 6)."""

from collections.abc import Sequence
from typing import Any

from fairseq_headprune.parts import HEADS
from fairseq_headprune.parts.notation import parse_triple
from fairseq_headprune.report.study_tables import BLEU
from fairseq_headprune.report.tables import Marked, Table, mark_of


def percent_table(baseline: float, items: Sequence[dict[str, Any]], alpha: float, measure: str = BLEU) -> Table:
    """Table 1: a row a percentage, as it was asked for; the first rows are the unpruned model and, tuned, the control.

    Args:
        items: entries of kind ``control`` and ``random``, each with ``text``, ``percent``, ``pruned``, ``score``,
            ``sd``, ``delta``, ``p`` and ``p_holm``.
    """
    rows: list[list[Any]] = [["0 (Baseline)", f"{baseline:.2f}", None]]
    for item in items:
        rows.append([_percentage(item), *_score(item, alpha)])
    return Table(["% Pruning", measure, "sd"], rows)


def config_table(
    baseline: float, full: dict[str, str], items: Sequence[dict[str, Any]], alpha: float, measure: str = BLEU
) -> Table:
    """Table 2: a row a configuration, its twin below it.

    Args:
        full: the unpruned model's configuration, ``{"ES": "888888", …}``.
        items: entries of kind ``config``, with ``config`` in the same form.
    """
    rows: list[list[Any]] = [["0", *full.values(), f"{baseline:.2f}", None]]
    for item in items:
        rows.append([f"{item['percent']:.0f}", *item["config"].values(), *_score(item, alpha)])
    return Table(["%", *full, measure, "sd"], rows)


def triple_table(
    baseline: float, full: dict[str, int], items: Sequence[dict[str, Any]], alpha: float, measure: str = BLEU
) -> Table:
    """Table 3: a row a triple of heads kept in ES, ED and DS.

    Args:
        full: component -> heads of the unpruned model.
    """
    rows: list[list[Any]] = [["Baseline", _triple(full), f"{baseline:.2f}", None]]
    for item in items:
        rows.append([f"{item['percent']:.0f}%", _triple(parse_triple(item["text"])), *_score(item, alpha)])
    return Table(["Pruning %", "ES, ED, DS", measure, "sd"], rows)


def layers_table(baseline: float, items: Sequence[dict[str, Any]], alpha: float, measure: str = BLEU) -> Table:
    """Tables 5 and 6: a row a set of layers without heads, the first layer is 1."""
    rows: list[list[Any]] = [["0 (Baseline)", None, f"{baseline:.2f}", None]]
    for item in items:
        name = item["text"].replace(":", " ").replace(",", ", ").capitalize()
        rows.append([name, f"{item['percent']:.0f}", *_score(item, alpha)])
    return Table(["Layers pruned", "%", measure, "sd"], rows)


def _percentage(item: dict[str, Any]) -> str:
    if item["kind"] == "control":
        return "0, fine-tuned"
    amount, *rest = item["text"].split(":")
    share = amount.removesuffix("%") if amount.endswith("%") else f"{item['percent']:.0f} ({item['pruned']} heads)"
    return ", ".join([share, *rest])


def _score(item: dict[str, Any], alpha: float) -> list[Any]:
    text = f"{item['score']:.2f} ({item['delta']:+.2f})"
    return [
        Marked(text, mark_of(item["p"], item["p_holm"], alpha)),
        None if item["sd"] is None else f"{item['sd']:.2f}",
    ]


def _triple(kept: dict[str, int]) -> str:
    return "(" + ",".join(str(kept.get(component, 0)) for component in HEADS) + ")"
