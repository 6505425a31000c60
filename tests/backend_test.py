"""Models with data beside them, in the layout of the ONNX backend tests, which `braid test` runs."""
import os
import subprocess

import numpy as np
import onnx
from onnx import numpy_helper


def write(folder, model, inputs, outputs):
    """folder/model.onnx and folder/test_data_set_0; inputs and outputs in the model's order, as arrays or TensorProtos."""
    data = os.path.join(folder, "test_data_set_0")
    os.makedirs(data, exist_ok=True)
    onnx.save(model, os.path.join(folder, "model.onnx"))
    for kind, values in (("input", inputs), ("output", outputs)):
        for i, v in enumerate(values):
            proto = v if isinstance(v, onnx.TensorProto) else numpy_helper.from_array(np.asarray(v))
            with open(os.path.join(data, "%s_%d.pb" % (kind, i)), "wb") as f:
                f.write(proto.SerializeToString())


def run(braid, model, feed, folder, *options):
    """Runs a model by `braid run` in an empty folder: None, with the outputs in folder/out, or what went wrong."""
    onnx.save(model, f"{folder}/m.onnx")
    cmd = [braid, "run", f"{folder}/m.onnx", "-o", f"{folder}/out", *options]
    for k, v in feed.items():
        np.save(f"{folder}/{k}.npy", v)
        cmd += ["-i", f"{k}={folder}/{k}.npy"]
    os.mkdir(f"{folder}/out")
    p = subprocess.run(cmd, capture_output=True, text=True)
    return f"exit {p.returncode}: {p.stderr.strip()}" if p.returncode else None
