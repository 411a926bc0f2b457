"""Primal-dual Langevin."""

from __future__ import annotations

import torch

from pdi_gym.agents.base import Agent, Observer, Trace, to_policy
from pdi_gym.duals import Ascent
from pdi_gym.options import LangevinOptions
from pdi_gym.policy import TimeSharingPolicy
from pdi_gym.problem import Problem
from pdi_gym.samplers import langevin


class PDL(Agent):
    """x ← x − η_p ∇(f0 + λᵀf)/β + √(2η_p) ε and λ ← [λ + η_d f(x)]₊, one λ per sample."""

    name = "pdl"
    summary = "primal-dual Langevin in the clean space, λ per sample"
    options_type = LangevinOptions

    def _sample(
        self,
        problem: Problem,
        options: LangevinOptions,
        n: int,
        generator: torch.Generator,
        callback: Observer | None,
    ) -> TimeSharingPolicy:
        trace = Trace(options.steps, callback)
        samples = langevin(
            problem,
            n=n,
            steps=options.steps,
            primal_step=options.primal_step,
            generator=generator,
            duals=Ascent(options.dual_step, options.dual_init),
            beta=options.beta,
            start_scale=options.start_scale,
            n_draws=options.n_draws,
            callback=trace,
        )
        return to_policy(problem, samples, {"trace": trace.arrays()})
