"""``headprune export`` to CTranslate2 and ONNX. Reference: fairseq's own model under the mask."""

import json
import random
from types import SimpleNamespace

import ctranslate2
import onnxruntime
import pytest
import tiny
import torch
from fairseq import checkpoint_utils
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from slim_models import lively, state_of, uneven
from verbs import refused, run_json, write_lively

from fairseq_headprune.export import ct2, onnx_graphs
from fairseq_headprune.export.model import check, fairseq_log_probs, made_up_pairs
from fairseq_headprune.export.onnx_graphs import load_onnx
from fairseq_headprune.modules.attach import attach_gates
from fairseq_headprune.parts import Mask

#: uneven; a layer of every component is empty; decoder layers keep 0 to 2 heads
MASK = Mask({"enc_self": [[0, 0], [0, 1]], "enc_dec": [[0, 1], [0, 0]], "dec_self": [[1, 1], [0, 0]]})
LIMIT = 30


@pytest.fixture(scope="module")
def run(trained_stock, tmp_path_factory):
    """A stock checkpoint of large weights, the mask, and both exported under the mask, and a slim one."""
    folder = tmp_path_factory.mktemp("export")
    path = write_lively(trained_stock, folder)["checkpoint"]
    end_sooner(path)
    MASK.save(folder / "mask.json")
    run_json("slim", path, "--mask", folder / "mask.json", "-o", folder / "slim.pt")
    flags = ["--data", trained_stock["data"], "--mask", folder / "mask.json"]
    reports = {
        target: run_json("export", path, "--to", target, folder / target, *flags) for target in ("ctranslate2", "onnx")
    }
    return SimpleNamespace(folder=folder, path=path, data=trained_stock["data"], reports=reports)


def end_sooner(path, by=3.0):
    """Raise the logit of end of sentence: random weights would go on to the length limit."""
    state = torch.load(path, weights_only=False)
    weights = state["model"]
    row = weights["decoder.output_projection.weight"][2]
    weights["decoder.layers.1.final_layer_norm.bias"] += by * row / row.square().sum()
    torch.save(state, path)


@pytest.fixture(scope="module")
def reference(run):
    return masked(run, MASK)


def masked(run, mask):
    """The unpruned checkpoint with a mask on its gates: no head is removed here."""
    task = TranslationTask.setup_task(TranslationConfig(data=str(run.data)))
    models, _ = checkpoint_utils.load_model_ensemble([str(run.path)], task=task)
    attach_gates(models[0]).set_mask(mask)
    return SimpleNamespace(model=models[0].eval(), source=task.source_dictionary, target=task.target_dictionary)


def sentences(dictionary):
    draw = random.Random(5)
    return [[draw.randrange(4, len(dictionary)) for _ in range(draw.randint(1, 9))] for _ in range(12)]


def translate(reference, model, beam):
    """The best hypotheses of fairseq's own search, with or without end of sentence, and their scores."""
    generator = SequenceGenerator([model], reference.target, beam_size=beam, max_len_b=LIMIT, min_len=0)
    found = []
    for words in sentences(reference.source):
        tokens = torch.tensor([[*words, reference.source.eos()]])
        sample = {"net_input": {"src_tokens": tokens, "src_lengths": torch.tensor([tokens.size(1)])}}
        hypothesis = generator.generate([model], sample)[0]
        found.append([(h["tokens"].tolist()[:-1], h["score"].item()) for h in hypothesis])
    return found


def test_ctranslate2_log_probabilities(run, reference):
    # The layers with most heads: enc_self layer 1 has 1, dec_self layer 0 has 2. So 1 + 5 heads are zeros.
    assert run.reports["ctranslate2"]["heads_per_layer"] == {"encoder": 1, "decoder": 2}
    assert run.reports["ctranslate2"]["padded_heads"] == 1 + (1 + 2 + 0 + 2)
    translator = ctranslate2.Translator(str(run.folder / "ctranslate2"), compute_type="float32", intra_threads=1)
    pairs = made_up_pairs(reference, count=20, seed=3)
    source = [[reference.source[i] for i in words] for words, _ in pairs]
    target = [[reference.target[i] for i in words] for _, words in pairs]
    found = [result.log_probs for result in translator.score_batch(source, target)]
    for row, expected in zip(found, fairseq_log_probs(reference, pairs), strict=True):
        assert row == pytest.approx(expected, abs=1e-5, rel=2e-6)


