"""PyTorch with CUDA graphs.

If the control flow is known beforehand, the whole run is one graph. If it depends on data, each step or
block is a graph that leaves the condition on the host; the host waits for it and chooses the next graph.
Inputs stay at the same place in all runs, so that no graph has to copy them.
"""
import torch

import device
from peers import pytorch_branches as branches
from peers import pytorch_loops as loops


def plain(f):
    return f


def whole(make):
    """One graph of the program that make(work) returns."""
    def build(work):
        forward, replay = make(work), None

        def call(*inputs):
            nonlocal replay
            replay = replay or device.here.captured(lambda: forward(*inputs))
            return replay()
        return call
    return build


class Told:
    """A value that the device leaves on the host."""

    def __init__(self, like):
        self.values = device.here.pinned(like)

    def tell(self, values):
        self.values.copy_(values, non_blocking=True)

    def ask(self):
        device.here.wait()
        return self.values.tolist()


class Program:
    """`make` prepares the graphs once the inputs exist; all state then stays at its place."""
    made = False

    def __init__(self, work, wrap):
        self.work, self.wrap = work, wrap

    def __call__(self, *inputs):
        if not self.made:
            self.make(*inputs)
            self.made = True
        return self.run()


class Seq2seq(Program):
    def make(self, std, h0, c0):
        weights, captured = loops.seq2seq_weights(self.work), device.here.captured
        self.limit, batch = std.shape[:2]
        self.out = torch.zeros(self.limit, batch, dtype=torch.int64, device=std.device)
        n = torch.zeros(1, dtype=torch.int64, device=std.device)
        tok, h, c = torch.ones_like(self.out[0]), h0.clone(), c0.clone()
        self.more = Told(tok[0] > 0)

        def begin():
            self.out.zero_(), n.zero_(), tok.fill_(1), h.copy_(h0), c.copy_(c0)

        def step(std, n, tok, h, c, out):
            new, h_new, c_new = loops.seq2seq_token(tok, std.index_select(0, n)[0], h, c, *weights)
            tok.copy_(new), h.copy_(h_new), c.copy_(c_new)
            out.index_copy_(0, n, new.unsqueeze(0))
            n.add_(1)
            return new.max() > 0

        step = self.wrap(step)
        self.begin = captured(begin)
        self.begin()
        self.step = captured(lambda: self.more.tell(step(std, n, tok, h, c, self.out)))

    def run(self):
        self.begin()
        for _ in range(self.limit):
            self.step()
            if not self.more.ask():
                break
        return self.out


class Rnnt(Program):
    MOST = 10  # labels of a frame

    def make(self, frames):
        w_e, b_j, w_state, table, w_o, b_o = loops.rnnt_weights(self.work)
        captured, where = device.here.captured, frames.device
        self.length, batch, width = frames.shape
        hidden = w_state.shape[0]

        def zeros(*shape, dtype=torch.float32):
            return torch.zeros(*shape, dtype=dtype, device=where)
        encoded = zeros(self.length, batch, hidden)
        h, c, of_state = zeros(batch, hidden), zeros(batch, hidden), zeros(batch, w_state.shape[1])
        self.out = zeros(batch, self.length * self.MOST + 1, dtype=torch.int64)
        self.count, label = zeros(batch, dtype=torch.int64), zeros(batch, dtype=torch.int64)
        active, t = zeros(batch, dtype=torch.bool), zeros(1, dtype=torch.int64)
        self.any = Told(active[0])

        def begin():
            encoded.copy_(torch.addmm(b_j, frames.view(-1, width), w_e).view_as(encoded))
            for v in (h, c, of_state, self.out, self.count):
                v.zero_()
            t.fill_(-1)

        def join(t, active, label, of_state):
            joint = torch.tanh(encoded.index_select(0, t)[0] + of_state[:, :hidden])
            label.copy_(torch.argmax(torch.addmm(b_o, joint, w_o), 1))
            active.logical_and_(label != 0)
            return active.any()

        def frame(t, active, label, of_state):
            t.add_(1)
            active.fill_(True)
            return join(t, active, label, of_state)

        def emit(t, active, label, of_state, h, c, out, count):
            h_new, c_new = loops.lstm_gates(table[label] + of_state[:, hidden:], c)
            who = active.unsqueeze(1)
            h.copy_(torch.where(who, h_new, h)), c.copy_(torch.where(who, c_new, c))
            of_state.copy_(h @ w_state)
            out.scatter_(1, count.unsqueeze(1), torch.where(active, label, 0).unsqueeze(1))
            count.add_(active)
            return join(t, active, label, of_state)

        frame, emit = self.wrap(frame), self.wrap(emit)
        self.begin = captured(begin)
        self.begin()
        self.frame = captured(lambda: self.any.tell(frame(t, active, label, of_state)))
        self.begin()
        self.frame()
        self.emit = captured(lambda: self.any.tell(
            emit(t, active, label, of_state, h, c, self.out, self.count)))

    def run(self):
        self.begin()
        for _ in range(self.length):
            self.frame()
            for _ in range(self.MOST):
                if not self.any.ask():
                    break
                self.emit()
        return self.out, self.count


