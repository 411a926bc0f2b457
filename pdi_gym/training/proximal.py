"""Training of the proximal network: the Lagrangian itself is the loss, so there is no target to estimate."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from pdi_gym.duals import Ascent
from pdi_gym.networks import Denoiser
from pdi_gym.problem import Problem
from pdi_gym.proximal import LearnedStep, Scaled, StepScore, denoise, stream
from pdi_gym.scores import CleanEstimator
from pdi_gym.training.rollouts import Pairs, Recorder, Task
from pdi_gym.training.sources import EXPERT, Piece, Source

_DRAWS = 2
_DENOISING = Ascent(step=1.0, init=5.0, margin=0.1)
_STREAM = Ascent(step=0.3, init=2.0, margin=0.07)
_STREAM_STEPS, _STREAM_CHAINS = 60, 2
_STREAM_LEVELS = (0.8, 0.98)
"""Noise levels of streams, as shares of the schedule's steps."""


class Proximal(Source):
    """Pairs (z, λ) of rollouts of the network itself, half by Algorithm 2 and half by streams.

    The loss of an estimate x̂ is L(x̂, λ) + ½ b ‖(α x̂ − z)/σ‖² per coordinate, over 1 + mean λ, with
    L's gradient on fresh draws and b log-uniform. Multipliers are the rollout's or a prior's.
    """

    unread = EXPERT | {"dual_step", "noise_norm"}

    def __init__(self, task: Task):
        super().__init__(task)
        self.scaled = [Scaled(problem) for problem in task.problems]

    def plan(self, step: int) -> list[int]:
        options = self.task.training
        if step % options.inner:
            return []
        return self.task.choose(
            options.rollouts if step else max(options.rollouts, options.seed_rollouts), len(self.scaled)
        )

    def visit(self, which: int, step: int, network: CleanEstimator) -> None:
        task, options, scaled = self.task, self.task.training, self.scaled[which]
        generator = task.generator
        proximal = LearnedStep(network, scaled, float(self._weights(1)))
        if torch.rand((), generator=generator) < 0.5:
            score = StepScore(proximal, task.schedule)
            recorder = Recorder(score)
            denoise(
                scaled,
                proximal,
                _DENOISING,
                task.schedule,
                n=options.chains,
                n_draws=_DRAWS,
                groups=options.groups,
                generator=generator,
                score=recorder,
            )
            task.calls += options.chains * task.schedule.T
            self.buffer.push(recorder.pairs(which, options.keep, generator))
            return
        low, high = (round(share * task.schedule.T) for share in _STREAM_LEVELS)
        tau = int(torch.randint(max(1, low), max(2, high + 1), (), generator=generator))
        groups = max(1, options.chains // (2 * _STREAM_CHAINS))
        seen: list[tuple[Tensor, int, Tensor]] = []
        stream(
            scaled,
            proximal,
            _STREAM,
            n=_STREAM_STEPS * groups * _STREAM_CHAINS,
            n_draws=_DRAWS,
            chains=_STREAM_CHAINS,
            warm=0,
            groups=groups,
            alpha=float(task.schedule.alpha[tau]),
            sigma=float(task.schedule.sigma[tau]),
            generator=generator,
            watch=lambda z, lam: seen.append((z, tau, lam)),
        )
        task.calls += _STREAM_STEPS * groups * _STREAM_CHAINS
        recorder = Recorder(StepScore(proximal, task.schedule))
        recorder.asked = seen
        self.buffer.push(recorder.pairs(which, options.keep, generator))

    def pieces(self, step: int) -> Iterator[Piece]:
        used = []
        for pairs in self.buffer.sample(self.task):
            z, lam = self.perturb(pairs.z, self._duals(pairs, step))
            used.append(lam)
            yield Piece(self.scaled[pairs.which], z, pairs.tau, lam, None)
        self.lam = torch.cat(used)

    def _duals(self, pairs: Pairs, step: int) -> Tensor:
        """The rollout's multipliers or, for a share of the pairs, those of an exponential prior."""
        options, generator = self.task.training, self.task.generator
        exploit = options.exploit * min(1.0, step / options.exploit_steps)
        mean = options.prior_low + options.prior_high * (1 - self.task.schedule.alpha[pairs.tau])
        drawn = mean * torch.empty_like(pairs.lam).exponential_(generator=generator)
        replayed = torch.rand((len(pairs.lam), 1), generator=generator) < exploit
        return torch.where(replayed, pairs.lam, drawn)

    def _weights(self, n: int) -> Tensor:
        """(n, 1) weights b of the proximal term, log-uniform."""
        options = self.task.training
        low, high = math.log(options.b_low), math.log(options.b_high)
        return torch.rand((n, 1), generator=self.task.generator).mul_(high - low).add_(low).exp_()

    def losses(self, network: Denoiser, piece: Piece, device: str) -> Tensor:
        task, problem = self.task, piece.problem
        if piece.lam is None:
            raise ValueError("the proximal loss needs multipliers, got None")
        alpha, sigma = task.schedule.alpha[piece.tau], task.schedule.sigma[piece.tau]
        b = self._weights(len(piece.z))
        estimate = network(piece.z, alpha, sigma, piece.lam, problem, b)
        return proximal_loss(problem, estimate, piece.z, alpha, sigma, piece.lam, b, task.generator)


def proximal_loss(
    problem: Problem,
    estimate: Tensor,
    z: Tensor,
    alpha: Tensor,
    sigma: Tensor,
    lam: Tensor,
    b: Tensor,
    generator: torch.Generator,
) -> Tensor:
    """(S,) losses whose gradient in `estimate` is that of L(x̂, λ) + ½ b ‖(α x̂ − z)/σ‖² per coordinate."""
    xi = None if problem.exact else problem.draw(_DRAWS, generator)
    with torch.no_grad():
        _, grad = problem.lagrangian_grad(estimate.detach(), lam, xi)
    # Without the constant ½ b ‖z/σ‖², which would drown the figure.
    near = 0.5 * b / sigma.square() * (alpha * estimate) * (alpha * estimate - 2 * z)
    loss: Tensor = (grad * estimate + near).mean(-1) / (1 + lam.mean(-1))
    return loss
