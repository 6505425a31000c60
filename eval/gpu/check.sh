#!/usr/bin/env bash
# Checks and times Braid on this machine's GPU, in at most 8 minutes: eval/gpu/check.sh [FOLDER]
#
# Needs build/gpu, which eval/gpu/prepare.sh made (perhaps elsewhere), an NVIDIA driver, nvcc, a C compiler,
# and Python with numpy and onnx; for the timings also torch and jax. Writes results.json and results.md into
# FOLDER ($OUT, or build/gpu-check) after every part, beside machine.json, times.json, times.md, what nvidia-smi says of
# the card (nvidia-smi.txt), the texts and code objects (sources.tar.gz), and log.txt.
# A part that fails, or takes too long, is named there, and the others go on. Exit code: 0 all parts did well.
#
# For tests: $TARGET (the target to compile for, in place of the GPU's), $CHECK_PACK (in place of build/gpu),
# $CHECK_MODELS (the models and groups of eval/tasks.py to use), $CHECK_SMALL=1 (at small sizes),
# $CHECK_DEVICE=cpu (no GPU: peers run on the CPU).
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 2
[[ $# -le 1 ]] || { echo "usage: eval/gpu/check.sh [FOLDER]" >&2; exit 2; }
out=$(realpath -m "${1:-${OUT:-build/gpu-check}}")
pack=$(realpath -m "${CHECK_PACK:-build/gpu}")
braid=$pack/braid
[[ -x $braid ]] || { echo "eval/gpu/check.sh: $braid is missing; eval/gpu/prepare.sh makes it" >&2; exit 2; }

LIMIT=480 # seconds, for everything
END=8     # of them for what is behind the last part
STRESS=55 TRACES=30 SANITIZER=70 # seconds of the last parts
MOST_LOG=1000000 # bytes of a log that are kept

mkdir -p "$out" && work=$(mktemp -d "${TMPDIR:-/tmp}/braid-check.XXXXXX") || exit 2
export BRAID_CACHE=$work/cache PYTHONUNBUFFERED=1
PATH=$PATH:/usr/local/cuda/bin
python=${PYTHON:-python3}
cpus=$(nproc)
declare -A job=() began=()
failed=0

# Whatever ends this script ends what it began, and what is known is written.
finish() {
    trap - EXIT TERM INT
    for name in "${!job[@]}"; do kill "${job[$name]}" 2>/dev/null; done
    wait
    results
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 1' TERM INT

results() {
    "$python" eval/gpu/results.py --work "$work" --out "$out" >"$work/summary" 2>&1 || {
        echo "results.py failed:"
        tail -n 5 "$work/summary"
    }
}

# record NAME STATUS SECONDS LIMIT: the end of a part.
record() {
    printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$4" >>"$work/parts.tsv"
    [[ $2 -eq 0 ]] || failed=1
    tail -n 4 "$work/$1.log"
    {
        echo "==== $1: status $2, $3 s"
        tail -c $MOST_LOG "$work/$1.log"
        tail -c $MOST_LOG "$work/$1"/*.log 2>/dev/null
    } >>"$out/log.txt"
    results
}

# What is left of so many seconds.
within() {
    local left=$((LIMIT - END - SECONDS))
    echo $(($1 < left ? $1 : left))
}

# part NAME SECONDS COMMAND…
part() {
    local name=$1 seconds begin=$SECONDS status=0
    seconds=$(within "$2")
    shift 2
    echo "== $name, $SECONDS s"
    if [[ $seconds -lt 3 ]]; then
        echo "no time was left" >"$work/$name.log"
        status=124
    else
        timeout -k 3 "$seconds" "$@" >"$work/$name.log" 2>&1 </dev/null || status=$?
    fi
    record "$name" $status $((SECONDS - begin)) "$seconds"
}

# background NAME SECONDS COMMAND…: a part beside others, until `await NAME`.
background() {
    local name=$1 seconds=$2
    shift 2
    timeout -k 3 "$(within "$seconds")" nice -n 5 "$@" >"$work/$name.log" 2>&1 </dev/null &
    job[$name]=$!
    began[$name]=$SECONDS
}
await() {
    local name=$1 status=0
    echo "== $name, $SECONDS s"
    wait "${job[$name]}" || status=$?
    unset "job[$name]"
    record "$name" $status $((SECONDS - began[$name])) ""
}

# ---- the machine
rm -f "$out"/{results,machine,times}.json "$out"/{results,times}.md "$out"/{log,nvidia-smi}.txt "$out/sources.tar.gz"
smi() { nvidia-smi --query-gpu="$1" --format=csv,noheader 2>/dev/null | head -n 1; }
capability=$(smi compute_cap)
target=${TARGET:-cuda:sm_${capability//./}}
[[ $target != cuda:sm_ ]] || target=cuda:sm_90 # nvidia-smi does not say
{
    printf 'card\t%s\ndriver\t%s\ntarget\t%s\ncpus\t%s\n' "$(smi name)" "$(smi driver_version)" "$target" "$cpus"
    printf 'clocks\t%s\npower\t%s\nMIG\t%s\ncompute mode\t%s\n' "$(smi clocks.sm,clocks.mem,clocks.max.sm)" \
        "$(smi power.draw,power.limit)" "$(smi mig.mode.current)" "$(smi compute_mode)"
    printf 'braid\t%s\n' "$("$braid" --version)"
    printf 'nvcc\t%s\n' "$(nvcc --version 2>/dev/null | sed -n 's/.*release \([^,]*\),.*/\1/p')"
    "$python" -c 'import platform
print("python", platform.python_version(), sep="\t")'
} >"$work/facts.tsv"
cat "$work/facts.tsv"
nvidia-smi -q >"$out/nvidia-smi.txt" 2>&1
options=(--models "${CHECK_MODELS:-all}")
[[ -z ${CHECK_SMALL:-} ]] || options+=(--small)

# ---- the parts. Costs are measured while nothing else runs; then the CPUs compile for what follows. Times come as soon as
# what is timed is known to be right; what is left of the time is for what may fail: the stress and the sanitizer.
build_machine() { part machine-build 60 nvcc -std=c++17 -O3 "-arch=${target#*:}" --fmad=false -I . -o "$work/machine" eval/gpu/machine.cu; }
machine=$pack/machine
if [[ ! -x $machine ]]; then
    build_machine
    machine=$work/machine
fi
part machine 60 "$machine" "$work/machine.json"
if [[ ! -s $work/machine.json && $machine != "$work/machine" ]] && command -v nvcc >/dev/null; then # it is for other chips
    build_machine
    part machine 60 "$work/machine" "$work/machine.json"
fi
background build 250 "$python" eval/gpu/build.py --braid "$braid" --target "$target" --pack "$pack" --out "$work" "${options[@]}"
part conformance 80 "$braid" test --target "$target" --jobs $(((cpus + 1) / 2)) --verbose "$pack/conformance"
await build
[[ ! -s $work/machine.json ]] ||
    background choices 60 "$python" eval/gpu/choices.py --braid "$braid" --costs "$work/machine.json" --data "$work/data" --out "$work/choices.json"
part models 80 "$braid" test --jobs 4 --atol 1e-4 "$work/check"
[[ -z ${job[choices]:-} ]] || await choices
LAST=$((STRESS + TRACES + SANITIZER)) # seconds for what follows
part times $LIMIT "$python" eval/gpu/times.py --libs "$work/libs" --data "$work/data" --out "$work/times" \
    --seconds $(($(within $LIMIT) - LAST - 5)) --device "${CHECK_DEVICE:-cuda}" --models "${CHECK_MODELS:-all}" \
    --counted "$pack/counted.json"
printf 'clocks after the times\t%s\n' "$(smi clocks.sm,clocks.mem,power.draw,temperature.gpu)" >>"$work/facts.tsv"
part traces $TRACES "$python" eval/gpu/traces.py --libs "$work/traced" --data "$work/data/b1" --out "$work/traces" --seconds $((TRACES - 5))
part stress $STRESS "$python" eval/gpu/stress.py --braid "$braid" --target "$target" --models "$pack/small" --fault "$pack/fault" \
    --out "$work" --seconds $((STRESS / 2))
part sanitizer $SANITIZER "$python" eval/gpu/sanitizer.py --braid "$braid" --target "$target" --models "$pack/small" --out "$work" \
    --seconds $((SANITIZER - 5))
tar -czf "$out/sources.tar.gz" -C "$work" $(cd "$work" && find libs -name '*.cu' -o -name '*.cubin' -o -name '*.c' | sort) $(cd "$work" && find traces -type f) 2>/dev/null

cat "$work/summary"
echo "took $SECONDS s; $out/results.md"
exit $failed
