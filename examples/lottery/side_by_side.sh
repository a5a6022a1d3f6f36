# For sourcing after ../common.sh by the scripts of this folder: commands side by side, spread over the GPUs.
PIDS=()

cards() {  # set CARDS, what CUDA_VISIBLE_DEVICES may be
    if [ "$GPUS" -eq 0 ]; then
        CARDS=("")
    elif [ -n "${CUDA_VISIBLE_DEVICES:-}" ]; then
        IFS=, read -ra CARDS <<<"$CUDA_VISIBLE_DEVICES"
    else
        mapfile -t CARDS < <(seq 0 $((GPUS - 1)))
    fi
    trap '[ ${#PIDS[@]} -eq 0 ] || kill "${PIDS[@]}" 2>/dev/null || true' EXIT
}

on_card() {  # NUMBER COMMAND: start a command on one GPU
    CUDA_VISIBLE_DEVICES="${CARDS[$(($1 % ${#CARDS[@]}))]}" "${@:2}" &
    PIDS+=($!)
}

on_all() {  # COMMAND: start a command that sees all GPUs
    "$@" &
    PIDS+=($!)
}

together() {  # wait for what was started; fail if one failed
    local failed=0 pid
    for pid in ${PIDS[@]+"${PIDS[@]}"}; do wait "$pid" || failed=1; done
    PIDS=()
    return "$failed"
}

train_all() {  # train a model of each of SEEDS, by the script's train SEED; set MODELS, their checkpoints
    local seed
    MODELS=()
    for seed in "${SEEDS[@]}"; do
        on_card "$seed" train "$seed"
        MODELS+=("$OUT/model-$seed/checkpoint_best.pt")
    done
    together
}
