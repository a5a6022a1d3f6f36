#!/usr/bin/env bash
# Compare DSP, L0, STE, Michel et al. and random heads on one task (Li et al. 2021, Table 3a, Figures 3a and 5):
# [BERT=…] [COUNTS=…] [SEEDS=1] [EPOCHS=3] [JOBS=…] [OUT=…] [RESULTS=…]
# pruners.sh GLUE TASK [flags of compare_pruners.py]
#   COUNTS  heads kept (default: 64,48,36,24,12,6 of 72)
#   JOBS    trainings at the same time, spread over the visible GPUs (default: 16 a GPU)
#   OUT     the study folder (default: out/pruners-TASK beside this script)
#   RESULTS gets pruners-TASK.json and figures (default: results/ beside this script)
# Checkpoints are chosen on a tenth of train (at most 2,000 examples), which is held out; scores are of the
# development set.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
source "$HERE/../common.sh"
GLUE="${1:?usage: pruners.sh GLUE TASK [flags]}"
TASK="${2:?usage: pruners.sh GLUE TASK [flags]}"
BERT="${BERT:-$(packaged_encoder)}"
devices
lines=$(train_lines "$GLUE" "$TASK")
held=$((lines / 10 < 2000 ? lines / 10 : 2000))
updates=$((${EPOCHS:-3} * ((lines - held) / 32 + 1)))
exec "$PYTHON" "$HERE/../../scripts/compare_pruners.py" "$GLUE" --glue-task "$TASK" --bert "$BERT" \
    --work "${OUT:-$HERE/out/pruners-$TASK}" --out "${RESULTS:-$HERE/results}/pruners-$TASK" --splits dev \
    --counts "${COUNTS:-64,48,36,24,12,6}" --seeds "${SEEDS:-1}" --updates "$updates" \
    --jobs "${JOBS:-$((GPUS > 0 ? 16 * GPUS : 1))}" "--train-flags=$DEVICE --holdout $held" "--generate-flags=$DEVICE" "${@:3}"
