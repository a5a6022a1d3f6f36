"""The patterns of attention of survivors and of other heads (Prasanna et al. 2020, §5.2 and Figure 4)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fairseq_headprune.files import PathLike, sha256
from fairseq_headprune.importance.attention_maps import sentence_maps
from fairseq_headprune.parts import HEADS, PAPER_NAMES, Mask, Part
from fairseq_headprune.patterns.classifier import classify, quality, train
from fairseq_headprune.patterns.examples import PATTERNS, canvas, divided, made_up, read_annotated
from fairseq_headprune.report.described import Column, Described, Row
from fairseq_headprune.report.document import Document, HeadMap, map_components
from fairseq_headprune.report.pictures import Shares
from fairseq_headprune.report.tables import Table
from fairseq_headprune.session import sample_indices
from fairseq_headprune.studies.mask_study import model_settings

#: kind of map -> whether weights are multiplied by the norms of what is attended to
KINDS = {"raw": False, "normed": True}

#: made-up maps a pattern and component: to train on, and held out
_MADE_UP = (300, 100)

SUPER, SURVIVORS, REST, ALL = "super-survivors", "survivors", "the rest", "all heads"


@dataclass(frozen=True)
class PatternSettings:
    """How patterns are counted.

    Attributes:
        sentences: number of sentences, drawn by ``seed``; 0: all.
        annotated: file of annotated maps to train on; None: made-up maps only.
        seed: seed of the sentences, the made-up maps and the classifier.
    """

    sentences: int = 100
    annotated: str | None = None
    seed: int = 1


#: head -> number of maps of each pattern
Counts = dict[Part, list[int]]


def attention_patterns(session: Any, split: str, how: PatternSettings, tickets: PathLike | None = None) -> Document:
    """Classify the attention maps of the kept heads of a model and report the patterns of groups of heads.

    Args:
        tickets: folder of ``headprune lottery tickets``; its super-survivors, and the survivors of the search in this
            model, are reported apart from the other heads.

    Raises:
        ValueError, FileNotFoundError: tickets of another model, or annotated maps that cannot be used.
    """
    heads = session.gates.mask().kept()
    groups = {ALL: heads} if tickets is None else _groups(tickets, session, heads)
    components = list(dict.fromkeys(head.component for head in heads))
    trained = {kind: _classifier(components, normed, how) for kind, normed in KINDS.items()}
    chosen = sample_indices(len(session.dataset(split)), how.sentences, how.seed)
    counts = _count(session, session.batches(split, chosen), {kind: net for kind, (net, _) in trained.items()}, heads)
    document = Document(f"Patterns of attention on {split}")
    qualities = {kind: held for kind, (_, held) in trained.items()}
    document.notes = _notes(qualities, len(chosen), how)
    document.findings = _findings(counts, groups)
    document.maps = [_heterogeneous(kind, found, session.gates.shape, len(chosen)) for kind, found in counts.items()]
    document.panels = [_bars(kind, found, groups) for kind, found in counts.items()]
    document.data = {
        "patterns": list(PATTERNS),
        "groups": {name: [head.facts() for head in members] for name, members in groups.items()},
        "heads": [{**head.facts(), **{kind: counts[kind][head] for kind in KINDS}} for head in heads],
        "shares": {
            kind: {label: _share(found, members) for label, members in _rows(groups)} for kind, found in counts.items()
        },
        "classifier": qualities,
        "sentences": len(chosen),
    }
    caption = f"Share of each pattern among the heads' maps (%), {' / '.join(KINDS)}"
    document.tables = [replace(SHARES.table({"": document.data}), caption=caption), _quality_table(qualities)]
    settings = {
        **model_settings(session, "attention patterns", split),
        **asdict(how),
        "tickets": tickets and str(tickets),
    }
    settings["annotated"] = how.annotated and {"path": how.annotated, "sha256": sha256(how.annotated)}
    document.provenance = {"settings": settings}
    document.data["settings"] = settings
    return document


def _groups(tickets: PathLike, session: Any, heads: list[Part]) -> dict[str, list[Part]]:
    """Divide the heads by whether they survived all searches, only this model's, or not this model's."""
    folder = Path(tickets)
    if not (folder / "super-survivors.json").is_file():
        raise ValueError(f"{folder} has no super-survivors.json; name a folder of headprune lottery tickets")
    always = Mask.load(folder / "super-survivors.json")
    goods = [Mask.load(path) for path in sorted(folder.glob("*/good.json"))]
    mine = [good for good in goods if session.checkpoint["sha256"] in good.source.get("checkpoints", [])]
    if not mine:
        raise ValueError(f"{folder} has no ticket of {session.path}; give a checkpoint that was searched")
    mine[0].only(HEADS).check_shape(session.gates.shape, str(session.path))
    found: dict[str, list[Part]] = {SUPER: [], SURVIVORS: [], REST: [], ALL: heads}
    for head in heads:
        found[SUPER if always[head] else SURVIVORS if mine[0][head] else REST].append(head)
    return {name: members for name, members in found.items() if members}


def _classifier(components: list[str], normed: bool, how: PatternSettings) -> tuple[nn.Module, dict[str, Any]]:
    """Train a classifier; also return its quality on held-out maps, for each form of map."""
    annotated = read_annotated(how.annotated, normed) if how.annotated else []
    if annotated:
        learned, held = divided(annotated, str(how.annotated), how.seed)
    else:
        learned, held = (made_up(components, normed, count, 2 * how.seed + part) for part, count in enumerate(_MADE_UP))
    net = train(learned.maps, torch.tensor(learned.labels), how.seed)
    forms = list(dict.fromkeys(held.forms))
    parts = {form: held.of_form(form) for form in forms}
    return net, {form: asdict(quality(part.labels, classify(net, part.maps).tolist())) for form, part in parts.items()}


def _count(session: Any, batches: Iterable[Any], nets: Mapping[str, nn.Module], heads: list[Part]) -> dict[str, Counts]:
    """Classify every map of the batches."""
    counts = {kind: {head: [0] * len(PATTERNS) for head in heads} for kind in nets}
    for sample in batches:
        for entry in sentence_maps(session.model, session.gates, sample, session.task, norms=True):
            place = entry.attention
            for kind, maps in (("raw", entry.maps), ("normed", entry.normed)):
                assert maps is not None  # norms were asked for
                found = classify(nets[kind], canvas(maps).cpu()).tolist()
                for index, pattern in zip(place.heads, found, strict=True):
                    head = Part(place.component, place.layer, index)
                    if head in counts[kind]:
                        counts[kind][head][pattern] += 1
    return counts


def _share(counts: Counts, heads: Iterable[Part]) -> list[float]:
    """Share of each pattern among the maps of these heads."""
    sums = [sum(column) for column in zip(*(counts[head] for head in heads), strict=True)]
    return [number / max(sum(sums), 1) for number in sums]


def _rows(groups: Mapping[str, list[Part]]) -> list[tuple[str, list[Part]]]:
    """Label and heads of each group of each component, and of all components together if there are several."""
    components = list(dict.fromkeys(head.component for head in groups[ALL]))
    found = []
    for component in ["", *components] if len(components) > 1 else components:
        name = PAPER_NAMES.get(component, "All")
        for group, heads in groups.items():
            mine = [head for head in heads if component in ("", head.component)]
            if mine:
                found.append((f"{name}, {group}", mine))
    return found


def _members(row: Row, group: str = "") -> int:
    """Number of heads of a group (default: the row's), of one component if the row's label names it."""
    component, _, mine = row["@*"].partition(", ")
    group = group or mine
    return sum(PAPER_NAMES[head["component"]] == component or component == "All" for head in row["groups"][group])


def _percent(shares: Sequence[float]) -> str:
    return " / ".join(f"{100 * share:.0f}" for share in shares)


#: The share of each pattern in groups of heads, from documents with ``groups`` and ``shares``.
SHARES = Described(
    [
        Column("Heads", "@*"),
        Column("Number", form=_members),
        *(Column(name, f"*.{place}", _percent, over=True) for place, name in enumerate(PATTERNS)),
    ],
    rows="shares/*",
    # A group that is all heads is shown once.
    only=lambda row: row["@*"].endswith(ALL) or _members(row) < _members(row, ALL),
)


def _quality_table(qualities: Mapping[str, Mapping[str, Any]]) -> Table:
    rows: list[list[Any]] = []
    for kind, forms in qualities.items():
        for form, found in forms.items():
            name = f"{kind}, {PAPER_NAMES.get(form, form)}"
            for label, pattern in enumerate(PATTERNS):
                numbers = (f"{found[key][label]:.2f}" for key in ("precision", "recall", "f1"))
                rows.append([f"{name}: {pattern}", found["maps"][label], *numbers])
            rows.append([f"{name}: weighted F1", sum(found["maps"]), None, None, f"{found['weighted_f1']:.2f}"])
    header = ["Held-out maps", "Number", "Precision", "Recall", "F1"]
    return Table(header, rows, caption="How well the classifier knows the patterns")


def _notes(qualities: Mapping[str, Mapping[str, Any]], sentences: int, how: PatternSettings) -> list[str]:
    notes = [
        f"a map is the attention of one head in one of {sentences} sentences (seed {how.seed}), without padding; "
        "normed: weights times the norms of what is attended to (Kobayashi et al. 2020)"
    ]
    replaced = [kind for kind, forms in qualities.items() if "annotated" not in forms]
    if replaced:
        notes.append(
            f"{' and '.join(replaced)}: the classifier learned and was tested on made-up maps in place of the paper's "
            "human annotation (weighted F1 there 0.81 raw, 0.74 normed), so its quality on real maps is not known"
        )
    return notes


def _findings(counts: Mapping[str, Counts], groups: Mapping[str, list[Part]]) -> list[str]:
    """Compare how much of each group's attention is heterogeneous, an upper bound on linguistic patterns."""
    place, found = PATTERNS.index("heterogeneous"), []
    for kind, by_head in counts.items():
        shares = ", ".join(f"{name} {100 * _share(by_head, heads)[place]:.1f}%" for name, heads in groups.items())
        found.append(f"Heterogeneous maps ({kind}): {shares}.")
    return found


def _heterogeneous(kind: str, counts: Counts, shape: Mapping[str, list[int]], sentences: int) -> HeadMap:
    """The share of heterogeneous maps of each head."""
    place = PATTERNS.index("heterogeneous")

    def values(head: Part) -> dict[str, Any]:
        mine = counts.get(head)
        return {"state": "pruned"} if mine is None else {"importance": mine[place] / max(sum(mine), 1)}

    components = map_components({c: shape[c] for c in dict.fromkeys(head.component for head in counts)}, values)
    caption = f"Share of {sentences} {kind} maps that are heterogeneous"
    return HeadMap(caption, "importance", components, "share of maps", f"heterogeneous-{kind}")


def _bars(kind: str, counts: Counts, groups: Mapping[str, list[Part]]) -> Shares:
    bars = {label: _share(counts, heads) for label, heads in _rows(groups)}
    return Shares(f"patterns-{kind}", f"Patterns of attention, {kind} maps", PATTERNS, bars)
