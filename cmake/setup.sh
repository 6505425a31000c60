# setup.sh: installs what is missing on a Debian or Ubuntu machine. demo.sh and test.sh source it (with
# bash, from the project's folder). When nothing is missing, it does nothing and needs no network.
# shellcheck shell=bash

VENV=build/venv
PYTHON=$VENV/bin/python
PACKAGE_VENV=build/python-venv # has the Python package
RAY_VENV=build/ray-venv        # has Ray, and the package
TORCH_VENV=build/torch-venv    # has PyTorch, and the package
PACKAGES=(build-essential cmake ninja-build pkg-config libprotobuf-c-dev protobuf-c-compiler libsqlite3-dev libjansson-dev
          libcmocka-dev libboost-context-dev espeak-ng python3)
TEST_PACKAGES=(ccache clang hipcc libamdhip64-dev rocm-device-libs
               gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user)
NEWER_ONNX=1.23.2                                  # only its schemas and tests are used; $VENV has an older one
NEWER_ONNX_DIR=build/onnx-$NEWER_ONNX
NVIDIA_WHEELS=(nvidia-cuda-nvdisasm==13.2.86)      # disassembler
NVRTC_WHEELS=(nvidia-cuda-nvrtc==13.0.88)          # only where there is no nvcc

fail() {
    echo "$0: $*" >&2
    exit 1
}

as_root() {
    if [[ $(id -u) -eq 0 ]]; then
        "$@"
    else
        command -v sudo >/dev/null || fail "run as root (there is no sudo) to install packages: $*"
        sudo "$@"
    fi
}

# packages NAME…: installs the packages that are missing. Fetches the package list at most once.
packages_updated=
packages() {
    command -v dpkg-query >/dev/null || return 0 # not Debian or Ubuntu: the build reports what is missing
    local name missing=()
    for name in "$@"; do
        [[ $(dpkg-query -W -f '${Status}' "$name" 2>/dev/null) == 'install ok installed' ]] ||
            missing+=("$name")
    done
    [[ ${#missing[@]} -eq 0 ]] && return
    echo "installing packages: ${missing[*]}"
    mkdir -p build
    {
        [[ $packages_updated ]] || as_root apt-get update -qq
        packages_updated=1
        as_root env DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -qq --no-install-recommends "${missing[@]}"
    } >build/packages.log 2>&1 || {
        tail -n 20 build/packages.log >&2
        fail "packages cannot be installed: ${missing[*]}"
    }
}

# environment FOLDER REQUIREMENTS: makes a Python environment; again when the list of wheels changes.
environment() {
    local stamp
    stamp="$(python3 --version) $(sha256sum <"$2")"
    [[ -x $1/bin/python && $(cat "$1/stamp" 2>/dev/null) == "$stamp" ]] && return
    python3 -c 'import ensurepip' 2>/dev/null || packages python3-venv
    echo "installing Python wheels in $1"
    rm -rf "$1"
    mkdir -p build
    {
        python3 -m venv "$1" &&
            "$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
                --only-binary :all: --requirement "$2"
    } >"$1.log" 2>&1 || {
        tail -n 20 "$1.log" >&2
        fail "the Python environment $1 cannot be made"
    }
    echo "$stamp" >"$1/stamp"
}

# The package itself: a wheel in build/wheel. (CMake's build folder stays: only what has changed is compiled.)
python_package() {
    local ccache=()
    command -v ccache >/dev/null && ccache=(-C cmake.define.CMAKE_C_COMPILER_LAUNCHER=ccache)
    rm -rf build/wheel
    "$PACKAGE_VENV/bin/python" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
        --wheel-dir build/wheel -C build-dir=build/python "${ccache[@]}" .
    install_package $PACKAGE_VENV
}

# install_package FOLDER: that wheel into a Python environment.
install_package() {
    "$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall build/wheel/braid-*.whl
}

# Installs what the demo needs.
setup() {
    packages "${PACKAGES[@]}"
    environment $VENV cmake/requirements.txt
}

# Installs what the tests need in addition: clang and its run-time library (same version) for sanitizers
# and fuzzing; a browser; hipcc and NVIDIA's wheels to compile for GPUs that this machine does not have; another
# processor's compiler and emulator.
setup_tests() {
    packages "${TEST_PACKAGES[@]}"
    # Ubuntu has it only as a snap; tests/explain_page.py then does without.
    apt-cache show chromium >/dev/null 2>&1 && packages chromium
    local major
    major=$(clang -dumpversion) || fail "clang does not run"
    packages "libclang-rt-${major%%.*}-dev"
    packages python3-dev
    environment $PACKAGE_VENV cmake/requirements-python.txt
    nvidia_wheels
    newer_onnx
}

# Installs what the tests with PyTorch need: about 5 GB.
setup_torch() { environment $TORCH_VENV cmake/requirements-torch.txt; }
setup_ray() { environment $RAY_VENV cmake/requirements-ray.txt; }

# Installs a newer onnx in a folder of its own. Use it with PYTHONPATH=$NEWER_ONNX_DIR $PYTHON.
newer_onnx() {
    [[ -f $NEWER_ONNX_DIR/done ]] && return
    rm -rf "$NEWER_ONNX_DIR"
    "$PYTHON" -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: \
        --target "$NEWER_ONNX_DIR" "onnx==$NEWER_ONNX" >build/newer-onnx.log 2>&1 || {
        tail -n 20 build/newer-onnx.log >&2
        fail "onnx $NEWER_ONNX cannot be installed"
    }
    touch "$NEWER_ONNX_DIR/done"
}

# The wheels exist only for some processors; without them the tests check less.
nvidia_wheels() {
    local wheels=("${NVIDIA_WHEELS[@]}")
    command -v nvcc >/dev/null || [[ -x /usr/local/cuda/bin/nvcc ]] || wheels+=("${NVRTC_WHEELS[@]}")
    "$PYTHON" -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: \
        "${wheels[@]}" >build/nvidia.log 2>&1 || echo "without NVIDIA's wheels: ${wheels[*]}"
}

# build PRESET: configures and builds; shows the output only on failure. ccache, where it is there, keeps what other builds of
# the same sources compiled, also in other folders.
build() {
    local log=build/$1.log
    mkdir -p build
    if command -v ccache >/dev/null; then
        local -x CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
    fi
    { cmake --preset "$1" && cmake --build --preset "$1"; } >"$log" 2>&1 || {
        tail -n 40 "$log" >&2
        return 1
    }
}
