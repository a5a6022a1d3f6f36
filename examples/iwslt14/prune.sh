#!/usr/bin/env bash
# Score the heads of a trained model, prune them step by step and test the steps:
# [PREPARED=…] [OUT=…] prune.sh [CHECKPOINT]
#   CHECKPOINT  default: the gated model of seed 1 that train.sh trained
#   PREPARED    the folder that prepare.sh wrote (default: out/ beside this script)
#   OUT         gets scores.json and the study folders prune-all and prune-each (default: PREPARED/pruning)
# Importance is the paper's. The text is tokenised and lowercased, so BLEU is tokenised BLEU (--bleu tok), as published
# for this set.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
source "$HERE/../common.sh"
PREPARED="${PREPARED:-$HERE/out}"
CHECKPOINT="${1:-$PREPARED/transformer_gated_iwslt_de_en-1/checkpoint_best.pt}"
OUT="${OUT:-$PREPARED/pruning}"
mkdir -p "$OUT"

MODEL=("$PREPARED/data-bin" --path "$CHECKPOINT" --source-lang de --target-lang en)
SEARCH=(--gen-subset test --beam 5 --remove-bpe --bleu tok)

headprune score "${MODEL[@]}" --preset michel-2019 -o "$OUT/scores.json" --figure "$OUT/scores"
for components in all each; do
    headprune prune "${MODEL[@]}" "${SEARCH[@]}" --preset michel-2019 --components "$components" --step 10% \
        -o "$OUT/prune-$components"
done
# The unpruned model against two heads in ten and four in ten pruned.
headprune compare --bleu tok "$PREPARED/text/test.en" "$OUT"/prune-all/hyps/{unpruned,all-02,all-04}.txt
