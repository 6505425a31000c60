"""Compares written models with independent evaluators: ONNX Runtime, or for recursive models, which
it cannot run, ONNX's reference evaluator with the operator Invoke added."""
import glob
import os
import sys

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from onnx.reference.ops import op_loop as reference_loop

RTOL, ATOL = 1e-4, 1e-4


def load(path):
    t = onnx.TensorProto()
    with open(path, "rb") as f:
        t.ParseFromString(f.read())
    return t.name, numpy_helper.to_array(t)


def test_data(folder):
    """({input: array}, [expected])"""
    data = os.path.join(folder, "test_data_set_0")
    sets = []
    for kind in ("input", "output"):
        n = len(glob.glob(os.path.join(data, f"{kind}_*.pb")))
        sets.append([load(os.path.join(data, f"{kind}_{i}.pb")) for i in range(n)])
    return dict(sets[0]), [array for _, array in sets[1]]


class Loop(reference_loop.Loop):
    """ONNX's Loop joins scan outputs along an existing axis; the standard says along a new one."""

    def _run(self, trip, cond, *state, context=None, body=None, attributes=None):
        values = {**context, **dict(zip(self.body.input_names[2:], state))}
        state, scanned, i = list(state), [], 0
        go = np.asarray(True) if cond is None else cond
        while go and (trip is None or i < trip):
            values.update(zip(self.body.input_names, (np.int64(i), go, *state)))
            go, *out = self._run_body(values, attributes=attributes)
            state = out[:len(state)]
            scanned.append(out[len(state):])
            i += 1
        return (*state, *(np.stack(v) for v in zip(*scanned)))


def reference_evaluator(model):
    """An evaluator of a model with Invoke."""
    functions = {f.name: f for f in model.functions}

    class Invoke(OpRun):
        op_domain = "ai.braid"

        def _run(self, *args, function=None):
            f = functions[function]
            run = ReferenceEvaluator(f, new_ops=[Invoke, Loop])
            return tuple(run.run(None, dict(zip(f.input, args)), attributes={}))

    top = onnx.ModelProto()
    top.CopyFrom(model)
    del top.functions[:]  # or it would load them without knowing Invoke
    return ReferenceEvaluator(top, new_ops=[Invoke, Loop])


def evaluate(path, inputs):
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=not model.functions)
    if model.functions:
        return reference_evaluator(model).run(None, inputs)
    import onnxruntime
    onnxruntime.set_default_logger_severity(3)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


def difference(got, want):
    """Why an output is not the expected one; None if it is."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"is {got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}"
    if not np.allclose(got, want, RTOL, ATOL):
        return f"differs by up to {np.abs(got.astype(float) - want.astype(float)).max():g}"
    return None


def check(folders):
    """Prints a line for each failure and the counts. Returns 1 if any failed, else 0."""
    sys.setrecursionlimit(100000)  # of the evaluator on deep trees
    found = sorted(p for f in folders for p in
                   glob.glob(os.path.join(f, "**", "model.onnx"), recursive=True))
    failed = 0
    for path in found:
        folder = os.path.dirname(path)
        inputs, expected = test_data(folder)
        try:
            outputs = evaluate(path, inputs)
            why = [f"output {n} {d}" for n, (o, w) in enumerate(zip(outputs, expected, strict=True))
                   if (d := difference(np.asarray(o), w))]
        except Exception as e:
            why = [str(e)]
        if why:
            failed += 1
            print(f"{folder}: {'; '.join(why)}")
    print(f"{len(found) - failed} passed, {failed} failed")
    return 1 if failed or not found else 0
