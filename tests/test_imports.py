"""Imported models and the way back. Reference: transformers' own models, tokenizers and search."""

import hugging_face as hf
import pytest
import tiny
import torch
from fairseq.data import indexed_dataset
from imported_models import FAMILIES, Imported, prepare
from verbs import generated, run_json

from fairseq_headprune.files import read_json
from fairseq_headprune.imports.folder import read_weights
from fairseq_headprune.interchange import check as checking
from fairseq_headprune.modules.attach import find_gates

pytestmark = pytest.mark.slow  # trains models


@pytest.fixture(scope="module", params=FAMILIES)
def imported(request, tmp_path_factory):
    return Imported(request.param, tmp_path_factory.mktemp(request.param))


def test_numbers_are_those_of_the_tokenizer(imported):
    for side in ("source", "target"):
        for line, row in zip(hf.HARD, imported.numbers(side, hf.HARD), strict=True):
            assert row == expected_numbers(imported, side, line), repr(line[:40])


def expected_numbers(imported, side, line):
    if side == "source":
        return imported.tokenizer(line)["input_ids"]
    found = imported.tokenizer(text_target=line)["input_ids"]
    # The target language after the end of sentence is what mBART's decoder starts with; it is nothing to predict.
    return found[:-1] if imported.report["arch"] == "mbart_gated" and found[-2:-1] == [2] else found


def test_logits_are_those_of_transformers(imported):
    with torch.no_grad():
        targets = imported.numbers("target", hf.corpus()[1][:10])
        assert len({len(row) for row in targets}) > 3
        compared = imported.ours, imported.theirs, imported.task, imported.rows
        assert checking.logit_difference(*compared, targets) < 1e-4
        # The negative control: one head less is another model.
        gates = find_gates(imported.ours)
        with gates.masked(gates.full().without([gates.full().kept()[0]])):
            assert checking.logit_difference(*compared, targets) > 1e-3


def test_a_step_at_a_time_gives_the_same_logits(imported):
    pad = imported.task.target_dictionary.pad()
    targets = checking.padded(imported.numbers("target", hf.corpus()[1][:4]), pad)
    source = checking.padded(imported.rows[:4], imported.task.source_dictionary.pad())
    start = torch.full((4, 1), imported.task.target_dictionary.eos())
    previous, width = torch.cat([start, targets[:, :-1]], 1), min(map(len, imported.rows)) + 2
    with torch.no_grad():
        encoded = imported.ours.encoder.forward_torchscript({"src_tokens": source, "src_lengths": None})
        whole = imported.ours.decoder(previous[:, :width], encoded)[0]
        state = {}
        steps = [imported.ours.decoder(previous[:, : n + 1], encoded, state)[0][:, -1] for n in range(width)]
    real = previous[:, :width].ne(pad).cumprod(1).bool()
    assert (torch.stack(steps, 1) - whole)[real].abs().max() < 1e-4


def test_left_padding_changes_nothing(imported):
    # fairseq pads sources on the left, transformers on the right.
    pad = imported.task.source_dictionary.pad()
    right = checking.padded(imported.rows, pad)
    left = torch.tensor([[pad] * (right.size(1) - len(row)) + row for row in imported.rows])
    previous = torch.full((len(left), 1), imported.task.target_dictionary.eos())
    with torch.no_grad():
        one, two = (imported.ours(tokens, None, previous)[0] for tokens in (left, right))
    assert (one - two).abs().max() < 1e-4


@pytest.mark.parametrize("beam, penalty", [(1, 1.0), (4, 1.0), (4, 0.6)])
def test_translations_are_those_of_generate(imported, beam, penalty):
    found = checking.translations(imported.ours, imported.task, imported.rows, beam, penalty=penalty)
    expected = checking.generated(imported.theirs, imported.task, imported.rows, beam, penalty=penalty)
    limit = checking.LENGTH - 1
    ended = [(x, y) for x, y in zip(found, expected, strict=True) if len(x) < limit and len(y) < limit]
    assert len({len(x) for x, _ in ended}) > (1 if penalty == 1.0 else 0)
    assert all(x == y for x, y in ended)


