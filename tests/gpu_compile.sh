#!/bin/bash
# Compiles models for GPUs that need not be here, with the compilers that are: nvcc (or NVRTC) for three chips,
# hipcc for three. Prints a line for each (tests/gpu_compile.c), and fails when one fails.
# Usage: tests/gpu_compile.sh BUILD [FOLDER|MODEL.onnx]...   folders: each model.onnx below them; without any, all
# models of models/ at small sizes are exported first (PYTHON names a Python that has numpy and onnx).
# TARGETS="cuda:sm_90 …" compiles for others.
set -u
build=$(realpath "${1:?usage: tests/gpu_compile.sh BUILD [FOLDER|MODEL.onnx]...}")
shift
root=$(realpath "$(dirname "$0")/..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [[ $# -eq 0 ]]; then
    (cd "$root" && "${PYTHON:-python3}" -m models --all --small --out "$work") || exit 2
    set -- "$work"
fi
models=()
for place; do
    if [[ -d $place ]]; then while read -r m; do models+=("$m"); done < <(find "$place" -name model.onnx | sort)
    else models+=("$place"); fi
done
[[ ${#models[@]} -gt 0 ]] || { echo "no models"; exit 2; }

targets=${TARGETS:-}
if [[ -z $targets ]]; then
    if command -v "${NVCC:-nvcc}" >/dev/null || [[ -x /usr/local/cuda/bin/nvcc || ${NVCC:-} == nvrtc ]]; then
        targets="cuda:sm_80 cuda:sm_90 cuda:sm_100"
    else echo "no nvcc: nothing is compiled for CUDA"; fi
    if command -v "${HIPCC:-hipcc}" >/dev/null; then targets+=" hip:gfx908 hip:gfx90a hip:gfx1030"
    else echo "no hipcc: nothing is compiled for HIP"; fi
fi
bad=0 count=0
for target in $targets; do
    for model in "${models[@]}"; do
        seconds=60
        [[ $model == *skipnet* ]] && seconds=120
        "$build/gpu_compile" -s $seconds "$target" "$model" || bad=$((bad + 1))
        count=$((count + 1))
    done
done
echo "$((count - bad)) compiled, $bad failed"
[[ $bad -eq 0 ]]
