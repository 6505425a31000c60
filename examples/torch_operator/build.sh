#!/bin/sh
# Builds torch_operator with the PyTorch of a Python: build.sh PYTHON OUTPUT
set -e
torch=$("$1" -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])')
${CXX:-c++} -std=c++20 -O1 -o "$2" "$(dirname "$0")/main.cpp" -I"$torch/include" -L"$torch/lib" \
    -Wl,--no-as-needed -ltorch_cpu -lc10 -Wl,--as-needed -ldl -Wl,-rpath,"$torch/lib" -Wl,--allow-shlib-undefined
