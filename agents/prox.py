"""Dual ascent around proximal steps, analytic where the problem has one and learned where it has not."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from pdi_gym import zoo
from pdi_gym.agents.base import Agent, Observer, Trace, to_policy
from pdi_gym.agents.learned import LearnedAgent
from pdi_gym.checkpoints import check_fits, digest
from pdi_gym.duals import Ascent
from pdi_gym.inference import divisor_at_most
from pdi_gym.networks import Denoiser
from pdi_gym.options import ProximalOptions
from pdi_gym.policy import TimeSharingPolicy
from pdi_gym.problem import Problem
from pdi_gym.proximal import AnalyticStep, LearnedStep, ProximalStep, Scaled, denoise, stream
from pdi_gym.samplers import Samples
from pdi_gym.schedules import make_schedule
from pdi_gym.time_sharing.column_generation import Pool, select
from pdi_gym.training.criterion import judge
from pdi_gym.training.options import TrainingOptions
from pdi_gym.training.proximal import Proximal
from pdi_gym.training.rollouts import Task
from pdi_gym.training.sources import Source

_DRAWS = 500
"""Realisations over which a pool is averaged, where expectations are not exact."""


class Prox(LearnedAgent):
    """x ← argmin L(x, λ) + b·distance while λ ← [λ + η (f̄ + margin)]₊; the iterates share time.

    The step is the problem's own (`Problem.proximal`) or an amortised one: a network that was trained
    with the Lagrangian itself as its loss. It seeks modes and is no sampler of the Gibbs law.
    """

    name = "pdi-prox"
    summary = "dual ascent around proximal steps, analytic or by a trained network"
    options_type = ProximalOptions
    unread = Proximal.unread
    proximal = True

    @classmethod
    def ready(cls, problem: Problem) -> bool:
        return getattr(problem, "proximal", None) is not None or super().ready(problem)

    def config(self, problem: Problem) -> dict[str, Any]:
        network = None if self._analytic(problem) else self._network(problem)
        config = Agent.config(self, problem)
        return config if network is None else config | {"weights": digest(network.state_dict())}

    def _analytic(self, problem: Problem) -> bool:
        return self.network is None and getattr(problem, "proximal", None) is not None

    def _step(self, scaled: Scaled, options: ProximalOptions) -> ProximalStep:
        problem, b = scaled.problem, float(options.b or 0.0)
        if self._analytic(problem):
            if options.sampler != "stream":
                raise ValueError(
                    f"sampler must be 'stream' for {type(problem).__name__}, whose proximal step is "
                    f"analytic, got {options.sampler!r}"
                )
            return AnalyticStep(scaled, b)
        if self.network is None:
            return LearnedStep(zoo.network(self.name, problem), scaled, b)
        check_fits(self.network.config, self.card, problem)
        return LearnedStep(self.network, scaled, b)

    def _sample(
        self, problem: Problem, options: Any, n: int, generator: torch.Generator, callback: Observer | None
    ) -> TimeSharingPolicy:
        count = max(n, options.pool)
        steps = options.warm + math.ceil(count / options.chains) if options.sampler == "stream" else options.T
        trace = Trace(steps, callback)
        policy = to_policy(problem, self.propose(problem, options, count, generator, trace), {})
        policy = replace(policy, info={"trace": trace.arrays()})
        if not options.pool:
            return policy
        pool = Pool.of(problem, policy.actions, _DRAWS, generator)
        chosen, mix = select(pool, n, options.pool_margin * problem.units.residual)
        info = policy.info | {"value": mix.value, "excess": mix.excess}
        return replace(policy, actions=chosen.actions, weights=mix.weights, info=info)

    def propose(
        self,
        problem: Problem,
        options: ProximalOptions,
        n: int,
        generator: torch.Generator,
        callback: Observer | None,
    ) -> Samples:
        """n latents of the problem, with multipliers in its own units."""
        scaled = Scaled(problem)
        step = self._step(scaled, options)
        return propose(scaled, step, options, n, generator, self._groups(n, options), callback)

    def _groups(self, n: int, options: Any) -> int:
        return int(options.groups) if "groups" in self.overrides else divisor_at_most(n, options.groups)

    def _source(self, task: Task, start: str | Path | None) -> Source:
        return Proximal(task)

    def _validate(
        self, network: Denoiser, problems: list[Problem], references: list[Samples], options: TrainingOptions
    ) -> dict[str, float]:
        rows, n = [], options.validation_n
        for problem, reference in zip(problems, references, strict=True):
            own, scaled = self.options(problem), Scaled(problem)
            step, generator = LearnedStep(network, scaled, _set(own.b)), torch.Generator().manual_seed(1)
            samples = propose(scaled, step, own, n, generator, self._groups(n, own), None)
            rows.append(judge(problem, samples.z, reference.mean_duals.mean(0)))
        return {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}


def propose(
    scaled: Scaled,
    step: ProximalStep,
    options: ProximalOptions,
    n: int,
    generator: torch.Generator,
    groups: int,
    callback: Observer | None,
) -> Samples:
    """n latents by the sampler that the options name, in the problem's own units."""
    duals = Ascent(
        _set(options.dual_step),
        _set(options.dual_init),
        margin=_set(options.margin),
        residual_max=options.residual_max,
    )
    chains, T = min(n, int(_set(options.chains))), int(_set(options.T))
    if options.sampler == "stream":
        angle = options.noise * math.pi / 2
        samples = stream(
            scaled,
            step,
            duals,
            n=n,
            n_draws=options.n_draws,
            chains=chains,
            warm=options.warm,
            alpha=math.cos(angle),
            sigma=math.sin(angle),
            generator=generator,
            callback=callback,
        )
    else:
        last = 0
        if options.sampler == "window":
            chains, groups = max(chains, math.ceil(n / T)), 1
            last = math.ceil(n / chains)
        schedule = make_schedule(options.schedule, T)
        samples = denoise(
            scaled,
            step,
            duals,
            schedule,
            n=chains if last else n,
            n_draws=options.n_draws,
            groups=groups,
            generator=generator,
            last=last,
            callback=callback,
        )
    z, size = scaled.width * samples.z[-n:], scaled.sizes.dual
    return Samples(z, size * samples.duals, size * samples.dual_path)


def _set(value: float | None) -> float:
    """An option that has been filled in."""
    if value is None:
        raise ValueError("ProximalOptions fills in what is left out")
    return value
