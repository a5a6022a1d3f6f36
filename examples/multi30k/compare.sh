#!/usr/bin/env bash
# Compare pruning methods after Li et al. 2021:
# [SEEDS=1,2,3] [UPDATES=…] [JOBS=…] [LIMIT=…] [PREPARED=…] [OUT=…] [RESULTS=…] compare.sh [flags of compare_pruners.py]
#   SEEDS     of the trainings and of random masks (default: 1,2,3)
#   UPDATES   of every training but those of pipelined DSP, which take one epoch (default: 5000)
#   JOBS      trainings, then translations, at the same time, spread over the visible GPUs (default: 12 a GPU)
#   LIMIT     seconds after which it stops, to be started again (default: none)
#   PREPARED  the folder that prepare.sh wrote (default: out/ beside this script)
#   OUT       the study folder: models, logs, masks, translations (default: PREPARED/compare)
#   RESULTS   gets compare.json and figures (default: results/ beside this script)
# 13 numbers of heads, four methods that train from scratch for each of them: 53 trainings a seed, and 13 of one epoch.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
source "$HERE/../common.sh"
PREPARED="${PREPARED:-$HERE/out}"
devices
exec "$PYTHON" "$HERE/../../scripts/compare_pruners.py" "$PREPARED/data-bin" --work "${OUT:-$PREPARED/compare}" \
    --out "${RESULTS:-$HERE/results}/compare" --references "$PREPARED/text/test2016.en" \
    --seeds "${SEEDS:-1,2,3}" --updates "${UPDATES:-5000}" --jobs "${JOBS:-$((GPUS > 0 ? 12 * GPUS : 1))}" \
    ${LIMIT:+--limit "$LIMIT"} "--train-flags=$DEVICE" "--generate-flags=$DEVICE" "$@"
