#!/usr/bin/env bash
# What survives, and how survivors attend, after glue.sh or multi30k.sh:
# [OUT=…] [RESULTS=…] survivors.sh DATA NAME [flags]
#   DATA, NAME  GLUE and a task, or DATA_BIN and multi30k
#   flags       more flags of headprune lottery patterns
#   OUT         of that script (default: out/NAME beside this script)
#   RESULTS     gets NAME-survivors.json (default: results/ beside this script)
# Started again, it goes on.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
source "$HERE/../common.sh"
DATA="$(cd "${1:?usage: survivors.sh DATA NAME}" && pwd)"
NAME="${2:?usage: survivors.sh DATA NAME}"
OUT="${OUT:-$HERE/out/$NAME}"
RESULTS="${RESULTS:-$HERE/results}"
mkdir -p "$RESULTS"
devices
# The split that tickets were selected on, which their names have.
split=dev
[ -d "$OUT/tickets-dev-both" ] || split=valid
tickets=()
for mode in heads blocks both magnitude; do
    [ ! -d "$OUT/tickets-$split-$mode" ] || tickets+=("$OUT/tickets-$split-$mode")
done

once survival lottery survival "${tickets[@]}" -o "$OUT/survival"
for model in "$OUT"/model-*/checkpoint_best.pt; do
    name="patterns-$(basename "$(dirname "$model")")"
    once "$name" lottery patterns "$DATA" --path "$model" --gen-subset "$split" --tickets "$OUT/tickets-$split-both" \
        "$DEVICE" -o "$OUT/$name" "${@:3}"
done
"$PYTHON" "$HERE/gather.py" --survivors "$OUT" -o "$RESULTS/$NAME-survivors.json"
