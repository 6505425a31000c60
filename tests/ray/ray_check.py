#!/usr/bin/env python3
"""ray_check.py: the examples of many machines, on this one: nothing is lost, nothing is done twice.

    ray_check.py [--items 10000] [--seed 1] [--work FOLDER] [--full]

Batches: recordings through examples/ray_batch.py with two workers; the command is killed in the middle and run
again, and then one worker is killed. Every result is there once and is the one that onnxruntime has, step by step.
All are jobs of one Ray, as on a cluster. Streams: clients of examples/ray_serve.py at once, each with its own sound in
messages of odd sizes. --full: recordings in a folder, too, and the times of both engines. Needs the packages of cmake/requirements-ray.txt.
"""
import argparse
import asyncio
import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import wave

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
EXAMPLES = os.path.join(ROOT, "examples")
sys.path.insert(0, EXAMPLES)
import detector  # noqa: E402
import ray_batch  # noqa: E402

failures = 0


def check(ok: bool, what: str) -> None:
    global failures
    if not ok:
        failures += 1
        print(f"FAIL {what}", flush=True)


def recording(rng: np.random.Generator) -> bytes:
    """A .wav file of 0.1 to 0.5 s: noise under a tone that rises and falls as speech does."""
    n = int(rng.integers(1600, 8000))
    t = np.arange(n) / detector.RATE
    pitch = rng.uniform(90, 250)
    voice = sum(np.sin(2 * np.pi * pitch * k * t) / k for k in range(1, 9)) * (1 + np.sin(2 * np.pi * 4 * t))
    sound = np.clip(3000 * rng.uniform(0, 2) * voice + rng.normal(0, 300, n), -32768, 32767).astype("<i2")
    out = io.BytesIO()
    with wave.open(out, "wb") as f:
        f.setnchannels(1)
        f.setsampwidth(2)
        f.setframerate(detector.RATE)
        f.writeframes(sound.tobytes())
    return out.getvalue()


@contextlib.contextmanager
def one_ray(cpus: int):
    """A Ray with a life of its own, which RAY_ADDRESS names."""
    import ray
    here = ray.init(num_cpus=cpus, _node_ip_address="127.0.0.1", include_dashboard=False, log_to_driver=False)
    os.environ["RAY_ADDRESS"] = here.address_info["gcs_address"]
    try:
        yield
    finally:
        del os.environ["RAY_ADDRESS"]
        ray.shutdown()


def batch_command(source: str, out: str, *more: str) -> list[str]:
    return [sys.executable, os.path.join(EXAMPLES, "ray_batch.py"), source, out, "--workers", "2", "--batch", "8",
            *more]


def finished(out: str) -> int:
    """Results in complete files."""
    count = 0
    for folder, _, names in os.walk(out):
        for name in names:
            try:
                count += pq.read_metadata(os.path.join(folder, name)).num_rows
            except (pa.ArrowInvalid, OSError):
                pass
    return count


