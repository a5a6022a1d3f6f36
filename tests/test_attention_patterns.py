"""Attention maps and their patterns: against slow computations, by definition, and the verbs on a tiny model."""

import json

import pytest
import tiny
import torch
from sklearn.metrics import f1_score
from tiny import SHAPE
from verbs import refused, run_json, write_lively

from fairseq_headprune.cli.open import version
from fairseq_headprune.cli.report import document
from fairseq_headprune.importance.attention_maps import sentence_maps, value_norms
from fairseq_headprune.modules.attach import find_gates
from fairseq_headprune.parts import Mask, Part, all_heads
from fairseq_headprune.patterns.classifier import classify, network, quality, train
from fairseq_headprune.patterns.examples import (
    PATTERNS,
    SIZE,
    band_excess,
    canvas,
    column_excess,
    divided,
    made_up,
    made_up_map,
    read_annotated,
)
from fairseq_headprune.report.page.document import render
from fairseq_headprune.studies import attention_patterns


def test_norms_by_hand():
    # Two heads of width 2 in a model of width 2: head 0 adds (v0, 0), head 1 adds (2 v1, 2 v1).
    output = torch.tensor([[1.0, 0.0, 0.0, 2.0], [0.0, 0.0, 0.0, 2.0]])
    values = torch.tensor([[[[3.0, 4.0], [-1.0, 0.0]], [[5.0, 1.0], [7.0, -2.0]]]])
    assert torch.allclose(value_norms(values, output), torch.tensor([[[3.0, 1.0], [8**0.5, 2 * 8**0.5]]]))


def test_maps_of_a_model_equal_a_slow_computation():
    # Source: Kobayashi et al. 2020 (f(x) of each key), key by key, from the inputs of each module.
    model = tiny.make_model()
    generator = torch.Generator().manual_seed(5)
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn(parameter.shape, generator=generator)
    gates, sample, inputs = find_gates(model), tiny.make_batch(), {}
    hooks = [
        module.register_forward_hook(
            lambda _, __, kwargs, ___, at=(c, i): inputs.update({at: kwargs["key"]}), with_kwargs=True
        )
        for c, i, module in gates.items()
    ]
    found = list(sentence_maps(model, gates, sample, tiny.make_task(), norms=True))
    for hook in hooks:
        hook.remove()
    assert len(found) == 6 * 3
    for entry in found:
        place, row = entry.attention, sample["id"].tolist().index(entry.sentence)
        words, translated = tiny.SENTENCES[entry.sentence]
        target, source = len(translated) + 1, len(words) + 1
        sizes = {"enc_self": (source, source), "enc_dec": (target, source), "dec_self": (target, target)}
        assert entry.maps.shape == entry.normed.shape == (2, *sizes[place.component])
        assert torch.allclose(entry.maps.sum(-1), torch.ones(2, sizes[place.component][0]), atol=1e-5)
        module = gates.modules[place.component][place.layer]
        width = module.head_dim
        rows = inputs[place.component, place.layer][:, row]
        rows = rows[-source:] if place.component != "dec_self" else rows[:target]  # sources are padded on the left
        for head in range(2):
            part = slice(head * width, (head + 1) * width)
            for key, x in enumerate(rows):
                value = module.v_proj.weight[part] @ x + module.v_proj.bias[part]
                norm = (module.out_proj.weight[:, part] @ value).norm()
                assert torch.allclose(entry.normed[head, :, key], entry.maps[head, :, key] * norm, rtol=1e-4, atol=1e-6)
    assert all(m.on_weights is None and not m.v_proj._forward_hooks for _, _, m in gates.items())


def test_canvas():
    found = canvas(torch.stack([torch.eye(8), torch.zeros(8, 8)]))
    assert torch.equal(found[0], torch.eye(8).repeat_interleave(4, 0).repeat_interleave(4, 1)) and not found[1].any()
    assert canvas(torch.rand(1, 50, 9)).shape == (1, SIZE, SIZE) and canvas(torch.rand(1, 50, 9)).max() == 1


