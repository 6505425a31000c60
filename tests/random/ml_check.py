#!/usr/bin/env python3
"""Compares random models of ai.onnx.ml with ONNX Runtime, and asks for the messages that wrong ones get.

    ml_check.py [MODELS] [--seed S] [--braid PATH]

Model number i is made from seed S + i alone. Every fourth has TreeEnsembles of opset 5, the others every older operator, with
random attributes and inputs of its own.
All run on the interpreter, every fifth one on the CPU, the first one on an emulated GPU.
"""
import argparse
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto as T
from onnx import helper, numpy_helper

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../eval"))
import braid_api  # noqa: E402

ort.set_default_logger_severity(4)
MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
POSTS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"]
ML = "ai.onnx.ml"


def number(x):
    return float(np.float32(x))


class Maker:
    """A random model."""

    def __init__(self, seed):
        self.opset = 5 if seed % 4 == 0 else 4
        self.r = np.random.default_rng(seed)
        self.nodes, self.inputs, self.outputs, self.feed = [], [], [], {}
        for part in [self.ensemble] * 4 if self.opset == 5 else (self.regressor, self.classifier, self.linear, self.svm_regressor,
                                                                 self.svm_classifier, self.features, self.encoders):
            part()

    def pick(self, *v):
        return v[self.r.integers(len(v))]

    def floats(self, n, scale=1.0):
        return [number(v) for v in self.r.standard_normal(n) * scale]

    def input(self, x):
        name = "x%d" % len(self.inputs)
        self.inputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype),
                                                         [None] * x.ndim if x.ndim != 2 else [None, x.shape[1]]))
        self.feed[name] = x
        return name

    def rows(self, features, dtype=None):
        """Features on a grid that thresholds meet, with NaN and infinities."""
        n = int(self.pick(1, 3, 17))
        x = np.round(self.r.standard_normal((n, features)) * 2) / 2
        dtype = dtype or self.pick(np.float32, np.float32, np.float64, np.int64, np.int32)
        if not np.issubdtype(dtype, np.integer):
            x[self.r.random(x.shape) < 0.05] = np.nan
            x[self.r.random(x.shape) < 0.02] = np.inf
            x[self.r.random(x.shape) < 0.02] = -np.inf
        return x.astype(dtype)

    def clean(self, features, dtype=None):
        """Features without NaN."""
        x = self.r.standard_normal((int(self.pick(1, 2, 9)), features)) * 2
        return x.astype(dtype or self.pick(np.float32, np.float64, np.int64, np.int32))

    def node(self, op, inputs, types, **attrs):
        names = ["%s_%d_%d" % (op, len(self.nodes), i) for i in range(len(types))]
        self.nodes.append(helper.make_node(op, inputs, names, domain=ML, **attrs))
        self.outputs += [helper.make_tensor_value_info(n, t, None) for n, t in zip(names, types)]

    def model(self):
        graph = helper.make_graph(self.nodes, "g", self.inputs, self.outputs)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid(ML, self.opset)], ir_version=10)

    # ---- trees ----
    def tree(self, depth):
        """A tree as nested tuples: None is a leaf."""
        if depth == 0 or self.r.random() < 0.2:
            return None
        return self.tree(depth - 1), self.tree(depth - 1)

    def forest(self, features, prefix, ids, scale=1.0, positive=False):
        """Attributes of a forest; ids: for each tree the targets that its leaves have weights of."""
        a = {k: [] for k in ("nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_values", "nodes_modes", "nodes_truenodeids",
                             "nodes_falsenodeids", "nodes_missing_value_tracks_true")}
        w = {k: [] for k in ("treeids", "nodeids", "ids", "weights")}
        modes = self.pick(["BRANCH_LEQ"], ["BRANCH_LT"], ["BRANCH_GT", "BRANCH_GTE"], MODES)
        track = self.pick(0.0, 0.0, 0.5, 1.0)

        def add(t, node):
            i, at = sum(k == t for k in a["nodes_treeids"]), len(a["nodes_treeids"])
            for k, v in (("treeids", t), ("nodeids", i), ("featureids", int(self.r.integers(features)) if node else 0),
                         ("values", number(np.round(self.r.standard_normal() * 2) / 2) if node else 0.0),
                         ("modes", self.pick(*modes) if node else "LEAF"), ("truenodeids", 0), ("falsenodeids", 0),
                         ("missing_value_tracks_true", int(self.r.random() < track))):
                a["nodes_" + k].append(v)
            if node:
                a["nodes_truenodeids"][at] = add(t, node[0])
                a["nodes_falsenodeids"][at] = add(t, node[1])
            else:
                for k in ids[t]:
                    v = number(self.r.standard_normal() * scale)
                    for key, value in zip(w, (t, i, k, abs(v) if positive else v)):
                        w[key].append(value)
            return i

        for t in range(len(ids)):
            add(t, self.tree(int(self.pick(0, 1, 3, 5, 20 if t == 0 else 6))) if t else self.deep())
        return {**a, **{prefix + "_" + k: v for k, v in w.items()}}

    def deep(self):
        """Now and then one that is walked in a loop."""
        tree = None
        for _ in range(int(self.pick(1, 2, 16, 17, 40))):
            tree = self.pick((tree, None), (None, tree))
        return tree

    def regressor(self):
        targets, features = int(self.pick(1, 1, 3)), int(self.pick(1, 4, 9))
        how = self.pick("SUM", "AVERAGE", "MIN", "MAX")
        ids = [list(range(targets)) for _ in range(int(self.pick(1, 3, 8)))]
        more = {"base_values": self.floats(targets)} if self.r.random() < 0.5 else {}
        self.node("TreeEnsembleRegressor", [self.input(self.rows(features, self.pick(np.float32, np.float32, np.float64)))], [T.FLOAT], n_targets=targets, aggregate_function=how,
                  post_transform=self.pick(*POSTS), **self.forest(features, "target", ids), **more)

    def classifier(self):
        classes, features, trees = int(self.pick(2, 2, 3, 5)), int(self.pick(2, 6)), int(self.pick(1, 4, 9))
        positive = bool(self.r.random() < 0.5)
        if classes == 2:
            one = int(self.pick(0, 0, 0, 1))
            ids = [[one] for _ in range(trees)]
        elif self.r.random() < 0.5:
            trees = max(trees, classes)
            ids = [[t % classes] for t in range(trees)]
        else:
            ids = [list(range(classes)) for _ in range(trees)]
        base = self.floats(1 if classes == 2 else classes)
        more = {"base_values": base} if self.r.random() < 0.3 and ids[0] != [1] else {}
        labels = [int(v) for v in self.r.permutation(20)[:classes] - 5]
        self.node("TreeEnsembleClassifier", [self.input(self.rows(features))], [T.INT64, T.FLOAT], classlabels_int64s=labels,
                  post_transform=self.pick(*POSTS),
                  **self.forest(features, "class", ids, 1.0 / trees, positive), **more)

    def ensemble(self):
        """The form of opset 5, with sets."""
        features, targets = int(self.pick(2, 5)), int(self.pick(1, 2))
        t, dt = self.pick((T.FLOAT, np.float32), (T.DOUBLE, np.float64))
        nodes, leaves, members, roots = [], [], [], []

        def add(tree):
            if tree is None:
                leaves.append((int(self.r.integers(targets)), number(self.r.standard_normal())))
                return len(leaves) - 1, 1
            at = len(nodes)
            mode = int(self.r.integers(7))
            nodes.append(None)
            if mode == 6:
                members.extend([number(v) for v in self.r.permutation(9)[:int(self.pick(1, 3))] - 3.0] + [np.nan])
            yes, no = add(tree[0]), add(tree[1])
            nodes[at] = (mode, int(self.r.integers(features)), number(np.round(self.r.standard_normal() * 2) / 2), yes, no,
                         int(self.r.random() < 0.3))
            return at, 0

        for _ in range(int(self.pick(1, 4))):
            roots.append(len(nodes))
            add(self.tree(4) or (None, None))
        cols = list(zip(*nodes))
        tensor = lambda v, d: numpy_helper.from_array(np.array(v, d), "t")  # noqa: E731
        more = {"membership_values": tensor(members, dt)} if members else {}
        x = np.round(self.rows(features, dt))  # ONNX Runtime finds whole numbers only in sets
        x[np.isinf(x)] = 3
        self.node("TreeEnsemble", [self.input(x)], [t], n_targets=targets,
                  aggregate_function=int(self.pick(1, 1, 2, 3)), post_transform=0, tree_roots=roots,
                  nodes_modes=tensor(cols[0], np.uint8), nodes_featureids=cols[1], nodes_splits=tensor(cols[2], dt),
                  nodes_truenodeids=[v[0] for v in cols[3]], nodes_trueleafs=[v[1] for v in cols[3]],
                  nodes_falsenodeids=[v[0] for v in cols[4]], nodes_falseleafs=[v[1] for v in cols[4]],
                  nodes_missing_value_tracks_true=cols[5],
                  leaf_targetids=[v[0] for v in leaves], leaf_weights=tensor([v[1] for v in leaves], dt), **more)

    # ---- linear models ----
    def linear(self):
        features, n = int(self.pick(1, 7)), int(self.pick(1, 2, 4))
        more = {"intercepts": self.floats(n)} if self.r.random() < 0.7 else {}
        self.node("LinearRegressor", [self.input(self.clean(features, np.float32))], [T.FLOAT], coefficients=self.floats(n * features), targets=n,
                  post_transform=self.pick(*POSTS), **more)
        n = int(self.pick(1, 2, 4))
        self.node("LinearClassifier", [self.input(self.clean(features))], [T.INT64, T.FLOAT], coefficients=self.floats(n * features),
                  intercepts=self.floats(n), classlabels_ints=[7, 3] if n == 1 else list(range(5, 5 + n)),
                  post_transform=self.pick(*POSTS) if n > 1 else self.pick("NONE", "LOGISTIC"))

    def kernel(self):
        kind = self.pick("LINEAR", "POLY", "RBF", "SIGMOID")
        return {"kernel_type": kind, "kernel_params": [number(0.1 + 0.2 * self.r.random()), number(self.r.random()), float(self.pick(2, 3))]}

    def svm_regressor(self):
        features, n = int(self.pick(1, 5)), int(self.pick(0, 4, 9))
        self.node("SVMRegressor", [self.input(self.clean(features, np.float32))], [T.FLOAT], n_supports=n,
                  support_vectors=self.floats(n * features) if n else None, coefficients=self.floats(n or features), rho=self.floats(1),
                  one_class=int(self.pick(0, 0, 1)), **self.kernel())

    def svm_classifier(self):
        features, classes = int(self.pick(2, 5)), int(self.pick(2, 3, 4))
        x = [self.input(self.clean(features))]
        labels = [int(v) for v in self.r.permutation(9)[:classes]]
        count = [int(v) for v in self.r.integers(1, 4, classes)]
        n, pairs = sum(count), classes * (classes - 1) // 2
        proba = {"prob_a": [-abs(v) for v in self.floats(pairs)], "prob_b": self.floats(pairs)} if self.r.random() < 0.5 else {}
        self.node("SVMClassifier", x, [T.INT64, T.FLOAT], classlabels_ints=labels, vectors_per_class=count,
                  support_vectors=self.floats(n * features), coefficients=self.floats(n * (classes - 1)), rho=self.floats(pairs),
                  post_transform=self.pick("NONE", "LOGISTIC", "SOFTMAX") if classes > 2 or proba else self.pick("NONE", "NONE", "LOGISTIC"),
                  **self.kernel(), **proba)
        self.node("SVMClassifier", x, [T.INT64, T.FLOAT], classlabels_ints=labels, coefficients=self.floats(classes * features), rho=self.floats(1),
                  post_transform=self.pick("NONE", "SOFTMAX"), kernel_type="LINEAR", kernel_params=[0.0, 0.0, 0.0])

    # ---- features ----
    def features(self):
        n = int(self.pick(1, 3, 6))
        one = self.pick(1, n)
        self.node("Scaler", [self.input(self.clean(n))], [T.FLOAT], scale=self.floats(one), offset=self.floats(one))
        x = self.clean(n)
        x[0] = 0
        self.node("Normalizer", [self.input(x)], [T.FLOAT], norm=self.pick("MAX", "L1", "L2"))
        x = self.rows(n, np.float32)
        self.node("Imputer", [self.input(x)], [helper.np_dtype_to_tensor_dtype(x.dtype)], imputed_value_floats=self.floats(one),
                  replaced_value_float=self.pick(float("nan"), 0.5))
        x = np.round(self.clean(n, np.float64)).astype(np.int64)
        self.node("Imputer", [self.input(x)], [T.INT64], imputed_value_int64s=[7] * one, replaced_value_int64=1)
        self.node("Binarizer", [self.input(self.clean(n, np.float32))], [T.FLOAT], threshold=self.floats(1)[0])
        x = self.clean(n)
        at = self.r.integers(0, n, (1, int(self.pick(1, 4))))
        self.node("ArrayFeatureExtractor", [self.input(x), self.input(at)], [helper.np_dtype_to_tensor_dtype(x.dtype)])
        t = self.pick(np.float32, np.float64, np.int64)
        rows = self.r.integers(1, 5)
        parts = [self.r.standard_normal((rows, k)).astype(t) for k in (n, 2)]
        self.node("FeatureVectorizer", [self.input(p) for p in parts], [T.FLOAT], inputdimensions=[n, 2])

    def encoders(self):
        x = self.r.integers(-3, 6, (2, 4)).astype(self.pick(np.int64, np.float32, np.float64))
        self.node("OneHotEncoder", [self.input(x)], [T.FLOAT], cats_int64s=[int(v) for v in self.r.permutation(9)[:5] - 3])
        n = int(self.pick(1, 2, 7, 8))
        keys = self.r.permutation(12)[:n] - 4
        x = self.r.integers(-5, 9, (3, 5))
        self.node("LabelEncoder", [self.input(x)], [T.FLOAT], keys_int64s=keys, values_floats=self.floats(n), default_float=0.25)
        self.node("LabelEncoder", [self.input(x)], [T.INT64], keys_int64s=keys, values_int64s=[int(v) for v in keys * 3])
        y = x.astype(np.float32)
        y[0, 0] = np.nan
        keys = [float(k) for k in keys] + ([float("nan")] if self.r.random() < 0.5 else [])
        self.node("LabelEncoder", [self.input(y)], [T.INT64], keys_floats=keys, values_int64s=list(range(len(keys))), default_int64=-7)
        t, d = T.DOUBLE, np.float64
        tensor = lambda v: numpy_helper.from_array(np.array(v, d), "t")  # noqa: E731
        self.node("LabelEncoder", [self.input(x.astype(d))], [t], keys_tensor=tensor([k for k in keys if k == k]), default_tensor=tensor([-9]),
                  values_tensor=tensor(range(sum(k == k for k in keys))))


