"""ort_snippets.py: ways in which people use onnxruntime, each run by onnxruntime and by
braid.onnxruntime, with the same results: only the import differs."""
import os
import sys
import tempfile
import threading
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

F, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


# ---- models
def save(folder: str, name: str, nodes: list, inputs: list, outputs: list, constants: dict | None = None,
         metadata: dict | None = None) -> str:
    initializers = [numpy_helper.from_array(np.asarray(v), k) for k, v in (constants or {}).items()]
    graph = helper.make_graph(nodes, name, inputs, outputs, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8,
                              producer_name="snippets")
    model.model_version = 3
    model.doc_string = "a model of the tests"
    if metadata:
        helper.set_model_props(model, metadata)
    onnx.checker.check_model(model)
    path = os.path.join(folder, name + ".onnx")
    onnx.save(model, path)
    return path


def info(name: str, dtype: int, shape: list | None) -> Any:
    return helper.make_tensor_value_info(name, dtype, shape)


def classifier(folder: str) -> str:
    """A small network: float32[batch,8] to scores [batch,3] and labels [batch]."""
    rng = np.random.default_rng(1)
    w1, w2 = rng.standard_normal((8, 16), np.float32), rng.standard_normal((16, 3), np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w1"], ["h"]), helper.make_node("Relu", ["h"], ["r"]),
             helper.make_node("MatMul", ["r", "w2"], ["s"]), helper.make_node("Softmax", ["s"], ["scores"], axis=1),
             helper.make_node("ArgMax", ["scores"], ["label"], axis=1, keepdims=0)]
    return save(folder, "classifier", nodes, [info("x", F, ["batch", 8])],
                [info("scores", F, ["batch", 3]), info("label", I64, ["batch"])], {"w1": w1, "w2": w2},
                {"names": "{0: 'cat', 1: 'dog', 2: 'owl'}", "stride": "32"})


def recurrent(folder: str) -> str:
    """A step of a detector: x [1,4], state [1,8] and sr to a probability and the next state."""
    rng = np.random.default_rng(2)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("MatMul", ["state", "r"], ["b"]),
             helper.make_node("Add", ["a", "b"], ["c"]), helper.make_node("Tanh", ["c"], ["stateN"]),
             helper.make_node("ReduceMean", ["stateN"], ["m"], axes=[1], keepdims=1),
             helper.make_node("Cast", ["sr"], ["f"], to=F), helper.make_node("Div", ["m", "f"], ["q"]),
             helper.make_node("Sigmoid", ["q"], ["prob"])]
    return save(folder, "recurrent", nodes, [info("x", F, [1, 4]), info("state", F, [1, 8]), info("sr", I64, [])],
                [info("prob", F, [1, 1]), info("stateN", F, [1, 8])],
                {"w": rng.standard_normal((4, 8), np.float32), "r": rng.standard_normal((8, 8), np.float32) / 4})


def decoder(folder: str) -> str:
    """A step of a decoder with a cache: token [batch] and cache [batch,past,4] to logits and cache."""
    rng = np.random.default_rng(3)
    nodes = [helper.make_node("Gather", ["table", "token"], ["e"]),
             helper.make_node("Unsqueeze", ["e", "one"], ["e3"]),
             helper.make_node("Concat", ["cache", "e3"], ["present"], axis=1),
             helper.make_node("ReduceSum", ["present", "one"], ["sum"], keepdims=0),
             helper.make_node("MatMul", ["sum", "out"], ["logits"])]
    return save(folder, "decoder", nodes, [info("token", I64, ["batch"]), info("cache", F, ["batch", "past", 4])],
                [info("logits", F, ["batch", 7]), info("present", F, ["batch", "total", 4])],
                {"table": rng.standard_normal((7, 4), np.float32), "one": np.array([1], np.int64),
                 "out": rng.standard_normal((4, 7), np.float32)})


def looped(folder: str) -> str:
    """Doubles x `trips` times in a Loop: float32[n] and int64 to float32[n] and the sums."""
    body = helper.make_graph(
        [helper.make_node("Add", ["v", "v"], ["v2"]), helper.make_node("ReduceSum", ["v2"], ["s"], keepdims=0),
         helper.make_node("Identity", ["go"], ["go2"])], "body",
        [info("i", I64, []), info("go", BOOL, []), info("v", F, ["n"])],
        [info("go2", BOOL, []), info("v2", F, ["n"]), info("s", F, [])])
    nodes = [helper.make_node("Loop", ["trips", "yes", "x"], ["y", "sums"], body=body)]
    return save(folder, "looped", nodes, [info("x", F, ["n"]), info("trips", I64, [])],
                [info("y", F, ["n"]), info("sums", F, ["trips"])], {"yes": np.array(True)})


def split_up(folder: str) -> str:
    """A sequence: the rows of x."""
    nodes = [helper.make_node("SplitToSequence", ["x"], ["rows"], axis=0, keepdims=1)]
    rows = helper.make_tensor_sequence_value_info("rows", F, None)
    return save(folder, "split_up", nodes, [info("x", F, ["n", 2])], [rows])


