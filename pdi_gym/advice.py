"""Warnings about the policy of a user's own problem: what went wrong, by how much, and what to do."""

from __future__ import annotations

import warnings

import numpy as np
import torch

from pdi_gym.policy import TimeSharingPolicy
from pdi_gym.problem import Problem
from pdi_gym.scales import Scales

LEAST_SAMPLE_SIZE = 2.0
"""Below this average over the last half of the steps, the Monte-Carlo score is one candidate's gradient."""
MOST_EXCESS = 0.01
"""Largest residual, as a fraction of its constraint's scale, that does not make a policy infeasible."""
_BLOCKS, _BLOCK = 20, 50
_ERRORS = 3.0
_SEED = 20_001


class PolicyWarning(UserWarning):
    """A policy is not what its agent promises: the score was useless, or the constraints do not hold."""


def advise(agent: str, problem: Problem, policy: TimeSharingPolicy, scales: Scales, aims: bool) -> None:
    """Warn of a useless score and, if the agent aims at the constraints, of an infeasible policy."""
    for message in (_on_score(policy), _on_constraints(problem, policy, scales) if aims else None):
        if message is not None:
            warnings.warn(f"{agent} on {type(problem).__name__}: {message}", PolicyWarning, stacklevel=4)


def _on_score(policy: TimeSharingPolicy) -> str | None:
    ess = policy.info.get("trace", {}).get("ess", np.array([np.nan]))
    late = float(ess[len(ess) // 2 :].mean())
    if not late < LEAST_SAMPLE_SIZE:  # NaN where there is no Monte-Carlo score
        return None
    return (
        f"the Monte-Carlo score rests on {late:.1f} candidates on average over the last half of the steps, "
        f"fewer than {LEAST_SAMPLE_SIZE:g}, so samples do not follow the law of beta: "
        "raise n_candidates or beta"
    )


@torch.no_grad()
def _on_constraints(problem: Problem, policy: TimeSharingPolicy, scales: Scales) -> str | None:
    """The worst constraint over 1000 draws of a generator of its own, three standard errors allowed."""
    played = policy.weights > 0
    x = torch.as_tensor(policy.actions[played], dtype=torch.float32)
    weights = torch.as_tensor(policy.weights[played], dtype=torch.float64)
    generator = torch.Generator().manual_seed(_SEED)
    blocks = 1 if problem.exact else _BLOCKS
    draws = [None if problem.exact else problem.draw(_BLOCK, generator) for _ in range(blocks)]
    residuals = torch.stack([weights @ problem.constraints(x, xi).double() for xi in draws])
    sizes = torch.tensor(scales.constraints, dtype=torch.float64)
    allowed = (MOST_EXCESS * sizes).clamp(min=problem.tolerance)
    if blocks > 1:
        allowed = allowed + _ERRORS * residuals.std(0) / blocks**0.5
    average = residuals.mean(0)
    broken = (average > allowed).nonzero().flatten()
    if len(broken) == 0:
        return None
    worst = int(((average - allowed) / sizes).argmax())
    return (
        f"{len(broken)} of {problem.n_constraints} constraints do not hold on average; the worst is "
        f"{problem.constraint_names[worst]} with a residual of {float(average[worst]):.3g} where 0 is the "
        f"limit and it varies by {scales.constraints[worst]:.3g}: try pdi-cg, more steps, a larger "
        "dual_step or a margin; if pdi-cg warns too, there may be no feasible policy"
    )
