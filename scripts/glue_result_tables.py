"""The tables of examples/glue, from its results."""

import statistics
from pathlib import Path
from typing import Any

from benchmarks import shown

from fairseq_headprune.files import read_json
from fairseq_headprune.report.tables import Marked, Table, mark_of
from fairseq_headprune.studies.pruners.tables import score_note, score_table

Tabulated = tuple[Table, str]

_TASKS = ("SST-2", "CoLA", "MRPC")
#: Budhraja et al. 2020: difference in accuracy on SST-2 from the baseline, 92.88 (Table 4; Tables 5 and 6, where a set
#: of layers here is the same share of the paper's 12), by item of the study.
_PAPER_RANDOM = {
    "random-10%": -0.40,
    "random-20%": -0.63,
    "random-30%": -0.40,
    "random-40%": -0.61,
    "random-50%": -0.88,
    "random-60%": -0.99,
    "random-70%": -2.02,
    "random-80%": -2.92,
    "random-90%": -5.77,
    "layers-top1,bottom1": -0.68,
    "layers-top3": -2.86,
    "layers-bottom3": -1.83,
    "layers-even": -2.52,
    "layers-odd": -0.68,
    "layers-middle2": -1.94,
    "layers-middle4": -4.01,
    "layers-top2,bottom2": -2.52,
}


def fine_tuned(results: Path) -> Tabulated:
    """Development scores of fine-tuned models, beside those of the same recipe in a plain loop over transformers."""
    rows: list[list[Any]] = []
    for task in ("SST-2", "MRPC", "CoLA", "RTE", "STS-B"):
        mine = [read_json(path) for path in sorted(results.glob(f"tuned-{task}-*.json"))]
        theirs = [read_json(path)["best"]["score"] for path in sorted(results.glob(f"reference-{task}-*.json"))]
        if mine:
            scores = [value["results"][0]["scores"]["score"] for value in mine]
            rows.append([task, mine[0]["metric"], len(scores), _mean(scores), _mean(theirs) if theirs else None])
    if not rows:
        raise FileNotFoundError(f"{results}/tuned-*.json")
    note = "Best epoch of three on the development set; mean, and in brackets the standard deviation over seeds."
    return Table(["task", "metric", "seeds", "bert_gated", "transformers"], rows, "llrrr"), note


def classifier_orders(results: Path) -> Tabulated:
    """The score by share of heads pruned, a column a task and order (Michel et al., Figures 3b and 6)."""
    columns = {}
    for task in _TASKS:
        for path in sorted((results / task).glob("order-*.json")):
            value = read_json(path)
            columns[f"{task}, {path.stem.removeprefix('order-')}"] = value.get("means", value["curves"])["all"], value
    if not columns:
        raise FileNotFoundError(f"{results}/*/order-*.json")
    shares = [point["percent"] for point in next(iter(columns.values()))[0]]
    rows = [
        [f"{share:.0f}%", *(_score(points[step], value["alpha"]) for points, value in columns.values())]
        for step, share in enumerate(shares)
    ]
    note = "Accuracy, Matthews, mean of accuracy and F1; ** p < 0.01 after Holm's correction, * only before it."
    return Table(["pruned", *columns], rows), note


