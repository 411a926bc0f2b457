"""The natural units of a problem by a pilot estimate, and the problem as it looks in them.

A user's own problem may count in watts or microwatts, in euros or millions. Samplers need numbers of
order one: decisions of that size, an objective and constraints that vary by that much. The pilot
evaluates a few hundred random decisions to find these units. `InScales` is the same problem in them,
where one set of defaults suits all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pdi_gym.policy import TimeSharingPolicy
from pdi_gym.problem import Problem
from pdi_gym.samplers import Callback, Samples, Step

_POINTS, _DRAWS, _DIRECTIONS = 512, 64, 64
_SEED = 20_000
"""Of the pilot's own generator: a problem's scales depend on nothing but the problem."""
_TAIL = 0.01
"""Fraction at either end that counts as no further out: a barrier's peak is not its scale."""
_LENGTHS = torch.arange(-60, 61, 2).double().exp2()


@dataclass(frozen=True)
class Scales:
    """Units in which a problem is of order one, each a number in the problem's own units."""

    latent: float
    """Half-width of the latent box; where there is none, how far from the origin decisions have to reach."""
    centre: float
    """Average objective over that range."""
    objective: float
    """Spread (standard deviation) of the objective over that range."""
    constraints: tuple[float, ...]
    """Spread of every constraint over that range."""

    def duals(self, lam: Any) -> Any:
        """Multipliers (..., m) in the problem's own units, objective per residual."""
        return lam * _like(lam, [self.objective / size for size in self.constraints])

    def residuals(self, f: Any) -> Any:
        """Residuals (..., m) in the problem's own units."""
        return f * _like(f, self.constraints)

    def value(self, f0: Any) -> Any:
        """Objective values in the problem's own unit."""
        return f0 * self.objective + self.centre

    def step(self, step: Step) -> Step:
        """What a callback sees, in the problem's own units."""
        return step._replace(
            z=step.z * self.latent,
            clean=step.clean * self.latent,
            lam=self.duals(step.lam),
            residual=self.residuals(step.residual),
        )

    def callback(self, callback: Callback | None) -> Callback | None:
        """A callback that is shown the problem's own units."""
        return None if callback is None else lambda step: callback(self.step(step))

    def samples(self, samples: Samples) -> Samples:
        """What a sampler gave, in the problem's own units."""
        return Samples(samples.z * self.latent, self.duals(samples.duals), self.duals(samples.dual_path))

    def policy(self, policy: TimeSharingPolicy) -> TimeSharingPolicy:
        """Multipliers and diagnostics in the problem's own units; decisions are in them already.

        The excess of column generation, a sum over constraints, stays in units of their scales.
        """
        info = dict(policy.info)
        if "trace" in info:
            trace = info["trace"]
            own = {"duals": self.duals(trace["duals"]), "residuals": self.residuals(trace["residuals"])}
            info["trace"] = trace | own
        if "rounds" in info:
            info["rounds"] = _changed(info["rounds"], self.value)
            info |= _changed({k: info[k] for k in ("value", "bound") if info[k] is not None}, self.value)
        duals, mean_duals = (
            None if lam is None else self.duals(lam) for lam in (policy.duals, policy.mean_duals)
        )
        return replace(policy, duals=duals, mean_duals=mean_duals, info=info)


