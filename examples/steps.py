"""The steps that make the results of all examples: see run_all.py, which runs them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """A command of the list.

    Attributes:
        command: for bash, in the folder examples/.
        gpu: which one it runs on; None: none, or those it chooses itself.
        needs: names of the steps that must have succeeded before.
        after: names of the steps that must be over, whatever became of them.
        quiet: nothing else may run on its GPU.
        cores: the processors it is bound to, as taskset takes them, on a machine of at least 32; empty: any.
    """

    name: str
    command: str
    gpu: int | None = None
    needs: tuple[str, ...] = ()
    quiet: bool = False
    cores: str = ""
    after: tuple[str, ...] = ()


_SMALL = "--no-last-checkpoints --no-save-optimizer-state"
_EIGHT = "--encoder-attention-heads 8 --decoder-attention-heads 8"
# The model of 72 heads, and the slim ones that are made of it.
_A = "multi30k/out/transformer_gated_iwslt_de_en-1/checkpoint_best.pt"
_SLIM = "multi30k/out/slim/slim-50.pt multi30k/out/slim/slim-90.pt"
_TALKS = "domains/out/talks"
_STUDY = "--fp16 --quiet --jobs 2"
_ABLATION = (
    f"$PYTHON ../scripts/bench_ablation.py multi30k/out/data-bin --path {_A} --source-lang de --target-lang en "
    "--beam 5 --remove-bpe sentencepiece --gen-subset test"
)
#: Processors: some for what measures time, the others for all else.
_QUIET, _SHARED = "0-3", "8-31"
_MEASURING = ("bench-ablation", "bench-train", "speed-gpu", "speed-glue", "speed-glue-base", "bench-finetune")
#: BERT's own size with random weights: heads matter to the speed of a model that keeps a GPU busy.
_BASE = (
    "--task glue --glue-task MRPC --arch bert_gated_base --vocabulary glue/out/bert/vocab.txt --cpu --batch-size 4 "
    "--criterion sentence_prediction --optimizer adam --lr 0 --max-update 1 --save-interval-updates 1 "
    "--disable-validation --no-last-checkpoints --no-save-optimizer-state --distributed-world-size 1 "
    "--save-dir glue/out/base"
)
_GLUE, _BERT = "glue/out/data", "BERT=glue/out/bert"
_LEARNED = "stock,gated,gated-l0,gated-ste24,gated-dsp1,gated-dsp24,gated-dsp60"


def _tuned(task: str, seed: int) -> Step:
    """Fine-tune BERT and score it on the development set."""
    model, name = f"glue/out/{task}-{seed}", f"glue/results/tuned-{task}-{seed}"
    tune = f"{_BERT} SEED={seed} bash glue/finetune.sh {_GLUE} {task}"
    evaluate = f"$PYTHON -m fairseq_headprune evaluate {_GLUE} --path {model}/checkpoint_best.pt --json"
    move = f"mkdir -p glue/results && mv {model}/scores.json {name}.json"
    return Step(f"tune-{task}-{seed}", f"{tune} && {evaluate} >{model}/scores.json && {move}", 1, cores=_SHARED)


def _reference(task: str, seed: int) -> Step:
    """The same recipe by a plain loop over Hugging Face's model."""
    output = f"glue/results/reference-{task}-{seed}.json"
    command = f"$PYTHON glue/reference.py {_GLUE} {task} --bert glue/out/bert --seed {seed} -o {output}"
    return Step(f"reference-{task}-{seed}", command, 1, cores=_SHARED)


_TUNED = [("SST-2", seed) for seed in (1, 2, 3)] + [("MRPC", seed) for seed in (1, 2, 3)]
_ONCE = [("CoLA", 1), ("RTE", 1), ("STS-B", 1)]

