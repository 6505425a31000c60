#!/usr/bin/env bash
# Makes build/gpu, which eval/gpu/check.sh needs on a machine with a GPU, where nothing can be installed:
#
#     eval/gpu/prepare.sh [--braid FILE] [--chips 90,80] [--counted FILE] [--to FOLDER] [--quick]
#
#   braid         needs only libc and libm (--braid takes a program that is there)
#   machine       measures what things cost, for these chips (none where there is no nvcc: it is compiled there)
#   small/        six models with data, for compute-sanitizer and the stress
#   fault/        one of which runs fail, when its indices are bad
#   counted.json  with --counted: what counted.py --out wrote, to stand beside the times
#   extra/        silero's voice detectors, with what ONNX Runtime says of some sound
#   conformance/  some of the ONNX backend tests
#
# --quick takes few of them, for tests.
#
# The benchmark models are written and compiled by the check itself. $PYTHON: with numpy, onnx, onnxruntime, silero-vad
# (build/venv/bin/python, else python3).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
braid='' chips=90 counted='' to=build/gpu quick=()
MOST=60 # MB
while [[ $# -gt 0 ]]; do
    case $1 in
    --quick) quick=(--quick); shift; continue ;;
    --braid) braid=${2:?} ;;
    --chips) chips=${2:?} ;;
    --counted) counted=${2:?} ;;
    --to) to=${2:?} ;;
    *) sed -n '2,5s/^# \?//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
    esac
    shift 2
done
python=${PYTHON:-build/venv/bin/python}
[[ -x $python ]] || command -v "$python" >/dev/null || python=python3
PATH=$PATH:/usr/local/cuda/bin

rm -rf "$to"
mkdir -p "$to"
if [[ -z $braid ]]; then
    cmake -S . -B build/static -DCMAKE_BUILD_TYPE=Release -DBRAID_STATIC=ON -DBRAID_TESTS=OFF >build/static.log
    cmake --build build/static --target braid --parallel "$(nproc)" >>build/static.log
    braid=build/static/braid
    if ldd "$braid" | grep -E 'protobuf|sqlite'; then
        echo "eval/gpu/prepare.sh: $braid is not statically linked" >&2
        exit 1
    fi
fi
strip -o "$to/braid" "$braid"

if command -v nvcc >/dev/null; then
    code=()
    for chip in ${chips//,/ }; do code+=(-gencode "arch=compute_$chip,code=[sm_$chip,compute_$chip]"); done
    nvcc -std=c++17 -O3 --fmad=false "${code[@]}" -I . -o "$to/machine" eval/gpu/machine.cu
else
    echo "no nvcc: the check will compile machine.cu"
fi
[[ -z $counted ]] || cp "$counted" "$to/counted.json"
"$python" eval/gpu/pack.py "$to" ${quick[@]+"${quick[@]}"}

size=$(du -sm "$to" | cut -f 1)
echo "$to: $size MB; $(find "$to/conformance" -name model.onnx | wc -l) conformance tests"
[[ $size -le $MOST ]] || { echo "eval/gpu/prepare.sh: $to is larger than $MOST MB" >&2; exit 1; }
