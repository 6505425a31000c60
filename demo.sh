#!/usr/bin/env bash
# Sets everything up, builds, and finds the speech in a recording: ./demo.sh [FILE.wav]
# Without FILE.wav, espeak-ng makes the recording.
set -euo pipefail
[[ $# -le 1 ]] || { echo "usage: ./demo.sh [FILE.wav]" >&2; exit 2; }
recording=${1:+$(realpath -- "$1")}
cd "$(dirname "${BASH_SOURCE[0]}")"
source cmake/setup.sh

setup
echo "building"
build release
exec "$PYTHON" eval/demo.py ${recording:+"$recording"}
