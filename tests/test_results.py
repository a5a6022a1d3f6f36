"""Reading finished studies: Holm, differences, and the oracle order, by hand."""

import pytest
from ablations import SHAPE, write_ablation

from fairseq_headprune.parts import Mask, Part
from fairseq_headprune.studies.folder import StudyFolder
from fairseq_headprune.studies.results import Ablation, with_holm


def test_holm_over_the_cells():
    # By hand: 3 x .01; max(.03, 2 x .03); max(.06, 1 x .04).
    cells = with_holm([{"id": "a", "p": 0.01}, {"id": "b", "p": 0.04}, {"id": "c", "p": 0.03}])
    assert [cell["p_holm"] for cell in cells] == pytest.approx([0.03, 0.06, 0.06])
    assert [cell["id"] for cell in cells] == ["a", "b", "c"]


def test_differences_are_to_the_unpruned_model(tmp_path):
    study = Ablation(write_ablation(tmp_path / "s", [0.5, -1.0, 0.25, -4.0, 0.0]))
    assert study.baseline["score"] == 30.0
    assert [cell["delta"] for cell in study.cells.values()] == [0.5, -1.0, 0.25, -4.0, 0.0]


def test_the_oracle_prunes_first_what_hurts_least(tmp_path):
    # By hand, Michel et al. (2019), §4.2: highest difference first; of equal ones the highest index.
    scores = Ablation(write_ablation(tmp_path / "s", [-1.0, 0.5, 0.25, -4.0, 0.5], "valid")).oracle()
    places = [(1, 1), (0, 1), (0, 2), (0, 0), (1, 0)]
    assert scores.pruning_order() == [Part("enc_self", layer, head) for layer, head in places]
    assert scores.data["split"] == "valid" and scores.checkpoint["sha256"] == "c" * 64
    assert scores.estimator == "oracle" and scores[Part("enc_self", 1, 0)] == 4.0


def test_heads_that_were_not_removed_have_no_score(tmp_path):
    start = Mask.full(SHAPE).without([Part("enc_self", 1, 1)])
    scores = Ablation(write_ablation(tmp_path / "s", [0.1, 0.2, 0.3, 0.4], start=start.rows)).oracle()
    assert scores[Part("enc_self", 1, 1)] is None
    assert len(scores.pruning_order()) == 4


def test_what_is_no_finished_ablation_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no such folder"):
        Ablation(tmp_path / "nowhere")
    StudyFolder.open(tmp_path / "prune", {"study": "prune"})
    with pytest.raises(ValueError, match="is a study of headprune prune"):
        Ablation(tmp_path / "prune")
    with pytest.raises(ValueError, match="not finished .3 of 5 heads are done."):
        Ablation(write_ablation(tmp_path / "part", [0.1, 0.2, 0.3]))
