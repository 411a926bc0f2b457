"""Primal-dual inference with better dynamics: falling temperature and dual steps with momentum."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from pdi_gym.agents.base import Observer, Trace, to_policy
from pdi_gym.agents.pdi import DiffusionAgent
from pdi_gym.options import AdaptiveOptions
from pdi_gym.policy import TimeSharingPolicy
from pdi_gym.problem import Problem
from pdi_gym.samplers import pdi
from pdi_gym.schedules import Schedule, make_schedule
from pdi_gym.scores import MonteCarloScore


@dataclass
class AnnealedScore:
    """A Monte-Carlo score whose temperature falls geometrically from `heat`·β to `cool`·β."""

    score: MonteCarloScore
    heat: float
    cool: float

    def __post_init__(self) -> None:
        self._beta = self.score.beta

    def __call__(
        self, z: Tensor, tau: int, lam: Tensor, xi: Tensor | None, generator: torch.Generator
    ) -> Tensor:
        self.score.beta = self._beta * self.cool * (self.heat / self.cool) ** (tau / self.score.schedule.T)
        return self.score(z, tau, lam, xi, generator)

    @property
    def effective_sample_size(self) -> float:
        return self.score.effective_sample_size


@dataclass
class MomentumAscent:
    """λ ← [λ + η_t v]₊ with v ← μ v + f + margin: heavy-ball ascent of the dual function."""

    options: AdaptiveOptions
    schedule: Schedule
    _velocity: Tensor | None = field(default=None, init=False)

    def __call__(self, lam: Tensor, residual: Tensor, t: int) -> Tensor:
        o = self.options
        push = residual + o.margin
        self._velocity = push if self._velocity is None else o.momentum * self._velocity + push
        eta = o.dual_step * float(self.schedule.alpha[self.schedule.T - t]) ** o.dual_ramp
        after: Tensor = (1 - o.dual_decay) * lam + eta * self._velocity
        return after.clamp(min=0, max=o.dual_max)


class Adaptive(DiffusionAgent):
    """Algorithm 2 that starts hot and ends cold, with heavy-ball dual steps towards a margin.

    The cold end gives better decisions; momentum lets the multipliers of the worst served rise in
    time for it; the margin pays back what the cold end takes from the constraints.
    """

    name = "pdi-adaptive"
    summary = "primal-dual inference with falling temperature and dual momentum"
    options_type = AdaptiveOptions

    def _sample(
        self,
        problem: Problem,
        options: AdaptiveOptions,
        n: int,
        generator: torch.Generator,
        callback: Observer | None,
    ) -> TimeSharingPolicy:
        if options.score != "mc":
            raise ValueError(
                f"score must be 'mc' for {self.name}, whose temperature moves, got {options.score!r}"
            )
        schedule = make_schedule(options.schedule, options.T)
        score = MonteCarloScore(
            problem, schedule, options.beta, options.n_candidates, options.candidates, options.alpha_min
        )
        trace = Trace(options.T, callback)
        samples = pdi(
            problem,
            AnnealedScore(score, options.heat, options.cool),
            schedule,
            n=n,
            generator=generator,
            groups=self._groups(n, options.groups),
            dual_init=options.dual_init,
            dual_update=MomentumAscent(options, schedule),
            n_draws=options.n_draws,
            kernel=options.kernel,
            alpha_min=options.alpha_min,
            tweedie_at=options.tweedie,
            callback=trace,
        )
        return to_policy(problem, samples, {"trace": trace.arrays()})
