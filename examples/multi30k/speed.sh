#!/usr/bin/env bash
# Speed and size of slim models beside the unpruned one:  [PREPARED=…] [RESULTS=…] [DEVICES=…] speed.sh CHECKPOINT SLIM…
#   CHECKPOINT  the unpruned model; SLIM: the models that slim.py wrote
#   PREPARED    the folder that prepare.sh wrote (default: out/ beside this script)
#   RESULTS     gets bench-speed-*.json (default: results/ beside this script)
#   DEVICES     of: gpu-fp16 gpu-fp32 cpu (default: cpu; two threads)
# 24 tokens a sentence for every model; on an otherwise idle machine.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export PYTHONPATH="$HERE/../..${PYTHONPATH:+:$PYTHONPATH}"
PYTHON="${PYTHON:-python3}"
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
    case $device in
        # Small batches take long for each sentence, so they get fewer.
        gpu-fp16) measure gpu-fp16-small 8 1,4 --fp16; measure gpu-fp16-large 256 16,64,0 --fp16 ;;
        gpu-fp32) measure gpu-fp32-small 8 1,4; measure gpu-fp32-large 256 16,64,0 ;;
        cpu) measure cpu-small 16 1,4 --cpu --threads 2 --rounds 3; measure cpu-large 64 16,64 --cpu --threads 2 --rounds 3 ;;
        *) echo "speed.sh: unknown device $device: gpu-fp16, gpu-fp32 or cpu" >&2; exit 2 ;;
    esac
done
