"""JAX: jit on the GPU. It enqueues runs on its own streams, where no events of others can be recorded."""
import os

import device

os.environ.setdefault("JAX_PLATFORMS", device.here.jax)

import jax  # noqa: E402: after the settings

from peers import jax as base  # noqa: E402

version = base.version
IN_GRAPHS = "JAX, jit, loops in CUDA graphs"
XLA = {"xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUBLASLT,CUDNN,CONDITIONAL,WHILE"}
NAMES = {"jit": "JAX, jit", f"jit, unrolled by {base.UNROLL}": f"JAX, jit, unrolled by {base.UNROLL}",
         "jit, a loop over nodes": "JAX, jit"}
FORMS = {kind: {**{NAMES[form]: (form, None) for form in forms if form in NAMES}, IN_GRAPHS: (next(iter(forms)), XLA)}
         for kind, forms in base.FORMS.items()}
NODE_BY_NODE = base.NODE_BY_NODE
fetch = base.fetch


def build(work, form):
    jax.config.update("jax_default_matmul_precision", "highest")  # all compute in float32
    compute = base.program(work, *FORMS[work.kind][form])
    last = None

    def run():
        nonlocal last
        last = compute()
        return last

    work.clock = device.here.clock(lambda: jax.block_until_ready(last))
    return run, fetch
