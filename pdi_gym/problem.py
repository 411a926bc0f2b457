"""The one abstraction: *minimise E f0(x, ξ) subject to E f(x, ξ) ≤ 0, x in X*.

One sign convention everywhere: f0 is minimised, f ≤ 0 is feasible. A problem knows nothing of
diffusion time, temperature or noise; samplers, environments and metrics all call the same
`objective` and `constraints`, so they cannot disagree.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Protocol, TypeGuard, TypeVar, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from pdi_gym.features import Units, fixed_sample, gradient_features, measured_units

Method = TypeVar("Method", bound=Callable[..., Any])
Kind = TypeVar("Kind", bound="Problem")
_ACCELERATED = {
    "values": ("objective", "constraints"),
    "slot": ("objective", "constraints"),
    "slot_batch": ("objective", "constraints", "slot"),
    "lagrangian_grad": ("objective", "constraints", "decode"),
    "features": ("objective", "constraints", "decode"),
    "units": ("objective", "constraints", "decode"),
    "proximal": ("objective", "constraints", "decode"),
}
"""The fused forms and what each of them computes faster, whichever class wrote it."""
ROOM = 1e-4
"""By how much of a coordinate's size a decision may leave the set: single precision, composed a few times."""


def accelerates(*names: str) -> Callable[[Method], Method]:
    """Mark a method as a faster form of the named members: a subclass that overrides one loses it.

    The subclass gets the generic form of `Problem` instead, or None where there is none. A form
    that the subclass defines together with the override is kept.
    """

    def mark(method: Method) -> Method:
        method.accelerates = names  # type: ignore[attr-defined]
        return method

    return mark


