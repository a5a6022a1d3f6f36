"""``headprune export``: write a model for CTranslate2, ONNX or Hugging Face's transformers."""

import argparse
import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairseq_headprune.cli.common import Parser, emit
from fairseq_headprune.files import identified, write_json
from fairseq_headprune.leftovers import check_new_folder, new_folder
from fairseq_headprune.parts import Mask
from fairseq_headprune.parts.notation import format_config
from fairseq_headprune.parts.scores import Scores

_DESCRIPTION = """Write a fairseq transformer checkpoint (slim, masked or whole, gated or stock) for another program,
in float32, and check that it computes the same log-probabilities. Pruned heads are removed. CTranslate2 knows one head
count for the encoder and one for the decoder (whose self- and encoder-decoder attention share it): layers with fewer
heads are padded with heads of zeros. ONNX layers keep the heads they have. An imported model (headprune import) and a
BERT checkpoint of the task glue become a Hugging Face folder (huggingface), whose layers have all their heads: masked
ones are zeros."""

#: format -> packages that it needs, the extra that installs them, and the module of ``export`` that writes it
_FORMATS = {
    "ctranslate2": (("ctranslate2",), "export", "ct2"),
    "onnx": (("onnx", "onnxruntime"), "export", "onnx_graphs"),
    "huggingface": (("safetensors", "tokenizers"), "glue", "huggingface"),
}


def run(argv: list[str]) -> int:
    """Run the verb."""
    args = _parser().parse_args(argv)
    if (args.uniform is None) != (args.heads is None):
        raise ValueError("--uniform SCORES and --heads K belong together: the best K heads with equal counts per stack")
    target, folder = args.to[0], Path(args.to[1])
    if target not in _FORMATS:
        raise ValueError(f"--to {target}: unknown format; known are {', '.join(_FORMATS)}")
    if args.data is None and target != "huggingface":
        raise ValueError(f"--to {target} needs --data DATA_BIN, the folder with the dictionaries")
    if args.uniform and target == "huggingface":
        raise ValueError("--uniform is not supported with --to huggingface, whose layers have all their heads")
    _check_packages(target)
    check_new_folder(folder)
    value = _export(args, target, folder)
    if target == "huggingface":
        from fairseq_headprune.export.huggingface import reading_note

        value["notes"] = reading_note()
    emit(value, args.json, _text(value))
    return 0


def _refuse_data(args: argparse.Namespace, *names: str) -> None:
    for name in names:
        if getattr(args, name) is not None:
            flag = f"--{name.replace('_', '-')}"
            raise ValueError(f"{flag} is not needed with --to huggingface: the checkpoint holds its vocabulary")


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="headprune export", description=_DESCRIPTION)
    add = parser.add_argument
    add("checkpoint", metavar="CKPT", help="fairseq checkpoint (.pt)")
    add(
        "--to",
        nargs=2,
        metavar=("FORMAT", "DIR"),
        required=True,
        help="ctranslate2, onnx or huggingface, and the folder to write, which must not exist",
    )
    add(
        "--data",
        metavar="DATA_BIN",
        help="folder with the dictionaries, dict.<lang>.txt (required, but for huggingface; there, for an imported "
        "model, the folder of the import, default: the checkpoint's)",
    )
    add("--source-lang", metavar="LANG", help="source language (default: the checkpoint's, or as DATA_BIN tells)")
    add("--target-lang", metavar="LANG", help="target language (default: the checkpoint's, or as DATA_BIN tells)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--mask", metavar="FILE", help="mask file (default: the mask that the checkpoint holds, if any)")
    which.add_argument(
        "--uniform",
        metavar="SCORES",
        help="score file: choose the mask of --heads heads whose layers keep equally many per stack, so that nothing "
        "is padded (default: off)",
    )
    add("--heads", type=int, metavar="K", help="how many heads --uniform keeps at most, over all layers")
    add("--json", action="store_true", help="print one JSON document")
    return parser


def _check_packages(target: str) -> None:
    packages, extra, _ = _FORMATS[target]
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise ValueError(f'--to {target} needs {" and ".join(missing)}: pip install "fairseq_headprune[{extra}]"')


def _export(args: argparse.Namespace, target: str, folder: Path) -> dict[str, Any]:
    """Write the folder atomically."""
    # torch and fairseq: not for --help
    from fairseq_headprune.checkpoints import read_state

    state = read_state(args.checkpoint)
    mask = _mask(args, state)
    module = importlib.import_module(f"fairseq_headprune.export.{_FORMATS[target][2]}")
    write = (_hugging_face if target == "huggingface" else _translator)(args, state, mask, module)
    with new_folder(folder) as temporary:
        value = {
            "to": target,
            "folder": str(folder),
            "checkpoint": identified(args.checkpoint),
            "mask": mask.to_dict(),
            "components": mask.counts(),
            "config": format_config(mask),
            **write(temporary),
        }
        write_json(temporary / "headprune.json", value)
    files = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    return {**value, "files": files}


def _mask(args: argparse.Namespace, state: Any) -> Mask:
    from fairseq_headprune.checkpoints import stored_layout, stored_mask
    from fairseq_headprune.choosing.scored import uniform_mask

    if args.mask:
        return Mask.given(args.mask)
    mask = stored_mask(state) or stored_layout(state).mask()
    if args.uniform:
        mask = uniform_mask(mask, Scores.load(args.uniform), args.heads)
        mask.source = {"uniform": identified(args.uniform) | {"heads": args.heads}}
    return mask


def _hugging_face(args: argparse.Namespace, state: Any, mask: Mask, module: Any) -> Callable[[Path], dict]:
    """Return a function that writes the folder and describes what it wrote."""
    if module.is_imported(state):
        _refuse_data(args, "source_lang", "target_lang")
        origin = args.data or Path(args.checkpoint).resolve().parent
        return lambda folder: module.save_imported(state, mask, folder, origin)
    _refuse_data(args, "data", "source_lang", "target_lang")
    return lambda folder: module.save_bert(state, mask, folder)


def _translator(args: argparse.Namespace, state: Any, mask: Mask, module: Any) -> Callable[[Path], dict]:
    """The same for a translation model, which is loaded immediately so that its errors are reported first."""
    from fairseq_headprune.export.model import check, load

    exported = load(args.checkpoint, state, mask, args.data, args.source_lang, args.target_lang)

    def write(folder: Path) -> dict[str, Any]:
        about = module.save(exported, folder)
        return {**about, "check": check(exported, lambda pairs: module.log_probs(exported, folder, pairs))}

    return write


def _text(value: dict[str, Any]) -> str:
    config = " ".join(f"{key}={counts}" for key, counts in value["config"].items())
    lines = [f"heads kept   {config}"]
    if "heads_per_layer" in value:
        counts = value["heads_per_layer"]
        lines.append(
            f"per layer    encoder {counts['encoder']}, decoder {counts['decoder']}; "
            f"{value['padded_heads']} heads of zeros fill layers up"
        )
    check = value["check"]
    what = f"log-probabilities of {check['sentences']} made-up sentences" if "sentences" in check else "logits"
    what = f"{check['tensors']} tensors, read again," if "tensors" in check else what
    lines += [
        f"check        {what} differ by at most {check['largest_difference']:.2g}",
        f"files        {sum(value['files'].values()):,} bytes: {', '.join(value['files'])}",
        *value.get("notes", []),
        f"written: {value['folder']}",
    ]
    return "\n".join(lines)
