#!/usr/bin/env bash
# Random heads and whole layers pruned before fine-tuning, after Budhraja et al. 2020 (Tables 4 to 6, Figure 2):
# [TASK=SST-2] [BERT=…] [EPOCHS=3] [BATCH=32] [JOBS=…] [OUT=…] [RESULTS=…] random.sh GLUE
#   TASK     SST-2 by default (the others of the paper's stable tasks are MNLI, QQP and QNLI)
#   EPOCHS   of fine-tuning (default: 3; the paper's are 10)
#   BATCH    examples of a batch (default: 32)
#   ONLY     change: only the six fine-tunings of change-TASK-*.json, whose study is change-TASK.json (default: all)
#   JOBS     fine-tunings at the same time, spread over the visible GPUs (default: 8 a GPU)
#   OUT      gets the study and logs (default: out/random-TASK beside this script)
#   RESULTS  gets random-TASK.json, change-TASK-*.json and figures (default: results/ beside this script)
# Each mask is put on the encoder as it is before fine-tuning. BERT's 12 layers become 6 here, so sets of layers are
# halves of the paper's. Figure 2's panels: 10%, 50% and 90% pruned, the top quarter, the bottom quarter, every second
# layer.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
source "$HERE/../common.sh"
GLUE="${1:?usage: random.sh GLUE}"
TASK="${TASK:-SST-2}"
BATCH="${BATCH:-32}"
EPOCHS="${EPOCHS:-3}"
OUT="$(here "${OUT:-$HERE/out/random-$TASK}")"
RESULTS="$(here "${RESULTS:-$HERE/results}")"
mkdir -p "$OUT" "$RESULTS"
SEARCH=() FLAGS=()
devices
JOBS="${JOBS:-$((GPUS > 0 ? 8 * GPUS : 1))}"

# A checkpoint of the encoder with a fresh classifier: one update at the rate 0.
START="$OUT/start/checkpoint_best.pt"
[ -e "$START" ] || OUT="$OUT/start" bash "$HERE/finetune.sh" "$GLUE" "$TASK" --lr 0 --max-update 1 >"$OUT/start.log" 2>&1

lines=$(train_lines "$GLUE" "$TASK")
total=$((EPOCHS * (lines / BATCH + 1)))
TRAIN="--arch bert_gated --dropout 0.1 --attention-dropout 0.1 --criterion sentence_prediction --optimizer adam
    --adam-betas '(0.9, 0.999)' --adam-eps 1e-8 --weight-decay 0.01 --clip-norm 1 --lr 5e-5 --lr-scheduler polynomial_decay
    --warmup-updates $((total / 10)) --total-num-update $total --batch-size $BATCH --required-batch-size-multiple 1
    --best-checkpoint-metric score --maximize-best-checkpoint-metric --num-workers 0 $DEVICE"
NAME="random-$TASK" STUDY="$OUT/study"
MASKS=(--control --baseline control --random 10% 20% 30% 40% 50% 60% 70% 80% 90%
    --layers top:1 bottom:1 top:2 bottom:2 middle:2 top:1,bottom:1 top:3 bottom:3 even odd middle:4 top:2,bottom:2
    --seeds 1 2 3)
if [ "${ONLY:-}" = change ]; then
    NAME="change-$TASK" STUDY="$OUT/change" MASKS=(--random 10% 50% 90% --layers top:1 bottom:1 even --seeds 1)
fi
document "$NAME" random-study "$GLUE" --path "$START" "${MASKS[@]}" --train-flags "$TRAIN" --epochs "$EPOCHS" \
    --jobs "$JOBS" $DEVICE -o "$STUDY"
[ "$NAME" != "random-$TASK" ] || cp "$STUDY"/figures/random.png "$RESULTS/random-$TASK.png"
for panel in random-10% random-50% random-90% layers-top1 layers-bottom1 layers-even; do
    name="change-$TASK-${panel//%/}"
    document "$name" weight-change "$START" "$STUDY/runs/$panel-1/checkpoint_best.pt" --figure "$RESULTS/$name"
done
