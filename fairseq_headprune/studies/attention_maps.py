"""The attention maps of every head for one sentence."""

from typing import Any

from fairseq_headprune.importance.attention_maps import SentenceMaps, sentence_maps
from fairseq_headprune.parts import PAPER_NAMES, Part
from fairseq_headprune.report.document import Document
from fairseq_headprune.report.pictures import AttentionMaps
from fairseq_headprune.studies.mask_study import model_settings

#: component -> the sides whose tokens attend and are attended to
_SIDES = {"enc_self": ("source", "source"), "enc_dec": ("target", "source"), "dec_self": ("target", "target")}


def attention_maps(session: Any, split: str, sentence: int, normed: bool) -> Document:
    """Show the attention of every head for one sentence; the decoder reads the reference (teacher forcing).

    Args:
        sentence: its number in the split, from 1 as on the report page.
        normed: multiply weights by the norms of what is attended to (Kobayashi et al. 2020).

    Raises:
        ValueError: there is no such sentence.
    """
    total = len(session.dataset(split))
    if not 1 <= sentence <= total:
        raise ValueError(f"--sentence {sentence}: {split} has the sentences 1 to {total}")
    sample = session.collate(split, [sentence - 1])
    found = list(sentence_maps(session.model, session.gates, sample, session.task, normed))
    kept = set(session.gates.mask().kept())
    kind = "norm-weighted attention" if normed else "attention"
    document = Document(f"Attention maps of sentence {sentence} of {split}")
    components = {}
    for component in session.gates.modules:
        mine = [entry for entry in found if entry.attention.component == component]
        if mine:
            components[component] = _component(session, component, mine, kept, normed)
            caption = f"{PAPER_NAMES[component]}: {kind} in sentence {sentence} of {split}"
            document.panels.append(AttentionMaps(f"attention-{component}", caption, **components[component]))
    document.notes = [
        f"{kind} from the tokens down to the tokens across; layers and heads by their original numbers, from 0; each "
        "map's darkest colour is its own largest value"
        + ("; the decoder reads the reference" if "dec_self" in components else "")
    ]
    settings = {**model_settings(session, "attention", split), "sentence": sentence, "normed": normed}
    document.data = {"sentence": sentence, "split": split, "normed": normed, "components": components}
    document.data["settings"] = settings
    document.provenance = {"settings": settings}
    return document


def _component(
    session: Any, component: str, entries: list[SentenceMaps], kept: set[Part], normed: bool
) -> dict[str, Any]:
    """Return the tokens, and the map of each head of each layer: None for pruned heads."""
    layers: list[list[Any]] = [[None] * count for count in session.gates.shape[component]]
    for entry in entries:
        maps = entry.normed if normed else entry.maps
        assert maps is not None
        for index, map_ in zip(entry.attention.heads, maps, strict=True):
            if Part(component, entry.attention.layer, index) in kept:
                rounded = [[round(value, 4) for value in row] for row in map_.double().tolist()]
                layers[entry.attention.layer][index] = rounded
    query, key = _SIDES[component]
    words = session.task.words
    return {"queries": words(entries[0].queries, query), "keys": words(entries[0].keys, key), "layers": layers}
