"""Where training pairs come from: rollouts in a replay buffer, per-instance duals, or an expert's data.

A source is asked to `prepare` for a gradient step, which may roll the sampler out, and then for the
step's pieces: noisy samples of one problem with the clean estimates to be learnt. It can give its
state as tensors and take it back, so that training resumes where it stopped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from pdi_gym.descent import dual_method
from pdi_gym.diffusion import forward, tweedie
from pdi_gym.inference import infer
from pdi_gym.options import DiffusionOptions, TrainingOptions
from pdi_gym.problem import Problem
from pdi_gym.schedules import Schedule, make_schedule
from pdi_gym.scores import CleanEstimator, MonteCarloScore, NetworkScore, ScoreField


class Piece(NamedTuple):
    """S pairs of one problem: z (S, d) at times τ (S, 1), multipliers (S, m) or None, targets (S, d)."""

    problem: Problem
    z: Tensor
    tau: Tensor
    lam: Tensor | None
    clean: Tensor


@dataclass
class Task:
    """What all sources need: training problems, the sampler's options on each, and randomness."""

    problems: list[Problem]
    options: list[DiffusionOptions]
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
        o = self.options[which]
        return MonteCarloScore(
            self.problems[which], self.schedule, o.beta, o.n_candidates, o.candidates, o.alpha_min
        )

    def target(self, which: int, z: Tensor, tau: Tensor, lam: Tensor) -> Tensor:
        """Clean estimates (S, d) by the Monte-Carlo score: ε-targets −σ s, rebuilt as ẑ_0."""
        problem, options = self.problems[which], self.options[which]
        xi = None if problem.exact else problem.draw(options.n_draws, self.generator)
        noisy, times = z.unsqueeze(1), tau.unsqueeze(1)
        value = self.monte_carlo(which)(noisy, times, lam.unsqueeze(1), xi, self.generator)
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
    ) -> Tensor:
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


def rollout(
    task: Task, which: int, score: ScoreField, *, dual_step: float | None = None
) -> tuple[Pairs, Tensor]:
    """The pairs of one run of the sampler, and its final latents (n, d)."""
    recorder = Recorder(score)
    options = task.training
    samples = infer(
        task.problems[which], recorder, task.options[which], n=options.chains, groups=options.groups,
        generator=task.generator, dual_step=dual_step,
    )  # fmt: skip
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
                state["buffer.index"].tolist(), state["buffer.z"], state["buffer.tau"], state["buffer.lam"],
                strict=True,
            ):  # fmt: skip
                self.push(Pairs(index, z, tau, lam))


class Source:
    """The pairs of a method of training."""

    def __init__(self, task: Task):
        self.task = task
        self.buffer = Buffer(task.training.capacity)

    def prepare(self, step: int, network: CleanEstimator) -> None:
        """What must happen before gradient step `step`, with the averaged network as it is."""

    def pieces(self, step: int) -> Iterator[Piece]:
        raise NotImplementedError

    def perturb(self, z: Tensor, lam: Tensor) -> tuple[Tensor, Tensor]:
        """Noise on a share of the pairs: additive on z, multiplicative on λ."""
        options, generator = self.task.training, self.task.generator
        moved = (torch.rand((len(z), 1), generator=generator) < options.perturb).float()
        z = z + options.perturb_z * moved * torch.randn(z.shape, generator=generator)
        lam = lam * (1 + options.perturb_dual * moved * torch.randn(lam.shape, generator=generator))
        return z, lam.clamp(min=0)

    def notes(self) -> dict[str, float]:
        """Figures for the training curve."""
        return {"rollout_calls": float(self.task.calls)}

    def state(self) -> dict[str, Tensor]:
        return self.buffer.state() | {"calls": torch.tensor(self.task.calls)}

    def restore(self, state: dict[str, Tensor]) -> None:
        self.buffer.restore(state)
        self.task.calls = int(state["calls"])


class Replay(Source):
    """Algorithm 1: pairs (x_t, λ_t) of rollouts, λ of a prior mixed in, targets by Monte Carlo.

    The buffer is seeded by rollouts of the Monte-Carlo score, or of a supervised network
    (`teacher`), so that the first gradient steps already see what the sampler will.
    """

    def __init__(self, task: Task, teacher: CleanEstimator | None = None):
        super().__init__(task)
        self.teacher = teacher

    def prepare(self, step: int, network: CleanEstimator) -> None:
        task, options = self.task, self.task.training
        if step == 0:
            for which in task.choose(options.seed_rollouts, len(task.problems)):
                score: ScoreField = task.monte_carlo(which)
                if self.teacher is not None:
                    score = task.network_score(self.teacher, which)
                self.buffer.push(rollout(task, which, score)[0])
        if not self.buffer.rollouts or (step > 0 and step % options.inner == 0):
            for which in task.choose(options.rollouts, len(task.problems)):
                self.buffer.push(rollout(task, which, task.network_score(network, which))[0])

    def pieces(self, step: int) -> Iterator[Piece]:
        task, options = self.task, self.task.training
        exploit = options.exploit * min(1.0, step / options.exploit_steps)
        for pairs in self.buffer.sample(task):
            lam = pairs.lam
            mean = options.prior_low + options.prior_high * (1 - task.schedule.alpha[pairs.tau])
            drawn = mean * torch.empty_like(lam).exponential_(generator=task.generator)
            replayed = torch.rand((len(lam), 1), generator=task.generator) < exploit
            z, lam = self.perturb(pairs.z, torch.where(replayed, lam, drawn))
            clean = task.target(pairs.which, z, pairs.tau, lam)
            yield Piece(task.problems[pairs.which], z, pairs.tau, lam, clean)