@runtime_checkable
class Problem(Protocol):
    """A decision problem whose constraints hold on average.

    Subclass it and give `latent_dim`, `n_constraints`, `objective` and `constraints`; every other
    member has a default that suits an unbounded, noiseless problem whose latent *is* its decision.

    Shapes: latents z and decisions x are (..., d) with any leading sample axes; realisations ξ
    have their draws on the first axis; multipliers λ broadcast against (..., m).

    `values`, `slot`, `slot_batch` and `lagrangian_grad` only ever accelerate `objective`,
    `constraints` and `decode`. A subclass that overrides what an inherited form accelerates gets
    the generic form back, so the form cannot disagree with what was overridden.
    """

    latent_dim: int
    n_constraints: int
    bound: float = math.inf
    """Half-width of the latent box: candidates outside [-bound, bound] are clipped to it."""
    tolerance: float = 0.0
    """A constraint counts as feasible while its average residual is at most this."""
    exact: bool = True
    """Whether `objective(x)` and `constraints(x)` without ξ are the true expectations, so that
    `evaluate` may average over the policy's atoms instead of drawing slots."""
    graph: Any = None
    """Node and edge features for a network, or None."""
    proximal: Any = None
    """A descent step of the problem's own geometry, `proximal(x, lam, kappa)` → decisions, or None.

    It maps decisions (..., d) near the minimum of f0 + λᵀf + κ·distance to x; a larger κ is a
    shorter step. Adam in the latent space is used where there is none.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in _stale_forms(cls):
            setattr(cls, name, vars(Problem).get(name))

    def objective(self, x: Tensor, xi: Tensor | None = None) -> Tensor:
        """f0 averaged over the draws in ξ: (..., d) → (...,)."""
        ...

    def constraints(self, x: Tensor, xi: Tensor | None = None) -> Tensor:
        """f averaged over the draws in ξ, ≤ 0 is feasible: (..., d) → (..., m)."""
        ...

    def values(self, x: Tensor, xi: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """f0 and f of the same decisions; override it where the two share work."""
        return self.objective(x, xi), self.constraints(x, xi)

    def decode(self, z: Tensor) -> Tensor:
        """Latent → decision in the problem's own units."""
        return z

    def encode(self, x: Tensor) -> Tensor:
        """Decision → latent, the inverse of `decode`."""
        return x

    def project(self, z: Tensor) -> Tensor:
        """The nearest valid latent."""
        return z.clamp(-self.bound, self.bound)

    def contains(self, x: Tensor) -> Tensor:
        """Which decisions (..., d) are finite and in the set of decisions, up to rounding: (...,).

        The set is what `decode` makes of valid latents. Override it where that says too little, such as
        for whole numbers.
        """
        nearest = self.decode(self.project(self.encode(x)))
        ends = self.to_decision(x.new_tensor([[-1.0], [1.0]]).expand(2, self.latent_dim))
        size = torch.maximum(nearest.abs(), ends.abs().amax(0))
        inside: Tensor = ((nearest - x).abs() <= ROOM * size).all(-1)
        return inside

    @property
    def action_scale(self) -> float:
        """Latent half-width that actions in [-1, 1] span: the box, or ±5 where there is none."""
        return self.bound if self.bound < math.inf else 5.0

    def to_decision(self, action: Tensor) -> Tensor:
        """Environment action in [-1, 1]^d → decision."""
        return self.decode(self.project(self.action_scale * action))

    def to_action(self, x: Tensor) -> Tensor:
        """Decision → environment action, clipped to [-1, 1]."""
        return (self.encode(x) / self.action_scale).clamp(-1, 1)

    def draw(self, n: int, generator: torch.Generator) -> Tensor | None:
        """n independent realisations ξ, draws on the first axis; None where nothing is random."""
        return None

    def path(self, horizon: int, generator: torch.Generator) -> Iterator[Tensor | None]:
        """The realisations of `horizon` consecutive slots, in chunks along the first axis."""
        chunk = 50
        for start in range(0, horizon, chunk):
            yield self.draw(min(chunk, horizon - start), generator)

    def slot(self, x: Tensor, xi: Tensor | None) -> tuple[Tensor, Tensor]:
        """f0 and f of row b of x (B, d) under its own realisation ξ[b]: (B,) and (B, m)."""
        if xi is None:
            return self.objective(x), self.constraints(x)
        pairs = [(x[b], xi[b : b + 1]) for b in range(len(x))]
        return (
            torch.stack([self.objective(*p) for p in pairs]),
            torch.stack([self.constraints(*p) for p in pairs]),
        )

    @classmethod
    def slot_batch(
        cls, problems: Sequence[Problem], x: Tensor, xi: Sequence[Tensor] | None
    ) -> tuple[Tensor, Tensor]:
        """`slot` for row b of x (B, d) under `problems[b]` and ξ[b] (1, …): (B,) and (B, m).

        Rows that share a problem are one call.
        """
        rows: dict[int, list[int]] = {}
        for b, problem in enumerate(problems):
            rows.setdefault(id(problem), []).append(b)
        value = torch.empty(len(x))
        residuals = torch.empty(len(x), problems[0].n_constraints)
        for own in rows.values():
            drawn = None if xi is None else torch.cat([xi[b] for b in own])
            value[own], residuals[own] = problems[own[0]].slot(x[own], drawn)
        return value, residuals

    def lagrangian_grad(
        self, z: Tensor, lam: Tensor, xi: Tensor | None = None, objective_weight: float = 1.0
    ) -> tuple[Tensor, Tensor]:
        """Value (...,) and latent gradient (..., d) of w·f0 + λᵀf at z; w = 0 leaves λᵀf alone."""
        return autograd_lagrangian_grad(self, z, lam, xi, objective_weight)

    @cached_property
    def units(self) -> Units:
        """Sizes of the Lagrangian's parts, for settings and networks that suit any choice of units."""
        return measured_units(self)

    @cached_property
    def fixed_draws(self) -> Tensor | None:
        """Realisations that stand for the mean in `features`; None where expectations are exact."""
        return fixed_sample(self)

    def features(self, x: Tensor, lam: Tensor) -> Tensor:
        """Numbers per coordinate of decisions (..., d) under multipliers: (..., d, k), for networks.

        By default the place in the box and the scaled parts of the Lagrangian's gradient. They are
        differentiable in x, of order one, and the same whatever the units of f0 and f.
        """
        return gradient_features(self, x, lam)

    @property
    def constraint_names(self) -> tuple[str, ...]:
        return tuple(f"constraint {j}" for j in range(self.n_constraints))

    @property
    def constraint_limits(self) -> np.ndarray:
        """The right-hand sides, in the units in which a user thinks of them; (m,)."""
        return np.zeros(self.n_constraints, dtype=np.float32)

    def metrics(self, x: Tensor, weights: Tensor, residuals: Tensor) -> dict[str, float]:
        """The problem's own figures of merit beside the ones that `evaluate` always gives.

        x (n, d) and weights (n,) are the policy's atoms; residuals (trials, m) its ergodic
        residual in each trial.
        """
        return {}


