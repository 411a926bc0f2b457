"""Column generation: primal-dual inference whose pool and shares of time are optimised."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from pdi_gym import presets
from pdi_gym.agents.base import Agent, Observer, Trace
from pdi_gym.agents.prox import Prox
from pdi_gym.duals import Ascent
from pdi_gym.inference import monte_carlo_score
from pdi_gym.options import ColumnOptions, DiffusionOptions
from pdi_gym.policy import TimeSharingPolicy
from pdi_gym.problem import Problem
from pdi_gym.samplers import Reverse, Samples, pdi
from pdi_gym.schedules import make_schedule
from pdi_gym.time_sharing.column_generation import (
    Pool,
    descent_pricer,
    first_path,
    generate_columns,
    least_violation,
    settle,
)

_COLD_T = 50
_COOLING = 10.0
"""Of the diffusion that makes pools: as many steps as fit a round, a tenth of the temperature."""


class ColumnGeneration(Agent):
    """A first pool with multipliers, then rounds of: program → λ → decisions of low f0 + λᵀf → program.

    The policy has n decisions, of which at most m + 1 get time; the others, which nearly did, have
    weight 0. `info` holds the rounds' values, excess, support and estimated bound. If no mix of all the
    decisions found meets the constraints, `info["infeasible"]` says so (it is None otherwise): the
    least total violation found, how many constraints carry it and the worst of them by name. There is
    no bound then.
    """

    name = "pdi-cg"
    summary = "optimal time sharing: column generation with the linear program's multipliers"
    options_type = ColumnOptions

    def _sample(
        self,
        problem: Problem,
        options: ColumnOptions,
        n: int,
        generator: torch.Generator,
        callback: Observer | None,
    ) -> TimeSharingPolicy:
        trace = Trace(self._length(problem, options, n), callback)
        z, duals = self._first_pool(problem, options, n, generator, trace)
        pool = Pool.of(problem, problem.decode(z).numpy(), options.draws, generator)

        def sampler(lam: Tensor, size: int) -> Tensor:
            return cold_pdi(problem, size, generator, lam).z

        diffuse = options.fresh_from == "diffusion" and options.fresh > 0
        price = descent_pricer(problem, options, generator, sampler if diffuse else None)
        generated = generate_columns(problem, pool, duals, price, options, generator)
        chosen, mix = settle(problem, generated.pool, n, options.margin, options.final_draws, generator)
        bound = generated.bound(mix, options.margin)
        columns = ("value", "excess", "support") if bound is None else ("value", "excess", "support", "bound")
        info = {
            "trace": trace.arrays(),
            "rounds": {name: np.array([getattr(r, name) for r in generated.rounds]) for name in columns},
            "value": mix.value,
            "excess": mix.excess,
            "support": int((mix.weights > 0).sum()),
            "bound": bound,
            "infeasible": None if mix.met else least_violation(problem, generated.pool),
        }
        lam = mix.duals.astype(np.float32)[None]
        return TimeSharingPolicy(chosen.actions, mix.weights, lam, duals.astype(np.float32)[None], info)

    def _length(self, problem: Problem, options: ColumnOptions, n: int) -> int:
        """Steps of what makes the first pool."""
        if options.first == "prox":
            own = Prox(self.preset).options(problem)
            return int(own.warm + -(-max(n, options.pool, own.pool) // own.chains))
        return options.steps if options.first == "dual" else _COLD_T

    def _first_pool(
        self,
        problem: Problem,
        options: ColumnOptions,
        n: int,
        generator: torch.Generator,
        callback: Observer,
    ) -> tuple[Tensor, np.ndarray]:
        if options.first == "pdi":
            samples = cold_pdi(problem, max(n, options.pool), generator, None, callback)
            return samples.z, samples.mean_duals.mean(0).double().numpy()
        if options.first == "prox":
            agent = Prox(self.preset)
            own = agent.options(problem)
            proposed = agent.propose(problem, own, max(n, options.pool, own.pool), generator, callback)
            return proposed.z, proposed.mean_duals.mean(0).double().numpy()
        path = first_path(problem, options, n, generator, callback)
        return path.z, path.duals.double().numpy()


def cold_pdi(
    problem: Problem,
    n: int,
    generator: torch.Generator,
    lam: Tensor | None,
    callback: Observer | None = None,
) -> Samples:
    """A short, cold run of Algorithm 2: with λ frozen at (1, m), or ascending as far as the preset's."""
    fast = presets.resolve(DiffusionOptions, problem, "fast", {})
    schedule = make_schedule(fast.schedule, _COLD_T)
    score = monte_carlo_score(problem, replace(fast, beta=fast.beta / _COOLING), schedule)
    ascending = Ascent(fast.dual_step * fast.T / _COLD_T, fast.dual_init, fast.dual_max, margin=fast.margin)
    return pdi(
        problem,
        score,
        schedule,
        n=n,
        generator=generator,
        duals=ascending if lam is None else Ascent(init=lam),
        reverse=Reverse(fast.kernel, fast.alpha_min, fast.n_draws),
        callback=callback,
    )
