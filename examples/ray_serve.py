#!/usr/bin/env python3
"""ray_serve.py: speech detection over a WebSocket with Ray Serve.

    ray_serve.py [--model FILE.onnx] [--port 8000] [--replicas N] [--clients N]

A client connects to ws://HOST:PORT/ and sends sound: binary messages of 16-bit samples at 16 kHz, of
any length. For each whole chunk of 512 samples it gets its probability of speech, in one JSON
message for a message: {"at": seconds of the first chunk, "probability": [...]}. The state of a
client lives with its connection. Messages that come at the same time run as one batch: one run of
the compiled loop for all clients that bring as many chunks. After the text message "end" the server
answers what is left and closes.
"""
import argparse
import json
import os
import signal
import threading

import numpy as np
import ray
from fastapi import FastAPI, WebSocket, WebSocketDisconnect
from ray import serve

import detector
from ray_connect import connect

app = FastAPI()


@serve.deployment(ray_actor_options={"num_cpus": 1}, max_ongoing_requests=1000)
@serve.ingress(app)
class Detector:
    """A replica: one session on one CPU, and the connections of its clients."""

    def __init__(self, model: str) -> None:
        self.streams = detector.Streams(detector.load(model))
        self.batches: list[int] = []

    @serve.batch(max_batch_size=64, batch_wait_timeout_s=0.002)
    async def detect(self, clients: list[dict], sounds: list[np.ndarray]) -> list[np.ndarray]:
        """The probabilities of each client's chunks; clients with as many chunks run as one."""
        found: list[np.ndarray] = [np.zeros(0, np.float32)] * len(clients)
        by_length: dict[int, list[int]] = {}
        for i, sound in enumerate(sounds):
            by_length.setdefault(len(sound), []).append(i)
        for group in by_length.values():
            self.batches.append(len(group))
            answers = self.streams.detect([clients[i] for i in group], [sounds[i] for i in group])
            for i, answer in zip(group, answers):
                found[i] = answer
        return found

    @app.get("/batches")
    def batch_sizes(self) -> dict:
        """How many clients the runs so far had."""
        return {"runs": len(self.batches), "largest": max(self.batches, default=0)}

    @app.websocket("/")
    async def client(self, socket: WebSocket) -> None:
        """One client, from its first message to its last."""
        await socket.accept()
        stream, left, chunks = self.streams.begin(), b"", 0
        try:
            while True:
                message = await socket.receive()
                if message["type"] == "websocket.disconnect":
                    return
                if message.get("text") == "end":
                    break
                left += message.get("bytes") or b""
                size = len(left) // (2 * detector.CHUNK) * 2 * detector.CHUNK
                sound = np.frombuffer(left[:size], "<i2").astype(np.float32) / 32768
                left = left[size:]
                answer = await self.detect(stream, sound) if size else np.zeros(0, np.float32)
                at = chunks * detector.CHUNK / detector.RATE
                chunks += len(answer)
                await socket.send_text(json.dumps({"at": at, "probability": [round(float(p), 6) for p in answer]}))
            await socket.close()
        except WebSocketDisconnect:
            pass


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--model", help="the detector; default: that of the wheel silero-vad")
    ap.add_argument("--port", type=int, default=8000)
    ap.add_argument("--replicas", type=int, default=1, help="sessions, each on a CPU of its own")
    args = ap.parse_args()
    model = os.path.abspath(args.model or detector.model_of_wheel())
    connect(args.replicas + 2)  # beside the proxy and the controller
    serve.start(http_options={"host": "127.0.0.1", "port": args.port})
    serve.run(Detector.options(num_replicas=args.replicas).bind(model), name="detector")
    print(f"ready at ws://127.0.0.1:{args.port}/", flush=True)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    stop.wait()
    serve.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main()
