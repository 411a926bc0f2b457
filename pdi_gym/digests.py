"""Digests of content: what tells two problems, agents or settings apart, to the last bit.

Arrays count whole, objects by their class and attributes, functions and classes of the user's own by
their code and by the globals, closures and defaults that the code refers to. Functions and classes of
installed libraries count by name; pdi-gym's own do too, since its version is part of every key.
"""

from __future__ import annotations

import functools
import hashlib
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pdi_gym.problem import Problem

_SCALARS = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


class UndigestibleError(TypeError):
    """Something holds a value whose content cannot be read, such as an open file."""


def content_digest(*values: Any) -> str:
    """The SHA-256 of the values' content; the same in every process on every machine."""
    return _Digest().of(values)


def problem_digest(problem: Problem) -> str | None:
    """The digest of a problem, or None if it holds something that has none."""
    try:
        return content_digest(problem)
    except UndigestibleError:
        return None


class _Digest:
    """One walk through nested content; what it is inside of is known, so that cycles end."""

    def __init__(self) -> None:
        self._open: dict[int, int] = {}

    def of(self, value: Any) -> str:
        if id(value) in self._open:
            return f"cycle {len(self._open) - self._open[id(value)]}"
        self._open[id(value)] = len(self._open)
        content = hashlib.sha256()
        for part in self._parts(value):
            content.update(len(part).to_bytes(8, "big") + part)
        del self._open[id(value)]
        return content.hexdigest()

    def _parts(self, value: Any) -> Iterator[bytes]:
        """The bytes that tell a value from others: its type first, then its content."""
        yield _name(type(value)).encode()
        if isinstance(value, Enum):
            yield value.name.encode()
        elif isinstance(value, _SCALARS):
            yield repr(value).encode("utf-8", "surrogatepass")
        elif isinstance(value, torch.Tensor):
            yield from _array(value.detach().cpu().contiguous().resolve_conj())
        elif isinstance(value, np.ndarray | np.generic):
            yield from self._numpy(np.asarray(value))
        elif isinstance(value, dict):
            yield from sorted(f"{self.of(k)} {self.of(v)}".encode() for k, v in value.items())
        elif isinstance(value, set | frozenset):
            yield from sorted(self.of(v).encode() for v in value)
        elif isinstance(value, list | tuple):
            yield from (self.of(v).encode() for v in value)
        elif isinstance(value, type):
            yield from self._class(value)
        elif isinstance(value, types.FunctionType):
            yield from self._function(value)
        elif isinstance(value, types.MethodType):
            yield from (self.of(v).encode() for v in (value.__func__, value.__self__))
        elif isinstance(value, types.BuiltinFunctionType):
            yield value.__name__.encode()
        elif isinstance(value, types.ModuleType):
            yield from self._module(value)
        else:
            yield from self._object(value)

    def _numpy(self, value: np.ndarray) -> Iterator[bytes]:
        yield repr((value.dtype.str, value.shape)).encode()
        if value.dtype.hasobject:
            yield from (self.of(v).encode() for v in value.ravel().tolist())
        else:
            yield np.ascontiguousarray(value).tobytes()

    def _object(self, value: Any) -> Iterator[bytes]:
        """An object by its class and attributes, or by how it says that it can be rebuilt."""
        yield self.of(type(value)).encode()
        if isinstance(value, torch.Generator):
            yield self.of(value.get_state()).encode()
        elif isinstance(value, Problem) or is_dataclass(value) or isinstance(value, torch.nn.Module):
            yield self.of(_attributes(value)).encode()
        else:
            try:
                rebuilt = value.__reduce_ex__(4)
            except Exception as error:
                raise UndigestibleError(f"{type(value).__name__} has no content to tell: {error}") from None
            yield self.of(rebuilt if isinstance(rebuilt, str) else rebuilt[1:3]).encode()
            if not isinstance(rebuilt, str):
                yield from (self.of(list(items)).encode() for items in rebuilt[3:5] if items is not None)

    def _module(self, value: types.ModuleType) -> Iterator[bytes]:
        """A module by its name and, if it is the user's, by all that it holds: code may reach any of it."""
        yield value.__name__.encode()
        if not _of_library(value.__name__):
            yield self.of({k: v for k, v in vars(value).items() if not k.startswith("__")}).encode()

    def _class(self, value: type) -> Iterator[bytes]:
        yield _name(value).encode()
        if _of_library(value.__module__):
            return
        yield from (self.of(base).encode() for base in value.__bases__)
        members = {k: v for k, v in vars(value).items() if k not in _OF_EVERY_CLASS and not _given(v)}
        yield self.of({k: _plain(v) for k, v in members.items()}).encode()

    def _function(self, value: types.FunctionType) -> Iterator[bytes]:
        yield _name(value).encode()
        if _of_library(value.__module__):
            return
        yield self.of(_code(value.__code__)).encode()
        yield self.of((value.__defaults__, value.__kwdefaults__)).encode()
        cells = value.__closure__ or ()
        # `super()` and a class that names itself put the class into a cell: it is known by its name there.
        held = [c.cell_contents for c in cells if not isinstance(c.cell_contents, type)]
        yield self.of(held).encode()
        known = {n: value.__globals__[n] for n in sorted(_names(value.__code__)) if n in value.__globals__}
        yield self.of(known).encode()


