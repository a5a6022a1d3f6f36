"""Which parameters of a checkpoint a slim model never reads: it has them frozen, and no optimizer knows them."""

from fairseq_headprune.checkpoints import State, part_modules, saved_settings
from fairseq_headprune.parts import FFN
from fairseq_headprune.parts.layout import Layout


def unread_norms(state: State, layout: Layout) -> set[str]:
    """Return the parameters of layer norms before empty parts (pre-norm models; see ``modules/empty_parts``)."""
    settings = saved_settings(state)
    before = {side for side in ("encoder", "decoder") if getattr(settings, f"{side}_normalize_before", False)}
    norms = [
        f"{prefix}final_layer_norm" if component in FFN else f"{prefix[:-1]}_layer_norm"
        for component, layer, prefix in part_modules(state["model"])
        if not layout.indices(component, layer) and before & set(prefix.split("."))
    ]
    return {f"{norm}.{kind}" for norm in norms for kind in ("weight", "bias")}
