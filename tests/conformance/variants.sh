#!/bin/bash
# A part of the conformance tests on the cpu target in other ways than the usual one: with narrower vectors
# (--cpu), and with 2 and 4 units of execution (--threads).
# Usage: tests/conformance/variants.sh path/to/braid path/to/onnx/backend/test/data
set -u
braid=$(realpath "${1:?usage: tests/conformance/variants.sh BRAID DATA}")
cd "${2:?usage: tests/conformance/variants.sh BRAID DATA}" || exit 2
bad=0
shopt -s nullglob

# control flow, contractions, reductions and windows, hand-written bodies, movement
control=(node/test_{if,loop,scan,range_float,sequence_map,optional}*
         node/test_{lstm,gru,simple_rnn}*)
dense=(node/test_{matmul,gemm,conv,convtranspose,convinteger,qlinear,einsum,attention_3d,attention_4d}*)
reduce=(node/test_{softmax,logsoftmax,layer_normalization_2d,layer_normalization_3d,reduce_sum,reduce_max,argmax,cumsum,maxpool_2d}*
        node/test_averagepool_2d_*)
bodies=(node/test_{nonzero,unique,top_k,nonmaxsuppression,compress,scatter,gathernd,split_to_sequence,sequence_insert}*)
move=(node/test_{concat,transpose,slice,pad,resize_upsample,gather,where,cast_FLOAT}*)
tanh=(node/test_{tanh,sigmoid,erf,exp,gelu,mish,softplus}*)

# variant NAME OPTION… -- FOLDER…
variant() {
    local name=$1 options=() text
    shift
    while [[ $1 != -- ]]; do
        options+=("$1")
        shift
    done
    shift
    text=$("$braid" test --target cpu "${options[@]}" "$@" 2>&1) || bad=1
    echo "$name: $text"
}

# some N FOLDER…: every N-th.
some() {
    local n=$1 i=0 folder
    shift
    for folder in "$@"; do
        ((i++ % n == 0)) && echo "$folder"
    done
}

mapfile -t wide < <(some 12 "${control[@]}" "${dense[@]}" "${reduce[@]}" "${bodies[@]}" "${move[@]}"; some 4 "${tanh[@]}")
if [[ $(uname -m) == x86_64 ]]; then
    variant '4 lanes' --cpu x86-64 -- "${wide[@]}"
    if grep -qw avx2 /proc/cpuinfo; then variant '8 lanes' --cpu haswell -- "${wide[@]}"; fi
fi
mapfile -t many < <(some 4 "${control[@]}" "${bodies[@]}"; some 8 "${dense[@]}" "${reduce[@]}"; some 16 "${move[@]}")
variant '2 units' --threads 2 -- "${many[@]}"
variant '4 units' --threads 4 -- "${many[@]}"
exit $bad
