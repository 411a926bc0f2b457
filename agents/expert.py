"""The expert: a dual gradient method run to convergence on the instance itself."""

from __future__ import annotations

import torch

from pdi_gym.agents.base import Agent, Observer, Trace
from pdi_gym.descent import run_expert
from pdi_gym.options import ExpertOptions
from pdi_gym.policy import TimeSharingPolicy
from pdi_gym.problem import Problem
from pdi_gym.time_sharing.column_generation import Pool, settle

_POOL, _DRAWS, _FINAL_DRAWS = 2000, 1000, 100_000
"""Of optimal shares: iterates, and realisations that they and then the chosen ones are averaged over."""


class Expert(Agent):
    """x descends f0 + λᵀf while λ ← [λ + η (f̄ + margin)]₊; the iterates of the converged window share time.

    Descent never settles where constraints conflict: the multipliers keep turning users on and off,
    and the average over that cycle is what meets them. Where a decision that is once left is never
    come back to, as with concave objectives, no average does; optimal shares of the iterates do.
    """

    name = "expert"
    summary = "dual gradient method on the instance, samples from its converged window"
    options_type = ExpertOptions

    def _sample(
        self,
        problem: Problem,
        options: ExpertOptions,
        n: int,
        generator: torch.Generator,
        callback: Observer | None,
    ) -> TimeSharingPolicy:
        trace = Trace(options.steps, callback)
        start = problem.project(0.1 * torch.randn((options.chains, problem.latent_dim), generator=generator))
        optimal = options.shares == "optimal"
        size = max(n, min(_POOL, options.steps * options.chains)) if optimal else n
        path = run_expert(problem, start, options, n=size, generator=generator, callback=trace)
        actions, weights = problem.decode(path.z).numpy(), None
        if optimal:
            pool = Pool.of(problem, actions, _DRAWS, generator)
            chosen, mix = settle(problem, pool, n, options.margin, _FINAL_DRAWS, generator)
            actions, weights = chosen.actions, mix.weights
        return TimeSharingPolicy(
            actions,
            weights,  # type: ignore[arg-type]
            duals=path.last.unsqueeze(0).numpy(),
            mean_duals=path.duals.unsqueeze(0).numpy(),
            info={"trace": trace.arrays()},
        )
