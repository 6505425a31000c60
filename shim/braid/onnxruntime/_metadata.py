"""What a model file says of itself, read without its graph."""
import os
from collections.abc import Iterator


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")


def _fields(data: memoryview) -> Iterator[tuple[int, object]]:
    """The fields of a protobuf message: (number, int or memoryview)."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
        elif kind == 2:
            size, at = _varint(data, at)
            if size > len(data) - at:
                raise ValueError("a field is longer than its message")
            yield key >> 3, data[at:at + size]
            at += size
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            raise ValueError("a field has an unknown type")


def _text(value: object) -> str:
    return bytes(value).decode("utf-8", "replace") if isinstance(value, memoryview) else ""


def read_metadata(model: bytes | str | os.PathLike) -> dict[str, object]:
    """Of a file's path or bytes: producer_name, domain, description, version, and custom (a dict
    of the model's metadata). Empty where the file is not an ONNX model."""
    found: dict[str, object] = {"producer_name": "", "domain": "", "description": "", "version": 0, "custom": {}}
    names = {2: "producer_name", 4: "domain", 6: "description"}
    custom: dict[str, str] = {}
    try:
        if isinstance(model, (bytes, bytearray, memoryview)):
            data = memoryview(model)
        else:
            with open(model, "rb") as f:
                data = memoryview(f.read())
        for number, value in _fields(data):
            if number in names:
                found[names[number]] = _text(value)
            elif number == 5 and isinstance(value, int):
                found["version"] = value - (1 << 64) if value >> 63 else value
            elif number == 14 and isinstance(value, memoryview):
                pair = dict(_fields(value))
                custom[_text(pair.get(1))] = _text(pair.get(2))
    except (ValueError, IndexError, OSError):
        pass
    found["custom"] = custom
    return found
