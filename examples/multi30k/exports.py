"""Export a checkpoint and check that the exports translate test2016 as fairseq does:  exports.py CHECKPOINT.

For CTranslate2 and ONNX: teacher-forced log-probabilities of real pairs, greedy and beam-5 translations, one sentence
at a time in float32 on the CPU, beside those of fairseq's own search with the checkpoint. exports.json goes to --out.
"""

import argparse
import json
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))
#: tokens of a hypothesis at most, its end included
LIMIT = 100
Found = list[tuple[list[int], float]]


def searched(model: Any, session: Any, sources: list[list[int]], beam: int) -> Found:
    """Translate by fairseq's search: tokens without the end of sentence, and the score."""
    from fairseq.sequence_generator import SequenceGenerator

    generator = SequenceGenerator([model], session.task.target_dictionary, beam_size=beam, max_len_b=LIMIT)
    found = []
    for source in sources:
        tokens = torch.tensor([[*source, session.task.source_dictionary.eos()]])
        sample = {"net_input": {"src_tokens": tokens, "src_lengths": torch.tensor([tokens.size(1)])}}
        best = generator.generate([model], sample)[0][0]
        found.append((best["tokens"].tolist()[:-1], best["score"].item()))
    return found


def of_ctranslate2(folder: Path, session: Any, sources: list[list[int]], beam: int) -> Found:
    """Translate by CTranslate2."""
    import ctranslate2

    source, target = session.task.source_dictionary, session.task.target_dictionary
    program = ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=torch.get_num_threads())
    options = {"beam_size": beam, "patience": 1, "length_penalty": 1, "max_decoding_length": LIMIT}
    options |= {"min_decoding_length": 0, "return_end_token": True, "return_scores": True}
    found = []
    for tokens in sources:
        result = program.translate_batch([[source[i] for i in tokens]], **options)[0]
        words = [word for word in result.hypotheses[0] if word != target[target.eos()]]
        found.append(([target.index(word) for word in words], result.scores[0]))
    return found


def compared(mine: Found, theirs: Found) -> dict[str, Any]:
    """Count equal translations among those that end before the limit; beam scores are compared where tokens agree."""
    pairs = [(a, b) for a, b in zip(mine, theirs, strict=True) if max(len(a[0]), len(b[0])) < LIMIT - 1]
    equal = [(a, b) for a, b in pairs if a[0] == b[0]]
    return {
        "sentences": len(mine),
        "at_the_limit": len(mine) - len(pairs),
        "identical": len(equal),
        "largest_score_difference": max((abs(a[1] - b[1]) for a, b in equal), default=None),
    }


def log_prob_difference(session: Any, model: Any, pairs: list[tuple[list[int], list[int]]]) -> float:
    """The largest difference in log-probability of a real target token between the checkpoint and ONNX's decoder."""
    largest, eos = 0.0, session.task.target_dictionary.eos()
    with torch.no_grad():
        for source, target in pairs:
            tokens, previous = torch.tensor([[*source, eos]]), torch.tensor([[eos, *target]])
            expected = session.model(tokens, torch.tensor([tokens.size(1)]), previous)[0].log_softmax(dim=-1)
            found = model.decoder(previous, model.encoder(tokens))[0]
            gold = torch.tensor([[*target, eos]])[..., None]
            largest = max(largest, (found.gather(-1, gold) - expected.gather(-1, gold)).abs().max().item())
    return largest


def main() -> None:
    """Export, translate, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--prepared", type=Path, default=HERE / "out", help="(default: out/ beside this script)")
    parser.add_argument("--out", type=Path, default=HERE / "results", help="(default: results/ beside this script)")
    parser.add_argument("--sentences", type=int, default=200, help="the first of test2016 (default: 200)")
    args = parser.parse_args()

    from fairseq_headprune.cli import export
    from fairseq_headprune.export.onnx_graphs import load_onnx
    from fairseq_headprune.files import read_json, write_json
    from fairseq_headprune.provenance import script_environment
    from fairseq_headprune.session import Session, parse_generation_args

    data = str(args.prepared / "data-bin")
    words = [data, "--source-lang", "de", "--target-lang", "en", "--path", str(args.checkpoint), "--cpu"]
    session = Session(parse_generation_args("exports", words, lambda parser: None, ""))
    split = session.dataset("test")
    pairs = [(split[i]["source"].tolist()[:-1], split[i]["target"].tolist()[:-1]) for i in range(args.sentences)]
    sources = [source for source, _ in pairs]
    value: dict[str, Any] = {
        "command": shlex.join(["exports.py", args.checkpoint.name, "--sentences", str(args.sentences)]),
        "checkpoint": session.checkpoint["sha256"],
        "heads": session.gates.mask().counts(),
        "data": session.data("test"),
        "limit": LIMIT,
    }
    with tempfile.TemporaryDirectory() as folder:
        made = {}
        for kind in ("ctranslate2", "onnx"):
            made[kind] = Path(folder, kind)
            export.run([str(args.checkpoint), "--to", kind, str(made[kind]), "--data", data])
        dictionaries = session.task.source_dictionary, session.task.target_dictionary
        onnx, whole = (load_onnx(made["onnx"], *dictionaries, cached=cached) for cached in (True, False))
        value["onnx"] = {"largest_log_prob_difference": log_prob_difference(session, whole, pairs)}
        check = read_json(made["ctranslate2"] / "headprune.json")["check"]
        value["ctranslate2"] = {"largest_log_prob_difference_of_made_up_sentences": check["largest_difference"]}
        for beam in (1, 5):
            theirs = searched(session.model, session, sources, beam)
            mine = {
                "ctranslate2": of_ctranslate2(made["ctranslate2"], session, sources, beam),
                "onnx": searched(onnx, session, sources, beam),
            }
            for kind, found in mine.items():
                value[kind][f"beam_{beam}"] = compared(found, theirs)
    value["environment"] = script_environment()
    write_json(args.out / "exports.json", value)
    print(json.dumps({kind: value[kind] for kind in ("ctranslate2", "onnx")}))


if __name__ == "__main__":
    main()
