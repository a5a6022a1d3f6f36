#!/usr/bin/env bash
# Five questions about the papers:
# [SEEDS=…] [UPDATES=…] [JOBS=…] [LIMIT=…] [PREPARED=…] [OUT=…] [RESULTS=…] questions.sh N [CORPUS] [flags]
#   N        1 to 5: see README.md; or choose: hyper-parameters on valid
#   CORPUS   multi30k (default), multi30k-fr or tatoeba, each also with -narrow (a model of half the width, the last one
#            of half the layers, too), or tatoeba-tiny
#   SEEDS    of the trainings (default: 1,2,3,4,5; of question 2 1,2,3,4)
#   UPDATES  of every training (default: the corpus's; of question 3 twice as many)
#   TUNE     updates of fine-tuning in questions 4 and 5 (default: 40% of UPDATES)
#   ORDERS   samplings of each model in questions 1 and 5 (default: 10 and 3)
#   CHOSEN   for question 3: more variants, such as the best of choose ("joint-dsp+lr=1+cool=0.5"; default: none)
#   JOBS     processes at the same time, spread over the visible GPUs (default: 12 a GPU)
#   LIMIT    seconds after which it stops, to be started again (default: none)
#   OUT      gets the study folders (default: PREPARED/questions); RESULTS gets CORPUS-N*.json and figures (default:
#            results/ beside this script)
# Flags go to headprune compare-pruners (--counts, --splits, --dry-run). Started again, it goes on.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
source "$HERE/../common.sh"
NUMBER="${1:?N: 1 to 5, or choose}" CORPUS="${2:-multi30k}"
GIVEN="${UPDATES:-}"
devices
corpus "$CORPUS"
OUT="${OUT:-$PREPARED/questions}" RESULTS="${RESULTS:-$HERE/results}"
SEEDS="${SEEDS:-1,2,3,4,5}"
FLAGS=("${@:3}")

question() {  # METHODS COUNTS [flags]
    compared "$CORPUS-$NUMBER" --methods "$1" --counts "$2" --seeds "$SEEDS" "${@:3}" ${FLAGS[@]+"${FLAGS[@]}"}
}
differences() {  # METHOD NAME [flags]: compare all with METHOD over trainings, in CORPUS-N-NAME.json
    [[ " ${FLAGS[*]-} " != *" --dry-run "* ]] || return 0
    "$PYTHON" "$HERE/../over_trainings.py" "$RESULTS/$CORPUS-$NUMBER.json" --against "$1" "${@:3}" \
        -o "$RESULTS/$CORPUS-$NUMBER-$2.json"
}
numbered() {  # BEFORE COUNT [AFTER]: print BEFORE1AFTER,BEFORE2AFTER,…
    for n in $(seq "$2"); do echo "$1$n${3:-}"; done | paste -sd,
}

case "$NUMBER" in
    1)  # The sign, the reduction, the normaliser, one-shot or re-estimated. (minmax ranks heads as none does; estimated
        # once, layer-rms and layer-frozen rank them as layer does.)
        METHODS="unpruned,$(numbered random-after+order= "${ORDERS:-10}")"
        for reduction in sentence token batch signed; do
            for normaliser in layer layer-rms layer-frozen none layer+once none+once; do
                METHODS+=",michel+$reduction+$normaliser"
            done
        done
        question "$METHODS" "$COUNTS" --step $((HEADS / 18 > 1 ? HEADS / 18 : 2))
        differences random-after differences
        differences michel+signed+none+once published
        differences michel+sentence+none default ;;
    2)  # Random heads; random ones with the learned numbers by component, and by layer; the learned ones.
        # 4 masks x seeds.
        [ "$SEEDS" != 1,2,3,4,5 ] || SEEDS=1,2,3,4
        LAST="${SEEDS//[^,]/}" MASKS=$((${#LAST} + 1))
        METHODS=unpruned,joint-dsp
        for kind in random-start learned-start learned-start+layers learned-start+components; do
            METHODS+=",$(numbered "$kind+mask=" $MASKS)"
        done
        question "$METHODS" "$(few 8 12)"
        differences random-start differences --margin 0.3
        differences learned-start learned --margin 0.3
        [[ " ${FLAGS[*]-} " == *" --dry-run "* ]] || "$PYTHON" "$HERE/variance.py" "$RESULTS/$CORPUS-2.json" \
            -o "$RESULTS/$CORPUS-2-variance.json" ;;
    3)  # DSP as published; the gates' rate scaled; no noise after cooling; cooling after warm-up; the learned heads
        # from the start; STE without and with noise. Trained twice as long.
        [ -n "$GIVEN" ] || UPDATES=$((2 * UPDATES))
        WAIT=$(((100 * WARMUP + UPDATES - 1) / UPDATES))
        WAIT="wait=$(printf 0.%02d $((WAIT < 50 ? WAIT : 50)))"
        METHODS=unpruned,joint-dsp,joint-dsp+scaled,joint-dsp+noise=cooling,joint-dsp+$WAIT,learned-start
        METHODS+=,joint-dsp+scaled+noise=cooling+$WAIT,ste,ste+noise=always
        question "$METHODS${CHOSEN:+,$CHOSEN}" "$(few 12 8 4)"
        differences joint-dsp differences --margin 0.3
        differences learned-start learned --margin 0.3
        differences ste ste --margin 0.3 ;;
    4)  # The same number of updates for all: trained and tuned, or trained from scratch for as long.
        TUNE="${TUNE:-$((UPDATES * 2 / 5))}"
        UPDATES=$((UPDATES - TUNE))
        METHODS=unpruned,unpruned+tuned,unpruned+long,ste+long,joint-dsp+long,random-start+long
        for method in michel+none random-after pipelined-dsp; do METHODS+=",$method,$method+tuned"; done
        question "$METHODS" "$(few 24 12 8 4)" --tune "$TUNE" "--tune-flags=$TUNING"
        differences random-start+long differences --margin 0.3
        differences random-after+tuned tuned --margin 0.3 ;;
    5)  # Where random pruning begins to cost: against the model tuned as long with all heads.
        TUNE="${TUNE:-$((UPDATES * 2 / 5))}"
        METHODS="unpruned,unpruned+tuned,$(numbered random-after+order= "${ORDERS:-3}")"
        METHODS+=",$(numbered random-after+order= "${ORDERS:-3}" +tuned)"
        question "$METHODS" "$(kept 25 35 50 55 60 75 81 87)" --tune "$TUNE" "--tune-flags=$TUNING"
        differences unpruned+tuned differences --margin 0.3 ;;
    choose)  # Nine settings of each method on valid, on a seed of its own; random heads have none.
        SEEDS="${CHOOSE_SEEDS:-101}"
        METHODS=unpruned
        for rate in 0.05 0.2 1; do
            for cool in 0.1 0.25 0.5; do METHODS+=",joint-dsp+lr=$rate+cool=$cool,pipelined-dsp+lr=$rate+cool=$cool"; done
        done
        for rate in 0.002 0.005 0.01 0.02 0.05 0.1 0.2 0.5 1; do METHODS+=",ste+lr=$rate,l0+lr=$rate"; done
        for reduction in sentence token batch; do
            for normaliser in layer layer-frozen none; do METHODS+=",michel+$reduction+$normaliser"; done
        done
        question "$METHODS" "$(few 12)" --splits valid ;;
    *) echo "questions.sh: unknown question $NUMBER: 1 to 5, or choose" >&2; exit 2 ;;
esac
