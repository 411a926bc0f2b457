"""What the spread over instances allows one to say: intervals, paired differences, Pareto fronts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pdi_gym.validation import check_int


@dataclass(frozen=True)
class Interval:
    """A mean and the ends of its confidence interval."""

    mean: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0


def bootstrap(
    values: np.ndarray, level: float = 0.95, resamples: int = 4000, seed: int = 0
) -> Interval | None:
    """Percentile bootstrap of the mean of values (k,), resampled whole; None for fewer than two.

    With a handful of values it is too narrow (by a factor of about √((k−1)/k) and thin tails):
    read it as a lower bound on the uncertainty.
    """
    check_int("resamples", resamples, 1)
    if not 0 < level < 1:
        raise ValueError(f"level must be in (0, 1), got {level}")
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 1 or not np.isfinite(values).all():
        raise ValueError(f"values must be a vector of finite numbers, got shape {values.shape}")
    if len(values) < 2:
        return None
    rng = np.random.default_rng(seed)
    means = values[rng.integers(len(values), size=(resamples, len(values)))].mean(1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(values.mean()), float(low), float(high))


@dataclass(frozen=True)
class Paired:
    """How one agent differs from another on the instances that both have seen."""

    mean: float
    """Mean of own − other."""
    interval: Interval | None
    better: int
    """Instances on which own is strictly better; 0 for a metric without a direction."""
    worse: int
    n: int


def paired(own: Mapping[int, float], other: Mapping[int, float], direction: int = 0) -> Paired:
    """own − other over the common instances {instance: value}: what both share cancels out."""
    common = sorted(own.keys() & other.keys())
    if not common:
        raise ValueError("own and other must have an instance in common")
    difference = np.array([own[i] - other[i] for i in common])
    gain = direction * difference
    return Paired(
        float(difference.mean()),
        bootstrap(difference),
        int((gain > 0).sum()),
        int((gain < 0).sum()),
        len(common),
    )


def best(values: Mapping[str, float], direction: int, digits: int = 4) -> set[str]:
    """Names that share the best value to `digits` significant digits; none without a direction."""
    if direction == 0 or not values:
        return set()
    top = max(direction * v for v in values.values())
    return {name for name, v in values.items() if f"{direction * v:.{digits}g}" == f"{top:.{digits}g}"}


def pareto(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """Names of the points that no other beats in both coordinates (smaller is better), left to right.

    Points that are not finite are never among them.
    """
    finite = {name: p for name, p in points.items() if np.isfinite(p).all()}
    front = [
        name
        for name, p in finite.items()
        if not any(q[0] <= p[0] and q[1] <= p[1] and q != p for q in finite.values())
    ]
    return sorted(front, key=lambda name: points[name])
