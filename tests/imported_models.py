"""Imported models for the tests: a folder, what ``headprune import`` makes of it, and both as models."""

import subprocess
import sys

import hugging_face as hf
import tiny
from verbs import run_json

from fairseq_headprune.imports.pieces import Numbers, binarise
from fairseq_headprune.interchange import check as checking

#: family -> how its folder is made, and the languages as the model names them
FAMILIES = {
    "marian": (hf.marian, "de", "en"),
    "marian-separate": (lambda folder: hf.marian(folder, separate=True), "de", "en"),
    "m2m_100": (hf.m2m, "de", "en"),
    "nllb": (hf.nllb, "deu_Latn", "eng_Latn"),
    "bart": (hf.bart, "de", "en"),
    "mbart": (lambda folder: hf.mbart(folder, fast=True), "de_DE", "en_XX"),
    "mbart50": (lambda folder: hf.mbart(folder, fifty=True, fast=True), "de_DE", "en_XX"),
}


class Imported:
    """A folder, its import, and both as models."""

    def __init__(self, name, root):
        make, self.source, self.target = FAMILIES[name]
        self.root, self.folder, self.out = root, make(root / "folder"), root / "out"
        languages = ["--source-lang", self.source, "--target-lang", self.target]
        self.report = run_json("import", self.folder, "-o", self.out, *languages)
        self.theirs, self.tokenizer = hf.load(self.folder)
        if hasattr(self.tokenizer, "tgt_lang"):
            self.tokenizer.src_lang, self.tokenizer.tgt_lang = self.source, self.target
        self.ours, self.task = checking.load_import(self.out, self.report)
        self.rows = self.numbers("source", hf.corpus()[0][:10])

    def numbers(self, side, lines):
        dictionary = getattr(self.task, f"{side}_dictionary")
        return Numbers(self.out, side, dictionary, getattr(self, side))(lines)

    def prepared(self):
        """``data-bin``, made of raw text by what prepare.sh starts."""
        data = self.root / "data-bin"
        if not data.exists():
            german, english = hf.corpus()
            for split, part in {"train": slice(40), "valid": slice(40, 46), "test": slice(50, 58)}.items():
                for language, lines in ((self.source, german), (self.target, english)):
                    path = self.root / f"{split}.{language}"
                    path.write_text("".join(f"{line}\n" for line in lines[part]), encoding="utf-8")
            binarise(self.out, data, {split: str(self.root / split) for split in ("train", "valid", "test")})
        return data


def prepare(out, data, *arguments):
    environment = tiny.environment(PYTHON=sys.executable)
    command = ["bash", str(out / "prepare.sh"), "--destdir", str(data), *map(str, arguments)]
    return subprocess.run(command, check=True, env=environment, capture_output=True, text=True).stdout
