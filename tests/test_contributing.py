"""The code of CONTRIBUTING's examples does what it says, on the package as it is."""

import re
import textwrap

import pytest
import tiny
import torch

from fairseq_headprune.importance import part_weights, settings
from fairseq_headprune.modules.attach import find_gates
from fairseq_headprune.parts import Mask, Part

TEXT = (tiny.ROOT / "CONTRIBUTING.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
RULE, ESTIMATOR = (textwrap.dedent(f"   {block}" if block.startswith("def") else block) for block in BLOCKS)


def names_of(code, **names):
    exec(code, names)
    return names


def test_the_pruning_rule():
    prune = names_of(RULE)["prune_top_down"]
    mask = Mask.full({"enc_self": [3, 2]})
    assert prune(mask, 3).kept() == [Part("enc_self", 0, 1), Part("enc_self", 0, 2)]
    with pytest.raises(ValueError, match="--top-down 6: 5 heads are kept, so give 0 to 5"):
        prune(mask, 6)


def test_the_estimator(tiny_model):
    gates = find_gates(tiny_model)
    values = names_of(ESTIMATOR, **vars(part_weights))["value_norm"](gates)
    assert {name: [len(row) for row in rows] for name, rows in values.items()} == gates.shape
    module = dict(((c, layer), module) for c, layer, module in gates.items())["enc_dec", 1]
    width = module.v_proj.weight.size(0) // module.num_heads
    second = module.v_proj.weight[width : 2 * width].double().pow(2).sum().sqrt()
    assert values["enc_dec"][1][1] == pytest.approx(float(second))
    assert not torch.equal(module.v_proj.weight[:width], module.v_proj.weight[width : 2 * width])
    assert "value-norm" not in settings.ESTIMATORS


FILES = sorted(set(re.findall(r"`((?:fairseq_headprune|tests|cli)/[\w/]+\.py)`", TEXT)))


@pytest.mark.parametrize("path", FILES)
def test_every_file_that_is_named_is_there(path):
    root = tiny.ROOT / "fairseq_headprune" if path.startswith("cli/") else tiny.ROOT
    if "top_down" not in path and "NAME" not in path:
        assert (root / path).exists()
