#!/usr/bin/env bash
# Importance, pruning curves and single heads of a fine-tuned model (Michel et al. 2019, Figures 2b, 3b and 6, Tables 3
# and 6):
# [NAME=…] [OUT=…] [RESULTS=…] studies.sh GLUE CHECKPOINT [flags]
#   NAME     of the task, for results (default: that of the checkpoint's folder, such as SST-2 of out/SST-2-1)
#   OUT      gets the study folders (default: studies/ beside the checkpoint)
#   RESULTS  gets JSON and figures (default: results/NAME beside this script)
# Results are those of the development set. Importance comes from 2,000 examples of train; the oracle order and the head
# that is kept are chosen on 5,000 examples of train (all of them where there are fewer), which are the other set of the
# effects of single heads, too. Flags go to each study: --jobs N, --cpu, --fp16. Started again, it goes on.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
source "$HERE/../common.sh"
GLUE="${1:?usage: studies.sh GLUE CHECKPOINT [flags]}"
CHECKPOINT="${2:?usage: studies.sh GLUE CHECKPOINT [flags]}"
FOLDER="$(cd "$(dirname "$CHECKPOINT")" && pwd)"
RUN="${FOLDER##*/}"
NAME="${NAME:-${RUN%-*}}"
OUT="${OUT:-$FOLDER/studies}"
RESULTS="${RESULTS:-$HERE/results/$NAME}"
mkdir -p "$OUT" "$RESULTS"

SEARCH=("$GLUE" --path "$CHECKPOINT")
FLAGS=("${@:3}")
lines=$(train_lines "$GLUE" "$NAME")
CHOICE=train
SAMPLE=()
if [ "$lines" -gt 6000 ]; then
    # What is held out of train is drawn by chance; the model has been trained on it all the same.
    CHOICE=valid
    SAMPLE=(--holdout 5000)
fi

study order-scores prune --preset michel-2019 --order scores
study ablate-dev ablate
study ablate-train ablate --gen-subset "$CHOICE" ${SAMPLE[@]+"${SAMPLE[@]}"}
document effects correlate "$OUT"/ablate-{dev,train}.json --figure "$RESULTS/effects"
study keep-one keep-one --select-subset "$CHOICE" --gen-subset dev ${SAMPLE[@]+"${SAMPLE[@]}"}
study order-oracle prune --preset michel-2019 --order "oracle:$OUT/ablate-train"
study order-random prune --order random --order-seeds 1 2 3 4 5 6 7 8 9 10