def workers() -> list[int]:
    """Processes of Ray that hold a session: their title names the class."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                title = f.read().decode(errors="replace")
        except OSError:
            continue
        if title.startswith("ray::") and "Worker" in title and "IDLE" not in title:
            found.append(int(pid))
    return found


def resident(pid: int) -> float:
    """MB."""
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS")) / 1024


def compare(out: str, items: dict[str, bytes], sample: int, seed: int) -> None:
    table = pq.read_table(out)
    ids = table["id"].to_pylist()
    check(len(ids) == len(set(ids)), f"{len(ids) - len(set(ids))} results are there twice")
    check(set(ids) == set(items), f"{len(set(items) - set(ids))} results are lost")
    find = ray_batch.Worker.with_onnxruntime(detector.model_of_wheel())
    rows = dict(zip(ids, zip(table["seconds"].to_pylist(), table["probability"].to_pylist())))
    for name in np.random.default_rng(seed).choice(sorted(items), min(sample, len(items)), replace=False):
        sound = detector.read_wav(items[name])
        want = find(sound[:len(sound) // detector.CHUNK * detector.CHUNK]).max()
        got = rows.get(str(name), (0, -1))
        check(abs(got[1] - want) < 1e-4 and abs(got[0] - len(sound) / detector.RATE) < 1e-9,
              f"{name}: {got[1]}, wanted {want}")


def as_parquet(folder: str, items: dict[str, bytes]) -> dict[str, bytes]:
    names, parts = sorted(items), 40  # a file is what a task reads
    for p in range(parts):
        part = names[p::parts]
        pq.write_table(pa.table({"id": part, "sound": pa.array([items[n] for n in part], pa.binary())}),
                       os.path.join(folder, f"{p:02d}.parquet"))
    return items


def as_recordings(folder: str, items: dict[str, bytes]) -> dict[str, bytes]:
    for name, data in items.items():
        with open(os.path.join(folder, name + ".wav"), "wb") as f:
            f.write(data)
    return {name + ".wav": data for name, data in items.items()}


def batches(work: str, form: str, count: int, seed: int, worker_dies: bool) -> None:
    """The command is killed in the middle and run again; then, if asked for, one of its two workers is killed, too."""
    rng = np.random.default_rng(seed)
    source, out = os.path.join(work, form), os.path.join(work, form + "-results")
    os.makedirs(source)
    items = {f"item{i:06d}": recording(rng) for i in range(count)}
    items = (as_parquet if form == "parquet" else as_recordings)(source, items)

    run = subprocess.Popen(batch_command(source, out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                           start_new_session=True)
    while run.poll() is None and not finished(out):
        time.sleep(0.02)
    check(run.poll() is None, f"{form}: ray_batch ended before it could be killed")
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    while workers():  # Ray ends the job's
        time.sleep(0.1)
    before = finished(out)

    run = subprocess.Popen(batch_command(source, out), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    victims: list[int] = []
    while run.poll() is None and worker_dies and not victims:
        time.sleep(0.02)
        found, now = workers(), finished(out)
        if len(found) >= 2 and before < now < count:
            victims = found[:1]
            os.kill(victims[0], signal.SIGKILL)
            print(f"{form}: a worker was killed after {now} of {count} results", flush=True)
    said = run.communicate(timeout=600)[0]
    check(len(victims) == worker_dies, f"{form}: no worker could be killed in the middle")
    check(run.returncode == 0, f"{form}: ray_batch ended with {run.returncode}: {said[-2000:]}")
    print(f"{form}: the command was killed after {before} of {count} results; then: "
          f"{next((line for line in said.splitlines() if ' were there before' in line), said[-500:])}", flush=True)
    check(0 < before < count, f"{form}: {before} of {count} results before the command was run again")
    check(f", {before} were there before" in said, f"{form}: results were computed again")
    compare(out, items, 200, seed)


async def talk(port: int, sound: np.ndarray, seed: int, hang_up: bool) -> np.ndarray:
    """A client that sends its sound in messages of odd sizes."""
    import websockets
    rng, data, got = np.random.default_rng(seed), sound.tobytes(), []
    async with websockets.connect(f"ws://127.0.0.1:{port}/", max_size=None) as socket:
        at = 0
        while at < len(data):
            size = int(rng.integers(1, 5000))
            await socket.send(data[at:at + size])
            at += size
            answer = json.loads(await socket.recv())
            if len(got) * detector.CHUNK != round(answer["at"] * detector.RATE):
                raise AssertionError("an answer for another time")
            got += answer["probability"]
            if hang_up and at > len(data) // 2:
                return np.array(got, np.float32)
        await socket.send("end")
        async for _ in socket:
            pass
    return np.array(got, np.float32)


def streams(work: str, clients: int, seed: int) -> None:
    port = 8123 + os.getpid() % 1000
    server = subprocess.Popen([sys.executable, os.path.join(EXAMPLES, "ray_serve.py"), "--port", str(port)],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True)
    try:
        line = server.stdout.readline()
        check(line.startswith("ready"), f"the server did not start: {line}")
        rng = np.random.default_rng(seed)
        sounds = [detector.read_wav(recording(rng)).__mul__(32768).astype("<i2") for _ in range(clients)]
        sounds = [np.tile(s, 3) for s in sounds]

        async def all_clients() -> list:
            return await asyncio.gather(*(talk(port, s, seed + i, i % 4 == 3) for i, s in enumerate(sounds)))
        got = asyncio.run(all_clients())
        find = ray_batch.Worker.with_onnxruntime(detector.model_of_wheel())
        for i, (sound, answer) in enumerate(zip(sounds, got)):
            whole = len(sound) // detector.CHUNK * detector.CHUNK
            want = find(sound[:whole].astype(np.float32) / 32768)
            ended = i % 4 == 3
            check(len(answer) <= len(want) if ended else len(answer) == len(want), f"client {i}: {len(answer)} answers")
            check(np.abs(answer - want[:len(answer)]).max(initial=0) < 1e-4, f"client {i}: other probabilities")
        import urllib.request
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/batches") as f:
            said = json.load(f)
        print(f"{clients} clients: {said['runs']} runs, up to {said['largest']} clients in one", flush=True)
        check(said["largest"] > 1, "no run had more than one client")
    finally:
        os.killpg(server.pid, signal.SIGINT)
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)


def memory() -> None:
    """What an idle worker's session takes beside Python and NumPy."""
    code = ("import sys; sys.path.insert(0, sys.argv[1])\nimport numpy\n"
            "def rss(): return next(int(l.split()[1]) for l in open('/proc/self/status') if l.startswith('VmRSS')) / 1024\n"
            "a = rss()\nimport detector\ns = detector.Streams(detector.load(detector.model_of_wheel()))\n"
            "s.detect([s.begin()], [numpy.zeros(16000 // 512 * 512, numpy.float32)])\nprint(rss() - a)")
    used = float(subprocess.run([sys.executable, "-c", code, EXAMPLES], check=True, capture_output=True, text=True).stdout)
    print(f"an idle worker's detector takes {used:.0f} MB beside Python and NumPy", flush=True)
    check(used < 100, "a worker takes more than 100 MB")


