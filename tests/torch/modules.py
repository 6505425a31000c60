"""Ten small PyTorch modules with loops, conditions, scans, recurrent layers and caches.

Each has inputs(n, seed) -> arguments of forward for the size n, `shapes` (dynamic_shapes of torch.export) and `sizes` to be run
at; the first size is compiled for. What they compute is random, what decides (how often, which way) depends on it.
"""
import torch
import torch.nn.functional as fn
from torch import nn
from torch._higher_order_ops import scan, while_loop
from torch.export import Dim

OPEN = Dim.DYNAMIC


class Case(nn.Module):
    sizes = (5, 3, 9)
    shapes = None
    dynamic = True  # of torch.compile; None: only what is marked, where torch fails with all sizes open

    def random(self, *shape):
        return torch.randn(*shape, generator=self.generator)

    def inputs(self, n, seed=0):
        self.generator = torch.Generator().manual_seed(1000 * seed + n)
        return self.example(n)


class PowerIteration(Case):
    """while_loop: the largest eigenvalue, until it stands still."""
    shapes = {"a": {0: OPEN, 1: OPEN}}

    def __init__(self, width=8):
        super().__init__()

    def example(self, n):
        a = self.random(n, n)
        return (a @ a.T / n + torch.eye(n),)

    def forward(self, a):
        def more(k, v, change):
            return (change > 1e-4) & (k < 60)

        def step(k, v, change):
            w = a @ v
            w = w / w.norm()
            return k + 1, w, (w - v).abs().max()

        v = torch.ones_like(a[0])
        k, v, change = while_loop(more, step, (torch.tensor(0), v / v.norm(), torch.tensor(1.0)))
        return k, v @ (a @ v)


class Gated(Case):
    """cond in cond: which layers run depends on the input."""
    shapes = {"x": {0: OPEN}}

    def __init__(self, width=16):
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(width, width) for _ in range(3))
        self.width = width

    def example(self, n):
        return (self.random(n, self.width) + (n % 3 - 1),)

    def forward(self, x):
        def deep(v):
            return torch.cond(v.mean() > 0.8, lambda w: torch.tanh(self.b(torch.relu(self.a(w)))),
                              lambda w: torch.relu(self.a(w)), (v,))

        return torch.cond(x.sum() > 0, deep, lambda v: self.c(v) - 1, (x,))


class Smoother(Case):
    """scan: an exponential filter with a state for each row."""
    shapes = {"x": {0: OPEN}}

    def __init__(self, width=12):
        super().__init__()
        self.decay, self.mix = nn.Parameter(torch.rand(width)), nn.Linear(width, width)
        self.width = width

    def example(self, n):
        return (self.random(n, 2, self.width),)

    def forward(self, x):
        def step(s, v):
            s = torch.tanh(self.mix(s)) * self.decay + v * (1 - self.decay)
            return s, s * 2

        last, all = scan(step, torch.zeros_like(x[0]), x)
        return last, all


class Tagger(Case):
    """A bidirectional LSTM between an embedding and a layer; batch and time are open."""
    shapes = {"ids": {0: OPEN, 1: OPEN}}

    def __init__(self, width=12, layers=1):
        super().__init__()
        self.table = nn.Embedding(20, width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * width, 5)

    def example(self, n):
        return (torch.randint(0, 20, (n % 3 + 2, n), generator=self.generator),)

    def forward(self, ids):
        y, (h, c) = self.lstm(self.table(ids))
        return {"tags": self.out(y).log_softmax(-1), "state": (h, c)}


class Speaker(Case):
    """A GRU with an initial state; its last state, normalized."""
    shapes = {"x": {0: OPEN}, "h": None}

    def __init__(self, width=12, layers=1):
        super().__init__()
        self.gru, self.out = nn.GRU(6, width, layers), nn.Linear(width, 4)
        self.width, self.layers = width, layers

    def example(self, n):
        return self.random(n, 3, 6), self.random(self.layers, 3, self.width)

    def forward(self, x, h):
        _, h = self.gru(x, h)
        return fn.normalize(self.out(h[-1]), dim=-1), h


