#!/bin/bash
# Looks for data races between units, by hand: compiles models with ThreadSanitizer and runs each a few times
# with four units under it. Best with a build with tiny limits, where small tensors belong to several units,
# too; --unsynchronized leaves the barriers out, to see that races are found.
# Usage: PYTHON=build/venv/bin/python tests/races.sh path/to/braid [--unsynchronized] FOLDER…
set -u
here=$(dirname "$(realpath "$0")")
braid=$(realpath "${1:?usage: tests/races.sh BRAID [--unsynchronized] FOLDER...}")
shift
export UNSYNCHRONIZED=
[[ ${1:-} == --unsynchronized ]] && UNSYNCHRONIZED=1 && shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/cc" <<'END'
#!/bin/bash
for a in "$@"; do
    [[ $UNSYNCHRONIZED && $a == *.c ]] && sed -i 's/if ((st = bk_barrier(k)) != BK_OK) return st;//' "$a"
done
exec gcc -fsanitize=thread -g "$@"
END
chmod +x "$work/cc"
cat >"$work/run.py" <<'END'
import sys
import numpy as np, onnx
from onnx import numpy_helper
import braid_api
model = braid_api.Compiled(sys.argv[2], 4)
feed = {}
for i, name in enumerate(model.inputs):
    t = onnx.TensorProto()
    with open("%s/test_data_set_0/input_%d.pb" % (sys.argv[1], i), "rb") as f:
        t.ParseFromString(f.read())
    feed[name] = np.array(numpy_helper.to_array(t), order="C")
model.bind(feed)
for _ in range(5):
    model.run()
END
count=0 bad=0
for folder in "$@"; do
    count=$((count + 1))
    if ! CC=$work/cc "$braid" compile "$folder/model.onnx" -o "$work/m.so"; then
        bad=$((bad + 1))
        continue
    fi
    # The sanitizer needs memory where it expects it: no random addresses.
    PYTHONPATH=$here/../eval TSAN_OPTIONS=exitcode=66 LD_PRELOAD=$(gcc -print-file-name=libtsan.so) \
        setarch -R "${PYTHON:-python3}" "$work/run.py" "$folder" "$work/m.so" >"$work/log" 2>&1 && continue
    bad=$((bad + 1))
    echo "FAIL: $folder: $(grep -c 'WARNING: ThreadSanitizer' "$work/log") races, $(tail -n 1 "$work/log")"
    grep -m 2 'SUMMARY' "$work/log"
done
echo "$((count - bad)) passed, $bad failed"
[[ $bad -eq 0 ]]
