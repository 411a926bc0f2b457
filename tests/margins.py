"""The room that a comparison of numbers leaves: 1 is all of it, 0 none, and below 0 it fails."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def numbers(value: Any) -> np.ndarray | None:
    """As float64, or None if it is not numeric."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):
        return None
    return array.astype(float) if array.dtype.kind in "fiu" else None


def fractional(*values: Any) -> bool:
    """Whether one of them is not a count: whole numbers do not come near a limit."""
    return any(np.asarray(v).dtype.kind == "f" for v in values if numbers(v) is not None)


def least(room: np.ndarray) -> float | None:
    """The tightest element's, or None if there is none."""
    return float(np.nanmin(room)) if np.isfinite(room).any() else None


def ordered(name: str, left: Any, right: Any) -> float | None:
    """Room of `left < right` and its like."""
    a, b = numbers(left), numbers(right)
    if a is None or b is None or not fractional(left, right):
        return None
    margin = b - a if name in ("Lt", "LtE") else a - b
    scale = np.maximum(np.abs(a), np.abs(b))
    return least(margin / np.where(scale == 0, np.nan, scale))


def between(low: Any, value: Any, high: Any) -> float | None:
    """Room of `low < value < high`."""
    a, x, b = numbers(low), numbers(value), numbers(high)
    if a is None or x is None or b is None or not fractional(low, value, high):
        return None
    margin, half = np.minimum(x - a, b - x), (b - a) / 2
    return least(margin / np.where(half == 0, np.nan, half))


def within(actual: Any, expected: Any, rtol: float, atol: float, negated: bool) -> float | None:
    """Room of |actual − expected| ≤ atol + rtol |expected|, or of the contrary."""
    a, b = numbers(actual), numbers(expected)
    if a is None or b is None or not a.size:
        return None
    error, tolerance = np.abs(a - b), atol + rtol * np.abs(b) + 0 * a
    if negated:
        return 1 - float(np.min(tolerance / np.maximum(error, 1e-300)))
    return least(1 - error / np.where(tolerance == 0, np.nan, tolerance))


def approximately(actual: Any, approx: Any, negated: bool) -> float | None:
    """Room of `actual == pytest.approx(…)`, with pytest's rule for what is left out."""
    expected = approx.expected
    if isinstance(expected, dict):
        actual, expected = [actual[k] for k in expected], list(expected.values())
    size = numbers(expected)
    if size is None or not size.size:
        return None
    relative = approx.rel if approx.rel is not None else (1e-6 if approx.abs is None else 0.0)
    absolute = 1e-12 if approx.abs is None else approx.abs
    tolerance = np.maximum(relative * np.abs(size), absolute)
    got = numbers(actual)
    if got is None:
        return None
    return within(got / tolerance, size / tolerance, 0.0, 1.0, negated)
