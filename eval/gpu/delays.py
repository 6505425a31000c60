#!/usr/bin/env python3
"""Stands in for nvcc (or the emulator's C++ compiler) and lets threads sleep now and then where blocks synchronize.

    NVCC=delays.py DELAYS_NVCC=nvcc braid compile …        CXX=delays.py DELAYS_CXX=c++ braid compile … --target emulate:cuda
"""
import os
import sys

FENCE = "BK_INLINE void bk_fence(void) {\n"
DELAY = """BK_INLINE void bk_delay(void) {
    const unsigned r = ((unsigned)clock64() ^ (blockIdx.x * 97u + threadIdx.x)) * 2654435761u;
    if (r >> 29 == 0)
        for (unsigned i = 0; i < (r >> 12 & 7); i++) __nanosleep(r >> 16 & 1023);
}
"""


def main():
    for path in (a for a in sys.argv[1:] if a.endswith(".cu")):
        with open(path) as f:
            text = f.read()
        if text.count(FENCE) != 1:
            sys.exit(f"delays.py: {path} has {text.count(FENCE)} fences to delay")
        with open(path, "w") as f:
            f.write(text.replace(FENCE, DELAY + FENCE + "    bk_delay();\n"))
    real = os.environ["DELAYS_NVCC" if "DELAYS_NVCC" in os.environ else "DELAYS_CXX"]
    os.execvp(real, [real, *sys.argv[1:]])


if __name__ == "__main__":
    main()
