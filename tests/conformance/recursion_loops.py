"""Children of a tree's nodes, and recursion that ends where a loop over them makes no iteration, for recursion.py."""
import numpy as np

from models.common import F, Graph, I, f32, i64


def at(g, x, n):
    """Row n of x, its first axis kept."""
    return g.Gather(x, g.Unsqueeze(n, [0]), axis=0)


def many_children(r, nodes=40):
    """first[n], count[n]: the children of a node are consecutive."""
    parent = [0] + sorted(int(r.integers(0, n)) for n in range(1, nodes))
    first, count = np.zeros(nodes, np.int64), np.zeros(nodes, np.int64)
    for n in range(nodes - 1, 0, -1):
        first[parent[n]] = n
        count[parent[n]] += 1
    return first, count


def child_sum(r, collect):
    """A node's result without children is what the loop gives that makes no iteration."""
    g = Graph("child_sum")
    first, count = many_children(r)
    start = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)    # of a node's part of the list of children
    children = np.concatenate([first[n] + np.arange(count[n]) for n in range(len(first))]).astype(np.int64)
    x = g.input("x", F("n", 6))
    names = [g.input("start", I("p")), g.input("children", I("c"))]
    params = ["n", "x", "start", "children"]

    def body(other, op):
        def f(g, n, x, start, children):
            mine = at(g, x, n)
            begin, end = g.Gather(start, n), g.Gather(start, g.Add(n, 1))
            few = g.Sub(end, begin)

            def child(g, i):
                return g.invoke(other, g.Gather(children, g.Add(begin, i)), x, start, children)
            if collect == "carry":
                y = g.loop(few, {"s": (g.Mul(mine, 0.0), F(1, 6))}, lambda g, i, s: ([g.Add(s, child(g, i))], []))[0]
            elif collect == "concat":
                y = g.loop(few, {"s": (mine, F("k", 6))}, lambda g, i, s: ([g.Concat(s, child(g, i), axis=0)], []))[0]
                return [y]
            elif collect == "stack":
                y = g.loop(few, {}, lambda g, i: ([], [(child(g, i), F(1, 6))]))[0]
                y = g.ReduceSum(y, [0], keepdims=0)
            elif collect == "while":
                go = g.Greater(few, 0)
                y = g.loop(None, {"s": (g.Mul(mine, 0.0), F(1, 6))},
                           lambda g, i, s: ([g.Add(s, child(g, i))], [], g.Less(g.Add(i, 1), few)), cond=go)[0]
            elif collect == "scan":
                part = g.Slice(children, g.Unsqueeze(begin, [0]), g.Unsqueeze(end, [0]), [0])

                def step(g, s, c):
                    one = g.invoke(other, c, x, start, children)
                    return [g.Add(s, one)], [(one, F(1, 6))]
                s, ys = g.scan({"s": (g.Mul(mine, 0.0), F(1, 6))}, {"c": (part, I())}, step)
                y = g.Add(s, g.Mul(g.ReduceSum(ys, [0], keepdims=0), 0.5))
            else:    # a loop in a loop: two children each time, and their number in registers
                def outer(g, i, s, m):
                    def inner(g, j, u, v):
                        a, b = g.invoke(other, g.Gather(children, g.Add(begin, g.Add(g.Mul(i, 2), j))), x, start, children, outputs=2)
                        return [g.Add(u, a), g.Add(v, b)], []
                    return g.loop(g.Min(g.Sub(few, g.Mul(i, 2)), g.const(2)), {"u": (s, F(1, 6)), "v": (m, I())}, inner), []
                y, m = g.loop(g.Div(g.Add(few, 1), 2), {"s": (g.Mul(mine, 0.0), F(1, 6)), "m": (g.const(1), I())}, outer)
                return [getattr(g, op)(g.Add(y, mine)), m]
            return [getattr(g, op)(g.Add(y, mine))]
        return f
    two = collect == "mutual"
    nested = collect == "nested"
    if two:
        collect = "carry"
        g.function("f", params, body("h", "Tanh"))
        g.function("h", params, body("f", "Sin"))
    else:
        g.function("f", params, body("f", "Tanh"))
    y = g.invoke("f", 0, x, *names, outputs=2 if nested else 1)
    g.output(g.Identity(y[0] if nested else y, out="y"), F("k", 6))
    v = f32(r.standard_normal((40, 6)))

    def ref(n, k=0):
        parts = [ref(first[n] + i, 1 - k if two else 0) for i in range(count[n])]
        if collect == "concat":
            return np.concatenate([v[n:n + 1]] + parts)
        return (np.tanh, np.sin)[k](v[n:n + 1] + sum(parts, f32(0)) * f32(1.5 if collect == "scan" else 1))
    want = [ref(0)]
    if nested:
        g.output(g.Identity(y[1], out="m"), I())
        want.append(i64(len(v)))
    return g, {"x": v, "start": start, "children": children}, want


def absent_children(r, nodes=40, most=4):
    """Rows of a fixed number of children, of which some are absent (-1): a branch in the loop over them, whose other arm is
    a value of its own; nodes without children, too. Each child counts by the label of its edge."""
    g = Graph("absent_children")
    kids = np.full((nodes, most), -1, np.int64)
    for n in range(1, nodes):
        free = [(p, k) for p in range(n) for k in range(most) if kids[p, k] < 0]
        kids[free[int(r.integers(0, len(free)))]] = n
    label = r.integers(0, 3, (nodes, most))
    x, names = g.input("x", F("n", 6)), [g.input("kids", I("n", most)), g.input("label", I("n", most))]
    weights = f32(r.standard_normal((6, 6)) * 0.4)
    table, none = f32(r.standard_normal((3, 6))), f32(r.standard_normal((1, 6)) * 0.1)
    names += [g.const(weights, "weights"), g.const(table, "table")]

    def f(g, n, x, kids, label, weights, table):
        mine = at(g, x, n)
        row, tags = g.Gather(kids, n, axis=0), g.Gather(label, n, axis=0)

        def child(g, i, s, u):
            c = g.Gather(row, i, axis=0)

            def there(g):
                h = g.invoke("f", c, x, kids, label, weights, table)
                return [g.Mul(g.MatMul(h, weights), at(g, table, g.Gather(tags, i, axis=0))), h]
            p, h = g.branch(g.Less(c, 0), lambda g: [g.const(none), g.Neg(mine)], there)
            return [g.Add(s, p), g.Max(u, h)], []
        s, u = g.loop(most, {"s": (g.Mul(mine, 0.0), F(1, 6)), "u": (mine, F(1, 6))}, child)
        return [g.Tanh(g.Add(g.Add(s, u), mine))]
    g.function("f", ["n", "x", "kids", "label", "weights", "table"], f)
    g.output(g.Identity(g.invoke("f", 0, x, *names), out="y"), F(1, 6))
    v = f32(r.standard_normal((nodes, 6)))

    def ref(n):
        s, u = np.zeros((1, 6)), v[n:n + 1]
        for k in range(most):
            if kids[n, k] < 0:
                s, u = s + none, np.maximum(u, -v[n:n + 1])
            else:
                h = ref(kids[n, k])
                s, u = s + (h @ weights) * table[label[n, k]], np.maximum(u, h)
        return np.tanh(s + u + v[n:n + 1])
    return g, {"x": v, "kids": kids, "label": label}, [f32(ref(0))]