@pytest.mark.parametrize("beam", [1, 5])
def test_ctranslate2_translates_as_fairseq(run, reference, beam):
    translator = ctranslate2.Translator(str(run.folder / "ctranslate2"), compute_type="float32", intra_threads=1)
    source = [[reference.source[i] for i in words] for words in sentences(reference.source)]
    # fairseq's length counts the end of sentence; and CTranslate2 would renormalise what a minimum length forbids.
    options = {"beam_size": beam, "patience": 1, "length_penalty": 1, "max_decoding_length": LIMIT}
    options |= {"min_decoding_length": 0, "return_end_token": True, "return_scores": True}
    found = [(r.hypotheses[0][:-1], r.scores[0]) for r in translator.translate_batch(source, **options)]
    expected = [h[0] for h in translate(reference, reference.model, beam)]
    whole = [i for i, (tokens, _) in enumerate(expected) if len(tokens) < LIMIT]
    assert len(whole) >= 6 and len({tuple(expected[i][0]) for i in whole}) >= 3
    for i in whole:
        assert found[i][0] == [reference.target[token] for token in expected[i][0]]
        assert beam == 1 or found[i][1] == pytest.approx(expected[i][1], abs=1e-5)


def onnx_model(run, reference, cached):
    return load_onnx(run.folder / "onnx", reference.source, reference.target, cached)


def test_onnx_log_probabilities_of_a_padded_batch(run, reference):
    # Other lengths and more sentences than the export was traced with; padding on the left, as fairseq collates.
    batch = tiny.make_batch(tiny.SENTENCES * 2)["net_input"]
    with torch.no_grad():
        expected = reference.model(**batch)[0].log_softmax(dim=-1)
    model = onnx_model(run, reference, cached=False)
    encoded = model.encoder(batch["src_tokens"])
    real = batch["prev_output_tokens"].ne(1)
    found = model.decoder(batch["prev_output_tokens"], encoded)[0]
    assert torch.allclose(found[real], expected[real], atol=1e-5, rtol=2e-6)
    model, state = onnx_model(run, reference, cached=True), {}
    for length in range(1, 6):
        step = model.decoder(batch["prev_output_tokens"][:, :length], encoded, state)[0][:, 0]
        sentences_left = real[:, length - 1]
        assert torch.allclose(step[sentences_left], expected[sentences_left, length - 1], atol=1e-5, rtol=2e-6)


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("beam", [1, 5])
def test_onnx_translates_as_fairseq(run, reference, beam, cached):
    found = translate(reference, onnx_model(run, reference, cached), beam)
    for mine, theirs in zip(found, translate(reference, reference.model, beam), strict=True):
        assert [tokens for tokens, _ in mine] == [tokens for tokens, _ in theirs]
        assert [score for _, score in mine] == pytest.approx([score for _, score in theirs], abs=1e-5)


def test_onnx_keeps_the_heads_that_there_are(run):
    session = onnxruntime.InferenceSession(str(run.folder / "onnx" / "decoder_step.onnx"))
    # By MASK: encoder-decoder heads in layer 0 (one), self-attention heads in layer 0 (two); heads are 32 wide.
    shapes = {i.name: i.shape for i in session.get_inputs() if i.name[:4] in ("cros", "past")}
    assert {name: (shape[1], shape[3]) for name, shape in shapes.items()} == {
        "cross_key_0": (1, 32), "cross_value_0": (1, 32), "past_key_0": (2, 32), "past_value_0": (2, 32),
    }  # fmt: skip


def test_slim_whole_and_stored_masks(run, tmp_path):
    whole = Mask.full(MASK.shape)
    whole.save(tmp_path / "full.json")
    for path, mask in ((run.folder / "slim.pt", MASK), (run.path, whole)):
        out = tmp_path / f"{path.stem}.ct2"
        report = run_json("export", path, "--to", "ctranslate2", out, "--data", run.data)
        assert report["mask"]["parts"] == mask.rows
        translator = ctranslate2.Translator(str(out), compute_type="float32", intra_threads=1)
        reference = masked(run, mask)
        pairs = made_up_pairs(reference, seed=4)
        score = translator.score_batch(*[[[reference.source[i] for i in p[side]] for p in pairs] for side in (0, 1)])
        for row, expected in zip(score, fairseq_log_probs(reference, pairs), strict=True):
            assert row.log_probs == pytest.approx(expected, abs=1e-5, rel=2e-6)


VARIANTS = [
    {"encoder_normalize_before": True, "decoder_normalize_before": True, "activation_fn": "gelu", "seed": 2}
    | {"encoder_learned_pos": True, "decoder_learned_pos": True, "encoder_attention_heads": 8},
    {"share_all_embeddings": True, "layernorm_embedding": True, "encoder_layers": 3, "no_scale_embedding": True},
    {"decoder_embed_dim": 32, "decoder_output_dim": 16, "decoder_input_dim": 16, "decoder_attention_heads": 4},
]


