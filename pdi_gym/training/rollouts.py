"""Rollouts of the sampler that training learns from, and the buffer that keeps the last of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from pdi_gym.diffusion import tweedie
from pdi_gym.duals import DualRule
from pdi_gym.inference import infer, monte_carlo_score
from pdi_gym.options import DenoisingOptions
from pdi_gym.problem import Problem
from pdi_gym.schedules import Schedule, make_schedule
from pdi_gym.scores import CleanEstimator, Estimate, MonteCarloScore, NetworkScore, ScoreField
from pdi_gym.training.options import TrainingOptions


@dataclass
class Task:
    """What all sources need: training problems, the sampler's options on each, and randomness."""

    problems: list[Problem]
    options: list[DenoisingOptions]
    training: TrainingOptions
    generator: torch.Generator
    project: bool = True
    """Whether targets are projected: the bounded clean estimates that the sampler uses."""
    schedule: Schedule = field(init=False)
    calls: int = field(default=0, init=False)
    """Samples that went through a score field in rollouts so far."""

    def __post_init__(self) -> None:
        self.schedule = make_schedule(self.options[0].schedule, self.options[0].T)

    def choose(self, count: int, among: int) -> list[int]:
        """Indices without repetition, in random order."""
        return torch.randperm(among, generator=self.generator)[:count].tolist()

    def network_score(self, network: CleanEstimator, which: int) -> NetworkScore:
        device = next(network.parameters()).device if isinstance(network, torch.nn.Module) else "cpu"
        alpha_min = self.options[which].alpha_min
        return NetworkScore(network, self.problems[which], self.schedule, alpha_min, str(device))

    def monte_carlo(self, which: int) -> MonteCarloScore:
        return monte_carlo_score(self.problems[which], self.options[which], self.schedule)

    def target(self, which: int, z: Tensor, tau: Tensor, lam: Tensor) -> Tensor:
        """Clean estimates (S, d) by the Monte-Carlo score: ε-targets −σ s, rebuilt as ẑ_0."""
        problem, options = self.problems[which], self.options[which]
        xi = None if problem.exact else problem.draw(options.n_draws, self.generator)
        noisy, times = z.unsqueeze(1), tau.unsqueeze(1)
        value = self.monte_carlo(which)(noisy, times, lam.unsqueeze(1), xi, self.generator).value
        if self.training.noise_norm is not None:
            size = self.schedule.sigma[times] * value.norm(dim=-1, keepdim=True)
            value = value * (self.training.noise_norm / size).clamp(max=1)
        clean = tweedie(noisy, value, times, self.schedule, options.alpha_min).squeeze(1)
        return problem.project(clean) if self.project else clean


class Pairs(NamedTuple):
    """What a score field was asked along one rollout: z (k, d), τ (k, 1), λ (k, m); which problem."""

    which: int
    z: Tensor
    tau: Tensor
    lam: Tensor


class Recorder:
    """A score field that remembers what it was asked."""

    def __init__(self, score: ScoreField):
        self.score = score
        self.asked: list[tuple[Tensor, int, Tensor]] = []

    def __call__(
        self, z: Tensor, tau: int, lam: Tensor, xi: Tensor | None, generator: torch.Generator
    ) -> Estimate:
        self.asked.append((z, tau, lam))
        return self.score(z, tau, lam, xi, generator)

    def pairs(self, which: int, keep: int, generator: torch.Generator) -> Pairs:
        """`keep` of the samples met, over all times, groups and chains."""
        z = torch.stack([z for z, _, _ in self.asked])  # (T, C, I, d)
        lam = torch.stack([lam for _, _, lam in self.asked])  # (T, C, 1, m)
        T, C, chains, _ = z.shape
        flat = torch.randint(T * C * chains, (keep,), generator=generator)
        t, c, i = flat // (C * chains), flat // chains % C, flat % chains
        tau = torch.tensor([tau for _, tau, _ in self.asked])
        return Pairs(which, z[t, c, i], tau[t].unsqueeze(1), lam[t, c, 0])


def rollout(task: Task, which: int, score: ScoreField, duals: DualRule | None = None) -> tuple[Pairs, Tensor]:
    """The pairs of one run of the sampler, and its final latents (n, d)."""
    recorder = Recorder(score)
    options = task.training
    samples = infer(
        task.problems[which],
        recorder,
        task.schedule,
        task.options[which],
        n=options.chains,
        groups=options.groups,
        generator=task.generator,
        duals=duals,
    )
    task.calls += options.chains * task.schedule.T
    return recorder.pairs(which, options.keep, task.generator), samples.z


class Buffer:
    """The last `capacity` rollouts; a minibatch mixes several of them."""

    def __init__(self, capacity: int):
        self.rollouts: deque[Pairs] = deque(maxlen=capacity)

    def push(self, pairs: Pairs) -> None:
        self.rollouts.append(pairs)

    def sample(self, task: Task) -> Iterator[Pairs]:
        for i in task.choose(task.training.problems, len(self.rollouts)):
            pairs = self.rollouts[i]
            rows = torch.randint(len(pairs.z), (task.training.pairs,), generator=task.generator)
            yield Pairs(pairs.which, pairs.z[rows], pairs.tau[rows], pairs.lam[rows])

    def state(self) -> dict[str, Tensor]:
        if not self.rollouts:
            return {}
        return {
            "buffer.index": torch.tensor([p.which for p in self.rollouts]),
            "buffer.z": torch.stack([p.z for p in self.rollouts]),
            "buffer.tau": torch.stack([p.tau for p in self.rollouts]),
            "buffer.lam": torch.stack([p.lam for p in self.rollouts]),
        }

    def restore(self, state: dict[str, Tensor]) -> None:
        self.rollouts.clear()
        if "buffer.index" in state:
            for index, z, tau, lam in zip(
                state["buffer.index"].tolist(),
                state["buffer.z"],
                state["buffer.tau"],
                state["buffer.lam"],
                strict=True,
            ):
                self.push(Pairs(index, z, tau, lam))