def half(folder: str) -> str:
    """float16: 2x + 1."""
    nodes = [helper.make_node("Mul", ["x", "two"], ["d"]), helper.make_node("Add", ["d", "one"], ["y"])]
    t = TensorProto.FLOAT16
    return save(folder, "half", nodes, [info("x", t, [None, 3])], [info("y", t, [None, 3])],
                {"two": np.array(2, np.float16), "one": np.array(1, np.float16)})


def batch(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, 8), np.float32)


# ---- snippets: each gets the module and a folder, and returns what is compared
def first_steps(ort: Any, folder: str) -> Any:
    session = ort.InferenceSession(classifier(folder), providers=["CPUExecutionProvider"])
    input_name = session.get_inputs()[0].name
    label_name = session.get_outputs()[1].name
    return session.run([label_name], {input_name: batch(5)})[0]


def all_outputs(ort: Any, folder: str) -> Any:
    session = ort.InferenceSession(classifier(folder))
    return session.run(None, {session.get_inputs()[0].name: batch(3)})


def from_bytes(ort: Any, folder: str) -> Any:
    with open(classifier(folder), "rb") as f:
        session = ort.InferenceSession(f.read(), providers=["CPUExecutionProvider"])
    return session.run(["label", "scores"], {"x": batch(2)})


def from_proto(ort: Any, folder: str) -> Any:
    model = onnx.load(classifier(folder))
    sess = ort.InferenceSession(model.SerializeToString())
    return [o.name for o in sess.get_outputs()], sess.run([], {"x": batch(4)})


def settings(ort: Any, folder: str) -> Any:
    if hasattr(ort, "preload_dlls"):
        ort.preload_dlls(cuda=False, cudnn=False)
    options = ort.SessionOptions()
    misspelled = False
    try:
        options.intra_op_num_thread = 2
    except AttributeError:
        misspelled = True
    options.intra_op_num_threads = -1
    ort.InferenceSession(classifier(folder), options)
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 3
    options.enable_mem_pattern = False
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = ort.InferenceSession(classifier(folder), sess_options=options,
                                   providers=[("CPUExecutionProvider", {"arena_extend_strategy": "kSameAsRequested"})])
    return misspelled, session.get_providers(), session.run(None, {"x": batch(1)})


def what_it_takes(ort: Any, folder: str) -> Any:
    session = ort.InferenceSession(decoder(folder))
    described = [(a.name, a.type, a.shape) for a in session.get_inputs() + session.get_outputs()]
    feed = {}
    for a in session.get_inputs():
        shape = [d if isinstance(d, int) else 2 for d in a.shape]
        feed[a.name] = np.ones(shape, {"tensor(float)": np.float32, "tensor(int64)": np.int64}[a.type])
    return described, session.run(None, feed)


def metadata(ort: Any, folder: str) -> Any:
    meta = ort.InferenceSession(classifier(folder)).get_modelmeta()
    names = eval(meta.custom_metadata_map["names"])  # noqa: S307 (what detectors' users write)
    return (meta.graph_name, meta.producer_name, meta.version, meta.description, meta.domain, names,
            int(meta.custom_metadata_map["stride"]))


def streaming(ort: Any, folder: str) -> Any:
    session = ort.InferenceSession(recurrent(folder))
    state = np.zeros((1, 8), dtype=np.float32)
    sound = np.random.default_rng(4).standard_normal((10, 1, 4), np.float32)
    found = []
    for chunk in sound:
        prob, state = session.run(None, {"x": chunk, "state": state, "sr": np.array(16, dtype="int64")})
        found.append(prob.item())
    return found, state


def generating(ort: Any, folder: str) -> Any:
    session = ort.InferenceSession(decoder(folder))
    token, cache = np.array([1, 2], np.int64), np.zeros((2, 0, 4), np.float32)
    written = []
    for _ in range(6):
        logits, cache = session.run(["logits", "present"], {"token": token, "cache": cache})
        token = logits.argmax(-1)
        written.append(token.tolist())
    return written, cache


def control_flow(ort: Any, folder: str) -> Any:
    session = ort.InferenceSession(looped(folder))
    x = np.arange(3, dtype=np.float32)
    return [session.run(None, {"x": x, "trips": np.array(t, np.int64)}) for t in (0, 1, 5)]


def sequences(ort: Any, folder: str) -> Any:
    session = ort.InferenceSession(split_up(folder))
    (rows,) = session.run(None, {"x": np.arange(6, dtype=np.float32).reshape(3, 2)})
    return session.get_outputs()[0].type, isinstance(rows, list), rows


def half_precision(ort: Any, folder: str) -> Any:
    session = ort.InferenceSession(half(folder))
    meta = session.get_inputs()[0]
    return meta.type, meta.shape[1], session.run(None, {meta.name: np.ones((2, 3), np.float16)})


