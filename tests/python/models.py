"""Models of the tests, as texts of onnx.parser, and libraries of them."""
import functools
import os
import tempfile

import braid
from onnx import parser

FOLDER = tempfile.TemporaryDirectory()
os.environ.setdefault("BRAID_CACHE", os.path.join(FOLDER.name, "cache"))

HEAD = '<ir_version: 12, opset_import: ["" : 24]> '
NEG = "g (float[2] x) => (float[2] y) { y = Neg(x) }"
ADD = "add (float[N] a, float[N] b) => (float[N] y) { y = Add(a, b) }"
TWO = "two (float[N] x) => (float[N] y, int64[1] n) { y = Neg(x) n = Shape(x) }"
IDENTITY = "same (float[N] x) => (float[N] y) { y = Identity(x) }"
STEP = """step (float[2] input, float[2] state) => (float[2] output, float[2] stateN) {
    stateN = Add(input, state)
    output = Neg(stateN) }"""
OPEN_STEP = """step (float[N] input, float[N] state) => (float[N] output, float[N] stateN) {
    stateN = Add(input, state)
    output = Neg(stateN) }"""
# Counts to n; a run of a billion iterations is one that does not end here.
COUNT = """count (int64 n, float[4] x) => (float[4] y) {
    yes = Constant<value = bool {1}>()
    y = Loop(n, yes, x) <body = body (int64 i, bool go, float[4] v) => (bool more, float[4] w) {
        more = Identity(go)
        s = Sin(v)
        w = Add(s, x) }> }"""
SPLIT = """split (float[N] x) => (seq(float[M]) parts) {
    two = Constant<value = int64 {2}>()
    parts = SplitToSequence<axis = 0>(x, two) }"""
JOIN = "join (seq(float[M]) parts) => (float[K] y) { y = ConcatFromSequence<axis = 0>(parts) }"
MAYBE = """maybe (optional(float[2]) x) => (bool has, float[2] y) {
    has = OptionalHasElement(x)
    y = If(has) <then_branch = some () => (float[2] a) { a = OptionalGetElement(x) },
                 else_branch = none () => (float[2] b) { b = Constant<value = float[2] {7, 8}>() }> }"""
MAYBE_ADD = """maybe_add (float[N] x, optional(float[N]) z) => (float[N] y) {
    has = OptionalHasElement(z)
    y = If(has) <then_branch = some () => (float[N] a) { e = OptionalGetElement(z)  a = Add(x, e) },
                 else_branch = none () => (float[N] b) { b = Neg(x) }> }"""
WRAP = "wrap (float[2] x) => (optional(float[2]) y) { y = Optional(x) }"
PICK = "pick (float[4] x, int64 i) => (float y) { y = Gather(x, i) }"
DRAW = "draw (float[4] x) => (float[4] y) { y = RandomNormalLike(x) }"


def move(dtype):
    """Moves elements, whatever they are."""
    return f"move ({dtype}[A, B] x) => ({dtype}[B, A] y) {{ y = Transpose<perm = [1, 0]>(x) }}"


def source(text):
    return parser.parse_model(HEAD + text).SerializeToString()


@functools.cache
def library(text, target="interp", **options):
    return braid.compile(source(text), target=target, progress=False, **options)


def carried(text, target="interp"):
    return braid.compile(source(text), target=target, progress=False, carry={"state": "stateN"})
