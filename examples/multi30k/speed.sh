#!/usr/bin/env bash
# Speed and size of slim models beside the unpruned one:  [PREPARED=…] [RESULTS=…] [DEVICES=…] speed.sh CHECKPOINT SLIM…
#   CHECKPOINT  the unpruned model; SLIM: the models that slim.py wrote
#   PREPARED    the folder that prepare.sh wrote (default: out/ beside this script)
#   RESULTS     gets bench-speed-*.json (default: results/ beside this script)
#   DEVICES     of: gpu-fp16 gpu-fp32 cpu (default: cpu; two threads)
# 24 tokens a sentence for every model; on an otherwise idle machine.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
source "$HERE/../common.sh"
PREPARED="${PREPARED:-$HERE/out}"
RESULTS="${RESULTS:-$HERE/results}"
mkdir -p "$RESULTS"

measure() {  # NAME SENTENCES BATCH_SIZES [flags]
    echo "$1, batches of $3" >&2
    "$PYTHON" "$HERE/../../scripts/bench_speed.py" "$PREPARED/data-bin" --source-lang de --target-lang en \
        --path "$CHECKPOINT" --models "${MODELS[@]}" --length 24 --sentences "$2" --batch-sizes "$3" "${@:4}" --json \
        >"$RESULTS/bench-speed-$1.part"
    mv "$RESULTS/bench-speed-$1.part" "$RESULTS/bench-speed-$1.json"
}
CHECKPOINT="$1"
MODELS=("${@:2}")
for device in ${DEVICES:-cpu}; do
    half=
    case $device in
        # Small batches take long for each sentence, so they get fewer. All 1,000 sentences at once keep a GPU busy.
        gpu-fp16 | gpu-fp32)
            [ "$device" = gpu-fp32 ] || half=--fp16
            measure "$device-small" 4 1,4 $half
            measure "$device-large" 64 16,64 $half
            measure "$device-whole" 1000 1000 $half ;;
        cpu) measure cpu-small 16 1,4 --cpu --threads 2 --rounds 3; measure cpu-large 64 16,64 --cpu --threads 2 --rounds 3 ;;
        *) echo "speed.sh: unknown device $device: gpu-fp16, gpu-fp32 or cpu" >&2; exit 2 ;;
    esac
done
