#!/usr/bin/env bash
# Prepare a model of mixed text and two test sets of other domains:  prepare.sh DATA_DIR [OUT]
#   DATA_DIR  has the folders multi30k and tatoeba (train), wmt-news (news test sets 2008 to 2020) and iwslt14 (test,
#             tokenised and lowercased as in fairseq's prepare-iwslt14.sh); files are NAME.de and NAME.en, plain or .gz
#   OUT       gets text/, spm.model (joint BPE, 10,000 pieces), pieces/ and data-bin/ (default: out/ beside this script)
# Trained on: multi30k, tatoeba and all news but newstest2013, which is valid, and newstest2014, which is test; test1 is
# the test set of IWSLT14. All text gets that set's form, for which this needs: pip install sacremoses
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export PYTHONPATH="$HERE/../..${PYTHONPATH:+:$PYTHONPATH}"
PYTHON="${PYTHON:-python3}"
DATA="${1:?usage: prepare.sh DATA_DIR [OUT]}"
OUT="${2:-$HERE/out}"

if [ -e "$OUT/data-bin/dict.de.txt" ]; then
    echo "$OUT/data-bin is there already" >&2
    exit 0
fi
"$PYTHON" -c 'import sacremoses' || { echo "prepare.sh: run pip install sacremoses" >&2; exit 2; }
"$PYTHON" "$HERE/mix.py" "$DATA" "$OUT"

# data-bin appears when it is complete.
rm -rf "$OUT/data-bin.part"
"$PYTHON" -m fairseq_cli.preprocess --source-lang de --target-lang en --joined-dictionary \
    --trainpref "$OUT/pieces/train" --validpref "$OUT/pieces/newstest2013" \
    --testpref "$OUT/pieces/newstest2014,$OUT/pieces/iwslt14" --destdir "$OUT/data-bin.part" --workers 1 >&2
mv "$OUT/data-bin.part" "$OUT/data-bin"
echo "$OUT/data-bin"