_OF_EVERY_CLASS = {
    "__dict__",
    "__weakref__",
    "__doc__",
    "__module__",
    "__qualname__",
    "__firstlineno__",
    "__static_attributes__",
    "__annotations__",
    "__abstractmethods__",
    "_abc_impl",
    "__parameters__",
    "__protocol_attrs__",
    "__non_callable_proto_members__",
    "__subclasshook__",
    "__signature__",
    "__slotnames__",
    "_is_protocol",
}
"""Members that say nothing of what a class does."""


def _name(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def _array(tensor: torch.Tensor) -> Iterator[bytes]:
    yield repr((str(tensor.dtype), tuple(tensor.shape))).encode()
    yield tensor.flatten().view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def _attributes(value: Any) -> dict[str, Any]:
    """What an object holds, without what it has cached of its own properties."""
    if isinstance(value, torch.nn.Module):
        return dict(value.state_dict())
    held = dict(getattr(value, "__dict__", {}))
    if is_dataclass(value):
        held |= {f.name: getattr(value, f.name) for f in fields(value) if hasattr(value, f.name)}
    cached = functools.cached_property
    return {k: v for k, v in held.items() if not isinstance(getattr(type(value), k, None), cached)}


def _given(member: Any) -> bool:
    """Whether a class has a member from typing or object, as protocols get their `__init__`."""
    return isinstance(member, types.WrapperDescriptorType) or getattr(member, "__module__", "") == "typing"


def _plain(member: Any) -> Any:
    """What a descriptor of a class stands for: the functions behind it."""
    if isinstance(member, property):
        return (member.fget, member.fset, member.fdel)
    if isinstance(member, classmethod | staticmethod):
        return member.__func__
    if isinstance(member, functools.cached_property):
        return member.func
    wrapped: Callable[..., Any] | None = getattr(member, "__wrapped__", None)
    return member if wrapped is None or isinstance(member, types.FunctionType) else wrapped


def _code(code: types.CodeType) -> tuple[Any, ...]:
    """What compiled code does: not where it stands, nor its comments."""
    constants = tuple(_code(c) if isinstance(c, types.CodeType) else c for c in code.co_consts)
    return code.co_code, constants, code.co_names, code.co_varnames, code.co_freevars


def _names(code: types.CodeType) -> set[str]:
    """The global names and attributes that code and the code inside it refer to."""
    inner = [_names(c) for c in code.co_consts if isinstance(c, types.CodeType)]
    return set(code.co_names).union(*inner)


@functools.cache
def _of_library(module: str | None) -> bool:
    """Whether a module is installed, built in or our own, so that its name says enough."""
    top = (module or "").partition(".")[0]
    if top in sys.stdlib_module_names or top == "pdi_gym":
        return top != "__main__"
    file = getattr(sys.modules.get(top), "__file__", None)
    return file is not None and any(Path(file).is_relative_to(folder) for folder in _LIBRARIES)
