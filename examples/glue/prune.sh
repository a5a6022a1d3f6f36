#!/usr/bin/env bash
# Importance, pruning curves and single heads of a fine-tuned model (Michel et al. 2019, Figures 3b and 6, Tables 3 and 6):
# [OUT=…] prune.sh GLUE CHECKPOINT [flags]
#   OUT  gets scores.json and study folders (default: pruning/ beside the checkpoint)
# Results are those of the development set; importance comes from 2,000 examples of train, the oracle order and the head
# that is kept are chosen on train. Flags go to each study: --jobs N, --cpu, --fp16. Started again, it goes on.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export PYTHONPATH="$HERE/../..${PYTHONPATH:+:$PYTHONPATH}"
PYTHON="${PYTHON:-python3}"
GLUE="${1:?usage: prune.sh GLUE CHECKPOINT [flags]}"
CHECKPOINT="${2:?usage: prune.sh GLUE CHECKPOINT [flags]}"
OUT="${OUT:-$(dirname "$CHECKPOINT")/pruning}"
mkdir -p "$OUT"

headprune() { "$PYTHON" -m fairseq_headprune "$@"; }
MODEL=("$GLUE" --path "$CHECKPOINT")

headprune score "${MODEL[@]}" -o "$OUT/scores.json" --figure "$OUT/scores" "${@:3}"
headprune prune "${MODEL[@]}" -o "$OUT/prune" "${@:3}"
headprune ablate "${MODEL[@]}" --gen-subset train -o "$OUT/ablate-train" "${@:3}"
headprune prune "${MODEL[@]}" --order "oracle:$OUT/ablate-train" -o "$OUT/prune-oracle" "${@:3}"
headprune keep-one "${MODEL[@]}" --select-subset train -o "$OUT/keep-one" "${@:3}"
