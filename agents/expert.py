"""The expert: a dual gradient method run to convergence on the instance itself."""

from __future__ import annotations

import torch

from pdi_gym.agents.base import Agent, Observer, Trace
from pdi_gym.descent import run_expert
from pdi_gym.options import ExpertOptions
from pdi_gym.policy import TimeSharingPolicy
from pdi_gym.problem import Problem


class Expert(Agent):
    """x descends f0 + λᵀf while λ ← [λ + η (f̄ + margin)]₊; the iterates of the converged window share time.

    Descent never settles where constraints conflict: the multipliers keep turning users on and off,
    and the average over that cycle is what meets them.
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
        path = run_expert(problem, start, options, n=n, generator=generator, callback=trace)
        return TimeSharingPolicy(
            problem.decode(path.z).numpy(),
            duals=path.last.unsqueeze(0).numpy(),
            mean_duals=path.duals.unsqueeze(0).numpy(),
            info={"trace": trace.arrays()},
        )
