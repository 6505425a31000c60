#!/bin/bash
# What `cmake --install` and `cpack -G DEB` leave, as others use it: moved to another folder, by find_package, by
# pkg-config, in C99 and C++17, out of the package. Usage: tests/install.sh BUILD (a build with its programs made)
set -u
root=$(dirname "$(dirname "$(realpath "${BASH_SOURCE[0]}")")")
build=$(realpath "${1:?usage: tests/install.sh BUILD}")
python=${PYTHON:-$root/build/venv/bin/python}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
export BRAID_CACHE=$work/cache
count=0 bad=0

# check DESCRIPTION COMMAND…: the command succeeds.
check() {
    local what=$1
    shift
    count=$((count + 1))
    "$@" >out 2>&1 && return
    bad=$((bad + 1))
    printf 'FAIL: %s\n' "$what"
    tail -n 15 out
    return 1
}
no() { ! "$@"; }
# prints TEXT COMMAND…: the command succeeds and prints this.
prints() {
    local text=$1 got
    shift
    count=$((count + 1))
    got=$("$@" 2>&1) && [[ $got == "$text" ]] && return
    bad=$((bad + 1))
    printf 'FAIL: %s\n--- printed:\n%s\n--- expected:\n%s\n' "$*" "$got" "$text"
}

"$python" - <<'END' || exit 2
import numpy as np, onnx
from onnx import parser
def save(name, text): onnx.save(parser.parse_model('<ir_version: 10, opset_import: ["" : 18]>\n' + text), name)
save("both.onnx", """both (float[3] x, float[3] w) => (float[3] y, seq(float[3]) s) {
    y = Mul(x, w)
    z = Add(x, w)
    s = SequenceConstruct(z, x) }""")
save("step.onnx", """step (float[2] input, float[2] state) => (float[2] output, float[2] stateN) {
    stateN = Add(input, state)
    output = Neg(stateN) }""")
np.save("x.npy", np.array([1, 2, 3], np.float32))
np.save("w.npy", np.array([0.5, -2, 4], np.float32))
np.save("chunks.npy", np.array([[1, 9], [2, 9], [4, 9]], np.float32))
END
both="y: float32[3] 0.5 -4 12
s: sequence of 2
  item: float32[3] 1.5 0 7
  item: float32[3] 1 2 3"
stream="0: -1
1: -3
2: -7"
ones="output[2]: -2 -2
stateN[2]: 2 2"

# ---- the tree, moved to another place
check 'cmake --install' cmake --install "$build" --prefix "$work/first"
mv first moved
version=$(moved/bin/braid --version | awk '{print $NF}')
check 'a version' test -n "$version"
for f in bin/braid lib/libbraid.so.0 "lib/libbraid.so.$version" include/braid.h include/braid_model.h include/braid_dlpack.h include/braid_trees.h \
    lib/braid/libbraid_emulate.a lib/pkgconfig/braid.pc share/doc/braid/copyright share/doc/braid/examples/stream.cpp; do
    check "installed: $f" test -s "moved/$f"
done
check 'no path of the build is left' no grep -rIlE "$work/first|$build" moved/lib/cmake moved/lib/pkgconfig moved/include
readelf -d moved/lib/libbraid.so >dynamic
check 'the soname' grep -q 'Library soname: \[libbraid.so.0\]' dynamic
nm -D --defined-only moved/lib/libbraid.so | awk '{print $3}' >symbols
check 'it exports its functions' grep -qx braid_session_run symbols
check 'it exports nothing else' no grep -v '^braid_' symbols

# ---- headers alone
for header in braid braid_model braid_dlpack braid_trees; do
    for compiler in 'gcc -std=c99 -x c' 'clang -std=c99 -x c' 'g++ -std=c++17 -x c++' 'clang++ -std=c++17 -x c++'; do
        echo "#include <$header.h>" >header.txt
        # shellcheck disable=SC2086
        check "$header.h by $compiler" $compiler -Wall -Wextra -pedantic -Werror -fsyntax-only -I moved/include header.txt
    done
done

# ---- forests.c without libbraid
cat >forest.c <<'END'
#include <stdio.h>
#include <braid_trees.h>
int main(void) {
    braid_forest *f = NULL;
    braid_error e = {BRAID_OK, ""};
    const char text[] = "(3 (2 It) (4 works)) (2 Fine)";
    if (braid_forest_from_text(text, sizeof text - 1, true, &f, &e)) puts(e.message);
    if (f) printf("%d nodes, %d trees\n", (int)f->nodes, (int)f->trees);
    braid_forest_free(f);
    return e.status;
}
END
check 'forests.c alone' gcc -std=c99 -Wall -Wextra -pedantic -Werror -I moved/include forest.c "$root/api/forests.c" -o forest
prints '4 nodes, 2 trees' ./forest

