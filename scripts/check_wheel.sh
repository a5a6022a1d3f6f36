#!/usr/bin/env bash
# Build the wheel, install it with its extras into a fresh environment, and run the quick start's commands, with a small
# training, from an empty folder: nothing of the clone is on the path. For a release, and in CI.
#
#   scripts/check_wheel.sh [PYTHON]     PYTHON has the packages build and twine (default: python3)
#
# HEADPRUNE_VENV_FLAGS: flags of python -m venv; HEADPRUNE_PIP_FLAGS: flags of pip install, such as an index of CPU
# builds.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
python="${1:-python3}"
place="$(mktemp -d)"
trap 'rm -rf "$place"' EXIT
# A copy: what setuptools leaves behind would be found by the next build.
mkdir "$place/source" "$place/empty"
(cd "$root" && git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$place/source")
"$python" -m build --no-isolation --outdir "$place/dist" "$place/source" >"$place/build.log" 2>&1 ||
    { tail -n 20 "$place/build.log" >&2; exit 1; }
"$python" -m twine check --strict "$place"/dist/*
# shellcheck disable=SC2086  # flags
"$python" -m venv ${HEADPRUNE_VENV_FLAGS:-} "$place/venv"
wheel="$(echo "$place"/dist/*.whl)"
# shellcheck disable=SC2086
"$place/venv/bin/python" -m pip install --quiet ${HEADPRUNE_PIP_FLAGS:-} "$wheel[fairseq,corpus]"

cd "$place/empty"
export PATH="$place/venv/bin:$PATH" OMP_NUM_THREADS=1
unset PYTHONPATH
python -c 'import fairseq_headprune, sys; sys.exit(not fairseq_headprune.__file__.startswith(sys.argv[1]))' "$place/venv"
headprune --version
headprune make-corpus .
gated=(--cpu --user-dir fairseq_headprune --task translation_headprune --source-lang de --target-lang en)
fairseq-train data-bin "${gated[@]}" --arch transformer_gated_tiny --share-all-embeddings \
    --optimizer adam --adam-betas '(0.9, 0.98)' --lr 2e-3 --criterion label_smoothed_cross_entropy \
    --max-tokens 2000 --max-update 20 --num-workers 0 --save-dir checkpoints >train.log 2>&1 ||
    { tail -n 5 train.log >&2; exit 1; }
flags=(data-bin "${gated[@]}" --path checkpoints/checkpoint_best.pt --remove-bpe sentencepiece --max-tokens 8000)
flags+=(--beam 1 --max-len-a 0 --max-len-b 10)
headprune score "${flags[@]}" --score-sentences 100 -o scores.json --figure scores.pdf
headprune prune "${flags[@]}" --gen-subset test --score-sentences 100 --components all --step 50% --resamples 100 -o study
headprune mask --like checkpoints/checkpoint_best.pt --scores scores.json --heads 6 -o mask.json
headprune slim checkpoints/checkpoint_best.pt --mask mask.json -o slim.pt
fairseq-generate "${flags[@]/checkpoints\/checkpoint_best.pt/slim.pt}" --gen-subset test >slim.txt
headprune report study -o report.html
headprune completion bash >completion.sh
[ -s report.html ] && [ -s scores.pdf ] && grep -q "^H-0" slim.txt
echo "the wheel works: $(basename "$wheel")"
