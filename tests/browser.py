"""Drives a headless Chromium by the DevTools protocol over a pipe, with the standard library alone."""

import base64
import json
import os
import select
import subprocess
import tempfile
import time

SECONDS = 60  # for one answer


class Browser:
    """One Chromium with one page. Use it in a `with`; `errors` has what the page printed as an error or threw."""

    def __init__(self, program="chromium"):
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)  # its children may end after it
        self.errors, self.number, self.rest = [], 0, b""
        to_read, self.to = os.pipe()
        self.back, back_write = os.pipe()

        def descriptors():
            high = [os.dup(f) for f in (to_read, back_write)]  # neither is 3 or 4 any more
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen(
            [
                program,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--remote-debugging-pipe",
                "--user-data-dir=" + self.folder.name,
                "about:blank",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            close_fds=False,
            preexec_fn=descriptors,
        )
        os.close(to_read)
        os.close(back_write)
        self.session = None
        pages = [t for t in self.send("Target.getTargets")["targetInfos"] if t["type"] == "page"]
        self.session = self.send("Target.attachToTarget", targetId=pages[0]["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.send(domain + ".enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.to)
        os.close(self.back)
        self.folder.cleanup()

    def _message(self, seconds):
        """The next message of the browser; None after so many seconds."""
        end = time.monotonic() + seconds
        while b"\0" not in self.rest:
            if not select.select([self.back], [], [], max(0, end - time.monotonic()))[0]:
                return None
            piece = os.read(self.back, 1 << 20)
            if not piece:
                raise RuntimeError("the browser has ended")
            self.rest += piece
        text, self.rest = self.rest.split(b"\0", 1)
        m = json.loads(text)
        if m.get("method") == "Runtime.exceptionThrown":
            d = m["params"]["exceptionDetails"]
            self.errors.append(d.get("exception", {}).get("description", d["text"]))
        elif m.get("method") == "Runtime.consoleAPICalled" and m["params"]["type"] in ("error", "warning", "assert"):
            self.errors.append(" ".join(str(a.get("value", a)) for a in m["params"]["args"]))
        elif m.get("method") == "Log.entryAdded" and m["params"]["entry"]["level"] in ("error", "warning"):
            self.errors.append(m["params"]["entry"]["text"])
        return m

    def send(self, method, **params):
        self.number += 1
        m = {"id": self.number, "method": method, "params": params}
        if self.session:
            m["sessionId"] = self.session
        os.write(self.to, json.dumps(m).encode() + b"\0")
        while True:
            answer = self._message(SECONDS)
            if answer is None:
                raise RuntimeError(f"{method}: no answer in {SECONDS} s")
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def size(self, width, height, dark=False):
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.send(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )

    def open(self, path, part=""):
        """Opens a file; returns seconds until it is loaded and drawn."""
        self.send("Page.navigate", url="about:blank")
        start = time.monotonic()
        self.send("Page.navigate", url=f"file://{os.path.abspath(path)}{part}")
        while self.js("document.readyState") != "complete" or self.js("location.href") == "about:blank":
            time.sleep(0.01)
        self.frames()
        return time.monotonic() - start

    def frames(self):
        """Waits until the page has been drawn again."""
        self.js("new Promise((f) => requestAnimationFrame(() => requestAnimationFrame(() => f(1))))")

    def js(self, text):
        """The value of an expression; of a promise what it becomes. What it throws is raised."""
        r = self.send("Runtime.evaluate", expression=text, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in r:
            d = r["exceptionDetails"]
            raise RuntimeError(d.get("exception", {}).get("description", d["text"]))
        return r["result"].get("value")

    def key(self, key, shift=False):
        """Presses and releases a key, named as in KeyboardEvent.key."""
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        code = {
            "Enter": 13,
            "Tab": 9,
            "Escape": 27,
            "ArrowLeft": 37,
            "ArrowUp": 38,
            "ArrowRight": 39,
            "ArrowDown": 40,
            "Home": 36,
            "End": 35,
            "PageUp": 33,
            "PageDown": 34,
        }.get(key, ord(key[0].upper()))
        for kind in ("keyDown", "keyUp"):
            self.send(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                windowsVirtualKeyCode=code,
                modifiers=8 if shift else 0,
                **(text if kind == "keyDown" else {}),
            )

    def screenshot(self, path):
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.send("Page.captureScreenshot")["data"]))
