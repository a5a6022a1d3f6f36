"""One example of each verb, which its ``--help`` ends with."""

#: verb -> what follows ``headprune VERB``
EXAMPLES = {
    "make-corpus": "corpus --binarise",
    "mask": "--like checkpoint_best.pt --scores scores.json --heads 24 -o mask.json",
    "score": "data-bin --path checkpoint_best.pt --score-sentences 1000 -o scores.json",
    "evaluate": "data --path checkpoint_best.pt --gen-subset dev --predictions predictions.json",
    "prune": "data-bin --path checkpoint_best.pt --beam 5 --remove-bpe sentencepiece --step 10% -o pruned",
    "ablate": "data-bin --path checkpoint_best.pt --beam 5 --remove-bpe sentencepiece -o ablated",
    "keep-one": "data-bin --path checkpoint_best.pt --beam 5 --remove-bpe sentencepiece -o kept",
    "random-study": "data-bin --path checkpoint_best.pt -o random --random 50% --updates 1000 --train-flags=--fp16",
    "compare-pruners": "data-bin --work study --out results/pruners --counts 16,8 --seeds 1,2,3",
    "weight-change": "before.pt after.pt --figure change",
    "sweep-epochs": "data-bin --checkpoints checkpoints --epochs 1-10 --beam 5 -o sweep",
    "correlate": "ablated-in-domain ablated-out-of-domain --figure correlation",
    "report": "ablated pruned -o report.html",
    "dynamics": "checkpoints/gates.jsonl -o dynamics",
    "slim": "checkpoint_best.pt --mask mask.json -o slim.pt",
    "bench": "data-bin --path checkpoint_best.pt --models slim.pt --batch-sizes 1,16",
    "bench-heads": "data --path checkpoint_best.pt --heads 72,36,12 -o speed.json",
    "profile": "data-bin --path checkpoint_best.pt --batch-size 16 -o profile.json",
    "import": "opus-mt-de-en -o opus --check raw/test.de",
    "average": "checkpoint8.pt checkpoint9.pt checkpoint10.pt -o average.pt",
    "export": "slim.pt --to ctranslate2 folder --data data-bin",
    "compare": "reference.txt baseline.txt pruned.txt --resamples 1000",
}