def binding(ort: Any, folder: str) -> Any:
    session = ort.InferenceSession(classifier(folder))
    bound = session.io_binding()
    bound.bind_cpu_input("x", batch(3, 5))
    bound.bind_output("scores")
    bound.bind_output("label", "cpu")
    session.run_with_iobinding(bound)
    scores, label = bound.copy_outputs_to_cpu()
    return scores, label, bound.get_outputs()[0].shape()


def binding_memory(ort: Any, folder: str) -> Any:
    session = ort.InferenceSession(classifier(folder))
    x = ort.OrtValue.ortvalue_from_numpy(batch(4, 6))
    y = ort.OrtValue.ortvalue_from_shape_and_type([4, 3], np.float32, "cpu", 0)
    label = np.zeros(4, np.int64)
    bound = session.io_binding()
    bound.bind_input(name="x", device_type=x.device_name(), device_id=0, element_type=np.float32, shape=x.shape(),
                     buffer_ptr=x.data_ptr())
    bound.bind_ortvalue_output("scores", y)
    bound.bind_output("label", "cpu", 0, np.int64, [4], label.ctypes.data)
    session.run_with_iobinding(bound)
    first = y.numpy().copy()
    x.update_inplace(batch(4, 7))
    session.run_with_iobinding(bound)
    return first, y.numpy(), label, x.data_type(), y.is_tensor()


def ort_values(ort: Any, folder: str) -> Any:
    session = ort.InferenceSession(classifier(folder))
    x = ort.OrtValue.ortvalue_from_numpy(batch(2, 8))
    results = session.run_with_ort_values(["scores"], {"x": x})
    return session.run(["scores"], {"x": x}), results[0].numpy(), results[0].shape(), results[0].has_value()


def from_threads(ort: Any, folder: str) -> Any:
    session = ort.InferenceSession(classifier(folder))
    results: list = [None] * 8

    def work(i: int) -> None:
        for _ in range(20):
            results[i] = session.run(["scores"], {"x": batch(i + 1, i)})[0]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return results


def async_run(ort: Any, folder: str) -> Any:
    session = ort.InferenceSession(classifier(folder))
    done, got = threading.Event(), {}

    def callback(results: Any, user_data: Any, error: str) -> None:
        got["results"], got["user"], got["error"] = results, user_data, error
        done.set()

    session.run_async(["label"], {"x": batch(2, 9)}, callback, "mine")
    assert done.wait(20)
    return got["results"], got["user"], got["error"]


def wrong_inputs(ort: Any, folder: str) -> Any:
    """What programs catch."""
    session = ort.InferenceSession(classifier(folder))
    state = sys.modules[ort.__name__ + ".capi.onnxruntime_pybind11_state"]
    caught = []
    for feed, kinds in [({}, ValueError), ({"x": batch(2).astype(np.float64)}, state.InvalidArgument),
                        ({"x": np.zeros((2, 7), np.float32)}, state.InvalidArgument),
                        ({"y": batch(2), "x": batch(2)}, (ValueError, state.InvalidArgument))]:
        try:
            session.run(None, feed)
        except kinds:
            caught.append(True)
    try:
        session.run(["nothing"], {"x": batch(2)})
    except (ValueError, state.InvalidArgument):
        caught.append(True)
    with open(f"{folder}/damaged.onnx", "wb") as f:
        f.write(b"\x93NUMPY\x01\x00 no model")
    for bad, kinds in [("/nowhere/model.onnx", state.NoSuchFile), (f"{folder}/damaged.onnx", state.InvalidProtobuf), (b"no model", (state.Fail, state.InvalidProtobuf,
                                                                              state.InvalidGraph))]:
        try:
            ort.InferenceSession(bad)
        except kinds:
            caught.append(True)
    return caught


SNIPPETS = [first_steps, all_outputs, from_bytes, from_proto, settings, what_it_takes, metadata, streaming, generating,
            control_flow, sequences, half_precision, binding, binding_memory, ort_values, from_threads, async_run,
            wrong_inputs]


def same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return (isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape
                and np.allclose(a, b, rtol=1e-4, atol=1e-6))
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    if isinstance(a, float):
        return isinstance(b, float) and abs(a - b) <= 1e-5
    return a == b


def main() -> int:
    import onnxruntime
    import onnxruntime.capi.onnxruntime_pybind11_state  # noqa: F401

    import braid.onnxruntime
    import braid.onnxruntime.capi.onnxruntime_pybind11_state  # noqa: F401
    failed = 0
    for snippet in SNIPPETS:
        got = []
        for module in (onnxruntime, braid.onnxruntime):
            with tempfile.TemporaryDirectory() as folder:
                got.append(snippet(module, folder))
        if not same(*got):
            failed += 1
            print(f"FAIL {snippet.__name__}:\n  onnxruntime {got[0]}\n  braid       {got[1]}")
    print(f"{len(SNIPPETS) - failed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