#: In the order in which they start where there is a choice. (On Multi30k the best epoch comes before update 4,000.)
STEPS = [
    Step(
        "check-gpu",
        "$PYTHON ../scripts/check_gpu.py --jobs 8 --output multi30k/results/check-gpu.json",
        1,
        cores=_SHARED,
    ),
    Step("train-72", f"EPOCHS=1 bash multi30k/train.sh --max-update 4000 {_SMALL}", 0),
    Step(
        "train-144",
        f"OUT=multi30k/out/random/heads-144 bash multi30k/train.sh {_EIGHT} --max-update 3300 {_SMALL}",
        0,
    ),
    Step("train-domains", f"bash domains/train.sh {_SMALL}", 1, cores=_SHARED),
    Step(
        "train-talks",
        f"EPOCHS=1 UPDATES=7000 PREPARED={_TALKS} OUT={_TALKS}/heads-144 bash domains/train.sh {_SMALL}",
        1,
        cores=_SHARED,
    ),
    *(_tuned(*which) for which in _TUNED + _ONCE),
    *(_reference(*which) for which in _TUNED),
    Step("slim", f"$PYTHON multi30k/slim.py {_A} --jobs 9", 1, ("train-72",), cores=_SHARED),
    Step(
        "bench-ablation",
        f"{_ABLATION} --fp16 --batch-sizes 500 1000 --rounds 2 --output multi30k/results/bench-ablation-gpu-fp16.json",
        0,
        ("train-72",),
        quiet=True,
        cores=_QUIET,
    ),
    Step(
        "bench-train",
        f"$PYTHON ../scripts/bench_train.py --data multi30k/out/data-bin --variants {_LEARNED} "
        "--updates 30 --warm-up 20 --rounds 8 --output multi30k/results/learned/bench-train-gpu.json",
        0,
        ("train-72",),
        quiet=True,
        cores=_QUIET,
    ),
    Step(
        "speed-gpu",
        f"DEVICES='gpu-fp16 gpu-fp32' bash multi30k/speed.sh {_A} {_SLIM}",
        0,
        ("slim",),
        quiet=True,
        cores=_QUIET,
    ),
    Step(
        "speed-glue",
        f"DEVICES='gpu-fp16 gpu-fp32' bash glue/speed.sh {_GLUE} glue/out/SST-2-1/checkpoint_best.pt",
        0,
        ("tune-SST-2-1",),
        quiet=True,
        cores=_QUIET,
    ),
    Step("start-base", f"$PYTHON -m fairseq_cli.train {_GLUE} --user-dir ../fairseq_headprune {_BASE}", cores=_SHARED),
    Step(
        "speed-glue-base",
        f"NAME=base DEVICES='gpu-fp16 gpu-fp32' bash glue/speed.sh {_GLUE} glue/out/base/checkpoint_1_1.pt "
        "--heads 144,72,14 --masks 5 --batch-sizes 16,64",
        0,
        ("start-base",),
        quiet=True,
        cores=_QUIET,
    ),
    Step(
        "bench-finetune",
        f"$PYTHON ../scripts/bench_finetune.py {_GLUE} SST-2 --bert glue/out/bert --device cuda "
        "--updates 60 --warm-up 20 --rounds 8 -o glue/results/bench-finetune-gpu-fp16.json",
        0,
        ("tune-SST-2-1",),
        quiet=True,
        cores=_QUIET,
    ),
    Step("speed-cpu", f"DEVICES=cpu bash multi30k/speed.sh {_A} {_SLIM}", None, ("slim",), cores="4,6"),
    Step(
        "bench-ablation-cpu",
        f"{_ABLATION} --cpu --masks 9 --sentences 64 --batch-sizes 16 32 64 --rounds 3 "
        "--output multi30k/results/bench-ablation-cpu.json",
        None,
        ("train-72",),
        cores="4,6",
        after=("speed-cpu",),
    ),
    Step("studies", f"bash multi30k/studies.sh {_A} {_STUDY}", 1, ("train-72",), cores=_SHARED),
    Step(
        "effects",
        f"bash domains/effects.sh domains/out/heads-144-1/checkpoint_best.pt {_STUDY}",
        1,
        ("train-domains",),
        cores=_SHARED,
    ),
    Step(
        "talks",
        f"PREPARED={_TALKS} PIECES=sentencepiece RESULTS=domains/results/studies EPOCHS=1,2,3,5,8,10,13 ORDERS=scores "
        "bash iwslt14/studies.sh "
        f"{_TALKS}/heads-144 {_STUDY}",
        1,
        ("train-talks",),
        cores=_SHARED,
    ),
    *(
        Step(
            f"studies-{task}",
            f"bash glue/studies.sh {_GLUE} glue/out/{task}-1/checkpoint_best.pt --fp16 --quiet",
            1,
            (f"tune-{task}-1",),
            cores=_SHARED,
        )
        for task in ("SST-2", "CoLA", "MRPC")
    ),
    Step(
        "pruners-SST-2",
        f"{_BERT} EPOCHS=1 JOBS=12 bash glue/pruners.sh {_GLUE} SST-2",
        1,
        ("tune-SST-2-1", "tune-SST-2-2", "tune-SST-2-3"),
        cores=_SHARED,
    ),
    Step(
        "pruners-MRPC",
        f"{_BERT} EPOCHS=8 JOBS=6 SEEDS=1,2,3 bash glue/pruners.sh {_GLUE} MRPC",
        1,
        ("tune-MRPC-1",),
        cores=_SHARED,
    ),
    Step(
        "random",
        "touch multi30k/out/random/heads-144/done && EPOCHS=10 JOBS=10 bash multi30k/random.sh",
        1,
        ("train-144",),
        cores=_SHARED,
    ),
    Step("random-glue", f"{_BERT} EPOCHS=1 BATCH=64 JOBS=16 bash glue/random.sh {_GLUE}", 1, cores=_SHARED),
    # On all GPUs, so after everything that measures time on one of them. What has come after a stop spans the range.
    Step(
        "compare",
        "SEEDS=1 UPDATES=3000 JOBS=28 bash multi30k/compare.sh --counts 24,8,48,4,16,2,36,12,60,1,20,3,68",
        after=_MEASURING,
    ),
    Step("gates", "$PYTHON multi30k/gates.py", after=_MEASURING),
]
