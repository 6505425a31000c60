"""The peers of Braid, and Braid, one module each.

A module has
    version()                  what it is
    FORMS {kind: forms}        which kinds of tasks it can compute (tasks.Task.kind), in which forms
    ANY_FILE                   true: it takes ONNX files of every kind; FORMS["*"] is for all
    NODE_BY_NODE               forms that walk a tree node by node
    build(work, form)          makes it ready: returns run() and fetch(what run returned), which
                               gives numpy arrays in the order of the model's outputs; may set
                               work.clock (device.py), where the device's does not fit
It is imported with the threads of the run in the environment (OMP_NUM_THREADS and the like) and the
process bound to as many CPUs.
"""
