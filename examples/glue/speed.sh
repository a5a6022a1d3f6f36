#!/usr/bin/env bash
# Speed and size by heads kept, ten random masks of each number (Michel et al. 2019, Table 4; Li et al. 2021, Figure 4):
# [NAME=…] [DEVICES=…] [RESULTS=…] speed.sh GLUE CHECKPOINT [flags]
#   NAME     of the model, which becomes a part of the results' names (default: none)
#   DEVICES  of: gpu-fp16 gpu-fp32 cpu (default: cpu; two threads)
#   RESULTS  gets speed-by-heads-*.json, .png and .svg (default: results/ beside this script)
# Flags go to headprune bench-heads: --points points.json adds masks that pruners chose, with their scores (Figure 5);
# --heads 144,72,36 is for larger models. On an otherwise idle machine.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
source "$HERE/../common.sh"
GLUE="${1:?usage: speed.sh GLUE CHECKPOINT [flags]}"
CHECKPOINT="${2:?usage: speed.sh GLUE CHECKPOINT [flags]}"
RESULTS="${RESULTS:-$HERE/results}"
mkdir -p "$RESULTS"

measure() {  # NAME [flags]
    "$PYTHON" "$HERE/../../scripts/speed_by_heads.py" "$GLUE" --path "$CHECKPOINT" --masks 10 --seed 1 \
        -o "$RESULTS/speed-by-heads-${NAME:+$NAME-}$1.json" --figure "$RESULTS/speed-by-heads-${NAME:+$NAME-}$1" "${@:2}"
}
for device in ${DEVICES:-cpu}; do
    case $device in
        gpu-fp16) measure gpu-fp16 --fp16 "${@:3}" ;;
        gpu-fp32) measure gpu-fp32 "${@:3}" ;;
        cpu) measure cpu --cpu --threads 2 "${@:3}" ;;
        *) echo "speed.sh: unknown device $device: gpu-fp16, gpu-fp32 or cpu" >&2; exit 2 ;;
    esac
done
