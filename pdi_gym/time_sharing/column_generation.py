"""Column generation: the pool of a time-sharing policy grows by what the linear program asks for.

The program over a pool (`reweighting`) has multipliers λ. A decision with
f0(x) + λᵀ(f(x) + margin) below the program's level would improve the mix, so each round looks for
low points of that Lagrangian, adds them to the pool and solves again. For any λ its global minimum
bounds the optimum from below; rounds find local minima, so theirs are estimates of that bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pdi_gym.descent import DualPath, descend, random_latents, run_expert
from pdi_gym.options import ColumnOptions
from pdi_gym.problem import Problem
from pdi_gym.samplers import Callback
from pdi_gym.scales import InScales
from pdi_gym.time_sharing.reweighting import Mix, heaviest_mix, optimal_mix, pool_values
from pdi_gym.time_sharing.violations import Violation, violation

Pricer = Callable[[Tensor, Tensor], Tensor]
"""(λ (1, m), the mix's heaviest latents (k, d), by weight) → latents of low Lagrangian (n, d)."""
Sampler = Callable[[Tensor, int], Tensor]
"""(λ (1, m), n) → latents (n, d) of the Gibbs law at that λ."""
_STARTS = 64


@dataclass(frozen=True)
class Pool:
    """Decisions (n, d) with their average objective (n,) and residuals (n, m)."""

    actions: np.ndarray
    objective: np.ndarray
    constraints: np.ndarray

    @classmethod
    def of(cls, problem: Problem, actions: np.ndarray, draws: int, generator: torch.Generator) -> Pool:
        return cls(actions, *pool_values(problem, actions, draws, generator))

    def __add__(self, other: Pool) -> Pool:
        return Pool(
            np.concatenate([self.actions, other.actions]),
            np.concatenate([self.objective, other.objective]),
            np.concatenate([self.constraints, other.constraints]),
        )

    def __getitem__(self, index: np.ndarray) -> Pool:
        return Pool(self.actions[index], self.objective[index], self.constraints[index])

    def mix(self, margin: float, penalty: float | None = None) -> Mix:
        return optimal_mix(self.objective, self.constraints, margin, penalty)

    def lagrangian(self, lam: np.ndarray, margin: float) -> np.ndarray:
        """(n,) f0 + λᵀ(f + margin)."""
        values: np.ndarray = self.objective + (self.constraints + margin) @ lam
        return values


class Round(NamedTuple):
    """What one round found."""

    value: float
    """Σ w f0 of the program before the round."""
    excess: float
    """Its total violation, margin included."""
    support: int
    """Decisions that got time."""
    bound: float
    """Best estimate so far of the lower bound on the objective: the least Lagrangian found at a λ."""


@dataclass(frozen=True)
class Generated:
    """The final pool, the multipliers with the best bound, and the record of the rounds."""

    pool: Pool
    duals: np.ndarray
    rounds: tuple[Round, ...]

    def bound(self, mix: Mix, margin: float) -> float | None:
        """Estimated lower bound on the objective under the margin; `mix` is one of the pool's.

        None when no round was run, or when no mix of the pool meets the constraints with their margin:
        without a feasible policy the dual function has no maximum, and no value of it bounds anything.
        """
        met = mix.met or self.pool.mix(margin).met
        return self.rounds[-1].bound if self.rounds and met else None


def generate_columns(
    problem: Problem,
    pool: Pool,
    duals: np.ndarray,
    price: Pricer,
    options: ColumnOptions,
    generator: torch.Generator,
) -> Generated:
    """Grow the pool for `options.rounds`, or until value − bound ≤ stop·|value|.

    The program's own multipliers jump between vertices. Pricing therefore happens at
    smoothing·λ_best + (1 − smoothing)·λ_program, where λ_best, at first `duals` (m,), is the one
    with the largest bound so far (Wentges); after a round that improved nothing, at λ_program.
    While no mix meets the constraints the program's multipliers are capped, twice as high every
    round.
    """
    margin = options.margin
    best, bound, share = duals, -np.inf, options.smoothing
    penalty = 2 * float(duals.max()) or None
    record: list[Round] = []
    for _ in range(options.rounds):
        mix = pool.mix(margin, penalty)
        lam = share * best + (1 - share) * mix.duals
        heavy = np.argsort(-mix.weights, kind="stable")[:_STARTS]
        starts = problem.encode(torch.as_tensor(pool.actions[heavy], dtype=torch.float32))
        z = price(torch.as_tensor(lam, dtype=torch.float32).unsqueeze(0), starts)
        found = Pool.of(problem, problem.decode(z).numpy(), options.draws, generator)
        lowest = float(found.lagrangian(lam, margin).min())
        if lowest > bound:
            best, bound = lam, lowest
        record.append(Round(mix.value, mix.excess, int((mix.weights > 0).sum()), bound))
        pool = pool + found
        improves = found.lagrangian(mix.duals, margin).min() < mix.level - 1e-9 * abs(mix.level)
        share = options.smoothing if improves else 0.0
        if mix.met and mix.value - bound <= options.stop * abs(mix.value):
            break
        if not mix.met and penalty is not None:
            penalty *= 2
    return Generated(pool, best, tuple(record))


def least_violation(problem: Problem, pool: Pool) -> Violation | None:
    """What the mix of least total violation violates; None when some mix is within the tolerance."""
    if pool.mix(-problem.tolerance).met:
        return None
    residuals = pool.mix(0.0).residuals
    if isinstance(problem, InScales):
        return violation(problem.problem, problem.scales.residuals(residuals))
    return violation(problem, residuals)


def descent_pricer(
    problem: Problem, options: ColumnOptions, generator: torch.Generator, sampler: Sampler | None = None
) -> Pricer:
    """Prices by descent from new latents, random or the sampler's, and from those with most time."""

    def price(lam: Tensor, starts: Tensor) -> Tensor:
        if sampler is None:
            fresh = random_latents(problem, options.fresh, generator)
        else:
            fresh = sampler(lam, options.fresh)
        return descend(
            problem,
            torch.cat([starts[: options.warm], fresh]),
            lam,
            steps=options.price_steps,
            rate=options.price_rate,
            generator=generator,
            n_draws=options.n_draws,
        )

    return price


def first_path(
    problem: Problem,
    options: ColumnOptions,
    n: int,
    generator: torch.Generator,
    callback: Callback | None = None,
) -> DualPath:
    """The dual method that gives at least n latents, if it has as many iterates `options.pool`, and λ."""
    chains = max(options.chains, math.ceil(n / options.steps))
    return run_expert(
        problem,
        random_latents(problem, chains, generator),
        options,
        n=min(max(n, options.pool), chains * options.steps),
        generator=generator,
        callback=callback,
    )


def settle(
    problem: Problem, pool: Pool, n: int, margin: float, draws: int, generator: torch.Generator
) -> tuple[Pool, Mix]:
    """`select`, then once more among the selected alone, averaged anew over `draws` realisations.

    Of many decisions the program prefers those whose draws were lucky; new draws take that back.
    """
    chosen, mix = select(pool, n, margin)
    if draws == 0 or problem.exact:
        return chosen, mix
    return select(Pool.of(problem, chosen.actions, draws, generator), n, margin)


def select(pool: Pool, n: int, margin: float) -> tuple[Pool, Mix]:
    """n decisions of the pool and their mix: those that have time, then those that nearly got some."""
    mix = heaviest_mix(pool.objective, pool.constraints, margin, n)
    order = np.lexsort((pool.lagrangian(mix.duals, margin), -mix.weights))[:n]
    return pool[order], replace(mix, weights=mix.weights[order])