def timing(work: str) -> None:
    """Both engines in the same harness, after the workers have started: items a second and core."""
    source = os.path.join(work, "parquet")
    said = subprocess.run(batch_command(source, source + "-results"), check=True, capture_output=True, text=True)
    check(said.stdout.strip().splitlines()[-1].startswith("0 items in"), f"what is done is done again: {said.stdout[-500:]}")
    for engine in ("braid", "onnxruntime", "braid", "onnxruntime"):
        out = os.path.join(work, f"timing-{engine}-{time.time_ns()}")
        said = subprocess.run(batch_command(source, out, "--engine", engine), check=True, capture_output=True, text=True)
        print(f"{engine}: {said.stdout.strip().splitlines()[-1]}", flush=True)
    rng = np.random.default_rng(5)
    sounds = [detector.read_wav(recording(rng)) for _ in range(200)]
    sounds = [s[:len(s) // detector.CHUNK * detector.CHUNK] for s in sounds]
    for name in ("with_braid", "with_onnxruntime", "with_braid", "with_onnxruntime"):
        find = getattr(ray_batch.Worker, name)(detector.model_of_wheel())
        find(sounds[0])
        begin = time.perf_counter()
        for s in sounds:
            find(s)
        print(f"one worker without Ray, {name[5:]}: {len(sounds) / (time.perf_counter() - begin):.0f} items/s", flush=True)


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--items", type=int, default=10000)
    ap.add_argument("--clients", type=int, default=16)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--work", default=os.path.join(ROOT, "build/test/ray"))
    ap.add_argument("--full", action="store_true", help="Parquet too, and the times of both engines")
    args = ap.parse_args()
    shutil.rmtree(args.work, ignore_errors=True)
    os.makedirs(args.work)
    detector.load(detector.model_of_wheel())  # into the cache
    memory()
    with one_ray(4):
        batches(args.work, "parquet", args.items, args.seed, True)
        if args.full:
            batches(args.work, "recordings", args.items, args.seed + 1, False)
            timing(args.work)
    streams(args.work, args.clients, args.seed)
    for folder in ("parquet", "recordings"):
        shutil.rmtree(os.path.join(args.work, folder), ignore_errors=True)
    print(f"{args.items} items, {args.clients} clients: {failures} failed")
    return failures != 0


if __name__ == "__main__":
    sys.exit(main())
