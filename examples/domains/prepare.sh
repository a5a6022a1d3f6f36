#!/usr/bin/env bash
# Prepare a model of mixed text and two test sets of other domains:  prepare.sh DATA_DIR [OUT]
#   DATA_DIR  has the folders multi30k and tatoeba (train), wmt-news (news test sets 2008 to 2020) and iwslt14
#             (train-subset, valid and test, tokenised and lowercased as in fairseq's prepare-iwslt14.sh); files are
#             NAME.de and NAME.en, plain or .gz
#   OUT       gets text/, spm.model (joint BPE, 10,000 pieces), pieces/, data-bin/ and talks/data-bin/ (default: out/
#             beside this script)
# data-bin: trained on multi30k, tatoeba and all news but newstest2013, which is valid, and newstest2014, which is test;
# test1 is the test set of IWSLT14. talks/data-bin: the same and talks to train on, valid and test of IWSLT14. All text
# gets the form of IWSLT14, for which this needs: pip install sacremoses
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
source "$HERE/../common.sh"
DATA="${1:?usage: prepare.sh DATA_DIR [OUT]}"
OUT="${2:-$HERE/out}"

if [ -e "$OUT/talks/data-bin/dict.de.txt" ]; then
    echo "$OUT/talks/data-bin is there already" >&2
    exit 0
fi
"$PYTHON" -c 'import sacremoses' || { echo "prepare.sh: run pip install sacremoses" >&2; exit 2; }
"$PYTHON" "$HERE/mix.py" "$DATA" "$OUT"

# A folder appears when it is complete.
binarise() { # FOLDER [flags]
    rm -rf "$OUT/part"
    "$PYTHON" -m fairseq_cli.preprocess --source-lang de --target-lang en --joined-dictionary --destdir "$OUT/part" \
        --workers 1 "${@:2}" >&2
    mkdir -p "$(dirname "$1")"
    mv "$OUT/part" "$1"
}
binarise "$OUT/data-bin" --trainpref "$OUT/pieces/train" --validpref "$OUT/pieces/newstest2013" \
    --testpref "$OUT/pieces/newstest2014,$OUT/pieces/iwslt14"
binarise "$OUT/talks/data-bin" --trainpref "$OUT/pieces/talks-train" --validpref "$OUT/pieces/talks-valid" \
    --testpref "$OUT/pieces/iwslt14" --srcdict "$OUT/data-bin/dict.de.txt"
echo "$OUT/data-bin"
