"""``headprune keep-one`` on a tiny checkpoint."""

import pytest
from tiny import SHAPE
from verbs import BEAM, generated, holm_by_hand, refused, run_json
from verbs import cells as cells_of

from fairseq_headprune.cli import main
from fairseq_headprune.files import read_lines
from fairseq_headprune.parts import Mask, Part, all_heads
from fairseq_headprune.report.marks import Family
from fairseq_headprune.studies.keep_one import best_of_layers, layer_table


@pytest.fixture(scope="module")
def across(flags, tmp_path_factory):
    """Chosen on valid, reported on test: {"folder", "document"}."""
    folder = tmp_path_factory.mktemp("across") / "study"
    return {"folder": folder, "document": run_json("keep-one", *flags, "-o", folder)}


@pytest.fixture(scope="module")
def within(flags, tmp_path_factory):
    """Chosen and reported on test."""
    folder = tmp_path_factory.mktemp("within") / "study"
    return {"folder": folder, "document": run_json("keep-one", *flags, "-o", folder, "--select-subset", "test")}


def cell_ids(folder):
    return [cell["id"] for cell in cells_of(folder)]


def best_by_hand(cells):
    """component, layer -> head: the highest score, the lowest index of equal ones."""
    best = {}
    for cell in cells:
        layer = cell["component"], cell["layer"]
        best[layer] = min(best.get(layer, (0.1, 0)), (-cell["score"], cell["head"]))
    return {layer: head for layer, (_, head) in best.items()}


def chosen(document):
    return {(cell["component"], cell["layer"]): cell["head"] for cell in document["cells"]}


def test_masks_keep_just_one_head_of_the_layer(across):
    tried = across["document"]["candidates"]
    # Source: by hand: two heads in each of six layers, all tried on valid.
    assert [(c["component"], c["layer"], c["head"]) for c in tried] == list(map(tuple, all_heads(SHAPE)))
    for cell in tried:
        component, layer, head = cell["component"], cell["layer"], cell["head"]
        dropped = Mask.load(across["folder"] / "masks" / f"{cell['id']}.json").dropped()
        assert cell["id"].startswith("valid@") and dropped == [Part(component, layer, 1 - head)]


def test_heads_are_chosen_on_the_select_split_only(across, within):
    # Source: the scores of all heads on valid, by hand.
    assert chosen(across["document"]) == best_by_hand(across["document"]["candidates"])
    # Negative control: test would have chosen others.
    assert chosen(within["document"]) == best_by_hand(within["document"]["candidates"])
    assert chosen(across["document"]) != chosen(within["document"])


def test_what_is_reported_is_from_the_gen_split(across, within, lively):
    # Source: the study within test, which tried all heads there; fairseq-generate under the mask.
    on_test = {(c["component"], c["layer"], c["head"]): c for c in within["document"]["candidates"]}
    document = across["document"]
    for cell in document["cells"]:
        same = on_test[cell["component"], cell["layer"], cell["head"]]
        assert (cell["score"], cell["delta"], cell["p"]) == (same["score"], same["delta"], same["p"])
        assert cell["delta"] == pytest.approx(cell["score"] - document["baseline"]["score"])
    cell = document["cells"][2]
    argv = [lively["data"], "--path", lively["checkpoint"], *BEAM, "--task", "translation_headprune", "--head-mask"]
    found = read_lines(across["folder"] / "hyps" / f"{cell['id']}.txt")
    assert found == generated("D", *argv, across["folder"] / "masks" / f"{cell['id']}.json")
    assert document["data"]["split"] == "test" and document["select_data"]["split"] == "valid"
    # 1 + 12 cells on valid, 1 + 6 on test.
    assert len(cell_ids(across["folder"])) == 20 and len(cell_ids(within["folder"])) == 13


def test_holm_is_over_what_was_tested(across, within):
    # Source: Holm by hand: over 6 layers across splits, over all 12 heads within one.
    for cells in (across["document"]["cells"], within["document"]["candidates"]):
        assert [cell["p_holm"] for cell in cells] == pytest.approx(holm_by_hand([cell["p"] for cell in cells]))
    tried = {cell["id"]: cell["p_holm"] for cell in within["document"]["candidates"]}
    assert all(cell["p_holm"] == tried[cell["id"]] for cell in within["document"]["cells"])


def test_of_equal_scores_the_first_head_is_taken():
    # Source: by hand.
    scores = [(0, 0, 1.0), (0, 1, 2.0), (0, 2, 2.0), (1, 0, 0.0), (1, 1, 0.0)]
    heads = {Part("enc_dec", layer, head): score for layer, head, score in scores}
    assert [head.index for head in best_of_layers(heads)] == [1, 0]


def test_the_table_of_the_paper():
    # Source: Michel et al. (2019), Table 2, layers 1 and 6; the heads, marks and the single head are made up.
    rows = [
        ("enc_self", 0, 4, -1.31, 0.0, 0.0), ("dec_self", 0, 0, -0.03, 0.5, 1.0),
        ("enc_dec", 1, 15, -13.56, 0.005, 0.02), ("dec_self", 1, 2, 0.24, 0.2, 1.0),
    ]  # fmt: skip
    names = ("component", "layer", "head", "delta", "p", "p_holm")
    skipped = [{"component": "enc_dec", "layer": 0, "heads": [7]}, {"component": "enc_self", "layer": 1, "heads": []}]
    cells = [dict(zip(names, row, strict=True)) for row in rows]
    table = layer_table(cells, skipped, Family(0.01, 1000, 1, 4))
    assert table.render("markdown").splitlines() == [
        "| Layer | Enc-Enc | Enc-Dec | Dec-Dec |",
        "| --: | --: | --: | --: |",
        r"| 1 | -1.31 (5)\*\* | +0.00 (8) | -0.03 (1) |",
        r"| 2 | - | -13.56 (16)\* | +0.24 (3) |",
    ]


def test_layers_of_one_head_are_passed_over_and_named(flags, tmp_path, capsys):
    mask = Mask.full(SHAPE).without([Part("enc_dec", 0, 0), Part("enc_dec", 1, 0)])
    mask = mask.without([Part("dec_self", 1, 0), Part("dec_self", 1, 1)])
    mask.save(tmp_path / "mask.json")
    argv = ["keep-one", *map(str, flags), "-o", str(tmp_path / "s"), "--head-mask", str(tmp_path / "mask.json")]
    assert main([*argv, "--components", "enc_dec,dec_self", "--select-subset", "test"]) == 0
    out = capsys.readouterr().out
    # Source: by hand: dec_self layer 1 alone has a choice.
    assert cell_ids(tmp_path / "s") == ["test@unpruned", "test@dec_self-0-0", "test@dec_self-0-1"]
    assert "Enc-Dec layer 1 was passed over: it has one head anyway (difference 0)" in out
    assert "Dec-Dec layer 2 was passed over: it has no head anyway" in out and "+0.00 (2)" in out
    assert "over all 2 heads that were tried" in out and "of 1 layers; " in out
    mask.without([Part("dec_self", 0, 0)]).save(tmp_path / "less.json")
    line = refused(capsys, *argv[:-1], tmp_path / "less.json", "--components", "dec_self", "-o", tmp_path / "t")
    assert "nothing to choose from" in line and not (tmp_path / "t").exists()


def test_another_select_split_is_another_study(across, flags, capsys):
    line = refused(capsys, "keep-one", *flags, "-o", across["folder"], "--select-subset", "train")
    assert "select_data.split" in line
    assert "has no split 'dev'; there are: test, train, valid" in refused(
        capsys, "keep-one", *flags, "-o", "x", "--select-subset", "dev"
    )
