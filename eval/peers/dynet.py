"""DyNet on trees: each run builds a graph node by node, as its users do; also with its automatic
batching of equal operations (autobatch)."""
import numpy as np

try:
    import dynet_config
except ImportError as e:
    raise ImportError(f"dynet38: {e}") from e

FORMS = {"tree": ("node by node", "autobatch")}
NODE_BY_NODE = ("node by node",)


def version():
    import importlib.metadata
    return importlib.metadata.version("dynet38")


def build(work, form):
    dynet_config.set(mem=256, autobatch=form == "autobatch", random_seed=1)
    import dynet as dy

    o, w = work.options, work.weights
    cell, n, everywhere = o["cell"], o["hidden"], o["words"] == "all"
    work.kept = collection = dy.ParameterCollection()  # its end would be that of its parameters

    def parameter(a):
        return collection.parameters_from_numpy(np.ascontiguousarray(a, np.float64))

    def lookup(a):
        return collection.lookup_parameters_from_numpy(np.ascontiguousarray(a, np.float64))

    # Vectors are columns here.
    table = plain = None
    if cell in ("treelstm", "treegru", "simpletreegru"):  # words go through their products before
        last = "f" if cell == "treelstm" else "h"
        bias = np.concatenate([w["b"], w[f"b_{last}"]])
        rows = w["embedding"] @ np.concatenate([w["W"], w[f"W_{last}"]], 1) + bias
        table, plain = lookup(rows), parameter(bias)
        u, u_last = parameter(w["U"].T), parameter(w[f"U_{last}"].T)
    elif cell != "rae":
        table = lookup(w["embedding"])
    if cell in ("rae", "treefc"):
        weight, b = parameter(w["W"].T), parameter(w["b"])
    if cell == "mvrnn":
        matrices = lookup(w["matrices"].transpose(0, 2, 1).reshape(len(w["matrices"]), -1))
        w_v, b_v = parameter(w["W_v"].T), parameter(w["b_v"])
        w_m, b_m = parameter(w["W_m"]), parameter(np.tile(w["b_m"], (n, 1)))

    def leaf(x, word):
        if cell == "treelstm":
            c = dy.cmult(dy.logistic(x[:n]), dy.tanh(x[2 * n:3 * n]))
            return dy.cmult(dy.logistic(x[n:2 * n]), dy.tanh(c)), c
        if cell in ("treegru", "simpletreegru"):
            return (dy.cmult(dy.logistic(-x[n:2 * n]), dy.tanh(x[2 * n:3 * n])),)
        if cell == "mvrnn":
            return x, dy.reshape(dy.lookup(matrices, word), (n, n))
        return (x,)

    def inner(x, l, r):
        if cell in ("rae", "treefc"):
            a = dy.affine_transform([b, weight, dy.concatenate([l[0], r[0]])])
            return (dy.tanh(a) if cell == "rae" else dy.rectify(a),)
        if cell == "treernn":
            return (dy.tanh(l[0] + r[0]),)
        if cell == "treelstm":
            a = dy.affine_transform([x[:3 * n], u, l[0] + r[0]])
            io = dy.logistic(a[:2 * n])
            parts = [dy.cmult(io[:n], dy.tanh(a[2 * n:3 * n]))]
            for h, c in (l, r):
                f = dy.logistic(dy.affine_transform([x[3 * n:4 * n], u_last, h]))
                parts.append(dy.cmult(f, c))
            c = dy.esum(parts)
            return dy.cmult(io[n:2 * n], dy.tanh(c)), c
        if cell == "mvrnn":
            both = dy.concatenate([r[1] * l[0], l[1] * r[0]])
            m = dy.concatenate_cols([l[1], r[1]]) * w_m + b_m
            return dy.tanh(dy.affine_transform([b_v, w_v, both])), m
        h = l[0] + r[0]
        a = dy.affine_transform([x[:2 * n], u, h])
        r, z, rest = dy.logistic(a[:n]), a[n:2 * n], x[2 * n:3 * n]
        new = dy.tanh(dy.affine_transform([rest, u_last, dy.cmult(r, h)]))
        new = dy.cmult(dy.logistic(-z), new)  # 1 − σ(z) is σ(−z)
        return (new if cell == "simpletreegru" else new + dy.cmult(dy.logistic(z), h),)

    first, left, right, is_leaf, roots = work.inputs.values()

    def run():
        dy.renew_cg()
        words, l, r, leaves = (first if cell == "rae" else first.tolist()), left.tolist(), \
            right.tolist(), is_leaf.tolist()

        def row(at):
            if cell == "rae":
                return dy.inputTensor(words[at])
            return dy.lookup(table, words[at])

        def f(at):
            if leaves[at]:
                return leaf(row(at), words[at] if cell == "mvrnn" else 0)
            return inner(row(at) if everywhere else plain, f(l[at]), f(r[at]))
        states = [f(at) for at in roots.tolist()]
        dy.forward([v for s in states for v in s])
        return states

    def fetch(states):
        out = []
        for k in range(len(states[0])):
            v = [s[k].npvalue().astype(np.float32) for s in states]
            v = [a if a.ndim == 2 and cell == "mvrnn" else a.reshape(1, n) for a in v]
            out.append(np.stack(v) if len(v) > 1 else v[0])
        return out

    return run, fetch
