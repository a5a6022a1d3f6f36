#!/usr/bin/env bash
# The studies of Michel et al. 2019 on one trained model:
# [PREPARED=…] [OUT=…] [RESULTS=…] studies.sh [CHECKPOINT] [flags]
#   CHECKPOINT  default: the gated model of seed 1 that train.sh trained
#   PREPARED    the folder that prepare.sh wrote (default: out/ beside this script)
#   OUT         gets the study folders (default: PREPARED/studies)
#   RESULTS     gets JSON and figures (default: results/studies beside this script)
# Every head alone on test2016, mscoco2017 and valid (Table 1, Figures 1 and 2), one head kept (Tables 2 and 5), and
# three orders of pruning (Figure 3): importance, the oracle measured on valid, and ten random ones; where the epochs of
# the run were kept (EPOCHS=1 train.sh), pruning at each of them (Figure 5). Flags go to each study: --jobs N, --fp16.
# Started again, it goes on. OUT/report.html shows all; it holds sentences of the data, so it is no result to pass on.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
source "$HERE/../common.sh"
PREPARED="${PREPARED:-$HERE/out}"
CHECKPOINT="${1:-$PREPARED/transformer_gated_iwslt_de_en-1/checkpoint_best.pt}"
OUT="${OUT:-$PREPARED/studies}"
RESULTS="${RESULTS:-$HERE/results/studies}"
mkdir -p "$OUT" "$RESULTS"

MODEL=(--path "$CHECKPOINT")
SEARCH=("$PREPARED/data-bin" --source-lang de --target-lang en --beam 5 --post-process sentencepiece)
FLAGS=("${@:2}")

study ablate-test2016 ablate "${MODEL[@]}" --gen-subset test
study ablate-mscoco2017 ablate "${MODEL[@]}" --gen-subset test2
study ablate-valid ablate "${MODEL[@]}" --gen-subset valid
document effects correlate "$OUT"/ablate-{test2016,mscoco2017}.json --figure "$RESULTS/effects"
study keep-one keep-one "${MODEL[@]}" --select-subset valid --gen-subset test
study order-scores prune "${MODEL[@]}" --gen-subset test --preset michel-2019 --order scores
study order-oracle prune "${MODEL[@]}" --gen-subset test --preset michel-2019 --order "oracle:$OUT/ablate-valid"
study order-random prune "${MODEL[@]}" --gen-subset test --order random --order-seeds 1 2 3 4 5 6 7 8 9 10
RUN="$(dirname "$CHECKPOINT")"
[ ! -e "$RUN/checkpoint1.pt" ] || study sweep sweep-epochs --checkpoints "$RUN" --gen-subset test --preset michel-2019
SHOWN=()
for file in "$OUT"/*/study.json; do [ ! -e "$file" ] || SHOWN+=("$(dirname "$file")"); done
[ ${#SHOWN[@]} = 0 ] || headprune report "${SHOWN[@]}" --title "Heads of $CHECKPOINT" -o "$OUT/report.html" >&2