class BlockDrop(Program):
    """A block works in place, or, if the size changes, writes to the memory of the next stage."""

    def make(self, x, probs=None):
        captured, wrap = device.here.captured, self.wrap
        net = branches.blockdrop_net(self.work)
        policy = None
        if probs is None:
            policy, net = wrap(net.policy), net.net
        stem, head = wrap(net.stem), wrap(net.head)

        def decide():
            image = branches.arranged(x)
            return stem(image), (probs if policy is None else policy(image)) >= 0.5
        v, m = (t.clone() for t in decide())
        self.told = Told(m.any(0))

        def begin():
            for to, new in zip((v, m), decide()):
                to.copy_(new)
            self.told.tell(m.any(0))
        self.begin = captured(begin)
        self.blocks, at = [], v
        for i, skipped in enumerate(net.blocks):
            to = at if skipped.block.stride == 1 else skipped.block.shortcut(at).clone()
            self.blocks.append((self.skip(skipped, at, to), self.block(skipped, i, at, to, m)))
            at = to
        self.end = captured(lambda: head(at.mean([2, 3])))

    def skip(self, skipped, at, to):
        if to is at:
            return None
        return device.here.captured(lambda: to.copy_(skipped.block.shortcut(at)))

    def block(self, skipped, i, at, to, m):
        block = self.wrap(skipped.block)

        def run():
            y = block(at)
            if len(at) > 1:
                y = torch.where(m[:, i].view(-1, 1, 1, 1), y, skipped.block.shortcut(at))
            to.copy_(y)
        return device.here.captured(run)

    def run(self):
        self.begin()
        for (skip, block), wanted in zip(self.blocks, self.told.ask()):
            if wanted:
                block()
            elif skip:
                skip()
        return self.end()


class SkipNet(Program):
    def make(self, x):
        captured, wrap = device.here.captured, self.wrap
        net = branches.SkipNet(self.work).eval()
        stem, head = wrap(net.stem), wrap(net.head)

        def trunk():
            return torch.nn.functional.max_pool2d(stem(branches.arranged(x)), 3, 2, 1)
        at = first = trunk().clone()
        h, c = (net.zero.expand(len(x), -1).clone() for _ in range(2))
        m = torch.ones(len(x), 1, dtype=torch.bool, device=x.device)
        self.any = Told(m.any())

        def begin():
            first.copy_(trunk())
            h.zero_(), c.zero_(), m.fill_(True)
        self.begin = captured(begin)
        self.stages = []
        for stage in net.stages:
            plain_down = isinstance(stage.down, torch.nn.Identity)
            to = at if plain_down else stage.down(at).clone()
            self.stages.append([captured(run) for run in self.arms(stage, at, to, h, c, m)])
            at = to
        self.end = captured(lambda: head(at.mean([2, 3])))
        self.state = h, c

    def arms(self, stage, at, to, h, c, m):
        """The functions of a stage that is skipped, and of one that runs."""
        layer, gate = self.wrap(stage.layer), self.wrap(stage.gate)

        def decide():
            for v, new in zip((h, c, m), gate(to, h, c)):
                v.copy_(new)
            self.any.tell(m.any())

        def skip():
            if to is not at:
                to.copy_(stage.down(at))
            decide()

        def run():
            prev = stage.down(at)
            y = layer(at, prev)
            to.copy_(y if len(at) == 1 else torch.where(m.view(-1, 1, 1, 1), y, prev))
            decide()
        return skip, run

    def run(self):
        self.begin()
        wanted = True
        for arms in self.stages:
            arms[wanted]()
            wanted = self.any.ask()
        return self.end(), *self.state


class EarlyExit(Program):
    def make(self, x):
        net = branches.EarlyExit(self.work).eval()
        self.sure = Told(x.flatten()[0] > 0)
        self.at, self.stages = [x], []
        for i, stage in enumerate(net.stages):
            self.stages.append(device.here.captured(self.stage(self.wrap(stage), i, net.sure)))
            self.at.append(self.stages[i]()[0])

    def stage(self, stage, i, sure):
        def run():
            x, p, least = stage(branches.arranged(self.at[i]))
            self.sure.tell(least > sure)
            return x, p
        return run

    def run(self):
        for i, stage in enumerate(self.stages):
            self.at[i + 1], p = stage()
            if self.sure.ask():
                break
        return p, torch.tensor(i)


PROGRAMS = {"seq2seq": Seq2seq, "rnnt": Rnnt, "blockdrop": BlockDrop, "skipnet": SkipNet,
            "earlyexit": EarlyExit}
