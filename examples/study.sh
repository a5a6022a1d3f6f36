# For sourcing by the examples' scripts. Wants OUT (study folders), RESULTS (documents and figures), and the arrays
# SEARCH (the data and flags of every study) and FLAGS (those of the caller); PYTHON may be set.
PYTHON="${PYTHON:-python3}"
export PYTHONPATH="$HERE/../..${PYTHONPATH:+:$PYTHONPATH}"

headprune() { "$PYTHON" -m fairseq_headprune "$@"; }

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