def test_prepared_data_is_what_the_tokenizer_gives(imported):
    for language in (imported.source, imported.target):
        text = "".join(f"{line}\n" for line in hf.HARD)
        (imported.root / f"hard.{language}").write_text(text, encoding="utf-8", newline="\n")
    data = imported.root / "hard-bin"
    said = prepare(imported.out, data, "--testpref", imported.root / "hard")
    assert f"{len(hf.HARD)} sentences" in said
    for side, language in (("source", imported.source), ("target", imported.target)):
        stem = data / f"test.{imported.source}-{imported.target}.{language}"
        rows = indexed_dataset.make_dataset(str(stem), impl="mmap")
        assert [row.tolist() for row in rows] == imported.numbers(side, hf.HARD)


def test_round_trip_gives_the_same_tensors(imported, tmp_path):
    report = run_json("export", imported.out / "model.pt", "--to", "huggingface", tmp_path / "back")
    before, after = read_weights(imported.folder), read_weights(tmp_path / "back")
    assert before.keys() == after.keys() and report["check"]["tensors"] == len(before)
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())
    model, tokenizer = hf.load(tmp_path / "back")
    assert tokenizer("Das Haus")["input_ids"][-2:] == hf.load(imported.folder)[1]("Das Haus")["input_ids"][-2:]
    assert read_json(tmp_path / "back" / "config.json") == read_json(imported.folder / "config.json")
    assert torch.equal(model.get_input_embeddings().weight, imported.theirs.get_input_embeddings().weight)


def test_masked_heads_become_zeros(imported, tmp_path):
    mask = find_gates(imported.ours).full()
    mask = mask.without(mask.kept()[::3])
    mask.save(tmp_path / "mask.json")
    where = ["--to", "huggingface", tmp_path / "back", "--mask", tmp_path / "mask.json"]
    assert run_json("export", imported.out / "model.pt", *where)["zeroed_heads"] == len(mask.dropped())
    written, _ = hf.load(tmp_path / "back")
    with torch.no_grad(), find_gates(imported.ours).masked(mask):
        targets = imported.numbers("target", hf.corpus()[1][:10])
        assert checking.logit_difference(imported.ours, written, imported.task, imported.rows, targets) < 1e-4


@pytest.mark.parametrize("imported", ["marian", "nllb"], indirect=True)
def test_every_verb_works(imported, tmp_path):
    data, path = imported.prepared(), imported.out / "model.pt"
    score = [data, "--path", path, "--cpu", "--score-subset", "train"]
    assert run_json("score", *score, "-o", tmp_path / "scores.json")["sentences"] == 40
    chosen = ["--heads", "12", "--scores", tmp_path / "scores.json"]
    run_json("mask", "--like", path, *chosen, "-o", tmp_path / "mask.json")
    flags = [data, "--path", path, "--cpu", "--post-process", imported.report["post_process"], "--beam", "2"]
    flags += ["--max-len-b", "20", "--min-len", "0"]
    curve = run_json("prune", *flags, "--step", "50%", "--score-subset", "train", "-o", tmp_path / "prune")
    assert [point["pruned"] for point in curve["curves"]["all"]] == [0, 12, 24]
    run_json("ablate", *flags, "-o", tmp_path / "many")
    run_json("ablate", *flags, "--masks-at-once", "1", "-o", tmp_path / "one")
    texts = [hypotheses(tmp_path / name) for name in ("many", "one")]
    assert texts[0] == texts[1] and len(set(texts[0].values())) > 3
    assert not any(mark in text for text in texts[0].values() for mark in ("▁", "_", "</s>", "<pad>"))
    run_json("slim", path, "--mask", tmp_path / "mask.json", "-o", tmp_path / "slim.pt")
    masked = generated("H", data, "--path", path, "--head-mask", tmp_path / "mask.json", *GENERATE)
    assert masked == generated("H", data, "--path", tmp_path / "slim.pt", *GENERATE)
    for target in ("ctranslate2", "onnx"):
        report = run_json("export", tmp_path / "slim.pt", "--to", target, tmp_path / target, "--data", data)
        assert report["check"]["largest_difference"] < 1e-3


def hypotheses(study):
    return {path.name: path.read_text(encoding="utf-8") for path in (study / "hyps").iterdir()}


GENERATE = [*tiny.TASK, "--cpu"]