def _stale_forms(cls: type) -> list[str]:
    """The fused forms that `cls` inherits from a class above the one that defines what they accelerate."""
    place: dict[str, int] = {}
    forms: dict[str, tuple[str, ...]] = {}
    for index, base in enumerate(cls.__mro__):
        for name, member in vars(base).items():
            if name in place:
                continue
            place[name] = index
            function = getattr(member, "__func__", member)
            names = (*_ACCELERATED.get(name, ()), *getattr(function, "accelerates", ()))
            if names:
                forms[name] = names
    return [
        form
        for form, names in forms.items()
        if any(place.get(name, place[form]) < place[form] for name in names)
    ]


def keeps(problem: Problem, kind: type[Kind], *names: str) -> TypeGuard[Kind]:
    """Whether a problem is of that kind and none of the named members was overridden since."""
    own = type(problem)
    return issubclass(own, kind) and all(getattr(own, n) is getattr(kind, n) for n in names)


def lagrangian(
    problem: Problem, x: Tensor, lam: Tensor, xi: Tensor | None = None, objective_weight: float = 1.0
) -> Tensor:
    """w·f0(x) + λᵀf(x): the point-wise Lagrangian, (..., d) → (...,)."""
    value = (lam * problem.constraints(x, xi)).sum(-1)
    if objective_weight != 0.0:
        value = value + objective_weight * problem.objective(x, xi)
    return value


def autograd_lagrangian_grad(
    problem: Problem, z: Tensor, lam: Tensor, xi: Tensor | None = None, objective_weight: float = 1.0
) -> tuple[Tensor, Tensor]:
    """`Problem.lagrangian_grad` by automatic differentiation: right for every problem, not fast."""
    with torch.enable_grad():
        z = z.detach().requires_grad_(True)
        value = lagrangian(problem, problem.decode(z), lam, xi, objective_weight)
        (grad,) = torch.autograd.grad(value.sum(), z)
    return value.detach(), grad


class AutogradProblem:
    """Any problem with its analytic gradient replaced by autograd: the slow twin of a benchmark."""

    def __init__(self, problem: Problem):
        self._problem = problem

    def __getattr__(self, name: str) -> Any:
        return getattr(self._problem, name)

    def lagrangian_grad(
        self, z: Tensor, lam: Tensor, xi: Tensor | None = None, objective_weight: float = 1.0
    ) -> tuple[Tensor, Tensor]:
        return autograd_lagrangian_grad(self._problem, z, lam, xi, objective_weight)


def check_problem(problem: Problem) -> None:
    """Refuse, before any work, an object that does not fit the protocol; say what is wrong."""
    name = type(problem).__name__
    for attribute in ("latent_dim", "n_constraints"):
        value = getattr(problem, attribute, None)
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"{name}.{attribute} must be an int ≥ 1, got {value!r}")
    members = sorted({*inspect.get_annotations(Problem), *vars(Problem)})
    missing = [m for m in members if not m.startswith("_") and not hasattr(problem, m)]
    if missing:
        raise TypeError(
            f"{name} lacks {', '.join(missing)}: subclass pdi_gym.Problem to inherit the defaults"
        )
    generator = torch.Generator().manual_seed(0)
    xi = problem.draw(2, generator)
    x = problem.decode(problem.project(torch.zeros(3, problem.latent_dim)))
    own = problem.to_decision(torch.rand(3, problem.latent_dim, generator=generator))
    if not Problem.contains(problem, own).all():
        raise ValueError(
            f"{name}.encode must undo decode, but decode(project(encode(x))) is not x for x = decode(z): "
            "override encode together with decode and project"
        )
    shapes = {
        "objective": (problem.objective(x, xi), (3,)),
        "constraints": (problem.constraints(x, xi), (3, problem.n_constraints)),
    }
    for method, (value, shape) in shapes.items():
        if tuple(value.shape) != shape:
            raise ValueError(
                f"{name}.{method} must map decisions {tuple(x.shape)} to {shape}, got {tuple(value.shape)}"
            )
