#!/usr/bin/env bash
# Which normaliser of importance prunes best?
# [SEEDS=…] [UPDATES=…] [JOBS=…] [LIMIT=…] [OUT=…] [RESULTS=…] normalizers.sh CORPUS [flags]
#   CORPUS   multi30k (6+6 layers, 72 heads), tatoeba-tiny (2+2 layers, width 128, 24 heads), tatoeba or multi30k-fr
#   SEEDS    of the trainings (default: 1,2,3,4,5)
#   UPDATES  of every training (default: 3600; of tatoeba-tiny 1000)
#   JOBS     processes at the same time, spread over the visible GPUs (default: 12 a GPU)
#   LIMIT    seconds after which it stops, to be started again (default: none)
#   OUT      gets the study folder (default: PREPARED/normalizers); PREPARED: see ../questions/README.md
#   RESULTS  gets CORPUS.json and CORPUS-differences.json (default: results/ beside this script)
# 10% to 80% of all heads are pruned jointly on every model, by each normaliser, estimated once and again after every
# tenth; BLEU on valid. Flags go to headprune compare-pruners. Started again, it goes on.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
source "$HERE/../common.sh"
[ "${1:?CORPUS}" != multi30k ] || UPDATES="${UPDATES:-3600}"
devices
corpus "$1"
OUT="${OUT:-$PREPARED/normalizers}" RESULTS="${RESULTS:-$HERE/results}"
# minmax scales all heads alike, so it ranks them as none does. Estimated once, there is no other model than the full
# one, whose modules have equally many heads: layer-rms and layer-frozen rank them as layer does.
METHODS=unpruned,random-after,michel+layer,michel+layer-rms,michel+layer-frozen,michel+none,michel+layer+once,michel+none+once
compared "$1" --methods "$METHODS" --counts "$(kept 10 20 30 40 50 60 70 80)" --step $((HEADS / 10)) \
    --seeds "${SEEDS:-1,2,3,4,5}" --splits valid "${@:2}"
"$PYTHON" "$HERE/../over_trainings.py" "$RESULTS/$1.json" --against michel+layer -o "$RESULTS/$1-differences.json"
