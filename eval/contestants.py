"""Controls the processes of contestants (worker.py is the other side).

For each peer and number of threads there is a process that has imported the peer and only forks.
Each contestant is a fork, which waits at its pipe while others run.
"""
import json
import os
import select
import signal
import socket
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
COUNTS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def read_line(fd, seconds):
    """A line from a pipe or socket; None if the other side has ended or is too late."""
    text = b""
    while not text.endswith(b"\n"):
        if not select.select([fd], [], [], seconds)[0]:
            return None
        part = os.read(fd, 1 << 16)
        if not part:
            return None
        text += part
    return text


class Peer:
    """`package` is the package that has its module."""

    def __init__(self, name, threads, folder, out, device="cpu", package="peers"):
        self.name, self.threads = name, threads
        ours, theirs = socket.socketpair()
        self.link = ours
        environment = {**os.environ, **{k: str(threads) for k in COUNTS},
                       "TORCHINDUCTOR_CACHE_DIR": os.path.join(os.path.dirname(folder), "inductor"),
                       "JAX_COMPILATION_CACHE_DIR": os.path.join(os.path.dirname(folder), "jax")}
        with open(os.path.join(out, f"{name}-{threads}.log"), "w") as log:
            self.process = subprocess.Popen(
                [sys.executable, os.path.join(HERE, "worker.py"), f"{package}.{name}", str(threads),
                 str(theirs.fileno()), device], env=environment, pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        theirs.close()
        line = read_line(self.link.fileno(), 120)
        hello = json.loads(line) if line else {"missing": "its process has ended"}
        self.missing = hello.get("missing")
        self.version, self.forms = hello.get("version"), hello.get("forms", {})
        self.any_file = hello.get("any_file", False)
        self.node_by_node = hello.get("node_by_node", [])

    def forms_for(self, kind):
        return self.forms.get(kind, self.forms.get("*", []))

    def fork(self):
        there, commands = os.pipe()
        answers, back = os.pipe()
        socket.send_fds(self.link, [b"fork"], [there, back])
        os.close(there)
        os.close(back)
        line = read_line(self.link.fileno(), 30)
        return int(line or 0), commands, answers

    def close(self):
        self.link.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Contestant:
    def __init__(self, peer, form, file):
        self.peer, self.form, self.file = peer, form, file
        self.times, self.state = [], {}
        self.pid, self.commands, self.answers = peer.fork()

    def send(self, **request):
        try:
            os.write(self.commands, json.dumps(request).encode() + b"\n")
        except BrokenPipeError:
            pass  # there will be no answer

    def answer(self, seconds):
        """The answer to the last message; {"failed": why} if there is none."""
        line = read_line(self.answers, seconds)
        if line:
            return json.loads(line)
        running = self.kill()  # it must not compute beside others
        return {"failed": f"no answer in {seconds:g} s" if running else "its process has ended"}

    def ask(self, seconds, **request):
        self.send(**request)
        return self.answer(seconds)

    def load(self, seconds, **request):
        self.state = self.ask(seconds, command="load", form=self.form, **request)
        return self.ready

    @property
    def ready(self):
        return not {"failed", "wrong"} & set(self.state)

    def time(self, budget, most=10000, patience=60):
        reply = self.ask(patience + 20 * budget, command="time", budget=budget, most=most)
        if "times" in reply:
            self.times += reply["times"]
        else:
            self.state = {**self.state, **reply}

    def call(self, budget, patience=60):
        """Times runs that the host waits for, one by one."""
        if self.ready:
            self.state = {**self.state, **self.ask(patience + 20 * budget, command="calls", budget=budget)}

    def check(self, patience=120):
        """Whether the outputs are still right after all runs."""
        if self.ready:
            self.state = {**self.state, **self.ask(patience, command="check")}

    def close(self):
        os.close(self.commands)
        os.close(self.answers)
        self.kill()

    def kill(self):
        """Ends the process. Returns whether it still existed."""
        return self.signal(signal.SIGKILL)

    def signal(self, number):
        """Sends a signal to the process and its children if it still exists: its number may have been reused."""
        try:
            with open(f"/proc/{self.pid}/stat") as f:
                parent = int(f.read().rpartition(")")[2].split()[1])
            if parent == self.peer.process.pid:
                os.killpg(self.pid, number)
                return True
        except (FileNotFoundError, ProcessLookupError):
            pass
        return False
