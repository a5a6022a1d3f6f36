"""Studies of ``headprune ablate`` made by hand, without a model."""

from fairseq_headprune.parts import KEYS, Mask, all_heads
from fairseq_headprune.studies.folder import StudyFolder

#: One component of two layers.
SHAPE = {"enc_self": [3, 2]}


def write_ablation(path, deltas, split="test", shape=None, baseline=30.0, **settings):
    """Write a finished study in which masking the k-th head changes BLEU by the k-th delta; return its path."""
    shape = shape or SHAPE
    settings = {
        "study": "ablate", "checkpoint": "c" * 64, "start": Mask.full(shape).rows, "components": list(shape),
        "data": {"split": split, "sha256": {f"{split}.bin": split}}, "generation": {"beam": 5}, **settings,
    }  # fmt: skip
    folder = StudyFolder.open(path, settings)
    nothing = dict.fromkeys(KEYS)
    folder.append({"id": "unpruned", **nothing, "score": baseline, "p": 1.0, "signature": "s"})
    for head, delta in zip(all_heads(shape), deltas, strict=False):
        name = "-".join(map(str, head))
        folder.append({"id": name, **head.facts(), "score": baseline + delta, "p": 0.5, "signature": "s"})
    return path