def without_none(model):
    for n in model.graph.node:
        keep = [a for a in n.attribute if a.type != onnx.AttributeProto.UNDEFINED]
        del n.attribute[:]
        n.attribute.extend(keep)
    return model


def compare(seed, target, folder, api):
    path = os.path.join(folder, "model%d.onnx" % seed)
    made = Maker(seed)
    model = without_none(made.model())
    onnx.save(model, path)
    want = ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, made.feed)
    got = braid_api.Session(braid_api.Model(api, path, target)).run(made.feed)
    bad = []
    for o, w in zip(model.graph.output, want):
        g = got[o.name]
        same = g.dtype == w.dtype and g.shape == w.shape and \
            (np.allclose(g, w, rtol=2e-4, atol=2e-5, equal_nan=True) if w.dtype.kind == "f" else np.array_equal(g, w))
        if not same:
            node = next(n for n in model.graph.node if o.name in n.output)
            attrs = {a.name: helper.get_attribute_value(a) for a in node.attribute if not a.floats and not a.ints and not a.strings and not a.t.name}
            bad.append("seed %d, %s: %s %s is %s %s %s, expected %s %s %s" %
                       (seed, target, o.name, attrs, g.dtype, g.shape, g.ravel()[:6], w.dtype, w.shape, w.ravel()[:6]))
    return bad