class Duals(Source):
    """Algorithm 3: multipliers per training instance, raised by rollouts of a network that never sees them.

    The rollouts that move the multipliers also fill the buffer for the next gradient steps. With a
    zero dual step the multipliers stay: the second stage of DT+.
    """

    def __init__(self, task: Task, reference: Tensor | None = None):
        super().__init__(task)
        m = task.problems[0].n_constraints
        self.lam = torch.full((len(task.problems), m), task.options[0].dual_init)
        self.reference = reference
        """Multipliers (r, m) that PDI finds on the first r instances, for the training curve."""

    def prepare(self, step: int, network: CleanEstimator) -> None:
        task, options = self.task, self.task.training
        if step % options.inner:
            return
        for which in task.choose(options.rollouts, len(task.problems)):
            problem, sampler = task.problems[which], task.options[which]
            pairs, z = rollout(task, which, task.network_score(network, which), dual_step=0.0)
            self.buffer.push(pairs)
            if step > 0 and options.dual_step > 0:
                xi = None if problem.exact else problem.draw(8 * sampler.n_draws, task.generator)
                residual = problem.constraints(problem.decode(z), xi).mean(0)
                lam = self.lam[which] + options.dual_step * residual
                self.lam[which] = lam.clamp(min=0, max=sampler.dual_max)

    def pieces(self, step: int) -> Iterator[Piece]:
        task = self.task
        for pairs in self.buffer.sample(task):
            lam = self.lam[pairs.which].expand(len(pairs.z), -1)
            z, _ = self.perturb(pairs.z, lam)
            clean = task.target(pairs.which, z, pairs.tau, lam)
            yield Piece(task.problems[pairs.which], z, pairs.tau, None, clean)

    def notes(self) -> dict[str, float]:
        notes = super().notes() | {"mean_dual": float(self.lam.mean())}
        if self.reference is not None:
            own = self.lam[: len(self.reference)]
            notes["dual_cosine"] = float(torch.cosine_similarity(own, self.reference, dim=1).mean())
            notes["dual_distance"] = float((own - self.reference).norm(dim=1).mean())
        return notes

    def state(self) -> dict[str, Tensor]:
        return super().state() | {"duals": self.lam}

    def restore(self, state: dict[str, Tensor]) -> None:
        super().restore(state)
        self.lam = state["duals"].clone()


class Experts(Source):
    """Denoising score matching on samples of a dual method, solved with `expert_margin` to spare."""

    def __init__(self, task: Task):
        super().__init__(task)
        self.data: dict[int, Tensor] = {}

    def prepare(self, step: int, network: CleanEstimator) -> None:
        """One more instance is solved before each of the first steps, until all are."""
        task, options = self.task, self.task.training
        wanted = len(task.problems) if step >= options.problems else options.problems
        while len(self.data) < min(wanted, len(task.problems)):
            index = len(self.data)
            self.data[index] = self._solve(task.problems[index])
            if step >= options.problems:
                break

    def _solve(self, problem: Problem) -> Tensor:
        options, generator = self.task.training, self.task.generator
        start = problem.project(0.1 * torch.randn((8, problem.latent_dim), generator=generator))
        return dual_method(
            problem, start, n=options.keep, steps=options.expert_steps, rate=options.expert_rate,
            dual_step=options.dual_step, margin=options.expert_margin, n_draws=2, generator=generator,
        ).z  # fmt: skip

    def pieces(self, step: int) -> Iterator[Piece]:
        task, generator = self.task, self.task.generator
        for index in task.choose(task.training.problems, len(self.data)):
            data = self.data[index]
            clean = data[torch.randint(len(data), (task.training.pairs,), generator=generator)]
            tau = torch.randint(1, task.schedule.T + 1, (len(clean), 1), generator=generator)
            z = forward(clean, tau, task.schedule, torch.randn(clean.shape, generator=generator))
            yield Piece(task.problems[index], z, tau, None, clean)

    def state(self) -> dict[str, Tensor]:
        data = {"experts": torch.stack([self.data[i] for i in range(len(self.data))])} if self.data else {}
        return super().state() | data

    def restore(self, state: dict[str, Tensor]) -> None:
        super().restore(state)
        self.data = dict(enumerate(state["experts"])) if "experts" in state else {}
