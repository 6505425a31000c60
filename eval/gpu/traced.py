#!/usr/bin/env python3
"""Makes GPU programs that leave a trace: what time it was when each block came to each synchronization, left it, and
began each function.

    traced.py COMPILER ARGUMENT...     stands in for a compiler of `braid compile`: changes the texts that it compiles

The first thread of a block looks at the multiprocessor's clock and at the device's (globaltimer; HIP's wall_clock64), which
takes some ten ns, and writes a record into a ring of ROOM for each block; the ring lies behind the session's words in
device memory. `braid_trace` of the library copies it out. Nothing else of the program changes: its own text has no trace
of this. compile() makes such a library.
"""
import json
import os
import re
import subprocess
import sys

ROOM = 8192  # records of a block
RECORD, BLOCK = 16, 16 * (ROOM + 1)  # bytes: the block's first record holds how many there were so far
FUNCTION, CAME, LEFT, LAUNCH = range(4)  # kinds of records; of a launch: it begins (place 0), it ends (1)

# what stands in the texts, once, and what is put behind it
DEVICE = [
    ("    unsigned turn; /* turns (barriers, gathers, releases) so far; thread 0 writes it */\n",
     "    unsigned traced; /* records so far */\n"),
    ("        own->passed = 0;\n", "        own->traced = bk_trace_of(run->words)->x;\n"),
    ("    bk_cluster_meet(); /* from now on other blocks may write to this block's memory */\n", "    bk_trace(%d);\n" % LAUNCH),
    ("BK_INLINE void bk_end(void) {\n    const bk_own *own = bk_owned();\n",
     "    bk_trace(%d);\n    if (threadIdx.x == 0) bk_trace_of(own->k.words)->x = own->traced;\n" % (4 + LAUNCH)),
]
# and before it
BEFORE = "/* Begins the kernel; returns the bk_ctx for all functions. */\n"
RING = """BK_INLINE uint4 *bk_trace_of(unsigned *words) {
    return (uint4 *)((char *)words + 2 * BK_WORDS(gridDim.x) * sizeof *words + BK_LINE + (size_t)blockIdx.x * %d);
}
BK_INLINE void bk_trace(unsigned what) {
    if (threadIdx.x != 0) return;
    bk_own *own = bk_owned();
    const unsigned long long ticks = (unsigned long long)clock64();
#if defined BRAID_EMULATED
    const unsigned long long wall = (unsigned long long)emu_globaltimer();
#elif defined __HIP__
    const unsigned long long wall = (unsigned long long)wall_clock64() * 10;
#else
    unsigned long long wall;
    asm volatile("mov.u64 %%0, %%%%globaltimer;" : "=l"(wall));
#endif
    uint4 *const to = bk_trace_of(own->k.words) + 1 + own->traced++ %% %d;
    to->x = what;
    to->y = (unsigned)wall;
    to->z = (unsigned)ticks;
    to->w = (unsigned)(ticks >> 32);
}
BK_INLINE int bk_trace_left(int st, unsigned what) {
    bk_trace(what);
    return st;
}
""" % (BLOCK, ROOM)
HOST = "    s->behind = BK_WORDS_BYTES(s->nunit) + BK_LINE;\n"
HOST_RING = "    s->behind += (size_t)s->nunit * %d;\n" % BLOCK
READ = """
/* Copies the rings of all blocks to `to`, which has room for so many; returns how many blocks there are, or -1. */
__attribute__((visibility("default"))) int braid_trace(void *session, void *to, int room) {
    static const braid_tensor_v1 none;
    bk_session *s = session;
    char message[700];
    const size_t behind = BK_WORDS_BYTES(s->nunit) + BK_LINE;
    if (room < s->nunit) return -1;
    int st = bk_call_begin(s, &none, &none, message, sizeof message);
    if (st) return -1;
    if (s->pending) st = bk_settle_earlier(s, message, sizeof message);
    if (!st && s->d->copy_out(to, s->block + BK_IMAGE_BYTES + behind, (size_t)s->nunit * %d, s->stream)) st = 1;
    if (!st && s->d->stream_wait(s->stream)) st = 1;
    return bk_call_end(s, st) ? -1 : s->nunit;
}
""" % BLOCK

