"""The results of a sweep over epochs: curves and rankings by epoch, as numbers and as a document."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fairseq_headprune.evaluation.correlation import correlations
from fairseq_headprune.parts.scores import Scores
from fairseq_headprune.pruning import curves
from fairseq_headprune.report.document import Document, EpochCurves
from fairseq_headprune.report.marks import Family
from fairseq_headprune.report.tables import Marked, Table
from fairseq_headprune.studies.curves import curve_name, in_curves, line, order_name
from fairseq_headprune.studies.epochs import epoch_list
from fairseq_headprune.studies.folder import StudyFolder
from fairseq_headprune.studies.study import UNPRUNED, Done

#: Share of the unpruned BLEU that the summary requires to be kept (85 to 90% in Michel et al. 2019, §6).
KEPT = 0.9


def epoch_path(sweep: Path, epoch: int) -> Path:
    """Return the folder of an epoch's pruning study in the folder of a sweep."""
    return sweep / "epochs" / f"{epoch:03d}"


def read_sweep(folder: StudyFolder, epochs: Sequence[Done], keep: Sequence[int]) -> dict[str, Any]:
    """Collect the finished epochs of a sweep.

    Args:
        epochs: their cells, in ascending order.
        keep: sizes of the sets of most important heads (empty: a quarter, half and three quarters of the heads).

    Returns:
        ``epochs``: one row per epoch, see :func:`epoch_row`; ``ranking``: curve -> its evolution, see
        :func:`evolution`; ``kept_within``: curve -> epoch -> :func:`kept_within`.
    """
    studies = {epoch["epoch"]: StudyFolder(epoch_path(folder.path, epoch["epoch"])) for epoch in epochs}
    scores = {number: Scores.load(study.path / "scores.json") for number, study in studies.items()}
    if not studies:
        return {"epochs": [], "ranking": {}, "kept_within": {}}
    parts = curves(folder.settings["components"], list(next(iter(scores.values())).shape))
    rows = [epoch_row(studies[epoch["epoch"]], epoch, list(parts)) for epoch in epochs]
    ranking = {}
    for label, components in parts.items():
        heads = len(next(iter(scores.values())).pruning_order(components))
        sizes = keep or sorted({max(1, round(heads * share)) for share in (0.25, 0.5, 0.75)})
        ranking[label] = evolution(scores, components, [size for size in sizes if size < heads])
    return {
        "epochs": rows,
        "ranking": ranking,
        "kept_within": {label: {str(row["epoch"]): kept_within(row, label) for row in rows} for label in parts},
    }


def epoch_row(folder: StudyFolder, epoch: Done, labels: list[str]) -> dict[str, Any]:
    """Return the curves of one epoch with ``relative``, each score divided by the epoch's unpruned score.

    Args:
        folder: the finished pruning study of that epoch.
        epoch: its cell in the sweep.
        labels: names of the curves.
    """
    cells = folder.cells()
    unpruned = cells.pop(UNPRUNED)
    found = in_curves(unpruned, cells.values(), labels, False)
    for points in found.values():
        for point in points:
            point["relative"] = point["score"] / unpruned["score"] if unpruned["score"] else None
    whole = {"epoch": epoch["epoch"], "checkpoint": epoch["checkpoint"], "study": str(folder.path)}
    return {**whole, "baseline": unpruned, "curves": found}


def kept_within(row: dict[str, Any], label: str) -> float | None:
    """Percentage of pruned heads up to which every step of an epoch keeps 90% of its unpruned BLEU."""
    best = None
    for point in row["curves"][label]:
        if point["relative"] is None or point["relative"] < KEPT:
            break
        best = point["percent"]
    return best


def sweep_document(study: Any, cells: Mapping[str, Done]) -> Document:
    """Report how scores and rankings evolve over the finished epochs of a sweep."""
    measure, folder = study.measure, study.folder
    epochs = sorted(cells.values(), key=lambda cell: cell["epoch"])
    value = read_sweep(folder, epochs, study.keep)
    rows = value["epochs"]
    tested = [[point for points in row["curves"].values() for point in points[1:]] for row in rows]
    # Holm's correction is over the steps of one epoch.
    family = study.family(max(map(len, tested), default=1))
    baseline = rows[-1]["baseline"] if rows else None
    title = f"Pruning at every epoch, on {study.split} (order: {order_name(study.settings)})"
    document = study.document(title, baseline, _missing(folder, epochs), family.count, len(epochs))
    if not rows:
        return document
    for label, ranking in value["ranking"].items():
        table = epoch_table(rows, label, value["kept_within"][label], family, measure)
        document.tables += [table, ranking_table(ranking)]
        score = f"{measure} on {study.split}"
        document.charts.append(epochs_chart(rows, label, measure, score, study.alpha, study.panel))
    document.notes = [family.legend(), rows[0]["baseline"]["signature"]]
    document.findings = _found(rows, value["kept_within"])
    document.data = {**value, **document.data, "signature": rows[0]["baseline"]["signature"]}
    document.data.pop("checkpoint")
    return document


def _missing(folder: StudyFolder, epochs: Sequence[Done]) -> list[str]:
    done = [cell["epoch"] for cell in epochs]
    begun = {int(path.name) for path in (folder.path / "epochs").glob("[0-9]*") if (path / "study.json").is_file()}
    begun -= set(done)
    missing = [f"epoch {epoch} is begun and not finished" for epoch in sorted(begun)]
    missing += [] if epochs else ["no epoch is finished yet"]
    gaps = sorted(set(range(min(done), max(done))) - {*done, *begun}) if done else []
    return missing + ([f"no result for epochs {epoch_list(gaps)}"] if gaps else [])


