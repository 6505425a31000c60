"""detector.py: silero's voice detector on whole recordings and on many streams at once.

The model is a step: 32 ms of sound (with 4 ms before it) and a state give the probability of speech
and the next state. Braid compiles the loop over the steps into it, so a recording is one run, and a
batch of streams that bring as many steps is one run, too.
"""
import io
import os
import wave
from collections.abc import Sequence

import numpy as np

import braid

RATE = 16000     # samples a second
CHUNK = 512      # samples of a step: 32 ms
CONTEXT = 64     # samples before them that a step sees again
STATE = (2, 128)  # a stream's state; a batch of streams has its axis between the two


def load(model: str, threads: int = 1) -> braid.Session:
    """A session for the detector. It is compiled for this machine the first time, then cached."""
    library = braid.compile(model, scan="input", carry={"state": "stateN"}, progress=False)
    return library.session(threads=threads)


class Streams:
    """Detects speech in streams of sound, several at once."""

    def __init__(self, session: braid.Session) -> None:
        self.session = session

    @staticmethod
    def begin() -> dict[str, np.ndarray]:
        """The state of a new stream."""
        return {"state": np.zeros(STATE, np.float32), "context": np.zeros(CONTEXT, np.float32)}

    def detect(self, streams: Sequence[dict[str, np.ndarray]], sounds: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Moves each stream on by its sound (float32 in -1 to 1, all as many whole chunks) and
        returns the probabilities of speech, float32[chunks] for each stream."""
        steps = len(sounds[0]) // CHUNK
        x = np.empty((steps, len(streams), CONTEXT + CHUNK), np.float32)
        for i, (stream, sound) in enumerate(zip(streams, sounds)):
            whole = np.concatenate([stream["context"], sound[:steps * CHUNK]])
            x[:, i] = np.lib.stride_tricks.sliding_window_view(whole, CONTEXT + CHUNK)[::CHUNK]
            stream["context"] = whole[-CONTEXT:]
        state = np.stack([s["state"] for s in streams], axis=1)
        found = self.session.run({"input": x, "state": state, "sr": np.array(RATE, np.int64)})
        for i, stream in enumerate(streams):
            stream["state"] = found["stateN"][:, i].copy()
        probability = found["output"].reshape(steps, len(streams))
        return [probability[:, i].copy() for i in range(len(streams))]


def read_wav(data: bytes) -> np.ndarray:
    """The samples of a .wav file (16 bits, 16 kHz, one channel) as float32 in -1 to 1."""
    with wave.open(io.BytesIO(data)) as f:
        if (f.getsampwidth(), f.getframerate(), f.getnchannels()) != (2, RATE, 1):
            raise ValueError(f"16-bit samples of one channel at {RATE} Hz are needed")
        return np.frombuffer(f.readframes(f.getnframes()), "<i2").astype(np.float32) / 32768


def model_of_wheel() -> str:
    """The detector's file in the wheel silero-vad, whose own code (and torch) is not needed."""
    import importlib.util
    spec = importlib.util.find_spec("silero_vad")
    if spec is None or spec.origin is None:
        raise SystemExit("give the detector's ONNX file, or pip install --no-deps silero-vad")
    return os.path.join(os.path.dirname(spec.origin), "data", "silero_vad.onnx")
