#!/usr/bin/env bash
# Train one model on the folder that prepare.sh wrote:
# [ARCH=…] [SEED=…] [EPOCHS=1] [PREPARED=…] [OUT=…] train.sh [flags of fairseq-train]
#   ARCH      transformer_gated_iwslt_de_en (default) or fairseq's own transformer_iwslt_de_en
#   SEED      1 by default
#   PREPARED  the folder that prepare.sh wrote (default: out/ beside this script)
#   EPOCHS    1 keeps a checkpoint of every epoch, for sweep.sh (default: none are kept)
#   OUT       gets the checkpoints (default: PREPARED/ARCH-SEED)
# The recipe of fairseq's examples/translation for IWSLT14, 50,000 updates on one GPU. Started again, it goes on.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
source "$HERE/../common.sh"
ARCH="${ARCH:-transformer_gated_iwslt_de_en}"
SEED="${SEED:-1}"
PREPARED="${PREPARED:-$HERE/out}"
OUT="${OUT:-$PREPARED/$ARCH-$SEED}"

devices
kept_epochs
exec "$PYTHON" -m fairseq_cli.train "$PREPARED/data-bin" --user-dir "$HERE/../../fairseq_headprune" \
    --task translation --source-lang de --target-lang en --arch "$ARCH" --share-decoder-input-output-embed \
    --dropout 0.3 --weight-decay 0.0001 --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
    --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 0.0 --lr 5e-4 --lr-scheduler inverse_sqrt \
    --warmup-updates 4000 --max-tokens 4096 --max-update 50000 --seed "$SEED" --distributed-world-size 1 "$DEVICE" \
    --save-dir "$OUT" "${KEEP[@]}" --log-format simple --log-interval 100 "$@"
