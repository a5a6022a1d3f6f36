"""Which parameters of a checkpoint a slim model never reads: it has them frozen, and no optimizer knows them."""

from fairseq_headprune.checkpoints import State, attention_modules, saved_settings
from fairseq_headprune.parts.layout import Layout
from fairseq_headprune.removal.ffn import ffn_blocks
from fairseq_headprune.removal.ffn_layout import FfnLayout


def unread_norms(state: State, layout: Layout, ffn: FfnLayout) -> set[str]:
    """Return the parameters of layer norms before empty parts (pre-norm models; see ``modules/empty_parts``)."""
    settings = saved_settings(state)
    before = {side for side in ("encoder", "decoder") if getattr(settings, f"{side}_normalize_before", False)}
    norms = [
        f"{prefix}_layer_norm"
        for component, layer, prefix in attention_modules(state)
        if not layout.kept[component][layer] and before & set(prefix.split("."))
    ]
    norms += [
        f"{prefix}final_layer_norm"
        for side, layer, prefix in ffn_blocks(state["model"])
        if not ffn.units(side, layer) and before & set(prefix.split("."))
    ]
    return {f"{norm}.{kind}" for norm in norms for kind in ("weight", "bias")}
