#!/usr/bin/env python3
"""ray_batch.py: finds speech in a folder of recordings, or in a Parquet file, with Ray Data.

    ray_batch.py INPUT OUTPUT [--model FILE.onnx] [--workers N] [--batch N] [--engine braid|onnxruntime]

INPUT: a folder of .wav files (16 bits, 16 kHz, one channel), or a Parquet file or folder with the
columns `id` (string) and `sound` (binary: such a .wav file). OUTPUT: a folder of Parquet files with
the columns `id`, `seconds`, `speech` (seconds of speech) and `probability` (the loudest step's).

Each worker has one session on one CPU; it makes or finds the compiled model when it starts. Whoever
runs the command again with the same OUTPUT gets only what is not there yet: an item counts as done
when the file with its result is complete. A worker that dies is started again by Ray, and the items
that it had not delivered are computed again: each result is written once.
"""
import argparse
import glob
import os
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import ray.data

import detector
from ray_connect import connect


class Worker:
    """One session; Ray calls it with batches of rows."""

    def __init__(self, model: str, engine: str) -> None:
        self.find = self.with_braid(model) if engine == "braid" else self.with_onnxruntime(model)

    @staticmethod
    def with_braid(model: str):
        streams = detector.Streams(detector.load(model))

        def find(sound: np.ndarray) -> np.ndarray:
            return streams.detect([streams.begin()], [sound])[0]
        return find

    @staticmethod
    def with_onnxruntime(model: str):
        """The same step by step, to compare with."""
        import onnxruntime
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        rate = np.array(detector.RATE, np.int64)

        def find(sound: np.ndarray) -> np.ndarray:
            state = np.zeros((2, 1, 128), np.float32)
            whole = np.concatenate([np.zeros(detector.CONTEXT, np.float32), sound])
            found = np.empty(len(sound) // detector.CHUNK, np.float32)
            for i in range(len(found)):
                at = i * detector.CHUNK
                x = whole[None, at:at + detector.CHUNK + detector.CONTEXT]
                p, state = session.run(None, {"input": x, "state": state, "sr": rate})
                found[i] = p[0, 0]
            return found
        return find

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, list]:
        out: dict[str, list] = {"id": [], "seconds": [], "speech": [], "probability": []}
        for name, data in zip(batch["id"], batch["sound"]):
            sound = detector.read_wav(bytes(data))
            whole = len(sound) // detector.CHUNK * detector.CHUNK
            probability = self.find(sound[:whole]) if whole else np.zeros(1, np.float32)
            out["id"].append(str(name))
            out["seconds"].append(len(sound) / detector.RATE)
            out["speech"].append(float((probability >= 0.5).sum()) * detector.CHUNK / detector.RATE)
            out["probability"].append(float(probability.max()))
        return out


def done(folder: str) -> set[str]:
    """The ids whose results are in the folder. Files that a run left incomplete are removed."""
    found: set[str] = set()
    for path in glob.glob(os.path.join(folder, "**", "*.parquet"), recursive=True):
        try:
            found.update(pq.read_table(path, columns=["id"])["id"].to_pylist())
        except (pa.ArrowInvalid, OSError):
            os.remove(path)
    return found


def read(source: str, skip: set[str], rows: int) -> ray.data.Dataset | None:
    """The items that are still to be computed: columns `id` and `sound`, in blocks of about `rows`. A block is what a
    worker gets at a time, what is computed again if it dies, and a file of results. None: there are none."""
    recordings = sorted(glob.glob(os.path.join(source, "*.wav"))) if os.path.isdir(source) else []
    if recordings:
        left = [p for p in recordings if os.path.basename(p) not in skip]
        if not left:
            return None
        # Read by the workers, not here: only paths are passed on.
        paths = ray.data.from_items([{"path": p} for p in left], override_num_blocks=-(-len(left) // rows))

        def load(row: dict) -> dict:
            with open(row["path"], "rb") as f:
                return {"id": os.path.basename(row["path"]), "sound": f.read()}
        return paths.map(load)
    items = ray.data.read_parquet(source, columns=["id", "sound"])
    if skip:
        items = items.filter(lambda row: row["id"] not in skip)
    return items.repartition(target_num_rows_per_block=rows)


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("input")
    ap.add_argument("output")
    ap.add_argument("--model", help="the detector; default: that of the wheel silero-vad")
    ap.add_argument("--workers", type=int, default=os.cpu_count())
    ap.add_argument("--batch", type=int, default=32, help="items that a worker gets at once")
    ap.add_argument("--engine", choices=["braid", "onnxruntime"], default="braid")
    args = ap.parse_args()
    if not os.path.exists(args.input):
        ap.error(f"{args.input}: there is no such file or folder")
    model = os.path.abspath(args.model or detector.model_of_wheel())

    connect(args.workers + 2)  # reading and writing run beside the workers
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = sys.stderr.isatty()
    os.makedirs(args.output, exist_ok=True)
    before = done(args.output)
    begin = time.perf_counter()
    items = read(args.input, before, 4 * args.batch)
    if items is not None:
        results = items.map_batches(
            Worker, fn_constructor_args=(model, args.engine), batch_size=args.batch,
            compute=ray.data.ActorPoolStrategy(size=args.workers), num_cpus=1)
        results.write_parquet(args.output)
    seconds = time.perf_counter() - begin
    table = pq.read_table(args.output)
    count, ids = table.num_rows, set(table["id"].to_pylist())
    print(f"{count - len(before)} items in {seconds:.1f} s with {args.workers} workers, {len(before)} were there before; "
          f"speech in {sum(s > 0 for s in table['speech'].to_pylist())} of {count}")
    if count != len(ids):
        sys.exit(f"{count - len(ids)} results are there twice")
    return 0


if __name__ == "__main__":
    sys.exit(main())
