#!/usr/bin/env bash
# Train one model on the folder that prepare.sh wrote:
# [SEED=…] [UPDATES=…] [EPOCHS=1] [PREPARED=…] [OUT=…] train.sh [flags of fairseq-train]
#   SEED      1 by default
#   UPDATES   8000 by default, of 8,192 tokens
#   EPOCHS    1 keeps a checkpoint of every epoch, for ../iwslt14/studies.sh (default: none are kept)
#   PREPARED  the folder that prepare.sh wrote (default: out/ beside this script)
#   OUT       gets the checkpoints (default: PREPARED/heads-144-SEED)
# 6+6 layers of 8 heads, in fp16 on one GPU, or on the CPU where there is none (hours). Started again, it goes on.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
source "$HERE/../common.sh"
SEED="${SEED:-1}"
PREPARED="${PREPARED:-$HERE/out}"
OUT="${OUT:-$PREPARED/heads-144-$SEED}"

devices
kept_epochs
exec "$PYTHON" -m fairseq_cli.train "$PREPARED/data-bin" --user-dir "$HERE/../../fairseq_headprune" \
    --task translation --source-lang de --target-lang en --arch transformer_gated_iwslt_de_en --share-all-embeddings \
    --encoder-attention-heads 8 --decoder-attention-heads 8 --dropout 0.2 \
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
    --optimizer adam --adam-betas '(0.9, 0.98)' --lr 7e-4 --lr-scheduler inverse_sqrt --warmup-updates 1500 \
    --max-tokens 8192 --max-update "${UPDATES:-8000}" --seed "$SEED" --distributed-world-size 1 "$DEVICE" \
    --save-dir "$OUT" "${KEEP[@]}" --log-format simple --log-interval 100 "$@"
