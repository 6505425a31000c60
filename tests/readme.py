#!/usr/bin/env python3
"""Runs the commands of README.md, in a folder of their own with stand-ins for files that a reader has.

    readme.py [--build build/release] [--readme README.md] [--only TEXT] [--python]

--python: instead, its blocks of Python, one after the other, with silero's model and a recording by espeak-ng; needs the
package braid.

A command is a line of a fenced block that begins with "$ "; what comes behind two spaces and a # is a remark.
All must end with exit code 0; what they are to write is looked for. Those in NOT_RUN are not run; a command that
stands there and no longer in the file is an error, too.
"""
import argparse
import contextlib
import glob
import io
import os
import re
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import numpy_helper, parser

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SECONDS = 120  # for a command

# Why a command is not run here, by its beginning.
NOT_RUN = {
    "cmake --preset release": "it builds what this test runs",
    "build/release/braid compile model.onnx --target cuda:": "needs nvcc or NVRTC: tests/gpu/gpu_compile.sh compiles for CUDA",
    "build/release/braid compile model.onnx --target hip:": "needs hipcc: tests/gpu/gpu_compile.sh compiles for HIP",
    "build/release/braid run model.so": "the library is a GPU's",
    "pip install --no-deps -r cmake/requirements-ray.txt": "an environment of its own: test.sh's step ray makes it",
    "python examples/trees.py": "tests/python/test_trees.py runs it",
    "python examples/ray_batch.py": "tests/ray/ray_check.py runs it, in test.sh's step ray",
    "python examples/ray_serve.py": "tests/ray/ray_check.py runs it, in test.sh's step ray",
    "python tests/ray/ray_check.py": "test.sh has it as a step, with fewer items",
    "build/eval-venv/bin/python eval/side_by_side.py": "takes hours, and needs 5 GB of wheels: test.sh has --self-test of it as a step",
}

# Files that a command, by its beginning, has to leave.
LEAVES = {
    "build/venv/bin/python -m models seq2seq": ["build/example/seq2seq/model.onnx"],
    "build/venv/bin/python -m models treelstm": ["build/example/treelstm/model.onnx"],
    "build/release/braid compile build/example": ["build/seq2seq.so", "build/seq2seq.c"],
    "cc ": ["build/run_model"],
    "cmake --install": ["build/installed/lib/libbraid.so.0", "build/installed/lib/braid/libbraid_emulate.a"],
    "cmake -S examples": ["build/examples/stream"],
    "export PKG_CONFIG_PATH": ["build/embed"],
    "make -C build/seq2seq-c": ["build/seq2seq-c/model.a", "build/seq2seq-c/example"],
    "CC=aarch64-linux-gnu-gcc": ["build/seq2seq-arm.so"],
    "build/release/braid run build/seq2seq.so": ["out/output_0.npy"],
    "build/release/braid compile silero_vad.onnx": ["silero.so"],
    "build/release/braid profile build/example": ["build/trace.json"],
    "build/release/braid profile MODEL.onnx": ["profile.json"],

    "build/release/braid explain MODEL.onnx --html": ["model.html"],
}


def commands(path):
    inside, found = False, []
    for line in open(path, encoding="utf-8"):
        if line.startswith("```"):
            inside = not inside
        elif inside and line.startswith("$ "):
            found.append(re.split(r"\s{2,}#", line[2:].rstrip())[0])
    return found


def stand_ins(root):
    """What the reader has: a model of one step with a state, inputs, measured costs, a folder of models."""
    step = parser.parse_model("""<ir_version: 10, opset_import: ["" : 18]>
        g (float[2] input, float[2] state) => (float[2] output, float[2] stateN) {
            stateN = Add(input, state)
            output = Neg(stateN)
        }""")
    os.makedirs(f"{root}/MODELS/step")
    for name in ("silero_vad.onnx", "model.onnx", "MODEL.onnx", "MODELS/step/model.onnx"):
        onnx.save(step, f"{root}/{name}")
    with open(f"{root}/machine.json", "w") as f:
        f.write('{"target": "cuda:sm_90", "costs": {"team_barrier_ns": 1300}}')
    np.save(f"{root}/x.npy", np.zeros(2, np.float32))


def inputs_of_the_example(root):
    folder = f"{root}/build/example/seq2seq"
    model = onnx.load(f"{folder}/model.onnx")
    for i, v in enumerate(model.graph.input):
        path = f"{folder}/test_data_set_0/input_{i}.pb"
        if os.path.exists(path):
            tensor = onnx.TensorProto()
            tensor.ParseFromString(open(path, "rb").read())
            np.save(f"{root}/{v.name}.npy", numpy_helper.to_array(tensor))


def lay_out(root, build):
    """The tree as a reader sees it: sources are links, what commands write is here."""
    os.makedirs(f"{root}/build")
    os.symlink(os.path.realpath(build), f"{root}/build/release")
    os.symlink(f"{ROOT}/build/venv", f"{root}/build/venv")
    for name in ("include", "examples", "models", "eval"):
        os.symlink(f"{ROOT}/{name}", f"{root}/{name}")
    stand_ins(root)


