"""Masks and translations of one trained model: ``python -m fairseq_headprune.comparison.translate JOB.json``."""

import logging
import sys
import time
from pathlib import Path
from typing import Any

from fairseq_headprune.comparison.masks import importance_masks, learned_mask, random_mask
from fairseq_headprune.files import read_json, sha256, write_json, write_text
from fairseq_headprune.heads import HeadMask


def run(job: dict[str, Any]) -> None:
    """Translate a split under every mask of a job, and write rows of facts (each with its hypotheses' file).

    A job has ``generate`` (fairseq-generate's flags), ``split``, ``rows`` (list of method, seed, count, checkpoint,
    training), ``step``, ``sentences``, ``folder`` for hypotheses and ``product``, the file of the finished rows.
    """
    rows = []
    for checkpoint in dict.fromkeys(row["checkpoint"] for row in job["rows"]):
        mine = [row for row in job["rows"] if row["checkpoint"] == checkpoint]
        rows += _of_one_model(job, checkpoint, mine)
    write_json(job["product"], {"rows": rows})


def _of_one_model(job: dict[str, Any], checkpoint: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    # fairseq sets up logging at import; results of a process belong into its file.
    from fairseq_headprune.evaluation.statistics import corpus_metric
    from fairseq_headprune.evaluation.translate import Translator
    from fairseq_headprune.session import Session, parse_generation_args

    argv = [*job["generate"], "--path", checkpoint, "--gen-subset", job["split"]]
    session = Session(parse_generation_args("compare-pruners", argv, lambda parser: None, ""))
    session.gates.set_mask(None)
    masks = _masks(session, job, rows, checkpoint)
    translator = Translator(session, job["split"])
    metric = corpus_metric("bleu", translator.references, "13a")
    checkpoint_hash, results = sha256(checkpoint), []
    for row, (mask, facts) in zip(rows, masks, strict=True):
        began = time.perf_counter()
        with session.gates.masked(mask):
            hypotheses = translator.translate()
        name = f"{row['method']}-{row['count']}-{row['seed']}.txt"
        write_text(Path(job["folder"]) / name, "".join(line + "\n" for line in hypotheses))
        score = float(metric.score(metric.extract(hypotheses).sum(axis=0)[None])[0])
        results.append(
            {
                **row,
                **facts,
                "checkpoint": Path(checkpoint).parent.name,
                "checkpoint_sha256": checkpoint_hash,
                "bleu": round(score, 2),
                "signature": metric.signature,
                "kept": {component: n["kept"] for component, n in mask.counts().items()},
                "mask": mask.heads,
                "hypotheses": name,
                "translate_seconds": round(time.perf_counter() - began, 2),
            }
        )
    return results


def _masks(session: Any, job: dict, rows: list[dict], checkpoint: str) -> list[tuple[HeadMask, dict[str, Any]]]:
    """Return each row's mask, and facts about its making."""
    importance: dict[str, dict[int, HeadMask]] = {}
    seconds: dict[str, float] = {}
    for method, reduction in (("michel", "sentence"), ("michel-signed", "signed")):
        counts = [row["count"] for row in rows if row["method"] == method]
        if counts:
            began = time.perf_counter()
            importance[method] = importance_masks(session, counts, reduction, job["step"], job["sentences"])
            seconds[method] = round(time.perf_counter() - began, 1)
    made = []
    for row in rows:
        method, count = row["method"], row["count"]
        if method == "unpruned":
            made.append((session.gates.full(), {}))
        elif method in importance:
            made.append((importance[method][count], {"scoring_seconds": seconds[method]}))
        elif method.startswith("random"):
            made.append((random_mask(session.gates.shape, count, row["seed"]), {}))
        else:
            mask, learned = learned_mask(checkpoint, None if method == "l0-lambda" else count)
            made.append((mask, {"learned": learned}))
    return made


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    run(read_json(sys.argv[1]))