STUMP = dict(nodes_treeids=[0, 0, 0], nodes_nodeids=[0, 1, 2], nodes_featureids=[1, 0, 0], nodes_values=[0.5, 0.0, 0.0],
             nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"], nodes_truenodeids=[1, 0, 0], nodes_falsenodeids=[2, 0, 0], target_treeids=[0, 0],
             target_nodeids=[1, 2], target_ids=[0, 0], target_weights=[1.0, 2.0], n_targets=1)
FAULTS = [
    ("TreeEnsembleRegressor", {**STUMP, "nodes_truenodeids": [0, 0, 0]}, "lead back"),
    ("TreeEnsembleRegressor", {**STUMP, "nodes_modes": ["BRANCH_LEQ", "BRANCH_LEQ", "LEAF"], "nodes_truenodeids": [1, 0, 0],
                               "nodes_falsenodeids": [2, 2, 0]}, "no root"),
    ("TreeEnsembleRegressor", {**STUMP, "nodes_truenodeids": [9, 0, 0]}, "names node 9 of tree 0"),
    ("TreeEnsembleRegressor", {**STUMP, "nodes_nodeids": [0, 1, 1]}, "given twice"),
    ("TreeEnsembleRegressor", {**STUMP, "nodes_values": [0.5]}, "nodes_values must have 3 entries"),
    ("TreeEnsembleRegressor", {**STUMP, "nodes_featureids": [1, 0]}, "nodes_featureids has 2 entries"),
    ("TreeEnsembleRegressor", {**STUMP, "nodes_featureids": [-1, 0, 0]}, "asks for feature -1"),
    ("TreeEnsembleRegressor", {**STUMP, "nodes_featureids": [7, 0, 0]}, "ask for 8 features"),
    ("TreeEnsembleRegressor", {**STUMP, "nodes_modes": ["BRANCH", "LEAF", "LEAF"]}, "nodes_modes has 'BRANCH'"),
    ("TreeEnsembleRegressor", {**STUMP, "target_ids": [0, 5]}, "target_ids has 5"),
    ("TreeEnsembleRegressor", {**STUMP, "target_nodeids": [1, 3]}, "names node 3"),
    ("TreeEnsembleRegressor", {**STUMP, "n_targets": -1}, "-1 targets"),
    ("TreeEnsembleRegressor", {**STUMP, "n_targets": 1 << 40}, "weights of 2 leaves"),
    ("TreeEnsembleRegressor", {**STUMP, "base_values": [1.0, 2.0]}, "base_values has 2 entries"),
    ("TreeEnsembleRegressor", {}, "no trees"),
    ("LinearRegressor", {"coefficients": [1.0, 2.0, 3.0]}, "for 3 features"),
    ("LinearRegressor", {"coefficients": [1.0, 2.0, 3.0], "targets": 2}, "do not fit 2 targets"),
    ("SVMRegressor", {"coefficients": [1.0], "rho": [0.0], "n_supports": 2, "support_vectors": [1.0, 2.0]}, "do not fit 2 vectors"),
    ("SVMRegressor", {"coefficients": [1.0, 2.0], "rho": [0.0], "kernel_params": [1.0]}, "kernel_params"),
    ("Scaler", {"scale": [1.0, 2.0, 3.0], "offset": [0.0]}, "another number of features"),
    ("OneHotEncoder", {"cats_strings": ["a"]}, "cats_strings: strings"),
    ("LabelEncoder", {"keys_floats": [1.0, 2.0], "values_floats": [1.0]}, "2 keys and 1 values"),
    ("LabelEncoder", {"keys_int64s": [1], "values_floats": [1.0]}, "the keys are int64"),
    ("LabelEncoder", {"keys_strings": ["a"], "values_int64s": [1]}, "keys_strings: strings"),
]
CLASSIFIERS = [
    ("TreeEnsembleClassifier", {**{k.replace("target_", "class_"): v for k, v in STUMP.items() if k != "n_targets"},
                                "classlabels_strings": ["a", "b"]}, "classlabels_strings: strings"),
    ("LinearClassifier", {"coefficients": [1.0, 2.0], "intercepts": [0.0], "classlabels_strings": ["a", "b"]}, "classlabels_strings: strings"),
    ("SVMClassifier", {"coefficients": [1.0, 2.0, 3.0], "rho": [0.0], "vectors_per_class": [1, 2], "support_vectors": [0.0] * 6,
                       "classlabels_ints": [0, 1, 2]}, "vectors_per_class must have 3"),
    ("SVMClassifier", {"coefficients": [1.0], "rho": [0.0], "vectors_per_class": [1, 2], "support_vectors": [0.0] * 6,
                       "classlabels_ints": [0, 1]}, "too few"),
]


