"""Braid: the compiled library on tensors in device memory, on the stream that has the clock's events."""
import braid_api
import device

if device.here.torch != "cpu":
    import torch  # noqa: F401: for the stream and the clock; takes seconds, here once for all contestants

ANY_FILE = True
FORMS = {"*": ("Braid",)}
SYNCHRONIZATIONS, UNITS = 0, 3  # of stat


def version():
    return "this build"


def build(work, form):
    device.here.begin()
    session = braid_api.session(work.library, work.threads, device.here.stream)
    session.bind(work.inputs)

    def fetch(_):
        session.finish()
        stat = session.model.stat
        work.facts = {"synchronizations": stat(session.handle, SYNCHRONIZATIONS),
                      "units": stat(session.handle, UNITS), "working_bytes": session.working_bytes()}
        return [session.out(name).copy() for name in session.outputs]

    return session.run, fetch
