"""The command ``headprune``: one module a verb, loaded only when asked for."""

import importlib
import logging
import os
import sys

from fairseq_headprune import __version__
from fairseq_headprune.cli.common import COMMAND
from fairseq_headprune.errors import nearest

#: verb -> what it does, in one line; the code is the function ``run`` of ``cli/<verb with underscores>.py``.
VERBS = {
    "make-corpus": "write the embedded German-English corpus",
    "mask": "make a mask file: which heads are kept",
    "score": "estimate the importance of every head",
    "evaluate": "GLUE's scores of a BERT checkpoint, its predictions, and the file for GLUE's server",
    "prune": "prune step by step, translate, score and test each step",
    "ablate": "mask every head alone, translate, score and test each mask",
    "keep-one": "keep one head of a layer: the best one, and what it costs",
    "random-study": "prune at random, fine-tune, translate, score: several samplings each",
    "attention": "the attention maps of every head for one sentence",
    "lottery": "search for a winning ticket: the smallest part of a model whose score holds",
    "compare-pruners": "train and compare pruning methods: DSP, L0, STE, Michel et al., random heads",
    "weight-change": "how much each head's q, k and v weights changed between two checkpoints",
    "sweep-epochs": "the pruning curve at every epoch of a training run",
    "correlate": "does masking a head have the same effect on two test sets?",
    "report": "one page about studies: head maps, curves, significance, provenance",
    "open": "that page in the browser, updated while the studies run",
    "dynamics": "how gates were learned: from the logs of trainings",
    "slim": "remove pruned heads from a checkpoint's weights",
    "bench": "speed and size of models side by side",
    "bench-heads": "speed and size of a classifier by the number of heads it keeps",
    "profile": "what heads cost on this machine, layer by layer",
    "import": "read a translation model of Hugging Face (OPUS-MT, M2M-100, NLLB, BART, mBART)",
    "average": "average the weights of checkpoints with the same heads",
    "export": "write a model for CTranslate2, ONNX or transformers",
    "compare": "is one system better than another? Translations, or labels of GLUE",
    "completion": "a script that completes verbs and flags in bash, zsh or tcsh",
}

#: verbs that share a file with others -> the file, which has a function of the verb's name
SHARED = {"ablate": "prune", "keep-one": "prune", "attention": "score", "correlate": "results", "dynamics": "results"}
SHARED |= dict.fromkeys(("slim", "average", "weight-change"), "checkpoints")


def _usage() -> str:
    lines = ["usage: headprune VERB …   (headprune VERB --help tells more)", ""]
    lines += [f"  {verb:<15} {text}" for verb, text in VERBS.items()]
    return "\n".join(lines + ["", "exit status: 0 done, 1 failed, 2 wrong input; HEADPRUNE_DEBUG=1 shows tracebacks"])


def main(argv: list[str] | None = None) -> int:
    """Run one verb and return the exit status: 0 done, 1 failed, 2 wrong input (one line on stderr)."""
    argv = sys.argv[1:] if argv is None else list(argv)
    try:
        status = _run(argv)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        print(f"headprune {argv[0]}: interrupted", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader closed the pipe; redirect stdout so that the interpreter can flush and close it without an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if os.environ.get("HEADPRUNE_DEBUG"):
            raise
        print(f"headprune {argv[0]}: {' '.join(said(error).split()) or type(error).__name__}", file=sys.stderr)
        return 2 if isinstance(error, (ValueError, KeyError, OSError)) else 1


def said(error: Exception) -> str:
    """Return the message of an error; for an OSError the file comes first, and errno is omitted."""
    if isinstance(error, OSError) and error.strerror:
        missing = isinstance(error, FileNotFoundError)
        if error.filename is None:
            return error.strerror
        return f"{error.filename}: {'there is no such file or folder' if missing else error.strerror}"
    # str(KeyError) is the repr of its argument; show the argument itself.
    return str(error.args[0] if isinstance(error, KeyError) and error.args else error)


def _run(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        print(_usage(), file=sys.stdout if argv else sys.stderr)
        return 0 if argv else 2
    verb = argv[0]
    if verb == "--version":
        print(f"headprune {__version__}")
        return 0
    if verb not in VERBS:
        known = " ".join(filter(None, (f"known are {', '.join(VERBS)}", nearest(verb, VERBS))))
        print(f"headprune: unknown verb {verb!r}; {known}", file=sys.stderr)
        return 2
    # Must run first: fairseq's models set up logging at level DEBUG when they are imported.
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(name)s: %(message)s")
    COMMAND[:] = argv
    name = verb.replace("-", "_")
    module = importlib.import_module(f"fairseq_headprune.cli.{SHARED.get(verb, name)}")
    return getattr(module, name if verb in SHARED else "run")(argv[1:])