def faults(braid, folder):
    x = helper.make_tensor_value_info("x", T.FLOAT, [1, 2])
    for i, (op, attrs, word) in enumerate(FAULTS + CLASSIFIERS):
        two = op in [c[0] for c in CLASSIFIERS]
        outs = [("l", T.INT64), ("y", T.FLOAT)] if two else [("y", T.INT64 if "values_int64s" in attrs else T.FLOAT)]
        graph = helper.make_graph([helper.make_node(op, ["x"], [n for n, _ in outs], domain=ML, **attrs)], "g", [x],
                                  [helper.make_tensor_value_info(n, t, None) for n, t in outs])
        path = os.path.join(folder, "wrong.onnx")
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid(ML, 3)], ir_version=10), path)
        r = subprocess.run([braid, "bench", path, "--target", "interp"], capture_output=True, text=True, timeout=20)
        if r.returncode != 1 or word not in r.stderr:
            raise SystemExit("FAIL: %s %d: no word of '%s': %s" % (op, i, word, r.stderr.strip() or "no error"))
    return len(FAULTS + CLASSIFIERS)


def zip_map(braid, folder):
    """The maps' scores come as the tensor that they are made of."""
    maps = helper.make_sequence_type_proto(helper.make_map_type_proto(T.INT64, helper.make_tensor_type_proto(T.FLOAT, [])))
    graph = helper.make_graph(
        [helper.make_node("TreeEnsembleClassifier", ["x"], ["label", "p"], domain=ML, classlabels_int64s=[4, 9],
                          **{k.replace("target_", "class_"): v for k, v in STUMP.items() if k != "n_targets"}),
         helper.make_node("ZipMap", ["p"], ["z"], domain=ML, classlabels_int64s=[4, 9])], "g",
        [helper.make_tensor_value_info("x", T.FLOAT, ["n", 2])],
        [helper.make_tensor_value_info("label", T.INT64, ["n"]), helper.make_value_info("z", maps)])
    path, out = os.path.join(folder, "zip.onnx"), os.path.join(folder, "zip")
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid(ML, 3)], ir_version=10), path)
    x = np.array([[0, 0.25], [0, 0.75]], np.float32)
    np.save(os.path.join(folder, "x.npy"), x)
    label, want = ort.InferenceSession(path).run(None, {"x": x})
    for target in ("interp", "cpu"):
        subprocess.run([braid, "run", path, "--target", target, "-i", "x=" + os.path.join(folder, "x.npy"), "-o", out], check=True)
        got = np.load(os.path.join(out, "output_1.npy"))
        if not np.array_equal(np.load(os.path.join(out, "output_0.npy")), label) or \
                not np.allclose(got, [[m[4], m[9]] for m in want]):
            raise SystemExit("FAIL: ZipMap on %s: %s, expected %s" % (target, got, want))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("models", nargs="?", type=int, default=26)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--braid", default="build/release/braid")
    args = p.parse_args()
    api = braid_api.Api(os.path.join(os.path.dirname(args.braid), "libbraid.so"))
    bad, runs = [], 0
    with tempfile.TemporaryDirectory() as folder:
        for i in range(args.models):
            targets = ["interp"] + ["cpu"] * (i % 5 == 0) + ["emulate:cuda"] * (i == 0)
            for target in targets:
                bad += compare(args.seed + i, target, folder, api)
                runs += 1
        n = faults(args.braid, folder)
        zip_map(args.braid, folder)
    if bad:
        print("\n".join(bad[:20]))
        raise SystemExit("FAIL: %d outputs differ from ONNX Runtime's" % len(bad))
    print("%d models with every operator run as by ONNX Runtime, %d runs; %d wrong ones get their messages" % (args.models, runs, n))


if __name__ == "__main__":
    main()
