#!/bin/bash
# What the compiler makes of the models in tests/golden, as text: the tree as it is lowered and as the cpu
# target gets it, in NAME.tree, or the message of a failure, in NAME.error. NAME.schedule, where there is
# one, holds the transformations to force, NAME.target a further target, of which also what the text keeps
# in the memory of a cluster's blocks is written.
# Usage: tests/golden/golden.sh path/to/braid [--update]   (--update writes the files anew)
set -u
braid=$(realpath "${1:?usage: tests/golden/golden.sh path/to/braid [--update]}")
update=${2:-}
cd "$(dirname "$0")" || exit 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export BRAID_CACHE=$work/cache # no measurements
count=0 bad=0

# distributed MODEL TARGET OPTION...: the lines of the text that name the memory of a block of a cluster. Nothing is built.
distributed() {
    CXX=true CC=true NVCC=true "$braid" compile --target "$2" --threads 4 "${@:3}" "$1" --emit "$work/text" -o "$work/library" >/dev/null 2>&1
    sed -n '/ braid_main(/,$ s/^ *\(.*bk_block_memory(.*\)/\1/p' "$work/text"
}

# explain MODEL: both trees, or the message. The width of the machine's vectors settles how weights are
# packed and how contractions are cut: no choices about these. Scheduled for 4 threads by the table of devices.
explain() {
    local target how=() targets=(interp cpu)
    if [[ -e ${1%.onnx}.schedule ]]; then how=(--schedule "$(<"${1%.onnx}.schedule")"); fi
    if [[ -e ${1%.onnx}.target ]]; then targets+=("$(<"${1%.onnx}.target")"); fi
    for target in "${targets[@]}"; do
        echo "---- $target"
        "$braid" explain --target $target --threads 4 "${how[@]}" "$1" || return
        case $target in interp | cpu) ;; *) distributed "$1" "$target" "${how[@]}" ;; esac
    done | sed -E '/^(chosen|rejected) (tile|prefetch|near|lanes|sliding|transpose|strips|strip-rows)[ :]/d; s/, weights [0-9]+ bytes$//; s/, [0-9]+ ns instead of [0-9]+ ns by/ by/'
    return "${PIPESTATUS[0]}"
}

for model in *.onnx; do
    name=${model%.onnx}
    count=$((count + 1))
    if explain "$model" >"$work/out" 2>"$work/err"; then
        kind=tree text=$work/out
    else
        kind=error text=$work/err
    fi
    if [[ $update == --update ]]; then
        rm -f "$name.tree" "$name.error"
        cp "$text" "$name.$kind"
    elif [[ ! -e $name.$kind ]]; then
        bad=$((bad + 1))
        echo "FAIL: $name: there is no $name.$kind; braid says:"
        head -n 5 "$text"
    elif ! diff -u --label "$name.$kind" --label braid "$name.$kind" "$text" >"$work/diff"; then
        head -n 20 "$work/diff"
        bad=$((bad + 1))
        echo "FAIL: $name"
    fi
done
echo "$((count - bad)) passed, $bad failed"
[[ $bad -eq 0 && $count -gt 0 ]]
