"""Training of learned gates by fairseq's own program, for the tests."""

import tiny

DSP = ["--criterion", "label_smoothed_cross_entropy_dsp", "--tau-updates", "4", "--gate-log-interval", "1"]
L0 = ["--criterion", "label_smoothed_cross_entropy_l0", "--gate-log-interval", "1"]


def flags(*more) -> list[str]:
    """The flags of a training that learns gates: 4 batches an epoch."""
    base = "--task translation_headprune --arch transformer_gated_tiny --label-smoothing 0.1 --dropout 0.1 --cpu "
    base += "--optimizer adam --lr 0.01 --batch-size 16 --seed 1 --share-all-embeddings --num-workers 0 "
    base += "--no-progress-bar --max-update 12 --no-epoch-checkpoints"
    return [*base.split(), *map(str, more)]


def train(data, save, *more):
    """Train in this process; return the state of the last checkpoint."""
    from fairseq_headprune.checkpoints import read_state

    tiny.fairseq_here("train", data, "--save-dir", save, *flags(*more))
    return read_state(save / "checkpoint_last.pt")


def weights(state) -> dict:
    """The model's own parameters: without gates and masks."""
    return {
        name: value
        for name, value in state["model"].items()
        if not name.startswith("head_gates.") and not name.endswith("head_keep")
    }


def gate_state(state) -> dict:
    """The learner's tensors."""
    return {name: value for name, value in state["model"].items() if name.startswith("head_gates.")}


def same(left: dict, right: dict) -> bool:
    """Whether two dicts of tensors are equal, bit by bit."""
    return left.keys() == right.keys() and all((left[name] == right[name]).all() for name in left)