class Decoder(Case):
    """A step of a decoder: attention over a cache that grows by one."""
    shapes = {"x": None, "past": {"k": {2: OPEN}, "v": {2: OPEN}}}

    def __init__(self, width=16, heads=2):
        super().__init__()
        self.qkv, self.out, self.norm = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.LayerNorm(width)
        self.width, self.heads = width, heads

    def example(self, n):
        past = self.random(2, self.heads, n, self.width // self.heads)
        return self.random(2, 1, self.width), {"k": past, "v": past * 0.5}

    def forward(self, x, past):
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        k, v = torch.cat([past["k"], k], 2), torch.cat([past["v"], v], 2)
        y = fn.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return x + self.out(y), {"k": k, "v": v}


class EarlyExit(Case):
    """while_loop over the layers of a stack, until a classifier is sure."""
    shapes = {"x": {0: OPEN}}

    def __init__(self, width=16, layers=6):
        super().__init__()
        self.weights = nn.Parameter(torch.randn(layers, width, width) / width ** 0.5)
        self.judge = nn.Linear(width, 3)
        self.width, self.layers = width, layers

    def example(self, n):
        return (self.random(n, self.width) * 2,)

    def forward(self, x):
        def more(k, x, sure):
            return (k < self.layers) & (sure < 0.7)

        def step(k, x, sure):
            x = x + torch.tanh(x @ self.weights.index_select(0, k.reshape(1))[0])
            return k + 1, x, self.judge(x).softmax(-1).amax(-1).mean()

        k, x, sure = while_loop(more, step, (torch.tensor(0), x.clone(), torch.tensor(0.0)))
        return k, self.judge(x)


class Pointer(Case):
    """An attention loop: a query looks at the memory again and again, and moves towards what it sees."""
    shapes = {"query": None, "memory": {0: OPEN}}

    def __init__(self, width=16):
        super().__init__()
        self.cell, self.key = nn.GRUCell(width, width), nn.Linear(width, width)
        self.width = width

    def example(self, n):
        return self.random(1, self.width), self.random(n, self.width)

    def forward(self, query, memory):
        keys = self.key(memory)

        def more(k, q, seen):
            return (k < 12) & (seen.abs().max() < 2.5)

        def step(k, q, seen):
            look = torch.softmax(q @ keys.T / self.width ** 0.5, -1) @ memory
            return k + 1, self.cell(look, q), seen + look

        return while_loop(more, step, (torch.tensor(0), query.clone(), torch.zeros_like(query)))


class Mixture(Case):
    """The two best of four experts for each token, and a shared one that runs only when the gate is unsure."""
    shapes = {"x": {0: OPEN}}

    def __init__(self, width=12, experts=4):
        super().__init__()
        self.gate, self.shared = nn.Linear(width, experts), nn.Linear(width, width)
        self.w = nn.Parameter(torch.randn(experts, width, width) / width ** 0.5)
        self.width = width

    def example(self, n):
        return (self.random(n, self.width) * (n % 4),)

    def forward(self, x):
        p, i = torch.topk(torch.softmax(self.gate(x), -1), 2)
        y = (torch.einsum("nd,nkde->nke", x, self.w[i]) * p.unsqueeze(-1)).sum(1)
        return torch.cond(p[:, 0].mean() < 0.5, lambda x, y: y + self.shared(x), lambda x, y: y.clone(), (x, y))


class Greedy(Case):
    """A greedy decoder: writes the best word until it is the end, with a loop in the loop that sharpens the scores."""
    dynamic = None
    shapes = {"context": {0: OPEN}}

    def __init__(self, width=12, words=11, longest=10):
        super().__init__()
        self.table, self.out, self.cell = nn.Embedding(words, width), nn.Linear(width, words), nn.LSTMCell(width, width)
        self.width, self.longest = width, longest

    def example(self, n):
        return (self.random(n, self.width),)

    def forward(self, context):
        def more(at, word, h, c, tokens):
            return (at < self.longest) & (word != 0)

        def unsure(turn, scores):
            return (turn < 5) & (scores.softmax(-1).max() < 0.9)

        def sharpen(turn, scores):
            return turn + 1, scores * 1.5

        def step(at, word, h, c, tokens):
            look = torch.softmax(context @ h[0], 0) @ context
            h, c = self.cell(self.table(word).unsqueeze(0) + look, (h, c))
            turn, scores = while_loop(unsure, sharpen, (torch.zeros((), dtype=torch.int64), self.out(h)[0]))
            word = (scores + 0.01 * turn).argmax()
            return at + 1, word, h, c, torch.where(torch.arange(self.longest) == at, word, tokens)

        zero = torch.zeros(1, self.width)
        return while_loop(more, step, (torch.tensor(0), torch.tensor(1), zero, zero.clone(), torch.full((self.longest,), -1)))


CASES = (PowerIteration, Gated, Smoother, Tagger, Speaker, Decoder, EarlyExit, Pointer, Mixture, Greedy)


def make(case, **sizes):
    """The module of a case with weights that are always the same."""
    torch.manual_seed(7)
    return case(**sizes).eval()
