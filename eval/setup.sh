#!/usr/bin/env bash
# Makes build/eval-venv, the Python environment of eval/side_by_side.py with all peers in it, from the
# pinned wheels of eval/requirements.txt (about 5 GB). A peer whose wheels cannot be had is named, with
# the reason, and left out: side_by_side.py then shows it as missing.
set -euo pipefail
[[ $# -eq 0 ]] || { echo "usage: eval/setup.sh" >&2; exit 2; }
cd "$(dirname "${BASH_SOURCE[0]}")/.."
VENV=build/eval-venv
WHEELS=eval/requirements.txt
NEEDED=(numpy onnx onnxruntime matplotlib)
PEERS=(openvino torch jax dynet38)

stamp="$(python3 --version) $(sha256sum <"$WHEELS")"
if [[ -x $VENV/bin/python && $(cat "$VENV/stamp" 2>/dev/null) == "$stamp" ]]; then
    echo "$VENV is ready"
    exit
fi
rm -rf "$VENV"
mkdir -p build
python3 -m venv "$VENV"
log=build/eval-wheels.log
install() { # ARGUMENTS…
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: "$@" \
        >"$log" 2>&1
}

echo "installing wheels in $VENV"
if install --no-deps --requirement "$WHEELS"; then
    echo "$stamp" >"$VENV/stamp"
    exit
fi
echo "not all wheels can be had; trying one peer after the other"
install --constraint "$WHEELS" "${NEEDED[@]}" || {
    tail -n 5 "$log" >&2
    echo "eval/setup.sh: ${NEEDED[*]} cannot be installed" >&2
    exit 1
}
for peer in "${PEERS[@]}"; do
    install --constraint "$WHEELS" "$(grep "^$peer==" "$WHEELS")" ||
        echo "missing: $peer: $(grep -m 1 ERROR "$log" || tail -n 1 "$log")"
done
