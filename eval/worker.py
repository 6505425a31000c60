"""The process of a peer: imports it once, then forks a contestant for each request.

    worker.py MODULE THREADS SOCKET DEVICE

MODULE is the peer's module (peers/__init__.py), DEVICE cpu or cuda (device.py). SOCKET is the number
of an inherited Unix socket. Each message on it brings two pipes and makes a child, which reads
commands from one and answers on the other, each a line of JSON:

    load     builds the contestant, runs it, compares its outputs with the reference; says whether the
             time of the processor, of all threads, is to be measured instead of that of the clock
    time     runs it repeatedly, and answers with the seconds of each run; on a GPU with the means
             of short groups of runs
    calls    runs it repeatedly, waits for the end of each run, and answers with the seconds by the host's clock
    check    runs it once more and compares again
"""
import gc
import importlib
import json
import math
import os
import signal
import socket
import sys
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import device  # noqa: E402: after the path of models/
import tasks  # noqa: E402

WARM_RUNS, WARM_SECONDS = 3, 0.3


def load(peer, request, threads, kept):
    """Returns the function to time, or None, and the answer. `kept` keeps what peers only borrow."""
    work = tasks.Work(request["folder"], request["kind"], threads)
    work.braid, work.library = request.get("braid"), request.get("library")
    work.schedule = request.get("schedule", "")  # what Braid's scheduler must choose
    begin = time.perf_counter()
    run, fetch = peer.build(work, request["form"])
    work.clock = getattr(work, "clock", None) or device.here.clock()
    if request.get("processor_time"):
        work.clock = device.HostClock(now=time.process_time)
    kept += [work, run, fetch]
    result = fetch(run())
    seconds = time.perf_counter() - begin
    largest, wrong = tasks.difference(result, work.expected)
    reply = {"seconds": round(seconds, 2), "difference": largest}
    if wrong:
        return None, {**reply, "wrong": wrong}
    begin = time.perf_counter()
    for n in range(WARM_RUNS):
        run()
        if time.perf_counter() - begin > WARM_SECONDS:
            break
    return run, {**reply, **getattr(work, "facts", {})}


def measure(run, clock, budget, most):
    """The seconds of each run. Runs that fill the caches and wake the device do not count."""
    now = time.perf_counter
    begin, each = now(), clock.time(run, 1)
    if not clock.group and each > budget:  # a long run fills its caches itself
        return [each]
    while now() - begin < clock.warm:
        each = clock.time(run, 1)
    count = max(1, math.ceil(clock.group / max(each, 1e-7)))
    found, end = [], now() + budget
    while not found or len(found) < most and now() < end:
        found.append(clock.time(run, count) / count)
    return found


def calls(run, budget):
    """The seconds of calls as a caller sees them who waits for each."""
    clock = device.HostClock(wait=device.here.wait)
    found, end = [], time.perf_counter() + budget
    while not found or len(found) < 1000 and time.perf_counter() < end:
        found.append(clock.time(run, 1))
    return found


def contestant(peer, threads, commands, answers):
    run, kept = None, []
    for line in commands:
        request = json.loads(line)
        try:
            if request["command"] == "load":
                run, reply = load(peer, request, threads, kept)
                gc.collect()
                gc.disable()
            elif request["command"] == "check":
                work, _, fetch = kept
                wrong = tasks.difference(fetch(run()), work.expected)[1]
                reply = {"wrong": f"after all runs, {wrong}"} if wrong else {}
            elif request["command"] == "calls":
                reply = {"calls": calls(run, request["budget"])}
            else:
                clock = kept[0].clock
                reply = {"times": measure(run, clock, request["budget"], request["most"])}
        except Exception as e:  # what a peer cannot do is a result
            traceback.print_exc()
            text = f"{type(e).__name__}: {e}".strip()
            reply = {"failed": " ".join(text.split())[:300]}
        answers.write(json.dumps(reply) + "\n")
        answers.flush()


def main():
    name, threads, link = sys.argv[1], int(sys.argv[2]), socket.socket(fileno=int(sys.argv[3]))
    device.choose(sys.argv[4])
    if sys.argv[4] == "cpu":
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    try:
        peer = importlib.import_module(name)
        hello = {"version": peer.version(), "forms": {k: list(v) for k, v in peer.FORMS.items()},
                 "any_file": getattr(peer, "ANY_FILE", False),
                 "node_by_node": list(getattr(peer, "NODE_BY_NODE", ()))}
    except (ImportError, OSError, AttributeError) as e:
        hello = {"missing": f"{type(e).__name__}: {e}"[:300]}
    link.sendall(json.dumps(hello).encode() + b"\n")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        message, fds, _, _ = socket.recv_fds(link, 16, 2)
        if not message:
            return
        pid = os.fork()
        os.setpgid(pid, 0)  # by both, whoever is first: with its compilers it is a group
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            link.close()
            with os.fdopen(fds[0]) as commands, os.fdopen(fds[1], "w") as answers:
                contestant(peer, threads, commands, answers)
            os._exit(0)  # no peer's own end, which may hang
        for fd in fds:
            os.close(fd)
        link.sendall(f"{pid}\n".encode())


if __name__ == "__main__":
    main()