# where the text calls: a function that computes a group, a hand-written body, what synchronizes
CALL = re.compile(r"^( *)((f\d+_\w+)\(k, .*?\));(?: /\* (.*) \*/)?$", re.M)
BODY = re.compile(r"(const int bad = )((bx_\w+)\([^;]*\))(?=;)")
MEET = re.compile(r"\(st = ((bk_(?:barrier|release)|bk_cluster_barrier)\((?:k, unit(?:, [^)]*)?)?\))\)")
GATHER = re.compile(r"^( *)((bk_gather)\(k, unit, [^;]*\));$", re.M)


def put(text, anchor, before="", after=""):
    if text.count(anchor) != 1:
        sys.exit(f"traced.py: {text.count(anchor)} places in the text for a trace: {anchor.strip()}")
    return text.replace(anchor, before + anchor + after)


def device_text(text):
    """The text that leaves a trace, and its places: [(name, line of the text, what it is of the model)]."""
    places, spots = [("the launch", 0, "")] * 2, []
    for pattern, kind in (CALL, FUNCTION), (BODY, FUNCTION), (MEET, CAME), (GATHER, CAME):
        spots += [(m.start(), kind, m) for m in pattern.finditer(text)]
    pieces, at, last = [], 0, ""
    for start, kind, m in sorted(spots, key=lambda x: x[0]):
        place, line = len(places), text.count("\n", 0, start) + 1
        came, left = 4 * place + CAME, 4 * place + LEFT
        if m.re is CALL:
            new = f"{m[1]}bk_trace({4 * place + FUNCTION}), {m[2]};"
            places.append((m[3], line, m[4] or ""))
            last = m[3]
        elif m.re is BODY:
            new = f"{m[1]}(bk_trace({4 * place + FUNCTION}), {m[2]})"
            places.append((m[3], line, ""))
            last = m[3]
        else:
            places.append((m[m.re is GATHER and 3 or 2].removeprefix("bk_"), line, f"behind {last}" if last else ""))
            new = (f"{m[1]}bk_trace({came}), {m[2]}, bk_trace({left});" if m.re is GATHER else
                   f"(st = (bk_trace({came}), bk_trace_left({m[1]}, {left})))")
        pieces += [text[at:start], new]
        at = m.end()
    text = "".join(pieces) + text[at:]
    for anchor, after in DEVICE:
        text = put(text, anchor, after=after)
    return put(text, BEFORE, before=RING), places


def host_text(text):
    return put(text, HOST, after=HOST_RING) + READ


def stand_in(real, argv):
    for i, path in enumerate(argv):
        if not path.endswith((".cu", ".c")) or argv[i - 1] == "-o":
            continue
        with open(path) as f:
            text = f.read()
        if path.endswith(".cu"):
            text, places = device_text(text)
            with open(os.environ["TRACED_PLACES"], "w") as f:
                json.dump(places, f)
        elif "bk_session_fill" in text:
            text = host_text(text)
        with open(path, "w") as f:
            f.write(text)
    os.execvp(real, [real, *argv])


def tool(variable, *names):
    import shutil
    return next((p for p in map(shutil.which, (os.environ.get(variable) or names[0], *names)) if p), names[0])


def compile(braid, model, target, library, options=()):
    """Makes library, and beside it NAME.places.json; raises CalledProcessError with what the compiler says."""
    stem = library.removesuffix(".so")
    os.makedirs(os.path.dirname(stem) or ".", exist_ok=True)
    env = dict(os.environ, TRACED_PLACES=os.path.abspath(stem + ".places.json"))
    own = []
    for variable, names in (("NVCC", ("nvcc", "/usr/local/cuda/bin/nvcc")), ("HIPCC", ("hipcc",)), ("CC", ("cc",)), ("CXX", ("c++",))):
        own.append(os.path.abspath(f"{stem}.{variable}"))
        with open(own[-1], "w") as f:
            f.write(f"#!/bin/sh\nexec '{sys.executable}' '{os.path.abspath(__file__)}' '{tool(variable, *names)}' \"$@\"\n")
        os.chmod(own[-1], 0o755)
        env[variable] = own[-1]
    try:
        subprocess.run([braid, "compile", model, "--target", target, "-o", library, *options], check=True, env=env,
                       capture_output=True, text=True)
    finally:
        for path in own:
            os.remove(path)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    stand_in(sys.argv[1], sys.argv[2:])
