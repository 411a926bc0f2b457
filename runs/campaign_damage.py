"""Ways to damage a file: its bytes, its JSON, its header, or content with the digests made right again."""

from __future__ import annotations

import copy
import io
import json
import random
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save

from pdi_gym.checkpoints import _whole_digest, sealed

Place = tuple[dict[str, Any] | list[Any], Any]


def damaged(rng: random.Random, name: str, whole: bytes, other: bytes) -> tuple[str, bytes]:
    """A way and the damaged content; `other` is a whole file of the same kind."""
    ways = [*_BYTES]
    if name.endswith(".json"):
        ways += [*_TEXT, "forged fields"] * 2
    elif name.endswith(".safetensors"):
        ways += ["header", "header", "forged fields", "forged tensors"] * 2
    else:
        ways += ["arrays"] * 3
    way = rng.choice(ways)
    if way == "swapped":
        return way, other
    if way in _BYTES:
        return way, _BYTES[way](rng, whole)
    if way in _TEXT:
        return way, _TEXT[way](rng, whole.decode()).encode()
    return way, _STRUCTURED[way](rng, whole)


# Bytes.


def _flip(rng: random.Random, whole: bytes) -> bytes:
    content = bytearray(whole)
    for _ in range(rng.choice((1, 1, 2, 8, 64))):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return bytes(content)


def _overwrite(rng: random.Random, whole: bytes) -> bytes:
    start = rng.randrange(len(whole))
    length = rng.randint(1, 64)
    return whole[:start] + rng.randbytes(length) + whole[start + length :]


def _cut_out(rng: random.Random, whole: bytes) -> bytes:
    start = rng.randrange(len(whole))
    return whole[:start] + whole[start + rng.randint(1, 200) :]


def _insert(rng: random.Random, whole: bytes) -> bytes:
    start = rng.randrange(len(whole))
    return whole[:start] + rng.choice((rng.randbytes(9), b"\0" * 40, whole[:30])) + whole[start:]


def _length(rng: random.Random, whole: bytes) -> bytes:
    """The first eight bytes are a length in safetensors, a signature elsewhere."""
    return struct.pack("<Q", rng.choice((0, 1, 2**31, 2**40, 2**63, 2**64 - 1))) + whole[8:]


_BYTES: dict[str, Callable[[random.Random, bytes], bytes]] = {
    "flipped": _flip,
    "overwritten": _overwrite,
    "truncated": lambda rng, whole: whole[: rng.randrange(len(whole))],
    "cut out": _cut_out,
    "inserted": _insert,
    "extended": lambda rng, whole: whole + rng.randbytes(rng.randint(1, 99)),
    "length": _length,
    "emptied": lambda rng, whole: rng.choice((b"", b"\0" * len(whole), b"null", b"[]", b"{}", b"\x80\x04N.")),
    "swapped": lambda rng, whole: whole,
}

# JSON.

_NUMBERS = (True, False, 0, -1, 1, 2, 3, 1.5, -0.0, 1e308, 5e-324, 2**31, 2**63, 10**30, 30_000)
_WORDS = ("", "50", "nan", "x" * 5000, "\ud800", "../..", "/dev/zero")
_NESTED: tuple[Any, ...] = (None, [], {}, [[]], [None], {"a": 1}, [1, 2], [0.5] * 200)
ODD = (*_NUMBERS, *_WORDS, *_NESTED)


def _places(content: Any) -> list[Place]:
    """Every place of a nested value: the container and the key or index."""
    inside = content.items() if isinstance(content, dict) else enumerate(content)
    found: list[Place] = []
    for key, value in inside:
        found.append((content, key))
        if isinstance(value, dict | list):
            found += _places(value)
    return found


def _edited(rng: random.Random, content: Any) -> Any:
    """One to three fields replaced, removed, doubled or renamed."""
    content = copy.deepcopy(content)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places = _places(content)
        if not places:
            break
        inside, key = rng.choice(places)
        what = rng.random()
        if what < 0.6:
            inside[key] = copy.deepcopy(rng.choice(ODD))
        elif what < 0.75:
            del inside[key]
        elif isinstance(inside, dict):
            inside[rng.choice(("x", "digest", "T", "a" * 300, f"{key} "))] = inside.pop(key)
        else:
            inside.append(inside[key])
    return content


def _repeated(rng: random.Random, text: str) -> str:
    start = text.index("{") + 1
    twice = json.dumps(rng.choice(list(json.loads(text)))) + ": " + json.dumps(rng.choice(ODD))
    return f"{text[:start]}{twice}, {text[start:]}"