def classifier_heads(results: Path) -> Tabulated:
    """Every head alone on two sets, and how the effects agree (Figure 2)."""
    rows: list[list[Any]] = []
    for task in _TASKS:
        if not (results / task / "effects.json").exists():
            continue
        effects = read_json(results / task / "effects.json")
        kept = {cell["layer"]: cell for cell in read_json(results / task / "keep-one.json")["cells"]}
        row: list[Any] = [task]
        for name in ("dev", "train"):
            value = read_json(results / task / f"ablate-{name}.json")
            sure = [cell["delta"] for cell in value["cells"] if cell["p_holm"] < value["alpha"]]
            row += [f"{sum(d < 0 for d in sure)} / {sum(d > 0 for d in sure)}"]
        row += [f"{effects[name]['value']:+.2f} (p = {effects[name]['p']:.1g})" for name in ("pearson", "spearman")]
        alpha = value["alpha"]
        worst = min(kept.values(), key=lambda cell: cell["delta"])
        mark = mark_of(worst["p"], worst["p_holm"], alpha)
        rows.append([*row, Marked(f"{worst['delta']:+.2f} (layer {worst['layer'] + 1})", mark)])
    if not rows:
        raise FileNotFoundError(f"{results}/*/effects.json")
    header = ["task", "lose / gain, dev", "lose / gain, train", "Pearson", "Spearman", "worst layer with one head"]
    note = (
        "Of 72 heads, how many change the score significantly when masked alone (p < 0.01 after Holm's correction), on "
        "the development set and on train; correlation of the effects on both; the largest loss with the best single "
        "head of a layer, chosen on train (** significant after Holm's correction)."
    )
    return Table(header, rows, "lrrrrr"), note


def classifier_pruners(results: Path) -> Tabulated:
    """Every pruning method and number of heads on SST-2, in the form of Li et al. 2021, Table 3."""
    value = read_json(results / "pruners-SST-2.json")
    return score_table(value["points"], value["alpha"]), score_note(value)


def classifier_random(results: Path) -> Tabulated:
    """Random heads and whole layers pruned before fine-tuning on SST-2, beside the paper's differences."""
    value = read_json(results / "random-SST-2.json")
    rows: list[list[Any]] = [["0%", "none", f"{value['baseline']['score']:.2f}", None, None, None]]
    for item in value["items"]:
        difference = Marked(f"{item['delta']:+.2f}", mark_of(item["p"], item["p_holm"], value["alpha"]))
        spread = None if item["sd"] is None else f"{item['sd']:.2f}"
        paper = _PAPER_RANDOM.get(item["item"])
        what = "random heads" if item["kind"] == "random" else f"layers {item['text'].replace(':', ' ')}"
        theirs = None if paper is None else f"{paper:+.2f}"
        rows.append([f"{item['percent']:.0f}%", what, f"{item['score']:.2f}", difference, spread, theirs])
    samplings = max(item["samplings"] for item in value["items"])
    note = (
        f"Mean of {samplings} samplings, each fine-tuned, and its difference from the unpruned models of the same "
        f"seeds; {value['signature']}; ** p < {value['alpha']:g} after Holm's correction, * only before it (paired "
        "bootstrap). The paper's differences are BERT-base's, for the same shares of its layers."
    )
    return Table(["pruned", "what", "accuracy", "difference", "sd", "paper"], rows, "llrrrr"), note


def bench_finetune(results: Path) -> Tabulated:
    """Throughput of fine-tuning beside a plain loop over transformers."""
    rows: list[list[Any]] = []
    for path in sorted(results.glob("bench-finetune-*.json")):
        value = read_json(path)
        where = value["environment"]["gpu"] or f"{value['environment']['threads']} CPU threads"
        for side, found in value["sides"].items():
            speeds = [shown(found["examples_per_second"], 0), shown(found["speed_to_huggingface"])]
            rows.append([f"{where}, {value['precision']}", value["task"], side, *speeds])
    if not rows:
        raise FileNotFoundError(f"{results}/bench-finetune-*.json")
    note = f"The same batches; median (min-max) of {value['rounds']} interleaved rounds."
    return Table(["device", "task", "loop", "examples/s", "speed"], rows, "lllrr"), note


def _mean(scores: list[float]) -> str:
    spread = f" ({statistics.stdev(scores):.2f})" if len(scores) > 1 else ""
    return f"{statistics.mean(scores):.2f}{spread}"


def _score(point: dict[str, Any], alpha: float) -> Any:
    if "sd" in point:
        return f"{point['score']:.1f} (sd {point['sd']:.1f})"
    return Marked(f"{point['score']:.1f}", mark_of(point["p"], point["p_holm"], alpha))
