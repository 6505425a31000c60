"""Braid: the compiled library, called as a C program calls it."""
import os
import subprocess
import time

import braid_api

ANY_FILE = True
FORMS = {"*": ("kernel",), "tree": ("kernel", "a loop over nodes", "levels")}


def version():
    return "this build"


def library(work, model):
    """The library, compiled next to the model and scheduled for the number of threads."""
    forced = ["--schedule", work.schedule] if work.schedule else []
    path = model.replace(".onnx", f".{work.threads}{work.schedule}.so")
    if not os.path.exists(path):
        begin = time.perf_counter()
        made = subprocess.run([work.braid, "compile", model, "--threads", str(work.threads), *forced,
                               "-o", path], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if made.returncode:
            raise braid_api.BraidError(made.stdout.strip()[-300:])
        work.facts = {"compile_seconds": round(time.perf_counter() - begin, 2)}
    return path


def build(work, form):
    model, inputs = work.for_form(form)
    session = braid_api.Compiled(library(work, model), work.threads)
    session.bind(inputs)

    def fetch(_):
        work.facts = {**getattr(work, "facts", {}),
                      "synchronizations": session.model.stat(session.handle, 0),
                      "working_bytes": session.working_bytes()}
        return [session.out(name).copy() for name in session.outputs]

    return session.run, fetch
