#!/usr/bin/env bash
# Prepare Multi30k de-en:  [LANGS="de en"] [SPLITS="…"] [PIECES=8000] prepare.sh DATA_DIR [OUT]
#   DATA_DIR  has train, valid, test2016, test2017 and mscoco2017, each as .de and .en, plain or .gz
#   OUT       gets text/, spm.model (joint BPE), pieces/ and data-bin/ (default: out/ beside this script)
#   LANGS     source and target (default: "de en"); SPLITS: "train valid" and test sets; PIECES: how many
# In data-bin, test is test2016, test1 is test2017 and test2 is mscoco2017. PYTHON names the Python (default: python3).
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
source "$HERE/../common.sh"
DATA="${1:?usage: prepare.sh DATA_DIR [OUT]}"
OUT="${2:-$HERE/out}"
read -r -a SPLITS <<<"${SPLITS:-train valid test2016 test2017 mscoco2017}"
read -r SOURCE TARGET <<<"${LANGS:-de en}"

if [ -e "$OUT/data-bin/dict.$SOURCE.txt" ]; then
    echo "$OUT/data-bin is there already" >&2
    exit 0
fi
mkdir -p "$OUT/text" "$OUT/pieces"
for split in "${SPLITS[@]}"; do
    for language in "$SOURCE" "$TARGET"; do
        name="$split.$language"
        if [ -e "$DATA/$name" ]; then
            cp "$DATA/$name" "$OUT/text/$name"
        elif [ -e "$DATA/$name.gz" ]; then
            gzip -dc "$DATA/$name.gz" >"$OUT/text/$name"
        else
            echo "prepare.sh: neither $DATA/$name nor $DATA/$name.gz is there" >&2
            exit 2
        fi
    done
done

"$PYTHON" - "$OUT" "$SOURCE" "$TARGET" "${PIECES:-8000}" <<'END'
import sys
from pathlib import Path

from fairseq_headprune.corpus.folder import encode, train_pieces

out = Path(sys.argv[1])
texts = {path.name: path.read_text(encoding="utf-8") for path in sorted((out / "text").iterdir())}
model = train_pieces(texts[f"train.{sys.argv[2]}"] + texts[f"train.{sys.argv[3]}"], int(sys.argv[4]))
(out / "spm.model").write_bytes(model)
for name, text in texts.items():
    (out / "pieces" / name).write_text(encode(model, text), encoding="utf-8")
END

# data-bin appears when it is complete.
rm -rf "$OUT/data-bin.part"
TESTS=$(printf ",$OUT/pieces/%s" "${SPLITS[@]:2}")
"$PYTHON" -m fairseq_cli.preprocess --source-lang "$SOURCE" --target-lang "$TARGET" --joined-dictionary \
    --trainpref "$OUT/pieces/train" --validpref "$OUT/pieces/valid" --testpref "${TESTS:1}" \
    --destdir "$OUT/data-bin.part" --workers 1 >&2
mv "$OUT/data-bin.part" "$OUT/data-bin"
echo "$OUT/data-bin"