def run(command, root):
    """What is wrong, or None."""
    env = dict(os.environ, BRAID_CACHE=f"{root}/cache", PYTHONDONTWRITEBYTECODE="1")
    try:
        done = subprocess.run(["bash", "-c", command], cwd=root, env=env, stdin=subprocess.DEVNULL, timeout=SECONDS,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    except subprocess.TimeoutExpired:
        return f"it takes more than {SECONDS} s"
    if done.returncode:
        return f"exit code {done.returncode}: {done.stdout.strip()[-600:]}"
    for start, files in LEAVES.items():
        missing = [f for f in files if command.startswith(start) and not glob.glob(f"{root}/{f}")]
        if missing:
            return "it has not written " + ", ".join(missing)
    return None


# What a block, by its first line, has to print.
PRINTS = {"import braid, numpy as np, wave": r"(?s)s: speech\n.*s: silence\n",
          "from braid import trees": r"^\('It', 'works'\) \(1, 256\)\nFine \(1, 256\)\n$"}


def torch_blocks(readme):
    """Runs the blocks that import torch; returns how many there are, and what is wrong."""
    wrong, blocks = [], [b for b in blocks_of_python(readme) if "import torch" in b]
    with tempfile.TemporaryDirectory() as root:
        os.chdir(root)
        for i, block in enumerate(blocks):
            with open(f"block_{i}.py", "w", encoding="utf-8") as f:  # a file: TorchDynamo reads the source
                f.write(block)
            done = subprocess.run([sys.executable, "-W", "error::UserWarning:braid", f"block_{i}.py"], text=True, capture_output=True)
            if done.returncode or not done.stdout:
                wrong.append(f"{block.splitlines()[0]}: {(done.stderr or 'it has printed nothing')[-600:]}")
        os.chdir("/")
    return len(blocks), wrong


def blocks_of_python(readme):
    with open(readme, encoding="utf-8") as f:
        return re.findall(r"^```python\n(.*?)^```", f.read(), re.M | re.S)


def python_blocks(readme):
    """Runs the other blocks of Python; returns how many there are, and what is wrong."""
    import importlib.util
    import wave
    sys.path.insert(0, f"{ROOT}/eval")
    import audio
    blocks = [b for b in blocks_of_python(readme) if "import torch" not in b]
    wrong, names = [], {}
    with tempfile.TemporaryDirectory() as root:
        os.chdir(root)
        data = os.path.join(os.path.dirname(importlib.util.find_spec("silero_vad").origin), "data")
        os.symlink(f"{data}/silero_vad.onnx", "silero_vad.onnx")
        with wave.open("recording.wav", "wb") as f:
            f.setparams((1, 2, 16000, 0, "NONE", ""))
            f.writeframes((audio.speech(16000) * 32767).astype(np.int16).tobytes())
        subprocess.run([sys.executable, "-m", "models", "treelstm", "--batch", "2", "--out", f"{root}/build/example"], cwd=ROOT,
                       check=True, stdout=subprocess.DEVNULL)
        for block in blocks:
            said = io.StringIO()
            try:
                with contextlib.redirect_stdout(said):
                    exec(compile(block, "README.md", "exec"), names)
            except Exception as e:
                wrong.append(f"{block.splitlines()[0]}: {e!r}")
            if not re.search(PRINTS.get(block.splitlines()[0], ""), said.getvalue()):
                wrong.append(f"{block.splitlines()[0]}: it has printed {said.getvalue()!r}")
        os.chdir("/")
    wrong += [f"no block begins with: {k}" for k in PRINTS if not any(b.startswith(k) for b in blocks)]
    if not wrong and np.abs(np.array(names["probabilities"]) - names["p"].ravel()).max() > 1e-5:
        wrong.append("step by step the detector says something else")
    if not wrong and abs(names["first"].item() - names["p"].ravel()[0]) > 1e-5:
        wrong.append("through braid.onnxruntime the detector says something else")
    return len(blocks), wrong


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--build", default=f"{ROOT}/build/release")
    p.add_argument("--readme", default=f"{ROOT}/README.md")
    p.add_argument("--only", default="")
    p.add_argument("--python", action="store_true", help="the blocks of Python instead")
    p.add_argument("--torch", action="store_true", help="those that import torch")
    a = p.parse_args()
    if a.python or a.torch:
        n, wrong = (torch_blocks if a.torch else python_blocks)(os.path.abspath(a.readme))
        print("\n".join(f"FAIL {w}" for w in wrong) or f"{n} blocks of Python passed")
        return 1 if wrong or not n else 0
    found = commands(a.readme)
    passed = skipped = failed = 0
    unused = [k for k in (*NOT_RUN, *LEAVES) if not any(c.startswith(k) for c in found)]
    for k in unused:
        failed += 1
        print(f"FAIL no command of the file begins with: {k}")
    others = [c for c in found if re.search(r"(^|\s)build/(?!release/|venv/|eval-venv/)\S*/?braid\b", c)]
    for c in others:
        failed += 1
        print(f"FAIL another build folder than build/release: {c}")
    with tempfile.TemporaryDirectory() as root:
        lay_out(root, a.build)
        for c in found:
            if a.only not in c:
                continue
            reason = next((why for start, why in NOT_RUN.items() if c.startswith(start)), None)
            if reason:
                skipped += 1
                print(f"not run: {c}\n    {reason}")
                continue
            why = run(c, root)
            if "-m models seq2seq" in c and not why:
                inputs_of_the_example(root)
            passed += not why
            failed += bool(why)
            if why:
                print(f"FAIL {c}\n    {why}")
    print(f"{passed} passed, {failed} failed, {skipped} not run")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
