#!/usr/bin/env bash
# Random pruning with fine-tuning, after Budhraja et al. 2020:
# [JOBS=…] [LIMIT=…] [PREPARED=…] [OUT=…] [RESULTS=…] random.sh
#   JOBS      fine-tunings at the same time, spread over the visible GPUs (default: 8 a GPU)
#   LIMIT     seconds after which it stops, to be started again (default: 0, no limit)
#   EPOCHS    of fine-tuning (default: 30, as in the paper)
#   ONLY      change: only the three fine-tunings of random-change-*.json, whose study is random-change.json (default:
#             all)
#   PREPARED  the folder that prepare.sh wrote (default: out/ beside this script)
#   OUT       gets the model of 144 heads, the study and logs (default: PREPARED/random)
#   RESULTS   gets random.json, random-change-*.json, figures, and the cells of the study, also where it is stopped
#             (default: results/ beside this script)
# A model with 8 heads a layer is trained, then pruned at random 48 times: Table 1's percentages (87.5%: one head in
# each layer), Table 2's configurations and mirrors at 40% and 60%, Table 3's triples at 60%, three samplings each.
# Batches are of 16,384 tokens, since a GPU takes as long for small ones. Started again, it goes on.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
source "$HERE/../common.sh"
PREPARED="$(here "${PREPARED:-$HERE/out}")"
OUT="$(here "${OUT:-$PREPARED/random}")"
RESULTS="$(here "${RESULTS:-$HERE/results}")"
EPOCHS="${EPOCHS:-30}"
EVERY=$((EPOCHS % 5 ? 1 : 5)) # epochs between validations: writing checkpoints takes its time, too
mkdir -p "$OUT" "$RESULTS"
devices
JOBS="${JOBS:-$((GPUS > 0 ? 8 * GPUS : 1))}"
MODEL="$OUT/heads-144/checkpoint_best.pt"
COMPARED=(25% 60% 87.5%:at-least-one)
NAME=random STUDY="$OUT/study"
MASKS=(--control --random 25% 35% 50% 55% 60% 75% 81% 87.5%:at-least-one
    --config "ES=777322 ED=233777 DS=777332" --config "ES=555211 ED=112555 DS=555211" --mirror
    --triple 12,21,25 21,12,25 25,21,12 --seeds 1 2 3)
if [ "${ONLY:-}" = change ]; then
    NAME=random-change STUDY="$OUT/change" MASKS=(--random "${COMPARED[@]}" --seeds 1)
fi
[ "${LIMIT:-0}" -eq 0 ] || BOUND=(timeout --signal=INT "$LIMIT")

if [ ! -e "$OUT/heads-144/done" ]; then
    PREPARED="$PREPARED" OUT="$OUT/heads-144" PYTHON="$PYTHON" bash "$HERE/train.sh" \
        --encoder-attention-heads 8 --decoder-attention-heads 8 >"$OUT/train.log" 2>&1
    touch "$OUT/heads-144/done"
fi

TRAIN="--arch transformer_gated_iwslt_de_en --encoder-attention-heads 8 --decoder-attention-heads 8
    --share-all-embeddings --dropout 0.3 --criterion label_smoothed_cross_entropy --label-smoothing 0.1
    --optimizer adam --adam-betas '(0.9, 0.98)' --lr 3e-4 --lr-scheduler inverse_sqrt --warmup-updates 100
    --max-tokens 16384 --num-workers 0 --validate-interval $EVERY --save-interval $EVERY $DEVICE"
keep_cells() {
    [ "$NAME" = random ] && [ -f "$STUDY/study.json" ] || return 0
    mkdir -p "$RESULTS/random-study" && cp "$STUDY"/{study.json,cells.jsonl} "$RESULTS/random-study/"
}
trap keep_cells EXIT
${BOUND[@]+"${BOUND[@]}"} "$PYTHON" -m fairseq_headprune random-study "$PREPARED/data-bin" --path "$MODEL" \
    --source-lang de --target-lang en --gen-subset test --beam 5 --post-process sentencepiece "${MASKS[@]}" \
    --train-flags "$TRAIN" --epochs "$EPOCHS" --jobs "$JOBS" -o "$STUDY" --json >"$OUT/$NAME.json"

cp "$OUT/$NAME.json" "$RESULTS/"
[ "$NAME" != random ] || cp "$STUDY"/figures/random.* "$RESULTS/"
for share in "${COMPARED[@]}"; do
    name="random-change-${share%%%*}"
    document "$name" weight-change "$MODEL" "$STUDY/runs/random-${share/:/-}-1/checkpoint_best.pt" --figure "$RESULTS/$name"
done
