"""Speech for the demo, the checks and the benchmarks, made by espeak-ng or read from a .wav file."""
import math
import os
import subprocess
import tempfile

import numpy as np

SENTENCES = [
    "A model with loops and branches inside becomes one program.",
    "Nobody has to come back to the host for the next step.",
    "Short.",
    "The state stays where it is, from the first sample to the last.",
    "While nobody speaks, the detector should say so.",
    "And now the last sentence, after a longer pause.",
]
PAUSES = [0.7, 1.2, 0.5, 0.9, 1.6, 2.5]  # seconds of silence before each sentence


class WavError(Exception):
    pass


def read_wav(path):
    """Reads a RIFF file of PCM (8 to 32 bits) or float samples. Returns mono float64 in -1..1, and its rate."""
    with open(path, "rb") as f:
        data = f.read()
    if len(data) < 12 or data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise WavError(f"{path}: not a .wav file")
    at, form = 12, None
    while at + 8 <= len(data):
        name, size = data[at:at + 4], int.from_bytes(data[at + 4:at + 8], "little")
        body = data[at + 8:at + 8 + size]  # the header of a file that was written to a pipe may name more bytes than it has
        if name == b"fmt " and len(body) >= 16:
            kind, channels, rate, _, align, bits = np.frombuffer(
                body[:16], "<u2,<u2,<u4,<u4,<u2,<u2")[0].tolist()
            if kind == 0xFFFE and len(body) >= 26:  # extensible format: the kind is in the sub-format
                kind = int.from_bytes(body[24:26], "little")
            form = kind, channels, rate, align, bits
        elif name == b"data":
            if not form:
                break
            return samples(path, body, *form)
        at += 8 + size + size % 2
    raise WavError(f"{path}: there are no samples in it")


def samples(path, body, kind, channels, rate, align, bits):
    width = bits // 8
    if (kind, bits) not in [(1, 8), (1, 16), (1, 24), (1, 32), (3, 32), (3, 64)]:
        raise WavError(f"{path}: neither PCM nor float samples (format {kind}, {bits} bits)")
    if not 1 <= channels <= 64 or align != channels * width or not 1000 <= rate <= 768000:
        raise WavError(f"{path}: odd format ({channels} channels, {rate} Hz)")
    body = body[:len(body) // align * align]
    if kind == 3:
        x = np.frombuffer(body, f"<f{width}").astype(np.float64)
    elif bits == 8:
        x = np.frombuffer(body, np.uint8) / 128.0 - 1
    else:  # the sample's bytes at the top of 32 bits
        wide = np.zeros((len(body) // width, 4), np.uint8)
        wide[:, 4 - width:] = np.frombuffer(body, np.uint8).reshape(-1, width)
        x = wide.reshape(-1).view("<i4") / 2.0**31
    if not len(x) or not np.isfinite(x).all():
        raise WavError(f"{path}: no samples, or samples that are no numbers")
    return x.reshape(-1, channels).mean(1), rate


def resample(x, rate, new_rate, zeros=16):
    """Band-limited interpolation by a polyphase windowed sinc with `zeros` zero crossings per side."""
    if rate == new_rate:
        return x
    g = math.gcd(rate, new_rate)
    up, down = new_rate // g, rate // g
    cutoff = 0.94 * min(1.0, new_rate / rate)
    half = math.ceil(zeros / cutoff)
    n = -(-len(x) * up // down)
    x = np.pad(x, (half, half + 1))
    y = np.empty(n)
    offset = np.arange(-half + 1, half + 1)
    for begin in range(0, n, 16384):
        position = np.arange(begin, min(begin + 16384, n), dtype=np.int64) * down
        t = offset - (position % up / up)[:, None]
        window = np.where(np.abs(t) < half, np.cos(np.pi * t / (2 * half)) ** 2, 0)
        taps = np.sinc(cutoff * t) * window
        taps /= taps.sum(1, keepdims=True)
        y[begin:begin + len(t)] = (x[(position // up)[:, None] + offset + half] * taps).sum(1)
    return y


def load(path, rate):
    return resample(*read_wav(path), rate).astype(np.float32)


def speech(rate, seconds=None):
    """The sentences above with pauses between them. If `seconds` is given, repeated and cut to that length."""
    parts, made, count = [], {}, 0
    noise = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        while seconds is None or sum(map(len, parts)) < seconds * rate:
            i, voice = count % len(SENTENCES), count // len(SENTENCES) % 3
            if seconds is None and count == len(SENTENCES):
                break
            if (i, voice) not in made:
                path = os.path.join(folder, "sentence.wav")
                subprocess.run(["espeak-ng", "-v", ("en", "en+f3", "en+m4")[voice], "-s", "150",
                                "-w", path, SENTENCES[i]], check=True)
                made[i, voice] = load(path, rate)
            parts += [np.zeros(int(PAUSES[i] * rate)), made[i, voice]]
            count += 1
        parts.append(np.zeros(rate))
    x = np.concatenate(parts)
    x += noise.standard_normal(len(x)) * 1e-3  # no room is silent
    return x[:None if seconds is None else int(seconds * rate)].astype(np.float32)


def chunks(x, rate):
    """silero's input: [steps, 1, context + chunk], where each chunk follows the end of the one before."""
    size, context = (512, 64) if rate == 16000 else (256, 32)
    steps = -(-len(x) // size)
    x = np.concatenate([np.zeros(context), x, np.zeros(steps * size - len(x))]).astype(np.float32)
    at = np.arange(steps)[:, None] * size + np.arange(context + size)
    return np.ascontiguousarray(x[at][:, None])
