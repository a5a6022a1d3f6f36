#!/usr/bin/env bash
# Effect of every head on two test sets (Michel et al. 2019, Figure 2):  [PREPARED=…] [OUT=…] [RESULTS=…] effects.sh [CHECKPOINT] [flags]
#   CHECKPOINT  default: the model of seed 1 that train.sh trained
#   PREPARED    the folder that prepare.sh wrote (default: out/ beside this script)
#   OUT         gets the study folders (default: PREPARED/effects)
#   RESULTS     gets JSON and figures (default: results/ beside this script)
# The text is tokenised and lowercased, so BLEU is tokenised BLEU (--bleu tok). Flags go to headprune ablate: --jobs N, --fp16.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export PYTHONPATH="$HERE/../..${PYTHONPATH:+:$PYTHONPATH}"
PYTHON="${PYTHON:-python3}"
PREPARED="${PREPARED:-$HERE/out}"
CHECKPOINT="${1:-$PREPARED/heads-144-1/checkpoint_best.pt}"
OUT="${OUT:-$PREPARED/effects}"
RESULTS="${RESULTS:-$HERE/results}"
mkdir -p "$OUT" "$RESULTS"

headprune() { "$PYTHON" -m fairseq_headprune "$@"; }
for set in newstest2014:test iwslt14:test1; do
    name="ablate-${set%:*}"
    headprune ablate "$PREPARED/data-bin" --path "$CHECKPOINT" --source-lang de --target-lang en --gen-subset "${set#*:}" \
        --beam 5 --post-process sentencepiece --bleu tok -o "$OUT/$name" --json "${@:2}" >"$OUT/$name.json"
    mv "$OUT/$name.json" "$RESULTS/"
    for figure in "$OUT/$name"/figures/*.png; do [ ! -e "$figure" ] || cp "$figure" "$RESULTS/$name-${figure##*/}"; done
done
headprune correlate "$OUT/ablate-newstest2014" "$OUT/ablate-iwslt14" --figure "$RESULTS/effects" --json >"$OUT/effects.json"
mv "$OUT/effects.json" "$RESULTS/"
