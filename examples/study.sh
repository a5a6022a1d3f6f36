# For sourcing by the examples' scripts. Wants OUT (study folders), RESULTS (documents and figures), and the arrays
# SEARCH (the data and flags of every study) and FLAGS (those of the caller); PYTHON may be set.
PYTHON="${PYTHON:-python3}"
export PYTHONPATH="$HERE/../..${PYTHONPATH:+:$PYTHONPATH}"

headprune() { "$PYTHON" -m fairseq_headprune "$@"; }

document() {  # NAME VERB [flags]: keep what a verb prints as RESULTS/NAME.json, once it is whole
    [ ! -e "$RESULTS/$1.json" ] || return 0
    echo "$1" >&2
    headprune "${@:2}" --json >"$OUT/$1.json"
    mv "$OUT/$1.json" "$RESULTS/"
}

study() {  # NAME VERB [flags]: run a study in OUT/NAME, and keep its document and figures
    [ ! -e "$RESULTS/$1.json" ] || return 0
    document "$1" "$2" "${SEARCH[@]}" "${@:3}" ${FLAGS[@]+"${FLAGS[@]}"} -o "$OUT/$1"
    for figure in "$OUT/$1"/figures/*.png; do [ ! -e "$figure" ] || cp "$figure" "$RESULTS/$1-${figure##*/}"; done
}