@pytest.mark.parametrize("component", SHAPE)
def test_made_up_maps_by_definition(component):
    # Source: Kovaleva et al. 2019, §4.1, as inequalities: 0 is as even attention, 1 is all of it.
    chance = torch.Generator().manual_seed(1)
    for pattern in PATTERNS:
        for _ in range(40):
            found = made_up_map(pattern, component, False, chance)
            assert torch.allclose(found.sum(1), torch.ones(len(found))) and (found >= 0).all()
            assert component != "dec_self" or not found.triu(1).any()
            assert component == "enc_dec" or found.size(0) == found.size(1)
            band, column = band_excess(found), column_excess(found)
            if pattern == "diagonal":
                assert band > 0.25
            elif pattern == "vertical":
                assert column > 0.25
            elif pattern == "heterogeneous":
                assert max(band, column) < 0.3
            elif pattern == "block" and component == "enc_self":
                # Segments are a fifth of the sentence or more, and weights within one differ by a factor of 1.5.
                large = (found > found.amax(1, keepdim=True) / 2).sum(1).float()
                assert large.median() >= 0.2 * len(found) - 1
            elif pattern == "vertical+diagonal":
                assert band > 0.05 and column > 0.05
    raw, normed = (made_up_map("block", "enc_self", x, torch.Generator().manual_seed(2)) for x in (False, True))
    ratio = normed / raw  # one factor a column
    assert torch.allclose(ratio, ratio[:1].expand_as(ratio), rtol=1e-3) and ratio[0].std() > 0.1
    with pytest.raises(KeyError, match="no attention pattern 'dots'"):
        made_up_map("dots", component, False, chance)


@pytest.mark.slow
def test_the_classifier_learns_and_is_deterministic():
    assert [type(layer).__name__ for layer in network()].count("Conv2d") == 4  # and two linear ones: six in all
    learned, held = made_up(["enc_self"], False, 60, 1), made_up(["enc_self"], False, 20, 2)
    labels, state = torch.tensor(learned.labels), torch.random.get_rng_state()
    once, again = (train(learned.maps, labels, 1, epochs=1)(held.maps[:, None]) for _ in range(2))
    assert torch.equal(once, again) and torch.equal(state, torch.random.get_rng_state())
    found = classify(train(learned.maps, labels, 1), held.maps)
    told = quality(held.labels, found.tolist())
    assert told.maps == [20] * 5 and told.weighted_f1 > 0.7  # by chance 0.2
    assert told.weighted_f1 == pytest.approx(f1_score(held.labels, found, average="weighted"))


def test_quality_by_hand():
    # Pattern 0 is found twice of three times, and called once where it is not; 1 is found, and called once too often.
    found = quality([0, 0, 0, 1, 2], [0, 0, 1, 1, 0])
    assert found.precision == pytest.approx([2 / 3, 1 / 2, 0, 0, 0])
    assert found.recall == pytest.approx([2 / 3, 1, 0, 0, 0])
    assert found.weighted_f1 == pytest.approx((3 * 2 / 3 + 1 * 2 / 3) / 5) and found.maps == [3, 1, 1, 0, 0]


def annotated(folder, count=4):
    chance = torch.Generator().manual_seed(1)
    lines = [
        json.dumps({"pattern": name, "map": made_up_map(name, "enc_self", False, chance).tolist()})
        for name in PATTERNS
        for _ in range(count)
    ]
    (folder / "maps.jsonl").write_text("\n".join(lines) + "\n")
    return folder / "maps.jsonl"


def test_annotated_maps(tmp_path):
    path = annotated(tmp_path)
    maps = read_annotated(path, normed=False)
    assert len(maps) == 20 and read_annotated(path, normed=True) == []
    learned, held = divided(maps, path, 1)
    assert sorted(learned.labels) == sorted([*range(5)] * 3) and sorted(held.labels) == [*range(5)]
    with pytest.raises(ValueError, match="one map of the pattern vertical;"):
        divided(maps[:5], path, 1)
    for line, message in (
        ('{"pattern": "dots", "map": [[1, 0], [0, 1]]}', "give a pattern of diagonal"),
        ('{"pattern": "block", "map": [[1, 0], [0]]}', "all of the same length"),
        ('{"pattern": "block", "map": [[1, -1], [0, 1]]}', "finite numbers of 0 or more"),
        ('{"pattern": "block", "map": 3}', "two or more rows"),
        ('{"pattern": "block"', "line 1"),
    ):
        path.write_text(line)
        with pytest.raises(ValueError, match=message):
            read_annotated(path, normed=False)


@pytest.fixture
def tickets(lively, tmp_path):
    """Tickets of a search in the lively model, and of another one, by hand."""
    from fairseq_headprune.files import sha256

    full = Mask.full({**SHAPE, "enc_ffn": [1, 1], "dec_ffn": [1, 1]})
    good = full.without(all_heads(SHAPE)[:4])
    for name, mask, of in (("1/good", good, "a" * 64), ("2/good", good, sha256(lively["checkpoint"]))):
        mask.source = {"ticket": "good", "checkpoints": [of]}
        (tmp_path / "tickets" / name).parent.mkdir(parents=True)
        mask.save(tmp_path / "tickets" / f"{name}.json")
    full.without(all_heads(SHAPE)[:9]).save(tmp_path / "tickets" / "super-survivors.json")
    return tmp_path / "tickets"


@pytest.fixture(scope="module")
def lively(trained, tmp_path_factory):
    return write_lively(trained, tmp_path_factory.mktemp("lively"))


