#!/usr/bin/env bash
# Prepare Multi30k de-en:  prepare.sh DATA_DIR [OUT]
#   DATA_DIR  has train, valid, test2016, test2017 and mscoco2017, each as .de and .en, plain or .gz
#   OUT       gets text/, spm.model (joint BPE, 8,000 pieces), pieces/ and data-bin/ (default: out/ beside this script)
# In data-bin, test is test2016, test1 is test2017 and test2 is mscoco2017. PYTHON names the Python (default: python3).
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
for split in train valid test2016 test2017 mscoco2017; do
    for language in de en; do
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

"$PYTHON" - "$OUT" <<'END'
import sys
from pathlib import Path

from fairseq_headprune.corpus.folder import encode, train_pieces

out = Path(sys.argv[1])
texts = {path.name: path.read_text(encoding="utf-8") for path in sorted((out / "text").iterdir())}
model = train_pieces(texts["train.de"] + texts["train.en"], 8000)
(out / "spm.model").write_bytes(model)
for name, text in texts.items():
    (out / "pieces" / name).write_text(encode(model, text), encoding="utf-8")
END

# data-bin appears when it is complete.
rm -rf "$OUT/data-bin.part"
"$PYTHON" -m fairseq_cli.preprocess --source-lang de --target-lang en --joined-dictionary \
    --trainpref "$OUT/pieces/train" --validpref "$OUT/pieces/valid" \
    --testpref "$OUT/pieces/test2016,$OUT/pieces/test2017,$OUT/pieces/mscoco2017" \
    --destdir "$OUT/data-bin.part" --workers 1 >&2
mv "$OUT/data-bin.part" "$OUT/data-bin"
echo "$OUT/data-bin"
