"""Put the training text together, bring all of it into one form, and cut it into pieces:  mix.py DATA_DIR OUT."""

import gzip
import sys
from pathlib import Path

from sacremoses import MosesTokenizer

from fairseq_headprune.sentencepieces import encode, train_pieces

LANGUAGES = ("de", "en")
#: Sets that nothing is learned from.
HELD_OUT = ("newstest2013", "newstest2014")


def lines(folder: Path, name: str) -> list[str]:
    """Read a plain or compressed file.

    Raises:
        SystemExit: it is not there (status 2).
    """
    for path, opener in ((folder / name, open), (folder / f"{name}.gz", gzip.open)):
        if path.exists():
            with opener(path, "rt", encoding="utf-8") as file:
                return file.read().split("\n")[:-1]
    print(f"mix.py: neither {folder / name} nor {folder / name}.gz is there", file=sys.stderr)
    raise SystemExit(2)


def news(folder: Path) -> list[str]:
    """List the news test sets, without language and ending."""
    return sorted({path.name.split(".de")[0] for path in folder.glob("news*.de*")})


def main() -> None:
    """Write text/, spm.model and pieces/."""
    data, out = Path(sys.argv[1]), Path(sys.argv[2])
    sources = [("multi30k", "train"), ("tatoeba", "train")]
    sources += [("wmt-news", name) for name in news(data / "wmt-news") if name not in HELD_OUT]
    for folder in ("text", "pieces"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    texts = {}
    for language in LANGUAGES:
        tokenise = MosesTokenizer(language).tokenize
        plain = {
            "train": [line for folder, name in sources for line in lines(data / folder, f"{name}.{language}")],
            **{name: lines(data / "wmt-news", f"{name}.{language}") for name in HELD_OUT},
        }
        for name, found in plain.items():
            texts[f"{name}.{language}"] = [tokenise(line, return_str=True).lower() for line in found]
        texts[f"iwslt14.{language}"] = lines(data / "iwslt14", f"test.{language}")
        texts[f"talks-valid.{language}"] = lines(data / "iwslt14", f"valid.{language}")
        talks = lines(data / "iwslt14", f"train-subset.{language}")
        texts[f"talks-train.{language}"] = texts[f"train.{language}"] + talks
    joined = {name: "".join(line + "\n" for line in found) for name, found in texts.items()}
    model = train_pieces(joined["train.de"] + joined["train.en"], 10000)
    (out / "spm.model").write_bytes(model)
    for name, text in joined.items():
        (out / "text" / name).write_text(text, encoding="utf-8")
        (out / "pieces" / name).write_text(encode(model, text), encoding="utf-8")
    print(f"{len(texts['train.de'])} sentences from {len(sources)} files", file=sys.stderr)


if __name__ == "__main__":
    main()