def test_the_verb(lively, tickets, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(attention_patterns, "_MADE_UP", (6, 2))
    flags = [lively["data"], "--path", lively["checkpoint"], "--cpu", "--sentences", "5", "--tickets", tickets]
    found = run_json("lottery", "patterns", *flags, "-o", tmp_path / "p")
    sizes = {name: len(heads) for name, heads in found["groups"].items()}
    assert sizes == {"super-survivors": 3, "survivors": 5, "the rest": 4, "all heads": 12}
    assert all(sum(head["raw"]) == sum(head["normed"]) == 5 for head in found["heads"])
    # The 3 super-survivors are decoder heads; each share is of 3 x 5 maps.
    counted = [sum(column) / 15 for column in zip(*(head["raw"] for head in found["heads"][-3:]), strict=True)]
    assert found["shares"]["raw"]["Dec-Dec, super-survivors"] == pytest.approx(counted)
    assert set(found["classifier"]["raw"]) == set(SHAPE) and found["classifier"]["raw"]["enc_dec"]["maps"] == [2] * 5
    assert {"patterns-raw.svg", "heterogeneous-normed.png", "document.json"} <= {
        p.name for p in (tmp_path / "p").iterdir()
    }
    page = document([tmp_path / "p"], "title")
    assert len(page["studies"][0]["pictures"]) == 2 and "human annotation" in json.dumps(page)
    assert "data:image/svg+xml" in render(page)
    for folder, message in ((tmp_path, "has no super-survivors.json"), (tickets, "has no ticket of")):
        (tickets / "2" / "good.json").unlink(missing_ok=True)
        line = refused(capsys, "lottery", "patterns", *flags[:-1], folder, "-o", tmp_path / "o")
        assert message in line and not (tmp_path / "o").exists()
    assert "holds something else" in refused(capsys, "lottery", "patterns", *flags[:-2], "-o", tickets)


def test_maps_of_one_sentence(lively, tmp_path, capsys):
    mask = Mask.full(SHAPE).without([Part("enc_self", 0, 1)])
    mask.save(tmp_path / "mask.json")
    flags = [lively["data"], "--path", lively["checkpoint"], "--cpu", "--head-mask", tmp_path / "mask.json"]
    found = run_json("attention", *flags, "--sentence", "3", "-o", tmp_path / "s")
    maps, source = found["components"], (lively["data"].parent / "test.xx").read_text().splitlines()[2].split()
    assert maps["enc_self"]["keys"] == maps["enc_dec"]["keys"] == [*source, "</s>"]
    assert maps["enc_dec"]["queries"] == maps["dec_self"]["queries"] == ["</s>", *reversed(source)]
    gone = [head for head in all_heads(SHAPE) if maps[head.component]["layers"][head.layer][head.index] is None]
    assert gone == [Part("enc_self", 0, 1)]
    assert all(sum(row) == pytest.approx(1, abs=1e-3) for row in maps["enc_dec"]["layers"][1][0])
    assert len(maps["enc_dec"]["layers"][1][0]) == len(source) + 1
    drawn = (tmp_path / "s" / "attention-enc_self.svg").read_text()
    assert "pruned" in drawn and "head-1-1" in drawn and source[0] in drawn
    [entry] = document([tmp_path / "s"], "title")["studies"]
    assert [picture["caption"].split(":")[0] for picture in entry["pictures"]] == ["Enc-Enc", "Enc-Dec", "Dec-Dec"]
    assert version([tmp_path / "s"]) == version([tmp_path / "s"])  # as headprune open asks
    normed = run_json("attention", *flags, "--sentence", "3", "--normed", "-o", tmp_path / "n")
    assert normed["components"]["dec_self"]["layers"][0][0] != maps["dec_self"]["layers"][0][0]
    assert "test has the sentences 1 to 8" in refused(
        capsys, "attention", *flags, "--sentence", "9", "-o", tmp_path / "o"
    )


def test_bert(tuned, tmp_path, monkeypatch):
    # A sentence of SST-2 in word pieces, between [CLS] and [SEP]; tokens attend to all of it.
    monkeypatch.setattr(attention_patterns, "_MADE_UP", (3, 1))
    flags = [tuned / "glue", "--path", tuned / "SST-2" / "checkpoint_last.pt", "--cpu", "--gen-subset", "dev"]
    maps = run_json("attention", *flags, "--sentence", "2", "-o", tmp_path / "s")["components"]["enc_self"]
    assert maps["keys"] == maps["queries"] and (maps["keys"][0], maps["keys"][-1]) == ("[CLS]", "[SEP]")
    assert [len(layer) for layer in maps["layers"]] == [4, 4, 4]
    found = run_json("lottery", "patterns", *flags, "--sentences", "0", "-o", tmp_path / "p")
    assert list(found["classifier"]["normed"]) == ["enc_self"] and found["sentences"] == 12
    assert all(sum(head["raw"]) == 12 for head in found["heads"])
