#!/usr/bin/env bash
# Pruning at chosen epochs (Michel et al. 2019, Figure 5) and two orders of pruning (Figure 6d) for the paper's shape,
# 6+6 layers of 8 heads:
# [EPOCHS=…] [ORDERS=…] [PIECES=…] [PREPARED=…] [OUT=…] [RESULTS=…] studies.sh [CHECKPOINTS] [flags]
#   CHECKPOINTS  folder of a run of EPOCHS=1 train.sh --encoder-attention-heads 8 --decoder-attention-heads 8
#                (default: PREPARED/heads-144)
#   EPOCHS       those that are pruned, as headprune sweep-epochs takes them (default: all)
#   ORDERS       scores, or the default "scores oracle", which takes an ablation of every head on valid
#   PIECES       how the text was cut: subword_nmt (default) or sentencepiece
#   PREPARED     the folder that prepare.sh wrote (default: out/ beside this script)
#   OUT          gets the study folders (default: PREPARED/studies)
#   RESULTS      gets JSON and figures (default: results/ beside this script)
# The text is tokenised and lowercased, so BLEU is tokenised BLEU (--bleu tok). Flags go to each study: --jobs N,
# --fp16. Started again, it goes on.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
source "$HERE/../common.sh"
PREPARED="${PREPARED:-$HERE/out}"
CHECKPOINTS="${1:-$PREPARED/heads-144}"
OUT="${OUT:-$PREPARED/studies}"
RESULTS="${RESULTS:-$HERE/results}"
mkdir -p "$OUT" "$RESULTS"

SEARCH=("$PREPARED/data-bin" --source-lang de --target-lang en --beam 5 --post-process "${PIECES:-subword_nmt}" --bleu tok)
FLAGS=("${@:2}")
BEST=(--path "$CHECKPOINTS/checkpoint_best.pt")
study sweep sweep-epochs --checkpoints "$CHECKPOINTS" --gen-subset test --preset michel-2019 ${EPOCHS:+--epochs "$EPOCHS"}
study order-scores prune "${BEST[@]}" --gen-subset test --preset michel-2019 --order scores
case " ${ORDERS:-scores oracle} " in *" oracle "*)
    study ablate-valid ablate "${BEST[@]}" --gen-subset valid
    study order-oracle prune "${BEST[@]}" --gen-subset test --preset michel-2019 --order "oracle:$OUT/ablate-valid" ;;
esac
