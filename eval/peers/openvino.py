"""OpenVINO on the same file as Braid; its inputs are shared, not copied."""
import openvino as ov

ANY_FILE = True
FORMS = {"*": ("infer",), "tree": ("a loop over nodes",)}
NODE_BY_NODE = FORMS["tree"]


def version():
    return ov.__version__.split("-")[0]


def build(work, form):
    core = ov.Core()
    model = core.read_model(work.nodes if work.kind == "tree" else work.model)
    model.reshape({p: list(work.inputs[p.get_any_name()].shape) for p in model.inputs})
    compiled = core.compile_model(model, "CPU", {
        "PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": work.threads, "NUM_STREAMS": 1,
        "INFERENCE_PRECISION_HINT": "f32", "ENABLE_CPU_PINNING": False})
    request = compiled.create_infer_request()
    kept = []
    for p in compiled.inputs:
        tensor = ov.Tensor(work.inputs[p.get_any_name()], shared_memory=True)
        kept.append(tensor)
        request.set_tensor(p, tensor)

    def fetch(_, kept=kept):  # the tensors must live as long as the request
        return [request.get_tensor(p).data.copy() for p in compiled.outputs]

    return request.infer, fetch
