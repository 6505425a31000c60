#!/bin/bash
# Compiles models for GPUs that need not be here, with the compilers that are: nvcc (or NVRTC) for three chips,
# hipcc for three. Prints a line for each (tests/gpu/gpu_compile.c), and fails when one fails. What cannot be compiled for
# because a compiler is missing, or does not know the chip, is said.
# Usage: tests/gpu/gpu_compile.sh BUILD [FOLDER|MODEL.onnx]...   folders: each model.onnx below them; without any, all
# models of models/ at small sizes are exported first, and silero-vad's files come on top (PYTHON names a Python that
# has numpy and onnx).
# TARGETS="cuda:sm_90 …" compiles for others.
set -u
build=$(realpath "${1:?usage: tests/gpu/gpu_compile.sh BUILD [FOLDER|MODEL.onnx]...}")
shift
root=$(realpath "$(dirname "$0")/../..")
python=${PYTHON:-python3}
[[ $python != */* ]] || python=$(realpath -s "$python")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [[ $# -eq 0 ]]; then
    (cd "$root" && "$python" -m models --all --small --out "$work" >/dev/null) || exit 2
    silero=$("$python" -c 'import importlib.util as u; print(u.find_spec("silero_vad").submodule_search_locations[0])') ||
        exit 2
    set -- "$work" "$silero"/data/silero_vad{,_16k_op15}.onnx
fi
models=()
for place; do
    if [[ -d $place ]]; then while read -r m; do models+=("$m"); done < <(find "$place" -name model.onnx | sort)
    else models+=("$place"); fi
done
[[ ${#models[@]} -gt 0 ]] || { echo "no models"; exit 2; }

# The CUDA compiler: nvcc; else NVRTC, from the test's Python environment or the system.
nvcc=${NVCC:-nvcc} chips=all
command -v "$nvcc" >/dev/null || [[ $nvcc == nvrtc ]] || nvcc=/usr/local/cuda/bin/nvcc
wheel=$(echo "$root"/build/venv/lib/python3*/site-packages/nvidia/cu13/lib)
if command -v "$nvcc" >/dev/null; then chips=$("$nvcc" --list-gpu-code)
elif [[ -e $wheel/libnvrtc.so.13 ]]; then export NVCC=nvrtc LD_LIBRARY_PATH=$wheel${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
elif [[ $nvcc != nvrtc ]] && ! ldconfig -p | grep -q 'libnvrtc\.so'; then chips=
fi

bad=0 count=0
for target in ${TARGETS:-cuda:sm_80 cuda:sm_90 cuda:sm_100 hip:gfx908 hip:gfx90a hip:gfx1030}; do
    chip=${target#*:}
    if [[ $target == cuda:* ]]; then
        [[ $chips ]] || { echo "no nvcc: nothing is compiled for $target"; continue; }
        [[ $chips == all ]] || grep -qx "$chip" <<<"$chips" || { echo "$nvcc does not know $chip: nothing is compiled for it"; continue; }
    else
        command -v "${HIPCC:-hipcc}" >/dev/null || { echo "no hipcc: nothing is compiled for $target"; continue; }
    fi
    "$build/gpu_compile" "$target" "${models[@]}" | tee "$work/out"
    count=$((count + $(grep -cE '^(ok|same)' "$work/out")))
    bad=$((bad + ${#models[@]} - $(grep -cE '^(ok|same)' "$work/out")))
done
echo "$count compiled, $bad failed"
[[ $bad -eq 0 ]]
