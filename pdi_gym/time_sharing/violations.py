"""What averages violate and by how much, and the instances on which no agent met all constraints."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from pdi_gym.problem import Problem

MARK = "†"
_KEPT = 10
_NAMED = 3
_TOLD = 5

Violation = dict[str, Any]
"""{"total", "constraints", "carried_by"}: the sum of the positive residuals, how many constraints are above
the problem's tolerance, and the ten worst of these by name, each with its residual."""


def violation(problem: Problem, residuals: np.ndarray) -> Violation | None:
    """What average residuals (m,) violate, as JSON-ready values; None when all are within tolerance."""
    above = np.flatnonzero(~(residuals <= problem.tolerance))
    if len(above) == 0:
        return None
    names = problem.constraint_names
    worst = above[np.argsort(-residuals[above], kind="stable")][:_KEPT]
    return {
        "total": float(np.clip(residuals, 0, None).sum()),
        "constraints": len(above),
        "carried_by": {str(names[j]): float(residuals[j]) for j in worst},
    }


def unmet(rows: Iterable[Mapping[str, Any]]) -> dict[int, Mapping[str, Any]]:
    """The instances on which no agent met all constraints, each with its row of least total violation."""
    least: dict[int, Mapping[str, Any]] = {}
    met = set()
    for row in rows:
        i, own = row["instance"], row["violation"]
        if own is None:
            met.add(i)
        elif i not in least or own["total"] < least[i]["violation"]["total"]:
            least[i] = row
    return {i: row for i, row in sorted(least.items()) if i not in met}


def notes(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """A sentence for each instance on which no agent met all constraints, and how many more there are."""
    found = unmet(rows)
    sentences = [
        f"{MARK} No agent met all constraints on instance {i}; the least total violation is "
        f"{row['violation']['total']:.4g}, by {row['agent']}, carried by {carriers(row['violation'])}."
        for i, row in itertools.islice(found.items(), _TOLD)
    ]
    if (more := len(found) - _TOLD) > 0:
        sentences.append(f"{MARK} The same holds for {more} more instance{'s' * (more > 1)}.")
    return sentences


def carriers(found: Violation) -> str:
    """The worst constraints with their residuals, in words."""
    worst = list(found["carried_by"].items())[:_NAMED]
    words = ", ".join(f"{name} ({residual:.3g})" for name, residual in worst)
    more = found["constraints"] - len(worst)
    return words + (f" and {more} more" if more else "")
