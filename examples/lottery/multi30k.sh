#!/usr/bin/env bash
# Lottery tickets of a translation model, 72 heads and 12 feed-forward blocks:
# [SEEDS=…] [UPDATES=…] [REWIND=…] [ARCH=…] [TRAIN=…] [OUT=…] [RESULTS=…] multi30k.sh [DATA_BIN]
#   DATA_BIN  as ../multi30k/prepare.sh wrote it (default: ../multi30k/out/data-bin)
#   SEEDS     "1 2 3" by default
#   UPDATES   of every training (default: 1200)
#   REWIND    the update that tickets are rewound to (default: 150); every so many updates a model is validated and
#             saved
#   ARCH      transformer_gated_iwslt_de_en by default
#   TRAIN     more flags of every training; FIND of every search
#   AT_ONCE   trainings of each seed at a time: heads and blocks, single weights (default: "3 2")
#   OUT       gets models, searches, tickets (default: out/multi30k beside this script)
#   RESULTS   gets multi30k.json (default: results/ beside this script)
# Tickets are selected on valid and reported on test2016. Started again, it goes on.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
source "$HERE/../common.sh"
source "$HERE/side_by_side.sh"
DATA="$(cd "${1:-$HERE/../multi30k/out/data-bin}" && pwd)"
read -ra SEEDS <<<"${SEEDS:-1 2 3}"
read -ra AT_ONCE <<<"${AT_ONCE:-3 2}"
read -ra SEARCH_FLAGS <<<"${FIND:-}"
UPDATES="${UPDATES:-1200}"
REWIND="${REWIND:-150}"
OUT="${OUT:-$HERE/out/multi30k}"
RESULTS="${RESULTS:-$HERE/results}"
mkdir -p "$OUT" "$RESULTS"
devices
cards

# Saved and validated by updates, not epochs; only the last such checkpoint of a ticket is kept, and the best.
RECIPE="--arch ${ARCH:-transformer_gated_iwslt_de_en} --share-all-embeddings --dropout 0.3
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --optimizer adam --adam-betas (0.9,0.98) --lr 7e-4
    --lr-scheduler inverse_sqrt --warmup-updates $((UPDATES * 2 / 5)) --max-tokens 4096 --cuda-graphs auto
    --save-interval-updates $REWIND --save-interval 1000 --validate-interval 1000
    --no-last-checkpoints --no-save-optimizer-state $DEVICE ${TRAIN:-}"
ANSWER=(--remove-bpe sentencepiece "$DEVICE" --quiet)

train() {  # SEED
    [ ! -e "$OUT/model-$1/done" ] || return 0
    mkdir -p "$OUT/model-$1"
    # shellcheck disable=SC2086  # the recipe is words
    "$PYTHON" -m fairseq_cli.train "$DATA" --user-dir "$HERE/../../fairseq_headprune" --task translation_headprune \
        --source-lang de --target-lang en $RECIPE --max-update "$UPDATES" --seed "$1" --no-epoch-checkpoints \
        --save-dir "$OUT/model-$1" --distributed-world-size 1 --log-format simple --no-progress-bar \
        >"$OUT/model-$1/train.log" 2>&1
    touch "$OUT/model-$1/done"
}

retrain() {  # SEED NUMBER MODE JOBS [flags]: the tickets of one model
    headprune lottery retrain "$DATA" --path "$OUT/model-$1/checkpoint_best.pt" --updates "$UPDATES" --jobs "$4" \
        --tickets "$OUT/tickets-valid-$3/$2" "$OUT/tickets-valid-$3"/super-survivors.* --rewind "$REWIND" \
        --train-flags "$RECIPE --keep-interval-updates 1" -o "$OUT/retrain-$3/$1" "${ANSWER[@]}" "${@:5}" \
        >"$OUT/retrain-$3-$1.txt"
}

train_all
# Two processes a model, one a mode.
for mode in both magnitude; do
    on_all headprune lottery find "$DATA" --paths "${MODELS[@]}" --mode "$mode" -o "$OUT/search-valid-$mode" \
        "${ANSWER[@]}" ${SEARCH_FLAGS[@]+"${SEARCH_FLAGS[@]}"} >"$OUT/search-$mode.txt"
done
together
for mode in both magnitude; do
    on_all once "tickets-valid-$mode" lottery tickets "$OUT/search-valid-$mode"/model-* -o "$OUT/tickets-valid-$mode"
done
together
number=0
for seed in "${SEEDS[@]}"; do
    number=$((number + 1))
    on_card "$seed" retrain "$seed" "$number" both "${AT_ONCE[0]}" --fresh-seed $((seed + 100))
    on_card $((seed + 1)) retrain "$seed" "$number" magnitude "${AT_ONCE[1]}"
done
together
for mode in both magnitude; do
    once "table-$mode" lottery table "${SEEDS[@]/#/$OUT/retrain-$mode/}"
done
"$PYTHON" "$HERE/gather.py" "$OUT" -o "$RESULTS/multi30k.json"