def epoch_table(
    rows: Sequence[Mapping[str, Any]], label: str, kept: Mapping[str, float | None], family: Family, measure: str
) -> Table:
    """Tabulate the scores of a curve by epoch, and how far it keeps most of the unpruned score.

    Args:
        rows, kept: ``epochs``, and the curve's ``kept_within``, of :func:`read_sweep`.
    """
    body: list[list[Any]] = []
    for row in rows:
        points = row["curves"][label]
        texts = [f"{p['score']:.2f}" + ("" if p["relative"] is None else f" ({p['relative']:.0%})") for p in points]
        marks = [family.mark(point) for point in points]
        most = kept[str(row["epoch"])]
        last = None if most is None else f"{most:.0f}%"
        body.append([str(row["epoch"]), texts[0].split()[0], *map(Marked, texts[1:], marks[1:]), last])
    percents = [f"{point['percent']:.0f}%" for point in rows[0]["curves"][label]]
    caption = f"{measure} by epoch and share of heads pruned ({curve_name(label)})"
    return Table(["Epoch", *percents, f"{KEPT:.0%} kept up to"], body, caption=caption)


def ranking_table(ranking: dict[str, Any]) -> Table:
    """Tabulate how a ranking evolves (see :func:`evolution`)."""
    rows = []
    for place, epoch in enumerate(ranking["epochs"]):
        rho = ranking["spearman"][place][-1]
        shared = [str(found["shared"][place]) for found in ranking["sets"]]
        rows.append([str(epoch), "not defined" if rho is None else f"{rho:.3f}", *shared])
    header = ["Epoch", "Spearman", *(f"K = {found['keep']}" for found in ranking["sets"])]
    caption = "Spearman's correlation of the ranking with the last epoch's, and heads shared with its best K"
    notes = [
        f"the final {found['keep']} heads are first reached at epoch {found['first']} and stay from epoch "
        f"{found['stays_from']} on"
        for found in ranking["sets"]
    ]
    return Table(header, rows, caption=caption, notes=notes)


def epochs_chart(
    rows: Sequence[Mapping[str, Any]], label: str, measure: str, caption: str, alpha: float, panel: Sequence[int] = ()
) -> EpochCurves:
    """Return the chart of a curve by epoch.

    Args:
        rows: ``epochs`` of :func:`read_sweep`.
        panel: epochs in the right panel (default: the first two and the last two).
    """
    numbers = [row["epoch"] for row in rows]
    chosen = [epoch for epoch in panel if epoch in numbers] or sorted({*numbers[:2], *numbers[-2:]})
    epochs = [
        {
            "epoch": row["epoch"],
            "unpruned": row["baseline"]["score"],
            "points": line("", row["curves"][label])["points"],
        }
        for row in rows
    ]
    title = f"Heads pruned: {curve_name(label)}"
    return EpochCurves(caption, measure, title, epochs, chosen, f"epochs-{label}", alpha)


def _found(rows: list[dict], shares: dict[str, dict[str, float | None]]) -> list[str]:
    """Report for each curve, at the first and last epoch, the share of heads prunable within 90% of the score."""
    lines = []
    for label, of_epoch in shares.items():
        first, last = (rows[place]["epoch"] for place in (0, -1))
        texts = {epoch: _share(of_epoch[str(epoch)]) for epoch in (first, last)}
        lines.append(
            f"{curve_name(label)}: within 90% of the unpruned score, {texts[last]} can go at epoch {last}"
            + (f", {texts[first]} at epoch {first}" if first != last else "")
        )
    return lines


def _share(percent: float | None) -> str:
    return "no known share (its score is 0)" if percent is None else f"{percent:.0f}% of the heads"


def evolution(scores: Mapping[int, Scores], components: Sequence[str], keep: Sequence[int]) -> dict[str, Any]:
    """Compare the rankings of several epochs.

    Args:
        scores: epoch -> scores of the same heads, in ascending order of epochs.
        components: whose heads are ranked together.
        keep: sizes of the sets of most important heads.

    Returns:
        ``epochs``; ``spearman``: matrix of coefficients, epochs by epochs, ``None`` if the scores of one side are all
        equal; ``sets``: for each size in ``keep`` the heads kept at the last epoch (``final``), the first epoch that
        keeps exactly these (``first``), the epoch from which they stay (``stays_from``), and how many of them each
        epoch keeps (``shared``).
    """
    epochs = list(scores)
    orders = {epoch: found.pruning_order(components) for epoch, found in scores.items()}
    values = {epoch: [scores[epoch][head] for head in sorted(order)] for epoch, order in orders.items()}
    return {
        "epochs": epochs,
        "spearman": [[_spearman(values[a], values[b]) for b in epochs] for a in epochs],
        "sets": [_final_set(orders, size) for size in keep],
    }


def _spearman(x: list, y: list) -> float | None:
    try:
        return correlations(x, y)["spearman"].value
    except ValueError:
        return None  # no variance or too few heads: no ranking to compare


def _final_set(orders: Mapping[int, list], size: int) -> dict[str, Any]:
    kept = {epoch: set(order[len(order) - size :]) for epoch, order in orders.items()}
    final = kept[max(kept)]
    same = [epoch for epoch in kept if kept[epoch] == final]
    other = [epoch for epoch in kept if kept[epoch] != final]
    return {
        "keep": size,
        "final": [list(head) for head in sorted(final)],
        "first": min(same),
        "stays_from": min(epoch for epoch in same if not other or epoch > max(other)),
        "shared": [len(heads & final) for heads in kept.values()],
    }
