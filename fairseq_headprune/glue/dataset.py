"""A split as a fairseq dataset: batches padded to their longest example, and the losses of their examples."""

from typing import Any, Optional

import numpy as np
import torch
import torch.nn.functional as F
from fairseq.data import FairseqDataset
from torch import Tensor, nn

from fairseq_headprune.glue.examples import Split


class GlueDataset(FairseqDataset):
    """Encoded examples; batches pad ``src_tokens`` on the right, as in BERT's training.

    Args:
        name: of the split; each batch contains it.
        shuffle: draw a random order for training (from numpy's seed, which fairseq sets). Otherwise examples of similar
            length share a batch.
    """

    def __init__(self, split: Split, name: str, pad: int, shuffle: bool = False) -> None:
        self.split, self.name, self.pad, self.shuffle = split, name, pad, shuffle
        self.sizes = np.array([len(example.ids) for example in split.encoded])

    @property
    def targets(self) -> Optional[np.ndarray]:
        """Class numbers or scores, (examples,); None for a test set."""
        return self.split.targets

    def __getitem__(self, index: int) -> int:
        return int(index)

    def __len__(self) -> int:
        return len(self.sizes)

    def num_tokens(self, index: int) -> int:
        """Number of word pieces of an example."""
        return int(self.sizes[index])

    def num_tokens_vec(self, indices: Any) -> np.ndarray:
        """Numbers of word pieces of several examples."""
        return self.sizes[indices]

    def size(self, index: int) -> int:
        """The same; fairseq compares it with the maximum number of positions."""
        return int(self.sizes[index])

    def ordered_indices(self) -> np.ndarray:
        """Return the order in which examples are batched."""
        if self.shuffle:
            return np.random.permutation(len(self))
        return np.argsort(self.sizes, kind="stable")

    def collater(self, samples: list[int]) -> dict[str, Any]:
        """Return one batch: ``id``, ``net_input``, ``target`` if there are labels, and counts."""
        if not samples:
            return {}
        lengths = torch.from_numpy(self.sizes[samples])
        tokens = torch.full((len(samples), int(lengths.max())), self.pad)
        types = torch.zeros_like(tokens)
        for row, index in enumerate(samples):
            example = self.split.encoded[index]
            tokens[row, : len(example.ids)] = torch.tensor(example.ids)
            types[row, : len(example.types)] = torch.tensor(example.types)
        sample = {
            "id": torch.tensor(samples),
            "net_input": {"src_tokens": tokens, "src_lengths": lengths, "token_types": types},
            "nsentences": len(samples),
            "ntokens": int(lengths.sum()),
            "split": self.name,
        }
        if self.targets is not None:
            sample["target"] = torch.from_numpy(self.targets[samples])
        return sample


class ExampleLosses:
    """Cross entropy of each classified example, or squared error of each graded one."""

    def __init__(self, pad: int, is_regression: bool) -> None:
        self.pad, self.is_regression = pad, is_regression

    def __call__(self, model: nn.Module, sample: dict[str, Any]) -> Tensor:
        """Run the model and return losses, (batch,)."""
        logits = model(**sample["net_input"])[0]
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if self.is_regression:
            return (logits.view(-1) - sample["target"]).square()
        return F.cross_entropy(logits, sample["target"], reduction="none")

    def counts(self, sample: dict[str, Any]) -> dict[str, int]:
        """Return the counts; tokens are input tokens."""
        tokens = int(sample["net_input"]["src_tokens"].ne(self.pad).sum())
        return {"sentences": sample["target"].numel(), "batches": 1, "tokens": tokens, "source_tokens": tokens}

    def positions(self, component: str, sample: dict[str, Any]) -> int:
        """Return the number of input tokens."""
        return sample["net_input"]["src_tokens"].size(1)
