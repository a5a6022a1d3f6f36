#!/usr/bin/env bash
# Prepare IWSLT14 de-en:  prepare.sh DATA_DIR [OUT]
#   DATA_DIR  what fairseq's own prepare-iwslt14.sh leaves (iwslt14.tokenized.de-en, or its tmp/ before BPE), or a
#             folder with a part of train: train-subset, valid and test, each as .de and .en, plain or .gz, and the BPE
#             codes in a file code
#   OUT       gets text/ (tokenised), pieces/ (subword-nmt BPE) and data-bin/ (default: out/ beside this script)
# Text that is not in pieces yet is cut with DATA_DIR/code (or DATA_DIR/../code), which needs: pip install subword-nmt
# PYTHON names the Python (default: python3).
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
source "$HERE/../common.sh"
DATA="${1:?usage: prepare.sh DATA_DIR [OUT]}"
OUT="${2:-$HERE/out}"

if [ -e "$OUT/data-bin/dict.de.txt" ]; then
    echo "$OUT/data-bin is there already" >&2
    exit 0
fi
mkdir -p "$OUT/text" "$OUT/pieces"

read_split() {  # NAME.LANGUAGE: print it, plain or unpacked
    if [ -e "$DATA/$1" ]; then cat "$DATA/$1"; else gzip -dc "$DATA/$1.gz"; fi
}
exists() { [ -e "$DATA/$1" ] || [ -e "$DATA/$1.gz" ]; }

train=train
exists train.de || train=train-subset
for language in de en; do
    for split in "$train" valid test; do
        exists "$split.$language" || { echo "prepare.sh: $DATA has no $split.$language" >&2; exit 2; }
        read_split "$split.$language" >"$OUT/pieces/${split%-subset}.$language"
    done
done

if ! grep -q '@@ ' "$OUT/pieces/train.de"; then
    code="$DATA/code"
    [ -e "$code" ] || code="$DATA/../code"
    [ -e "$code" ] || { echo "prepare.sh: the text has no BPE, and there are no codes in $DATA/code" >&2; exit 2; }
    "$PYTHON" -c 'import subword_nmt' || { echo "prepare.sh: run pip install subword-nmt" >&2; exit 2; }
    for path in "$OUT"/pieces/*; do
        mv "$path" "$OUT/text/"
        "$PYTHON" -m subword_nmt.apply_bpe --codes "$code" <"$OUT/text/${path##*/}" >"$path"
    done
else
    for path in "$OUT"/pieces/*; do
        sed 's/@@ //g' "$path" >"$OUT/text/${path##*/}"
    done
fi

# data-bin appears when it is complete. Two dictionaries, as in fairseq's recipe.
rm -rf "$OUT/data-bin.part"
"$PYTHON" -m fairseq_cli.preprocess --source-lang de --target-lang en --trainpref "$OUT/pieces/train" \
    --validpref "$OUT/pieces/valid" --testpref "$OUT/pieces/test" --destdir "$OUT/data-bin.part" >&2
mv "$OUT/data-bin.part" "$OUT/data-bin"
echo "$OUT/data-bin"