# ---- find_package
check 'examples: cmake' cmake -S "$root/examples" -B examples -DCMAKE_PREFIX_PATH="$work/moved" -DCMAKE_BUILD_TYPE=Release
check 'examples: cmake --build' cmake --build examples
prints "both for cpu, braid $version
$both" examples/embed_library both.onnx x=x.npy w=w.npy
prints "$stream" examples/stream step.onnx chunks.npy input state=stateN
check 'the installed braid compiles' moved/bin/braid compile step.onnx -o step.so
prints "$ones" examples/run_model ./step.so
check 'a wrong input' no examples/embed_library both.onnx x=chunks.npy
cp out said
check 'its message' grep -q "'x'" said
mkdir later
printf 'cmake_minimum_required(VERSION 3.22)\nproject(later C)\nfind_package(braid 99 CONFIG REQUIRED)\n' >later/CMakeLists.txt
check 'find_package of a later version' no cmake -S later -B later/build -DCMAKE_PREFIX_PATH="$work/moved"
cp out said
check 'its message names the version' grep -q "version: $version" said

# ---- pkg-config
export PKG_CONFIG_PATH=$work/moved/lib/pkgconfig
prints "$version" pkg-config --modversion braid
read -ra flags < <(pkg-config --cflags --libs braid)
warnings=(-Wall -Wextra -pedantic -Werror "-Wl,-rpath,$work/moved/lib")
check 'C99 by pkg-config' gcc -std=c99 "${warnings[@]}" "$root/examples/embed_library.c" -o embed "${flags[@]}"
check 'C++17 by pkg-config' clang++ -std=c++17 "${warnings[@]}" "$root/examples/stream.cpp" -o stream "${flags[@]}"
prints "both for cpu, braid $version
$both" ./embed both.onnx x=x.npy w=w.npy
prints "$stream" ./stream step.onnx chunks.npy input state=stateN

# ---- the emulator's library is found by the program and by the library
check 'emulated, by braid' moved/bin/braid compile step.onnx --target emulate:cuda -o emulated1.so
cat >emulated.c <<'END'
#include <stdio.h>
#include <braid.h>
int main(void) {
    braid_error e = {0};
    braid_options o = {.struct_size = sizeof o, .target = "emulate:cuda"};
    if (braid_compile("step.onnx", &o, "emulated2.so", &e)) printf("%s\n", e.message);
    return e.status;
}
END
check 'emulated: the program' gcc emulated.c -o emulated "-Wl,-rpath,$work/moved/lib" "${flags[@]}"
check 'emulated, by libbraid' ./emulated
prints "$ones" examples/run_model ./emulated1.so
prints "$ones" examples/run_model ./emulated2.so

# ---- the Debian package
check 'cpack' cpack -G DEB --config "$build/CPackConfig.cmake" -B "$work/package"
deb=$(echo package/*.deb)
check 'one package' test -s "$deb"
prints braid dpkg-deb -f "$deb" Package
prints "$version" dpkg-deb -f "$deb" Version
dpkg-deb -f "$deb" Depends Recommends >fields
for name in libc6 libprotobuf-c1 libsqlite3-0 libjansson4 'gcc |'; do check "the package names $name" grep -qF "$name" fields; done
check 'unpacked' dpkg-deb -x "$deb" root
prints "braid $version" root/usr/bin/braid --version
check 'the unpacked braid compiles' root/usr/bin/braid compile step.onnx -o unpacked.so
prints "$ones" examples/run_model ./unpacked.so
check 'the unpacked braid finds its emulator' root/usr/bin/braid compile step.onnx --target emulate:hip -o emulated3.so
libdir=$(dirname "$(find root -name libbraid.so.0)")
prints "both for cpu, braid $version
$both" env LD_LIBRARY_PATH="$libdir" examples/embed_library both.onnx x=x.npy w=w.npy
LD_LIBRARY_PATH=$libdir ldd examples/embed_library >loaded
check 'that was the library of the package' grep -q "$libdir" loaded

echo "$((count - bad)) passed, $bad failed"
[[ $bad -eq 0 && $count -gt 50 ]]
