"""The expert: a dual gradient method run to convergence on the instance itself."""

from __future__ import annotations

import torch

from pdi_gym.agents.base import Agent, Observer, Trace
from pdi_gym.options import ExpertOptions
from pdi_gym.policy import TimeSharingPolicy
from pdi_gym.problem import Problem
from pdi_gym.samplers import Step


class Expert(Agent):
    """Adam descends f0 + λᵀf while λ ← [λ + η f̄]₊; the iterates of the converged window share time.

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
        z = problem.project(0.1 * torch.randn((options.chains, problem.latent_dim), generator=generator))
        lam = torch.full((1, problem.n_constraints), float(options.dual_init))
        first, second = torch.zeros_like(z), torch.zeros_like(z)
        start = options.steps - max(1, round(options.window * options.steps))
        kept = torch.empty(options.steps - start, *z.shape)
        duals = torch.zeros_like(lam)
        trace = Trace(options.steps, callback)
        for t in range(options.steps):
            xi = None if problem.exact else problem.draw(options.n_draws, generator)
            _, grad = problem.lagrangian_grad(z, lam, xi)
            first.lerp_(grad, 0.1)
            second.lerp_(grad.square(), 0.01)
            size = (second / (1 - 0.99 ** (t + 1))).sqrt_().add_(1e-12)
            z = problem.project(z - options.primal_step / (1 - 0.9 ** (t + 1)) * first / size)
            residual = problem.constraints(problem.decode(z), xi).mean(0, keepdim=True)
            trace(Step(t, z.unsqueeze(0), z.unsqueeze(0), lam, residual, float("nan")))
            lam = (lam + options.dual_step * residual).clamp(min=0)
            if not torch.isfinite(z).all() or not torch.isfinite(lam).all():
                raise FloatingPointError(f"expert diverged at step {t}: lower primal_step or dual_step")
            if t >= start:
                kept[t - start] = z
                duals += lam / len(kept)
        pool = kept.flatten(0, 1)
        # Evenly spaced over the window, so that every part of the cycle is there; all chains in turn.
        chosen = torch.linspace(0, len(pool) - 1, n).long()
        return TimeSharingPolicy(
            problem.decode(pool[chosen]).numpy(),
            duals=lam.numpy(),
            mean_duals=duals.numpy(),
            info={"trace": trace.arrays()},
        )
