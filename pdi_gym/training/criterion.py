"""How a network is judged while it trains: an exact penalty with the multipliers of Monte-Carlo PDI."""

from __future__ import annotations

import torch
from torch import Tensor

from pdi_gym import presets
from pdi_gym.inference import divisor_at_most, infer, training_free_score
from pdi_gym.options import DiffusionOptions
from pdi_gym.problem import Problem
from pdi_gym.samplers import Samples
from pdi_gym.scales import in_scales
from pdi_gym.schedules import make_schedule
from pdi_gym.training.options import TrainingOptions

_VALIDATION_DRAWS = 500
CRITERION = "mean over validation instances of f0 + 2 Σ_j λ_j [f_j]₊, λ being PDI-MC's average multipliers"


def monte_carlo(problem: Problem, options: TrainingOptions, preset: str) -> Samples:
    """What Monte-Carlo PDI makes of a validation instance: its multipliers weigh violations."""
    sampler = presets.resolve(DiffusionOptions, problem, preset, {})
    schedule = make_schedule(sampler.schedule, sampler.T)
    scales = presets.scales(problem, sampler)
    view = in_scales(problem, scales)
    n = options.validation_n
    samples = infer(
        view,
        training_free_score(view, sampler, schedule),
        schedule,
        sampler,
        n=n,
        groups=divisor_at_most(n, options.groups),
        generator=torch.Generator().manual_seed(1),
    )
    return samples if scales is None else scales.samples(samples)


def judge(problem: Problem, z: Tensor, lam: Tensor) -> dict[str, float]:
    """Validation figures of decisions (n, d), and the criterion: an exact penalty with weights 2λ."""
    x = problem.decode(z)
    xi = None if problem.exact else problem.draw(_VALIDATION_DRAWS, torch.Generator().manual_seed(2))
    residuals = problem.constraints(x, xi)
    average = residuals.double().mean(0)
    objective = float(problem.objective(x, xi).double().mean())
    excess = average.clamp(min=0)
    return {
        "criterion": objective + 2 * float(lam.double() @ excess),
        "objective": objective,
        "mean_violation": float(excess.mean()),
        "feasible": float((average <= problem.tolerance).double().mean()),
        **problem.metrics(x, torch.full((len(x),), 1 / len(x)), residuals),
    }
