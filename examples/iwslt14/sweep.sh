#!/usr/bin/env bash
# Prune at every epoch of a training run (Michel et al. 2019, Figure 5):
# [PREPARED=…] [OUT=…] sweep.sh [CHECKPOINTS] [flags]
#   CHECKPOINTS  folder of a run of EPOCHS=1 train.sh (default: that of the gated model of seed 1)
#   PREPARED     the folder that prepare.sh wrote (default: out/ beside this script)
#   OUT          the study folder (default: PREPARED/sweep)
# The text is tokenised and lowercased, so BLEU is tokenised BLEU (--bleu tok). Flags go to headprune sweep-epochs:
# --follow while training runs, --jobs N.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
source "$HERE/../common.sh"
PREPARED="${PREPARED:-$HERE/out}"
CHECKPOINTS="${1:-$PREPARED/transformer_gated_iwslt_de_en-1}"
OUT="${OUT:-$PREPARED/sweep}"

exec "$PYTHON" -m fairseq_headprune sweep-epochs "$PREPARED/data-bin" --source-lang de --target-lang en \
    --checkpoints "$CHECKPOINTS" --preset michel-2019 --gen-subset test --beam 5 --remove-bpe --bleu tok --step 10% -o "$OUT" "${@:2}"
