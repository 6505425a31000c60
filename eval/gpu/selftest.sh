#!/usr/bin/env bash
# Runs eval/gpu/check.sh where there is no GPU: eval/gpu/selftest.sh BRAID
#
# Stand-ins take the place of NVIDIA's programs, of machine.cu and of the GPU, which is the CPU: what is tested is that
# every part does its work, and that what goes wrong is named and does not stop the others. $PYTHON: as in prepare.sh.
set -euo pipefail
braid=$(realpath "${1:?usage: eval/gpu/selftest.sh BRAID}")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PYTHON=${PYTHON:-build/venv/bin/python}
[[ $PYTHON != */* || $PYTHON == /* ]] || PYTHON=$PWD/$PYTHON
export PYTHON
export BRAID_EMULATE=$(dirname "$braid")/libbraid_emulate.a # where there is no GPU, it leaves the traces
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAIL: $*"; exit 1; }

echo '{"target": "emulate:sm_90", "models": {"trips": {"us": 12.5}}}' >"$work/counted.json"
eval/gpu/prepare.sh --braid "$braid" --counted "$work/counted.json" --to "$work/pack" --quick
for name in braid small/blockdrop/inputs small/blockdrop/test_data_set_0/output_0.pb extra/silero_stream/options; do
    [[ -s $work/pack/$name ]] || fail "prepare.sh made no $name"
done

# ---- stand-ins
mkdir "$work/bin"
cat >"$work/bin/nvidia-smi" <<'END'
#!/bin/sh
case $1 in
-q) echo "Stand-in of nvidia-smi -q" ;;
--query-gpu=clocks.sm,*) echo "1980 MHz, 2619 MHz, 1980 MHz" ;;
--query-gpu=mig.mode.current) echo Disabled ;;
--query-gpu=name) echo "Stand-in | GPU" ;;
--query-gpu=driver_version) echo 580.0 ;;
--query-gpu=compute_cap) echo 9.0 ;;
*) exit 1 ;;
esac
END
cat >"$work/bin/compute-sanitizer" <<'END'
#!/bin/bash
[[ $1 == --tool && $3 == --error-exitcode ]] || exit 2
tool=$2 code=$4
shift 4
"$@" || exit
if [[ $FINDS == "$tool" ]]; then echo "========= ERROR SUMMARY: 3 errors"; exit "$code"; fi
echo "========= ERROR SUMMARY: 0 errors"
END
# What machine.cu writes, with all that it measures, at one and a half times the published costs.
"$braid" device cuda:sm_90 --json >"$work/published.json"
"$PYTHON" - "$work" <<'END'
import json, re, sys
text = open("eval/gpu/machine.cu").read()
names = re.findall(r'measure\(\s*\(?"(\w+)"', text)
assert {"launch", "graph_node", "grid_barrier", "grid_sync", "flag_round_trip", "shared_read",
        "cluster_read", "l2_read", "cluster_barrier", "cluster_sync_", "recurrent_step", "cluster_arrivals"} <= set(names), names
costs = re.findall(r'"(\w+_(?:barrier_ns|gbps)|gflops|dram_gbps|\w+_ns)"', text)
assert len(costs) >= 11, costs
published = json.load(open(f"{sys.argv[1]}/published.json"))["costs"]
assert set(costs) <= set(published), set(costs) - set(published)
json.dump({"name": "Stand-in", "target": "cuda:sm_90", "driver": "13.0", "multiprocessors": 132,
           "clock_mhz": 1980, "memory_bytes": 2**36, "l2_bytes": 2**25, "shared_bytes": 232448,
           "measured": [{"name": n, "unit": "ns", "value": 1.5, "about": "a | thing"} for n in names]
           + [{"name": "last", "unit": "ns", "value": None, "problem": "none", "about": "a thing"}],
           "costs": {c: 1.5 * published[c] for c in costs}}, open(f"{sys.argv[1]}/machine.json", "w"))
END
# Where there is nvcc, machine.cu itself, with a stand-in for CUDA's runtime.
PATH=$PATH:/usr/local/cuda/bin
if command -v nvcc >/dev/null; then
    nvcc -std=c++17 -O1 -arch=sm_90 --fmad=false -cudart none -I . -o "$work/stubbed" eval/gpu/machine.cu tests/gpu/gpu_runtime.c
    "$work/stubbed" "$work/stubbed.json" >"$work/stubbed.txt" || { cat "$work/stubbed.txt"; fail "machine.cu fails"; }
    "$PYTHON" - "$work" <<'END'
import json, sys
made, stubbed = (json.load(open(f"{sys.argv[1]}/{n}.json")) for n in ("machine", "stubbed"))
assert made.keys() == stubbed.keys(), stubbed.keys()
assert stubbed["costs"].keys() == {"team_bytes", *made["costs"]}, stubbed["costs"]
assert all(k["value"] > 0 for k in stubbed["measured"]), stubbed["measured"]
names = {k["name"] for k in stubbed["measured"]}
assert {k["name"] for k in made["measured"]} - {"last", "cluster_sync_"} <= names, names
assert {"tanh_latency", "division_latency", "fence"} <= names, names
END
fi
cat >"$work/pack/machine" <<'END'
#!/bin/sh
cp "$MADE" "$1"
echo 25 measured, 0 failed
END
chmod +x "$work"/bin/* "$work/pack/machine"

# check NAME: runs it, to $work/NAME.
check() {
    PATH=$work/bin:$PATH TARGET=cpu CHECK_DEVICE=cpu CHECK_PACK=$work/pack CHECK_SMALL=1 CHECK_MODELS=$models \
        MADE=$work/$made FINDS=$finds eval/gpu/check.sh "$work/$1" >"$work/$1.txt" 2>&1
}

# ---- all is well
models=trips made=machine.json finds=nothing
check good || { cat "$work/good.txt"; fail "a good check fails"; }
# ---- all goes wrong: half a file, errors found, wrong outputs, a model that cannot be compiled
head -c 700 "$work/machine.json" >"$work/half.json"
cp "$work/pack/small/blockdrop/test_data_set_0/input_0.pb" "$work"/pack/conformance/test_gru_batchwise/test_data_set_0/output_0.pb
echo junk >"$work/pack/fault/model.onnx"
echo junk >"$work/pack/extra/silero_step/model.onnx"
models=trips_if made=half.json finds=racecheck
! check bad || { cat "$work/bad.txt"; fail "a bad check succeeds"; }

"$PYTHON" - "$work" <<'END' || { cat "$work/good.txt" "$work/bad.txt"; fail "the results are not as they should be"; }
import json, os, sys, tarfile
work = sys.argv[1]

def load(name):
    for file in "results.md", "log.txt", "results.json":
        assert os.path.getsize(f"{work}/{name}/{file}") > 0, file
    return json.load(open(f"{work}/{name}/results.json")), open(f"{work}/{name}/results.md").read()

good, text = load("good")
outcome = {p["name"]: p["outcome"] for p in good["parts"]}
assert list(outcome) == ["machine", "conformance", "build", "models", "choices", "times", "traces", "stress", "sanitizer"], outcome
assert set(outcome.values()) == {"done"}, outcome
assert text.startswith("# Braid on Stand-in | GPU\n"), text[:80]
assert good["facts"]["driver"] == "580.0" and good["facts"]["target"] == "cpu", good["facts"]
assert good["machine"]["costs"]["team_barrier_ns"] == 900, good["machine"]
assert good["conformance"]["passed"] >= 2 and not good["conformance"]["failures"], good["conformance"]
assert good["models"]["passed"] == 3 and good["models"]["failed"] == 0, good["models"]
assert good["build"]["wanted"] == 3 and len(good["build"]["done"]) == 3, good["build"]
assert [r["summary"] for r in good["sanitizer"]] == ["ERROR SUMMARY: 0 errors"] * 3, good["sanitizer"]
assert {r["tool"] for r in good["sanitizer"]} == {"memcheck", "racecheck", "synccheck"}
assert len(good["choices"]) == 1 and good["choices"][0]["measured_ns"] > 0, good["choices"]
assert good["choices"][0]["published_ns"] > 0
braid = [r for r in good["times"]["records"] if r["peer"] == "braid" and "median_us" in r]
assert braid and all(r["call_us"] > 0 for r in braid), good["times"]
assert "Disabled" == good["facts"]["MIG"] and good["facts"]["clocks"].startswith("1980"), good["facts"]
assert {r["kind"] for r in good["stress"]} == {"alone", "together", "behind a fault"}, good["stress"]
assert all(r["runs"] > 0 and "failed" not in r for r in good["stress"]), good["stress"]
assert open(f"{work}/good/nvidia-smi.txt").read().startswith("Stand-in")
kept = tarfile.open(f"{work}/good/sources.tar.gz").getnames()
assert any(n.startswith("libs/") and n.endswith(".c") for n in kept), kept
assert "traces/trips.trace.json" in kept, kept
traced = json.load(tarfile.open(f"{work}/good/sources.tar.gz").extractfile("traces/trips.json"))
assert traced["blocks"] > 1 and traced["run_ns"] > 0 and traced["meets"] and traced["functions"], traced
assert good["traces"]["trips"]["run_ns"] == traced["run_ns"], good["traces"]
for word in "## What blocks wait for", "| trips | 8 | ", "## Counted and measured", "| trips | ", "the same bits", "| grid_barrier |", "failed | ns", "a / thing", "## Times", "0 errors":
    assert word in text, word

bad, text = load("bad")
outcome = {p["name"]: p["outcome"] for p in bad["parts"]}
assert outcome == {"machine": "done", "conformance": "failed (1)", "sanitizer": "failed (1)", "build": "failed (1)",
                   "models": "done", "choices": "failed (1)", "times": "done", "traces": "done", "stress": "failed (1)"}, outcome
assert bad["machine"] is None and bad["choices"] is None
assert bad["conformance"]["failed"] == 1 and "test_gru_batchwise" in bad["conformance"]["failures"][0]
assert {r["tool"]: r.get("failed") for r in bad["sanitizer"]} == {
    "memcheck": None, "synccheck": None, "racecheck": "ERROR SUMMARY: 3 errors"}, bad["sanitizer"]
failed = [r for r in bad["build"]["done"] if "failed" in r]
assert [r["name"] for r in failed] == ["silero_step"] and "junk" not in failed[0]["failed"], failed
assert bad["models"]["passed"] == 2, bad["models"]
assert [r["failed"] for r in bad["stress"] if "failed" in r], bad["stress"]
for word in "silero_step: braid: ", "FAILED: ERROR SUMMARY: 3 errors", "test_gru_batchwise: output 0":
    assert word in text, word
END
echo "the check runs, and names what is wrong"