@pytest.mark.slow
@pytest.mark.parametrize("target", ["ctranslate2", "onnx"])
@pytest.mark.parametrize("settings", VARIANTS)
def test_models_of_other_kinds(settings, target, tmp_path):
    model = lively(settings)
    mask = uneven(model, 4)
    torch.save(state_of(model), tmp_path / "model.pt")
    mask.save(tmp_path / "mask.json")
    for language in ("xx", "yy"):
        reference_dictionary = tiny.make_dictionary()
        reference_dictionary.save(str(tmp_path / f"dict.{language}.txt"))
    flags = ["--mask", tmp_path / "mask.json", "--data", tmp_path, "--source-lang", "xx", "--target-lang", "yy"]
    run_json("export", tmp_path / "model.pt", "--to", target, tmp_path / "out", *flags)
    attach_gates(model).set_mask(mask)
    reference = SimpleNamespace(model=model, source=reference_dictionary, target=reference_dictionary)
    pairs = made_up_pairs(reference, count=6, seed=2)
    if target == "ctranslate2":
        found = ct2.log_probs(reference, tmp_path / "out", pairs)
    else:
        found = onnx_graphs.log_probs(reference, tmp_path / "out", pairs)
    for row, expected in zip(found, fairseq_log_probs(reference, pairs), strict=True):
        assert row == pytest.approx(expected, abs=1e-5, rel=2e-6)


def test_the_check_notices_another_model(reference):
    with pytest.raises(RuntimeError, match="differ from fairseq's by up to 0.5"):
        check(reference, lambda pairs: [[x + 0.5 for x in row] for row in fairseq_log_probs(reference, pairs)])


def test_the_report_is_in_the_folder(run):
    for target, report in run.reports.items():
        stored = json.loads((run.folder / target / "headprune.json").read_text())
        assert stored == {key: value for key, value in report.items() if key not in ("files", "made_by")}
        assert report["checkpoint"]["path"] == str(run.path) and report["mask"]["parts"] == MASK.rows
        assert report["files"] == {p.name: p.stat().st_size for p in (run.folder / target).iterdir()}


def test_uniform_from_the_command_line(run, tmp_path):
    scores = {c: [[0.1, 0.9], [0.8, 0.2]] for c in MASK.rows}
    (tmp_path / "s.json").write_text(json.dumps({"format": "headprune.scores/1", "scores": scores}))
    out = tmp_path / "out"
    flags = ["--uniform", tmp_path / "s.json", "--heads", 7, "--data", run.data]
    report = run_json("export", run.path, "--to", "ctranslate2", out, *flags)
    # Seven heads: the best head of each of the six modules; a second one in a stack would cost two or four.
    assert report["config"] == {"ES": "11", "ED": "11", "DS": "11"} and report["padded_heads"] == 0
    assert report["mask"]["parts"]["enc_dec"] == [[0, 1], [1, 0]]


def test_wrong_input_is_one_line(run, tmp_path, capsys):
    path, data = run.path, ["--data", run.data]
    new, pair = tmp_path / "new", ["--source-lang", "xx", "--target-lang", "yy"]
    (tmp_path / "small").mkdir()
    for name in ("dict.xx.txt", "dict.yy.txt"):
        (tmp_path / "small" / name).write_text("w1 1\n")
    decoder = torch.load(path, weights_only=False)
    decoder["model"] = {name: value for name, value in decoder["model"].items() if name.startswith("decoder")}
    torch.save(decoder, run.folder / "decoder.pt")
    for call, message in (
        ([run.folder / "decoder.pt", "--to", "onnx", new, *data], "decoder.pt: only models with an encoder and a"),
        ([path, "--to", "tflite", new, *data], "--to tflite: unknown format; known are ctranslate2, onnx"),
        ([path, "--to", "onnx", tmp_path, *data], "exists; name a new folder"),
        ([path, "--to", "onnx", tmp_path / "a" / "b", *data], "there is no folder"),
        ([path, "--to", "onnx", new, "--data", tmp_path / "none"], "there is no such folder"),
        ([path, "--to", "onnx", new, "--data", tmp_path], "name the languages with --source-lang and --target-lang"),
        ([path, "--to", "onnx", new, "--data", tmp_path / "small", *pair], "has 24 embeddings, its dictionary in"),
        ([path, "--to", "onnx", new, *data, "--source-lang", "yy"], "the folder holds xx to yy; name both with"),
        ([path, "--to", "ctranslate2", new, *data, "--heads", "3"], "--uniform SCORES and --heads K belong together"),
        ([tmp_path / "gone.pt", "--to", "onnx", new, *data], "there is no such checkpoint"),
    ):
        assert message in refused(capsys, "export", *call)
        assert not new.exists()
    assert {p.name for p in tmp_path.iterdir()} == {"small"}


def test_dictionaries_in_another_order_are_refused(trained, tmp_path, capsys):
    """As many words, so that every check by numbers would pass, but other ones: translations would be nonsense."""
    for name in ("dict.xx.txt", "dict.yy.txt"):
        lines = (trained["data"] / name).read_text().splitlines()
        (tmp_path / name).write_text("\n".join(lines if "xx" in name else lines[::-1]) + "\n")
    pair = ["--data", tmp_path, "--source-lang", "xx", "--target-lang", "yy"]
    line = refused(capsys, "export", trained["checkpoint"], "--to", "onnx", tmp_path / "new", *pair)
    assert f"the target dictionary in {tmp_path} differs" in line and not (tmp_path / "new").exists()