def _nested(rng: random.Random, text: str) -> str:
    depth = rng.choice((40, 49, 60, 1000, 20_000))
    opened, closed = rng.choice((("[", "]"), ('{"a":', "}")))
    deep = opened * depth + "1" + closed * depth
    start = text.index("{") + 1
    return f'{text[:start]}"deep": {deep}, {text[start:]}'


def _huge(rng: random.Random, text: str) -> str:
    number = rng.choice(
        ("1e999", "-1e999", "NaN", "Infinity", "9" * 400, "9" * 5000, "1e-999999", "0x1", "01")
    )
    digits = [k for k, c in enumerate(text) if c.isdigit()]
    at = rng.choice(digits) if digits else len(text)
    return text[:at] + number + text[at + 1 :]


_TEXT: dict[str, Callable[[random.Random, str], str]] = {
    "fields": lambda rng, text: json.dumps(_edited(rng, json.loads(text))),
    "repeated": _repeated,
    "nested": _nested,
    "huge": _huge,
    "spaced": lambda rng, text: text.replace(" ", "  ") + "\n" * rng.randint(0, 3),
}

# Headers, and forgeries: edits after which the digests are made right again.


def _header(rng: random.Random, whole: bytes) -> bytes:
    """The header of a file of tensors with fields edited, its length made right."""
    size = struct.unpack("<Q", whole[:8])[0]
    text = whole[8 : 8 + size].decode()
    text = _TEXT[rng.choice(list(_TEXT))](rng, text)
    head = text.encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(head)) + head + whole[8 + size :]


def _forged_fields(rng: random.Random, whole: bytes) -> bytes:
    if whole[:1] in b"{[":
        content = _edited(rng, json.loads(whole))
        return json.dumps(sealed(content) if isinstance(content, dict) else content).encode()
    tensors, metadata = _unpacked(whole)
    return _packed(tensors, _edited(rng, metadata))


def _forged_tensors(rng: random.Random, whole: bytes) -> bytes:
    """Tensors of another type, shape, value or name."""
    tensors, metadata = _unpacked(whole)
    for _ in range(rng.choice((1, 1, 2))):
        name = rng.choice(sorted(tensors))
        tensor, what = tensors[name], rng.randrange(7)
        if what == 0:
            del tensors[name]
        elif what == 1:
            tensors[rng.choice(("x", name + ".0", "optimiser.99.step", "optimiser.a.b"))] = tensors.pop(name)
        elif what == 2:
            kinds = (torch.int64, torch.float64, torch.uint8, torch.bool, torch.float16)
            tensors[name] = tensor.to(rng.choice(kinds))
        elif what == 3:
            tensors[name] = torch.cat([tensor.flatten(), tensor.flatten()])
        elif what == 4:
            tensors[name] = tensor.flatten()[:0]
        elif what == 5:
            tensors[name] = torch.full_like(tensor.double(), rng.choice((float("nan"), 1e300, -7.0))).to(
                tensor
            )
        else:
            tensors[name] = tensor.unsqueeze(0)
        if not tensors:
            break
    return _packed(tensors, metadata)


def _unpacked(whole: bytes) -> tuple[dict[str, torch.Tensor], Any]:
    size = struct.unpack("<Q", whole[:8])[0]
    return load(whole), json.loads(json.loads(whole[8 : 8 + size])["__metadata__"]["content"])


def _packed(tensors: dict[str, torch.Tensor], metadata: Any) -> bytes:
    content = json.dumps(metadata)
    digest = _whole_digest(tensors, content)
    return save(tensors, {"format": "2", "content": content, "digest": digest})


def _arrays(rng: random.Random, whole: bytes) -> bytes:
    """An npz with one array replaced, removed or added, as NumPy itself would write it."""
    with np.load(io.BytesIO(whole)) as data:
        arrays = dict(data)
    name = rng.choice(sorted(arrays))
    shapes = (np.zeros(0), np.zeros((3, 1)), np.array(1), np.full((4, 2), 1e300), np.array(np.nan))
    types = (
        np.zeros(4, bool),
        np.zeros(4, complex),
        np.zeros(2, [("a", "f8")]),
        np.array("x"),
        np.array(["a"]),
    )
    new = rng.choice([*shapes, *types])
    if rng.random() < 0.2:
        del arrays[name]
    else:
        arrays[rng.choice((name, name, name, "trace.x", "x"))] = new
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


_STRUCTURED = {
    "header": _header,
    "forged fields": _forged_fields,
    "forged tensors": _forged_tensors,
    "arrays": _arrays,
}
FORGERIES = ("forged fields", "forged tensors", "arrays", "swapped")
"""Ways after which a file may be valid, with other content: those that a digest of its own cannot tell."""
