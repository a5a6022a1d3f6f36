#!/usr/bin/env bash
# Effect of every head on two test sets (Michel et al. 2019, Figure 2):
# [PREPARED=…] [OUT=…] [RESULTS=…] effects.sh [CHECKPOINT] [flags]
#   CHECKPOINT  default: the model of seed 1 that train.sh trained
#   PREPARED    the folder that prepare.sh wrote (default: out/ beside this script)
#   OUT         gets the study folders (default: PREPARED/effects)
#   RESULTS     gets JSON and figures (default: results/ beside this script)
# The text is tokenised and lowercased, so BLEU is tokenised BLEU (--bleu tok). Flags go to headprune ablate: --jobs N,
# --fp16.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
source "$HERE/../common.sh"
PREPARED="${PREPARED:-$HERE/out}"
CHECKPOINT="${1:-$PREPARED/heads-144-1/checkpoint_best.pt}"
OUT="${OUT:-$PREPARED/effects}"
RESULTS="${RESULTS:-$HERE/results}"
mkdir -p "$OUT" "$RESULTS"

SEARCH=("$PREPARED/data-bin" --path "$CHECKPOINT" --source-lang de --target-lang en --beam 5 --post-process sentencepiece --bleu tok)
FLAGS=("${@:2}")
study ablate-newstest2014 ablate --gen-subset test
study ablate-iwslt14 ablate --gen-subset test1
document effects correlate "$OUT"/ablate-{newstest2014,iwslt14}.json --figure "$RESULTS/effects"
