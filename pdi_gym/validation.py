"""Input checks whose messages name the argument, the value and the fix."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

import numpy as np
import torch
from torch import Tensor


def check_int(name: str, value: Any, minimum: int, maximum: int | None = None) -> int:
    whole = not isinstance(value, bool | np.bool_) and hasattr(value, "__index__") and not _array(value)
    if not whole or int(value) < minimum:
        raise ValueError(f"{name} must be a whole number ≥ {minimum}, got {value!r}")
    if maximum is not None and int(value) > maximum:
        raise ValueError(f"{name} must be at most {maximum}, got {value!r}")
    return int(value)


def check_number(
    name: str, value: Any, minimum: float = -math.inf, *, above: bool = False, allow_inf: bool = False
) -> float:
    """A finite number ≥ minimum, or > minimum with `above`; neither a string of digits nor a truth value."""
    bound = f"{'>' if above else '≥'} {minimum:g}"
    try:
        if isinstance(value, str | bytes | bytearray | bool | np.bool_) or _array(value):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise ValueError(f"{name} must be a number {bound}, got {value!r}") from None
    finite = math.isfinite(number) or (allow_inf and number == math.inf)
    if not finite or number < minimum or (above and number == minimum):
        raise ValueError(f"{name} must be a finite number {bound}, got {value!r}")
    return number


def _array(value: Any) -> bool:
    return getattr(value, "ndim", 0) != 0


def settle(settings: Any) -> None:
    """Turn the NumPy and torch scalars of a frozen dataclass into Python's own, which JSON can hold.

    Fields that are declared to be truth values must hold one.
    """
    for field in fields(settings):
        value = getattr(settings, field.name)
        if hasattr(value, "item") and not _array(value):
            value = value.item()
            object.__setattr__(settings, field.name, value)
        if field.type == "bool" and not isinstance(value, bool):
            raise ValueError(f"{field.name} must be True or False, got {value!r}")


def check_choice(name: str, value: Any, choices: Iterable[str]) -> str:
    choices = list(choices)
    if value not in choices:
        raise ValueError(
            f"{name} must be one of {', '.join(choices)}; got {value!r}{suggest(value, choices)}"
        )
    return str(value)


def check_tensor(
    name: str, value: Any, shape: tuple[int | None, ...], dtype: torch.dtype = torch.float32
) -> Tensor:
    """A finite tensor of that shape, a copy of its own; None in the shape admits any length."""
    wanted = "(" + ", ".join("any" if s is None else str(s) for s in shape) + ")"
    tensor = to_tensor(name, value, wanted, dtype).detach().clone()
    if tensor.ndim != len(shape) or any(s not in (None, n) for s, n in zip(shape, tensor.shape, strict=True)):
        raise ValueError(f"{name} must have shape {wanted}, got {tuple(tensor.shape)}")
    bad = ~torch.isfinite(tensor)
    if bad.any():
        where = tuple(int(i) for i in bad.nonzero()[0])
        raise ValueError(
            f"{name} must be finite, got {tensor[where].item()} at index {where}: drop or fill it"
        )
    return tensor


def to_tensor(name: str, value: Any, wanted: str, dtype: torch.dtype = torch.float32) -> Tensor:
    """The value as a tensor of any shape; `wanted` says in the error which shapes are meant."""
    try:
        return torch.as_tensor(value, dtype=dtype)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(
            f"{name} must be an array of numbers of shape {wanted}, got {type(value).__name__}"
        ) from None


def suggest(value: Any, choices: Iterable[str]) -> str:
    """' — did you mean …?' for the closest names, or nothing."""
    close = difflib.get_close_matches(str(value), list(choices), n=3, cutoff=0.5)
    return f" — did you mean {' or '.join(close)}?" if close else ""
