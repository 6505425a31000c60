#!/bin/bash
# A library for a GPU as PyTorch's operator, on the emulators and with a stand-in for PyTorch; and the host's
# text for real GPUs compiles.
# Usage: tests/torch/emulated_operator.sh path/to/braid [PYTHON]
set -eu
braid=$(realpath "${1:?usage: tests/torch/emulated_operator.sh path/to/braid [PYTHON]}")
python=$(realpath -s "${2:-build/venv/bin/python}")
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
flags=(-std=gnu11 -O1 -g -Wall -Wextra -Werror -fexceptions -I../../include)
${CC:-cc} "${flags[@]}" -fvisibility=hidden -fPIC -shared -Wl,-soname,libtorch_cpu.so -o "$work/libtorch_cpu.so" fake_torch.c
${CC:-cc} "${flags[@]}" -o "$work/run" emulated_operator.c -L"$work" -ltorch_cpu -Wl,-rpath,"$work" -ldl
"$python" -c "import sys, models_of_operators as m; m.write(sys.argv[1], m.ALL + [m.codes])" "$work"
for target in emulate:cuda emulate:hip; do
    "$braid" compile "$work/add.onnx" --target $target --torch t::add -o "$work/$target.so"
    "$work/run" "$work/$target.so"
done
if "$braid" compile "$work/codes.onnx" --torch t::codes -o "$work/codes.so" 2>"$work/said"; then
    echo "FAIL int4 is not refused" && exit 1
fi
grep -q "output 'y' is of int4, which PyTorch has no tensors of" "$work/said"
if "$braid" compile "$work/lists.onnx" --target emulate:cuda --torch t::lists -o "$work/lists.so" 2>"$work/said"; then
    echo "FAIL lists on a GPU are not refused" && exit 1
fi
"$braid" compile "$work/add.onnx" --torch t::add -o "$work/add.so"
mkdir "$work/old"
echo 'int aoti_torch_get_data_ptr(void); int aoti_torch_get_data_ptr(void) { return 1; }' |
    ${CC:-cc} -shared -fPIC -Wl,-soname,libtorch_cpu.so -x c -o "$work/old/libtorch_cpu.so" -
LD_PRELOAD=$work/old/libtorch_cpu.so "$braid" run "$work/add.so" --size n=1 2>"$work/old/said" >/dev/null
grep -q "braid: this PyTorch is too old for the operator t::add: it has no aoti_torch_library_init_fragment" "$work/old/said"
grep -q "input 's' is a sequence, which PyTorch's operators for GPUs cannot have" "$work/said"
