#!/usr/bin/env bash
# The main job on the embedded corpus: train a small gated model, score its heads, prune them, test each step.
# Everything goes below $QUICKSTART_DIR (default: out/ beside this file). A second run reuses what is there.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
source "$here/../../scripts/environment.sh"
headprune_environment corpus,fairseq

began=$SECONDS

out="${QUICKSTART_DIR:-$here/out}"
mkdir -p "$out/figures"
out="$(cd "$out" && pwd)"
checkpoint="$out/checkpoints/checkpoint_best.pt"
bin="$HEADPRUNE_VENV/bin"
# Idle OpenMP threads that spin slow everything down as soon as another program wants a core.
export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-PASSIVE}"

step() { echo "== $*" >&2; }

step "corpus: German-English numbers, dates, times, money (generated, no download)"
"$bin/headprune" make-corpus "$out" >&2

# fairseq-train resumes from checkpoint_last.pt; this file says that training has reached its end.
if [ ! -f "$out/checkpoints/finished" ] || [ ! -f "$checkpoint" ]; then
    step "training (log: $out/train.log)"
    "$bin/fairseq-train" "$out/data-bin" --cpu --user-dir fairseq_headprune --task translation_headprune \
        --source-lang de --target-lang en --arch transformer_gated_tiny --share-all-embeddings \
        --encoder-layers 2 --encoder-embed-dim 128 --encoder-ffn-embed-dim 256 --encoder-attention-heads 4 \
        --decoder-layers 2 --decoder-embed-dim 128 --decoder-ffn-embed-dim 256 --decoder-attention-heads 4 \
        --optimizer adam --adam-betas '(0.9, 0.98)' --lr 2e-3 --lr-scheduler inverse_sqrt --warmup-updates 200 \
        --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --clip-norm 1.0 --dropout 0.1 \
        --max-tokens 2000 --required-batch-size-multiple 1 --max-epoch 5 --seed 1 --num-workers 0 \
        --no-epoch-checkpoints --save-dir "$out/checkpoints" \
        --log-format simple --log-interval 50 >>"$out/train.log" 2>&1 ||
        { tail -n 5 "$out/train.log" >&2; echo "error: training failed, see $out/train.log" >&2; exit 1; }
    touch "$out/checkpoints/finished"
fi

# A bound on the length: a model without most of its heads may never say "end of sentence".
flags=("$out/data-bin" --cpu --user-dir fairseq_headprune --task translation_headprune --path "$checkpoint"
    --source-lang de --target-lang en --remove-bpe sentencepiece --max-tokens 8000
    --beam 5 --max-len-a 1.5 --max-len-b 10 --score-sentences 1000)

if [ ! -f "$out/scores.json" ] || [ ! -f "$out/figures/scores.png" ] || [ "$checkpoint" -nt "$out/scores.json" ]; then
    step "importance of each head (1,000 sentences of train)"
    "$bin/headprune" score "${flags[@]}" -o "$out/scores.json" --figure "$out/figures/scores" >"$out/scores.txt"
fi

# A finished study only prints its table again: prune reuses every cell.
step "pruning each component by itself, results on test"
"$bin/headprune" prune "${flags[@]}" --gen-subset test --components each --step 25% -o "$out/prune" >"$out/prune.txt"
step "pruning all heads jointly, results on test"
"$bin/headprune" prune "${flags[@]}" --gen-subset test --components all --step 20% -o "$out/prune-all" \
    >"$out/prune-all.txt"
for study in prune prune-all; do
    for ending in png svg; do
        cp "$out/$study/figures/pruning.$ending" "$out/figures/$study.$ending"
    done
done

# How long all this took (a second run, which finds everything done, does not count).
[ -f "$out/run.json" ] || "$bin/python" - "$((SECONDS - began))" "$out/run.json" <<'END'
import sys

from fairseq_headprune.files import write_json
from fairseq_headprune.provenance import environment

seconds, output = sys.argv[1:]

command = "bash examples/quickstart/run.sh"
write_json(output, {"command": command, "seconds_after_installation": int(seconds), "environment": environment()})
END

cat "$out/scores.txt" "$out/prune.txt" "$out/prune-all.txt"
echo "pictures:"
printf '  %s\n' "$out/figures"/*.png
