#!/usr/bin/env bash
# Sets everything up, builds, and passes all tests: ./test.sh [--without torch]
# --without torch leaves out the steps that need PyTorch, which takes 5 GB and some minutes to install.
# After the release build the steps run two at a time; what a step prints is in build/test/STEP.log.
# After a failure no further step begins.
set -euo pipefail
[[ $# -eq 0 || "$*" == "--without torch" ]] || { echo "usage: ./test.sh [--without torch]" >&2; exit 2; }
without_torch=${1:+yes}
cd "$(dirname "${BASH_SOURCE[0]}")"
source cmake/setup.sh

JOBS=2
MIN_CONFORMANCE=1835 # of 1905 folders; the others need what Braid says that it does not support
CPU_SHARE=${BRAID_CPU_SHARE:-9} # one of so many of them with a C compiler behind it, which takes its time; 1: all
MIN_NEWER=95 # of a hundred tests that a newer onnx has
SOME_MODELS="attention_grow blockdrop experts_dispatch lstm_operator mvrnn rnnt seq2seq treelstm" # a loop, a branch, … of each kind
GRAPHS=51 # ONNX Runtime cannot run one or two in a hundred
RNN_MODELS=40
VALUES=20
BROKEN=600
CONV_MODELS=8
NARROW_MODELS=10
FUZZ_RUNS=200000
SEED=1
BRAID=build/release/braid
LOGS=build/test

# ---- the steps
conformance() { # BRAID TARGET [N]: one of N folders, all by default
    local n=${3:-1} log passed failed folders
    log=$LOGS/conformance-$(basename "$(dirname "$1")")-$2.txt
    mapfile -t folders < <(find "$data" -name model.onnx -printf '%h\n' | sort | awk -v n="$n" 'NR % n == 0')
    "$1" test --target "$2" "${folders[@]}" >"$log" || true
    tail -n 20 "$log"
    read -r passed failed < <(sed -nE '$s/^([0-9]+) passed, ([0-9]+) failed.*/\1 \2/p' "$log")
    [[ $failed -eq 0 && $passed -ge $((MIN_CONFORMANCE / n)) ]]
}

# The operator table, and the tests that a newer onnx has beyond those of the one above.
newer_onnx_tests() {
    local work=$LOGS/newer target passed failed skipped
    PYTHONPATH=$NEWER_ONNX_DIR "$PYTHON" tests/conformance/op_table.py
    PYTHONPATH=$NEWER_ONNX_DIR "$PYTHON" tests/conformance/onnx_cases.py "$work" --new-to "$data"
    for target in interp cpu; do
        local folders=("$work"/*)
        [[ $target == interp ]] || mapfile -t folders < <(printf '%s\n' "$work"/* | awk 'NR % 3 == 0') # cc takes its time
        $BRAID test --target $target "${folders[@]}" >"$LOGS/newer-$target.txt" || true
        tail -n 20 "$LOGS/newer-$target.txt"
        read -r passed failed skipped < <(sed -nE '$s/^([0-9]+) passed, ([0-9]+) failed, ([0-9]+).*/\1 \2 \3/p' "$LOGS/newer-$target.txt")
        [[ $failed -eq 0 && $((passed * 100)) -ge $(((passed + skipped) * MIN_NEWER)) ]]
    done
}

# The source's own order: includes go one way, few files need each other, one name for one thing.
house() {
    "$PYTHON" tests/includes.py
    "$PYTHON" tests/names.py
    "$PYTHON" tests/circles.py build/release
}

unit_tests() { ctest --preset "$1"; }

# Unit tests, and for the interpreter one of N of the conformance tests, watched by sanitizers.
sanitized() { # PRESET N
    build "$1"
    unit_tests "$1"
    conformance "build/$1/braid" interp "$2"
}
debug() {
    sanitized debug 8
    tests/cli.sh build/debug/braid
}

# The importer under libFuzzer, with the debug build's sanitizers, beginning with the small models of the conformance
# tests. The seed settles what is tried.
fuzz() {
    local work=$LOGS/fuzz model
    rm -rf "$work"
    mkdir -p "$work/begin" "$work/found"
    find "$data" -name model.onnx -size -4k | while read -r model; do
        cp "$model" "$work/begin/$(basename "$(dirname "$model")")"
    done
    build/debug/fuzz_import -seed=$SEED -runs=$FUZZ_RUNS -max_len=4096 -timeout=20 \
        -rss_limit_mb=2048 -artifact_prefix="$work/" "$work/found" "$work/begin"
}

# As the scheduler would have them, with every transformation forced, with none, and with each forced on
# and off, or to a value, on one, two and four threads.
random_graphs() {
    local x names all=() none=() threads
    names=$({ "$BRAID" explain --schedule '?=on' tests/golden/lstm.onnx 2>&1 || true; } | sed -n 's/.*of a transformation: \(.*\), or .*/\1/p' | tr -d ,)
    [[ -n $names ]]
    for x in $names; do
        all+=("$x=on")
        none+=("$x=off")
    done
    local IFS=,
    local ways=(--schedule '' --schedule "${all[*]}" --schedule "${none[*]}")
    unset IFS
    for x in "${all[@]}" "${none[@]}"; do ways+=(--schedule "$x"); done
    for x in split=1 split=2 split=3 grain=32 tile=1x1 tile=1x2 tile=2x2 tile=4x1 prefetch=0 prefetch=256 prefetch=1024 \
        prefetch=4096 near=17 near=68; do ways+=(--schedule "$x"); done
    for threads in 1 2 4; do
        "$PYTHON" tests/random/random_graphs.py $((GRAPHS / 3)) --seed $((SEED + threads * GRAPHS)) --threads $threads \
            --braid $BRAID "${ways[@]}"
    done
}

# Loops that each unit runs in several parts: forced, on models that have such loops and on random graphs.
parts() {
    local small=$LOGS/parts threads model
    local -a models=(attention attention_grow experts_gather lstm_operator mamba_inside nasrnn)
    "$PYTHON" -m models "${models[@]}" --small --out "$small" >/dev/null
    for model in "${models[@]}"; do
        "$BRAID" explain --threads 2 --schedule parts=3,core=off "$small/$model/model.onnx" | grep ' in 3 parts$' >/dev/null ||
            { echo "$model: no loop in parts"; return 1; }
    done
    for threads in 1 2 4; do
        "$BRAID" test --threads $threads --schedule parts=$((threads + 1)),core=off "$small" | tee "$LOGS/parts.txt"
        grep -qx "${#models[@]} passed, 0 failed, 0 skipped" "$LOGS/parts.txt"
        "$PYTHON" tests/random/random_graphs.py 8 --seed $((SEED + threads)) --threads $threads --braid $BRAID \
            --schedule parts=2,core=off --schedule parts=5,core=off
    done
    "$PYTHON" tests/plan/races.py --braid $BRAID --schedule parts=3,core=off "$small"/{attention_grow,mamba_inside}
}

# Units meet where one needs another: on every benchmark model nothing is missing, and on some nothing is too much.
synchronization() {
    local full=$LOGS/full small=$LOGS/small
    "$PYTHON" -m models --all --small --out "$small"
    "$PYTHON" tests/plan/races.py --braid $BRAID "$small"/*
    "$PYTHON" tests/plan/races.py --braid $BRAID --schedule linearize=on "$small"/{dagrnn,dagrnn_random,syntax}
    "$PYTHON" tests/plan/races.py --braid $BRAID --schedule linearize=on --each-barrier "$small"/{rae,treelstm,treelstm_children}
    "$PYTHON" -m models $("$PYTHON" tests/plan/structure.py --list) --full --out "$full"
    "$PYTHON" -m models $("$PYTHON" tests/plan/structure.py --list-many) --batch 64 --full --out "$full/64"
    "$PYTHON" tests/plan/structure.py --braid $BRAID "$full"
    "$PYTHON" tests/plan/races.py --braid $BRAID --each-barrier "$full"/{lstm_operator,seq2seq_scan}
    rm -rf "$full"
}

# Constructs that one cluster of an emulated GPU runs: the small models, random graphs, and that each barrier is needed.
clusters() {
    local small=$LOGS/clusters forced=cluster=on,grid=on,team=on
    "$PYTHON" -m models --all --small --out "$small"
    $BRAID test --target emulate:cuda --threads 4 --schedule $forced,core=off "$small"
    "$PYTHON" tests/random/random_graphs.py 24 --seed $SEED --target emulate:cuda --threads 4 --braid $BRAID --schedule $forced,parallel=on --schedule $forced,core=off,parallel=on --schedule $forced,core=off,recluster=on
    "$PYTHON" tests/plan/races.py --braid $BRAID --target emulate:cuda --schedule $forced,core=off --each-barrier "$small"/{lstm_operator,lstm_split,nasrnn,seq2seq_scan}
}

# The same of GPU programs, on the emulator: the threads of a block and the blocks meet where one needs another, and
# nowhere else, in sizes in which everything that is there is needed.
gpu_synchronization() {
    local work=$LOGS/gpu
    "$PYTHON" -m models nasrnn blockdrop experts_gather trips_if --small --out "$work"
    "$PYTHON" -m models lstm_operator --small --layers 3 --length 4 --hidden 128 --out "$work"
    "$PYTHON" -m models attention_grow --small --batch 2 --heads 8 --length 100 --width 16 --out "$work"
    "$PYTHON" -m models treelstm rae --small --batch 1 --length 9 --hidden 16 --out "$work"
    "$PYTHON" -m models experts_dispatch --small --batch 20 --width 32 --out "$work"
    "$PYTHON" -m models seq2seq --small --limit 2 --batch 20 --out "$work"
    "$PYTHON" tests/gpu/each_barrier_gpu.py --braid $BRAID \
        "$work"/{nasrnn,blockdrop,trips_if,lstm_operator,attention_grow,treelstm,rae,experts_gather,experts_dispatch,seq2seq}
    "$PYTHON" tests/gpu/each_barrier_gpu.py --braid $BRAID --schedule linearize=on "$work"/treelstm
    "$PYTHON" tests/gpu/each_barrier_gpu.py --braid $BRAID --schedule beside=on "$work"/lstm_operator
    "$PYTHON" -m models seq2seq_scan --small --batch 1 --vocabulary 200 --length 3 --out "$work"
    "$PYTHON" tests/gpu/each_barrier_gpu.py --braid $BRAID --units 3 --schedule partial=on,core=off "$work"/seq2seq_scan
    "$PYTHON" tests/gpu/each_barrier_gpu.py --braid $BRAID --target emulate:hip --units 3 \
        "$work"/{attention_grow,blockdrop,experts_gather,experts_dispatch,seq2seq,treelstm,trips_if}
}

# GPU programs on the emulator: right, and nothing else that is wrong is seen.
emulated() { "$PYTHON" tests/gpu/emulated.py "$@" --braid $BRAID --seed $SEED --data "$data"; }

# Braid's own way from CUDA to HIP, and PyTorch's.
hipify() {
    local small=$LOGS/hipify
    "$PYTHON" -m models $SOME_MODELS skipnet --small --out "$small"
    "$PYTHON" tests/gpu/hipify_check.py --braid $BRAID --python "$TORCH_VENV/bin/python" "$small"/*
}

# The examples with Ray, with the wheel.
ray_examples() {
    install_package $RAY_VENV
    "$RAY_VENV/bin/python" tests/ray/ray_check.py --items 300
}

# Modules through braid.torch, with the wheel.
torch_modules() {
    local python=$PWD/$TORCH_VENV/bin/python behaviour
    install_package $TORCH_VENV
    "$python" -W ignore tests/torch/behaviour_check.py &
    behaviour=$!
    "$python" -W ignore tests/torch/modules_check.py
    "$python" tests/readme.py --torch
    wait $behaviour
}

# Libraries as operators of PyTorch.
torch_operator() { "$TORCH_VENV/bin/python" tests/torch/operator_check.py --braid $BRAID; }

rnn() {
    local target
    for target in interp cpu; do
        "$PYTHON" tests/random/rnn_check.py $RNN_MODELS --seed $SEED --target $target --braid $BRAID
    done
}

# Operators of com.microsoft, right and spoiled.
contrib() {
    local check="tests/random/contrib_check.py --seed $SEED --braid $BRAID"
    "$PYTHON" $check 560
    "$PYTHON" $check 280 --bad
    "$PYTHON" $check 28 --target emulate:cuda --group 28
    "$PYTHON" $check 112 --target cpu --threads 2 --group 28
}

# Reductions, selections, scatters and scans, which the threads of a GPU's block share.
reductions() {
    local check=("$PYTHON" tests/random/reduce_check.py --braid $BRAID)
    "${check[@]}" 10 --seed $SEED --target interp
    "${check[@]}" 3 --seed $SEED --target emulate:cuda --target emulate:hip --threads 3
    "${check[@]}" 2 --seed $((SEED + 3)) --target emulate:cuda
}

# Blocks of rows by weights that are fetched ahead.
rows() { "$PYTHON" tests/random/rows_check.py --seed $SEED --braid $BRAID; }

# Models of open sizes: one library for every rest of a tile.
sizes() { "$PYTHON" tests/random/sizes_check.py 6 --seed $SEED --braid $BRAID; }

# Weights of few bits.
narrow() {
    "$PYTHON" tests/random/narrow_check.py $NARROW_MODELS --seed $SEED --cpu native --cpu x86-64-v3 --braid $BRAID
    "$PYTHON" tests/random/narrow_check.py 4 --seed $((SEED + NARROW_MODELS)) --cpu x86-64-v2 --braid $BRAID
}

# com.microsoft's operators of transformers.
contrib_transformers() {
    local check=("$PYTHON" tests/random/contrib_transformers.py --braid $BRAID)
    "${check[@]}" 400 --fixed --seed $SEED
    "${check[@]}" 32 --fixed --target cpu --seed $((SEED + 1000))
    "${check[@]}" 16 --target emulate:cuda --seed $((SEED + 2000))
}

layers() {
    "$PYTHON" tests/random/layers_check.py 5 --seed $SEED --braid $BRAID
    "$PYTHON" tests/random/layers_check.py 4 --seed $((SEED + 100)) --threads 3 --cpu x86-64-v3 --braid $BRAID
}

# Transforms, choices, boxes, samples, 16-bit arithmetic, against the interpreter and numpy.
around() {
    "$PYTHON" tests/random/around_check.py 3 --seed $SEED --braid $BRAID
    "$PYTHON" tests/random/around_check.py 1 --seed $((SEED + 100)) --threads 3 --schedule fourier=on --braid $BRAID
    [[ $(uname -m) == x86_64 ]] || return 0
    "$PYTHON" tests/random/around_check.py 1 --seed $((SEED + 200)) --cpu x86-64-v3 --braid $BRAID
    "$PYTHON" tests/random/around_check.py 1 --seed $((SEED + 300)) --cpu x86-64-v2 --schedule fourier=on --braid $BRAID
}

# Attention in one pass, against the interpreter.
attentions() {
    local check=("$PYTHON" tests/random/attention_check.py --braid $BRAID)
    "${check[@]}" 12 --seed $SEED --threads 2
    "${check[@]}" 5 --seed $((SEED + 100)) --half
    "${check[@]}" 5 --seed $((SEED + 200)) --cpu x86-64-v3
    "${check[@]}" 3 --seed $((SEED + 300)) --cpu x86-64-v2
}

convolutions() {
    "$PYTHON" tests/random/conv_check.py $CONV_MODELS --seed $SEED --braid $BRAID
    "$PYTHON" tests/random/conv_check.py $CONV_MODELS --seed $((SEED + CONV_MODELS)) --threads 3 --braid $BRAID
    [[ $(uname -m) == x86_64 ]] || return 0
    "$PYTHON" tests/random/conv_check.py 4 --seed $((SEED + 2 * CONV_MODELS)) --cpu x86-64-v2 --braid $BRAID
}

# Copies with padding and of repeated rows; results that are stored with the padding of the next layer.
paddings() {
    "$PYTHON" tests/random/padded_check.py 6 --seed $SEED --braid $BRAID
    "$PYTHON" tests/random/padded_check.py 12 --seed $((SEED + 100)) --target interp --braid $BRAID
    [[ $(uname -m) == x86_64 ]] || return 0
    "$PYTHON" tests/random/padded_check.py 4 --seed $((SEED + 200)) --threads 3 --cpu x86-64-v3 --braid $BRAID
}

# Blocks of networks strip by strip, of other sizes than their own choice too; and that units meet where they must.
blocks() {
    local check=("$PYTHON" tests/random/blocks_check.py --braid $BRAID) kept=$LOGS/blocks
    "${check[@]}" 12 --seed $SEED
    "${check[@]}" 12 --seed $((SEED + 100)) --threads 3 --schedule strips=on
    "${check[@]}" 8 --seed $((SEED + 200)) --threads 3 --schedule strips=on,strip-rows=1 --keep "$kept"
    "$PYTHON" tests/plan/races.py --braid $BRAID --units 3 --schedule strips=on,strip-rows=1 "$kept"/*
    rm -rf "$kept"
    [[ $(uname -m) == x86_64 ]] || return 0
    "${check[@]}" 4 --seed $((SEED + 300)) --cpu x86-64-v3 --threads 2 --schedule strips=on
}

# Networks as quantizers write them: their products by integers, on older processors, too, and on a GPU as floats.
quantized() {
    local check=("$PYTHON" tests/random/quantized_check.py --braid $BRAID)
    "${check[@]}" 60 --seed $SEED --target interp
    "${check[@]}" 8 --seed $SEED --threads 2
    "${check[@]}" 2 --seed $((SEED + 8)) --target emulate:cuda
    [[ $(uname -m) != x86_64 ]] || "${check[@]}" 4 --seed $((SEED + 12)) --cpu x86-64-v2
}

# Sums of products of 8-bit integers, bit for bit, by the instructions of this processor and of older ones.
bytes() {
    local check=("$PYTHON" tests/random/bytes_check.py --braid $BRAID) cpu
    "${check[@]}" 40 --seed $SEED --target interp
    "${check[@]}" 6 --seed $SEED --threads 2
    "${check[@]}" 1 --seed $((SEED + 6)) --target plain --target emulate:cuda
    [[ $(uname -m) == x86_64 ]] || return 0
    for cpu in x86-64-v2 x86-64-v3 x86-64-v4; do
        case $cpu in x86-64-v3) grep -qw avx2 /proc/cpuinfo || continue ;; x86-64-v4) grep -qw avx512bw /proc/cpuinfo || continue ;; esac
        "${check[@]}" 3 --seed $((SEED + 10)) --threads 2 --cpu $cpu
    done
}

# The benchmark models in small: each with its answer by numpy; trees and DAGs in forms that are no model of their own; nodes
# that recursion alone would visit 2^63 times.
models() {
    local work=$LOGS/models target
    "$PYTHON" -m models --all --small --out "$work"
    "$PYTHON" -m models treernn treefc treegru treelstm_words dagrnn_random --small --form levels --out "$work/levels"
    "$PYTHON" -m models treegru --small --words all --children any --out "$work/more"
    "$PYTHON" -m models syntax syntax_program --small --shared True --length 41 --out "$work/more"
    for target in interp cpu; do
        $BRAID test --target $target "$work"
    done
    "$PYTHON" -m models dagrnn_diamond --hidden 8 --length 64 --out "$work/diamond"
    for target in cpu plain emulate:cuda; do
        $BRAID test --target $target --schedule linearize=on "$work/diamond"
    done
}

# Every benchmark model as an expert, an exporter and a beginner write it, in small.
forms() {
    local work=$LOGS/forms target
    "$PYTHON" -m models --forms --small --out "$work"
    for target in interp cpu; do
        $BRAID test --target $target "$work"
    done
}

# Models of all element types with NaN and infinities, undeclared ranks, shapes of unknown length, arms that cannot run.
random_values() {
    "$PYTHON" tests/random/random_values.py $VALUES --small --seed $SEED --braid $BRAID
    "$PYTHON" tests/random/random_values.py 8 --small --seed $((SEED + VALUES)) --target emulate:cuda --braid $BRAID
}

# Broken copies of real files end in a message.
mutated() {
    local silero
    silero=$("$PYTHON" -c 'import importlib.util as i, os; print(os.path.dirname(i.find_spec("silero_vad").origin))')/data
    "$PYTHON" tests/hostile/mutate.py $BROKEN --seed $SEED --braid $BRAID "$silero" tests/conformance/exports tests/golden
    "$PYTHON" tests/hostile/mutate.py $((BROKEN / 4)) --seed $((SEED + 1)) --target cpu --braid $BRAID tests/conformance/exports tests/golden
}

# The family that only prints: sequential C.
plain() {
    local work=$LOGS/plain
    conformance $BRAID plain 64
    "$PYTHON" -m models $SOME_MODELS --small --out "$work"
    $BRAID test --target plain "$work"
}

# What PyTorch's exporters write (models/exports.py), with PyTorch's answers.
exports() {
    local target
    for target in interp cpu; do
        $BRAID test --target $target --atol 1e-4 tests/conformance/exports
    done
}

# Sums of products by the matrix units of emulated GPUs, and of inputs that are copied as they lie.
matrix_units() {
    local target
    for target in emulate:cuda emulate:hip; do
        "$PYTHON" tests/gpu/matrix_check.py $LOGS/matrix_units --target $target --threads 3 --seed $SEED --braid $BRAID
        "$PYTHON" tests/gpu/spans_check.py 6 $LOGS/spans --target $target --seed $SEED --braid $BRAID
    done
}

# For GPUs that are not here: what the compilers and the machine code say is what was planned.
# One of three models for one chip, one of each kind for all.
compile_for() { # TARGET, then the other chips
    local small=$LOGS/${1%:*} folders
    "$PYTHON" -m models --all --small --out "$small"
    mapfile -t folders < <(printf '%s\n' "$small"/* | awk 'NR % 4 == 0')
    PYTHON=$PYTHON TARGETS=$1 tests/gpu/gpu_compile.sh build/release "${folders[@]}"
    mapfile -t folders < <(printf "$small/%s\n" $SOME_MODELS)
    PYTHON=$PYTHON TARGETS="$*" tests/gpu/gpu_compile.sh build/release "${folders[@]}"
}
compile_cuda() {
    compile_for cuda:sm_90 cuda:sm_80 cuda:sm_100
    "$PYTHON" tests/gpu/gpu_sass.py --braid $BRAID "$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
}
compile_hip() {
    compile_for hip:gfx90a hip:gfx1030 hip:gfx908
    "$PYTHON" tests/gpu/gpu_gcn.py --braid $BRAID
}

# The Python package: installed as a user does, then called in every way.
python_package_tests() {
    local python=$PWD/$PACKAGE_VENV/bin/python
    "$python" -m unittest discover -s tests/python
    "$python" tests/python/threads.py
    "$python" tests/python/ort_snippets.py
    "$python" -W ignore tests/python/fuzz_calls.py 2000 --seed $SEED
    "$python" eval/call_overhead.py --build build/release
    "$python" tests/readme.py --python
}

silero() { "$PYTHON" tests/conformance/silero_check.py; }

side_by_side() {
    "$PYTHON" eval/side_by_side.py --self-test --braid $BRAID
    "$PYTHON" eval/trees.py --quick --braid $BRAID
}

# ---- running them
declare -A name_of=() began=() waits=()
passed=0 failed=0

# finished STATUS NAME SECONDS
finished() {
    local log=$LOGS/$2.log
    if [[ $1 -eq 0 ]]; then
        passed=$((passed + 1))
        printf 'ok   %4d s  %-19s %s\n' "$3" "$2" "$(grep . "$log" | tail -n 1 | cut -c -90 || true)"
    else
        failed=$((failed + 1))
        printf 'FAIL %4d s  %s: the end of %s:\n' "$3" "$2" "$log"
        tail -n 40 "$log"
    fi
}

wait_for_one() {
    local pid status=0
    wait -n -p pid || status=$?
    finished $status "${name_of[$pid]}" $((SECONDS - began[$pid]))
    [[ ! ${waits[$pid]:-} ]] || JOBS=$((JOBS - 1))
    unset "name_of[$pid]"
}

# step NAME COMMAND…
step() {
    local name=$1
    shift
    [[ ${#name_of[@]} -lt $JOBS ]] || wait_for_one
    [[ $failed -eq 0 ]] || return 0
    (set -e; "$@") >"$LOGS/$name.log" 2>&1 </dev/null &
    name_of[$!]=$name
    began[$!]=$SECONDS
}

# A step beyond those two at a time: it waits for the network more than for a processor.
beside() {
    JOBS=$((JOBS + 1))
    step "$@"
    [[ $failed -ne 0 ]] || waits[$!]=yes
}
# after NAME: waits for the end of that step.
after() { while [[ " ${name_of[*]} " == *" $1 "* ]]; do wait_for_one; done; }
barrier() { while [[ ${#name_of[@]} -gt 0 ]]; do wait_for_one; done; }

setup
setup_tests
rm -rf $LOGS build/cache
mkdir -p $LOGS
export BRAID_CACHE=$PWD/build/cache # this run's own
data=$("$PYTHON" -c 'import onnx; print(onnx.__path__[0])')/backend/test/data

step build build release
step wheel python_package
barrier
[[ $without_torch ]] || beside torch-setup setup_torch
beside ray-setup setup_ray
step house house
step unit unit_tests release
step cli tests/cli.sh $BRAID
step units "$PYTHON" tests/units.py --braid $BRAID
step counts "$PYTHON" tests/counts.py --graphs 40 --seed $SEED --braid $BRAID
step newer-onnx newer_onnx_tests
step readme "$PYTHON" tests/readme.py
step python python_package_tests
after ray-setup
step ray ray_examples
step conformance-cpu conformance $BRAID cpu $CPU_SHARE
step attentions attentions
step random-graphs random_graphs
step parts parts
step silero silero
step side-by-side side_by_side
step gpu-check eval/gpu/selftest.sh $BRAID
step field "$PYTHON" tests/conformance/field_cases.py --braid $BRAID
step small-types "$PYTHON" tests/conformance/small_types.py --braid $BRAID
step random-operators "$PYTHON" tests/random/random_operators.py --braid $BRAID
step ml "$PYTHON" tests/random/ml_check.py 26 --seed $SEED --braid $BRAID
step open-ranks "$PYTHON" tests/conformance/open_ranks.py --braid $BRAID
step recursion "$PYTHON" tests/conformance/recursion.py --braid $BRAID
step random-recursion "$PYTHON" tests/random/random_recursion.py --seed $SEED --braid $BRAID
step special-values "$PYTHON" tests/conformance/special_values.py --braid $BRAID
step nests "$PYTHON" tests/random/nest_check.py --braid $BRAID
step tails "$PYTHON" tests/random/tail_check.py --braid $BRAID
step sparse "$PYTHON" tests/random/sparse_check.py 24 --seed $SEED --braid $BRAID
step paddings paddings
step blocks blocks
step positions "$PYTHON" tests/random/positions_check.py --seed $SEED --braid $BRAID
step ways "$PYTHON" tests/random/ways_check.py --seed $SEED --braid $BRAID
step models models
step forms forms
step plain plain
step exports exports
step random-values random_values
step mutated mutated
step synchronization synchronization
step clusters clusters
step gpu-synchronization gpu_synchronization
step gpu-estimates "$PYTHON" eval/gpu/correlate.py --least 0.9 --braid $BRAID
step gpu-planted "$PYTHON" tests/gpu/planted.py --braid $BRAID
step gpu-captured "$PYTHON" tests/gpu/captured.py --braid $BRAID
step gpu-traces "$PYTHON" tests/gpu/trace_check.py --braid $BRAID
step alone "$PYTHON" tests/gpu/alone.py --braid $BRAID
step reductions reductions
step emulated-models emulated models recursion silero
step emulated-trees "$PYTHON" tests/gpu/structure_check.py --braid $BRAID --seed $SEED
step emulated-partial "$PYTHON" tests/gpu/partial_check.py 16 --seed $SEED --braid $BRAID
step emulated-beside "$PYTHON" tests/gpu/beside_check.py 6 --seed $SEED --braid $BRAID
step emulated-within "$PYTHON" tests/gpu/within_check.py --braid $BRAID --seed $SEED
step emulated-graphs emulated graphs --graphs 45
step emulated-conf emulated conformance --folders 50
step torch-emulated tests/torch/emulated_operator.sh $BRAID "$PYTHON"
step rnn rnn
step contrib contrib
step rows rows
step sizes sizes
step images "$PYTHON" tests/random/images_check.py 24 --seed $SEED --braid $BRAID
step narrow narrow
step convolutions convolutions
step layers layers
step around around
step bytes bytes
step quantized quantized
step contrib-transformers contrib_transformers
step matrix-units matrix_units
step debug debug
step tiny sanitized tiny 5
step compile-cuda compile_cuda
step compile-hip compile_hip
step variants tests/conformance/variants.sh $BRAID "$data"
step library "$PYTHON" tests/library.py $BRAID
step growth "$PYTHON" tests/growth.py --braid $BRAID
step profile "$PYTHON" tests/profile.py $BRAID
step install tests/install.sh build/release
step cross "$PYTHON" tests/cross.py --braid $BRAID
step explain-page "$PYTHON" tests/explain_page.py --braid $BRAID
step products "$PYTHON" tests/random/products.py --braid $BRAID
step gathered "$PYTHON" tests/random/gathered_check.py --braid $BRAID
step hostile "$PYTHON" tests/hostile/hostile.py $BRAID
after debug
step fuzz fuzz
step conformance conformance $BRAID interp
if [[ $without_torch ]]; then
    echo "left out, without torch: hipify, torch-modules, torch-operator"
else
    after torch-setup
    step hipify hipify
    step torch-modules torch_modules
    step torch-operator torch_operator
fi
barrier

echo "took $SECONDS s"
echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
