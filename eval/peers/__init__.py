"""The peers of Braid, and Braid, one module each.

A module has
    version()                  its name and version
    FORMS {kind: forms}        the kinds of tasks that it can compute (tasks.Task.kind), and in which forms
    ANY_FILE                   true: it runs ONNX files of every kind; FORMS["*"] is for all
    NODE_BY_NODE               forms that process a tree node by node
    build(work, form)          prepares it; returns run() and fetch(result of run), which returns
                               numpy arrays in the order of the model's outputs. It may set
                               work.clock (device.py) if the device's clock does not fit
When it is imported, the environment has the number of threads (OMP_NUM_THREADS and the like), and the
process is bound to as many CPUs.
"""
