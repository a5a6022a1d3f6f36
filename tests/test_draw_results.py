"""scripts/draw_results.py draws what a result holds; every picture that a README shows is in the repository."""

import re

import draw_results
import pytest
import tiny

ROOT = tiny.ROOT

#: one file of every kind -> the pictures drawn from it
FILES = {
    "multi30k/results/prune-all": ["-pruning"],
    "multi30k/results/studies/ablate-valid": ["-deltas", "-histogram"],
    "multi30k/results/studies/effects": [""],
    "multi30k/results/studies/sweep": ["-epochs-all"],
    "multi30k/results/random": [""],
    "multi30k/results/random-change-25": [""],
    "multi30k/results/scores": [""],
    "glue/results/pruners-SST-2": ["", "-layers-joint-dsp", "-layers-l0", "-layers-pipelined-dsp", "-layers-ste"],
    "multi30k/results/learned/dynamics-4": [""],
    "multi30k/results/learned/lambda": [""],
    "glue/results/speed-by-heads-cpu": ["", "-accuracy"],
    "questions/results/multi30k-narrow-1-differences": ["-batch", "-sentence", "-signed", "-token"],
    "questions/results/multi30k-narrow-2": ["", "-layers-joint-dsp", "-masks"],
    "questions/results/multi30k-narrow-5-differences": [""],
}


@pytest.mark.slow
def test_every_kind_is_drawn(tmp_path):
    paths = [str(ROOT / "examples" / f"{name}.json") for name in FILES]
    tiny.run_main(draw_results, *paths, "--out", tmp_path)
    found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.png")}
    assert found == {f"{name}{more}.png" for name, stems in FILES.items() for more in stems}


def test_results_without_a_picture_are_passed_over():
    assert list(draw_results.drawable([ROOT / "examples/multi30k/results/train.json"])) == []


@pytest.mark.parametrize(
    "readme", [ROOT / "README.md", *ROOT.glob("examples/*/README.md"), *ROOT.glob("docs/**/*.md")], ids=str
)
def test_pictures_that_are_shown_are_there(readme):
    shown = re.findall(r"!\[[^]]*\]\(([^)]+)\)", readme.read_text())
    assert all((readme.parent / path).is_file() for path in shown)