def _changed(values: dict[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    return {k: change(v) if k in ("value", "bound") else v for k, v in values.items()}


def _like(values: Any, units: Any) -> Any:
    if isinstance(values, Tensor):
        return torch.tensor(units, dtype=values.dtype)
    return np.array(units, dtype=values.dtype)


@torch.no_grad()
def pilot(problem: Problem) -> Scales:
    """The scales of a problem from 512 random latents, averaged over 64 realisations where not exact."""
    generator = torch.Generator().manual_seed(_SEED)
    xi = None if problem.exact else problem.draw(_DRAWS, generator)
    if math.isinf(problem.bound):
        points = torch.randn((_POINTS, problem.latent_dim), generator=generator)
        latent = _reach(problem, points[:_DIRECTIONS], xi)
    else:
        points = 2 * torch.rand((_POINTS, problem.latent_dim), generator=generator) - 1
        latent = float(problem.bound)
    f0, f = (v.double() for v in problem.values(problem.decode(problem.project(latent * points)), xi))
    known = f0[torch.isfinite(f0)]
    centre = float(known.mean()) if len(known) else 0.0
    return Scales(latent, centre, _spread(f0), tuple(_spread(f[:, j]) for j in range(f.shape[1])))


def _spread(values: Tensor) -> float:
    """Standard deviation without the tails; of what does not vary its size, and 1 for zeros."""
    values = values[torch.isfinite(values)]
    if len(values) == 0:
        return 1.0
    low, high = (values.quantile(q) for q in (_TAIL, 1 - _TAIL))
    inner, size = float(values.clamp(low, high).std()), float(values.abs().max())
    return next((v for v in (inner, float(values.std())) if v > 1e-6 * size), size or 1.0)


def _reach(problem: Problem, directions: Tensor, xi: Tensor | None) -> float:
    """How far from the origin decisions have to go, where no box says it.

    Along random directions, the objective has a length where its curvature overtakes its slope; a
    constraint has one where it varies by as much as it is at the origin. The farthest of the
    objective and of the constraints that the origin violates counts; if there is none, the nearest
    of the others; and 1 for a problem without any length.
    """

    def levels(length: float) -> Tensor:
        """(1 + m,) numbers that turn positive at the lengths looked for."""
        ends = length * directions
        z = torch.cat([torch.zeros_like(ends[:1]), ends, -ends])
        f0, f = (v.double() for v in problem.values(problem.decode(problem.project(z)), xi))
        ahead, behind = f0[1 : 1 + len(ends)], f0[1 + len(ends) :]
        curved = (f0[1:] - f0[0]).mean() - (ahead - behind).abs().mean() / 2
        return torch.cat([curved.view(1), (f[1:] - f[0]).abs().mean(0) - f[0].abs()])

    table = torch.stack([levels(float(length)) for length in _LENGTHS]) > 0
    lengths = [_crossing(lambda x, j=j: bool(levels(x)[j] > 0), column) for j, column in enumerate(table.T)]
    at_origin = problem.constraints(problem.decode(problem.project(torch.zeros_like(directions[:1]))), xi)
    needed = [True, *(at_origin[0] > 0).tolist()]
    far = [x for x, need in zip(lengths, needed, strict=True) if x is not None and need]
    near = [x for x, need in zip(lengths, needed, strict=True) if x is not None and not need]
    return max(far) if far else min(near, default=1.0)


def _crossing(above: Any, column: Tensor) -> float | None:
    """The first length at which a level turns positive, by bisection between two of the grid."""
    rises = (column[1:] & ~column[:-1]).nonzero().flatten()
    if len(rises) == 0:
        return None
    low, high = float(_LENGTHS[rises[0]]), float(_LENGTHS[rises[0] + 1])
    for _ in range(40):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if above(middle) else (middle, high)
    return high


class InScales(Problem):
    """A problem in its own scales: latents, objective and constraints divided by them, decisions as given.

    Multipliers of this problem are in units of (objective scale)/(constraint scale).
    """

    latent_dim: int
    n_constraints: int

    def __init__(self, problem: Problem, scales: Scales):
        self.problem, self.scales = problem, scales
        self.latent_dim, self.n_constraints = problem.latent_dim, problem.n_constraints
        self.bound = problem.bound / scales.latent
        self.tolerance = problem.tolerance / max(scales.constraints)
        self.exact, self.graph = problem.exact, problem.graph
        self.proximal = None if problem.proximal is None else self._proximal
        self._sizes = torch.tensor(scales.constraints)
        self._prices = torch.tensor([scales.objective / size for size in scales.constraints])

    def objective(self, x: Tensor, xi: Tensor | None = None) -> Tensor:
        return (self.problem.objective(x, xi) - self.scales.centre) / self.scales.objective

    def constraints(self, x: Tensor, xi: Tensor | None = None) -> Tensor:
        return self.problem.constraints(x, xi) / self._sizes

    def values(self, x: Tensor, xi: Tensor | None = None) -> tuple[Tensor, Tensor]:
        f0, f = self.problem.values(x, xi)
        return (f0 - self.scales.centre) / self.scales.objective, f / self._sizes

    def decode(self, z: Tensor) -> Tensor:
        return self.problem.decode(z * self.scales.latent)

    def encode(self, x: Tensor) -> Tensor:
        return self.problem.encode(x) / self.scales.latent

    def project(self, z: Tensor) -> Tensor:
        return self.problem.project(z * self.scales.latent) / self.scales.latent

    def draw(self, n: int, generator: torch.Generator) -> Tensor | None:
        return self.problem.draw(n, generator)

    def _proximal(self, x: Tensor, lam: Tensor, kappa: float) -> Tensor:
        step: Tensor = self.problem.proximal(x, lam * self._prices, kappa)
        return step

    def lagrangian_grad(
        self, z: Tensor, lam: Tensor, xi: Tensor | None = None, objective_weight: float = 1.0
    ) -> tuple[Tensor, Tensor]:
        s = self.scales
        value, grad = self.problem.lagrangian_grad(z * s.latent, lam * self._prices, xi, objective_weight)
        return (value - objective_weight * s.centre) / s.objective, grad * (s.latent / s.objective)


def in_scales(problem: Problem, scales: Scales | None) -> Problem:
    """The problem in those scales, under its own class's name for messages; as it is where there are none."""
    if scales is None:
        return problem
    named = type(type(problem).__name__, (InScales,), {})
    view: Problem = named(problem, scales)
    return view
