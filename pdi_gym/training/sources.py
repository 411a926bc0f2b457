"""Where training pairs come from: rollouts in a replay buffer, per-instance duals, or an expert's data.

A source is asked to `prepare` for a gradient step, which may roll the sampler out, and then for the
step's pieces: noisy samples of one problem with the clean estimates to be learnt. It can give its
state as tensors and take it back, so that training resumes where it stopped, be it between two rollouts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from pdi_gym import presets
from pdi_gym.descent import run_expert
from pdi_gym.diffusion import forward
from pdi_gym.duals import FROZEN_AT_ZERO, ascend
from pdi_gym.networks import Denoiser
from pdi_gym.options import DenoisingOptions, DiffusionOptions, DualTrainingOptions, ExpertOptions
from pdi_gym.problem import Problem
from pdi_gym.scales import in_scales
from pdi_gym.scores import CleanEstimator, ScoreField
from pdi_gym.training.rollouts import Buffer, Task, rollout


class Piece(NamedTuple):
    """S pairs of one problem: z (S, d) at times τ (S, 1), multipliers (S, m) or None, targets (S, d)."""

    problem: Problem
    z: Tensor
    tau: Tensor
    lam: Tensor | None
    clean: Tensor | None
    """What regression learns; None where the problem itself gives the loss."""


EXPERT = frozenset({"expert_steps", "expert_margin"})
_PRIOR = frozenset({"exploit", "exploit_steps", "prior_low", "prior_high", "perturb_dual"})
PROXIMAL = frozenset({"b_low", "b_high"})
_ROLLOUTS = frozenset(
    {"inner", "rollouts", "seed_rollouts", "chains", "capacity", "perturb", "perturb_z", "noise_norm"}
)


class Source:
    """The pairs of a method of training."""

    unread: ClassVar[frozenset[str]] = frozenset()
    """Options of a training that have no effect on these."""
    lam: Tensor | None = None
    """Multipliers (k, m) of the last step's pairs, or of all instances; None where there are none."""

    def __init__(self, task: Task):
        self.task = task
        self.buffer = Buffer(task.training.capacity)
        self.todo: list[int] | None = None
        """Instances still to be visited before the next gradient step; None until they are chosen."""

    def prepare(self, step: int, network: CleanEstimator) -> Iterator[None]:
        """What must happen before gradient step `step`; yields after each instance, when a stop may come."""
        if self.todo is None:
            self.todo = self.plan(step)
        while self.todo:
            self.visit(self.todo[0], step, network)
            self.todo.pop(0)
            yield
        self.todo = None

    def plan(self, step: int) -> list[int]:
        """The instances that gradient step `step` waits for."""
        raise NotImplementedError

    def visit(self, which: int, step: int, network: CleanEstimator) -> None:
        """Roll out or solve one instance, with the averaged network as it is."""
        raise NotImplementedError

    def pieces(self, step: int) -> Iterator[Piece]:
        raise NotImplementedError

    def perturb(self, z: Tensor, lam: Tensor) -> tuple[Tensor, Tensor]:
        """Noise on a share of the pairs: additive on z, multiplicative on λ."""
        options, generator = self.task.training, self.task.generator
        moved = (torch.rand((len(z), 1), generator=generator) < options.perturb).float()
        z = z + options.perturb_z * moved * torch.randn(z.shape, generator=generator)
        lam = lam * (1 + options.perturb_dual * moved * torch.randn(lam.shape, generator=generator))
        return z, lam.clamp(min=0)

    def losses(self, network: Denoiser, piece: Piece, device: str) -> Tensor:
        """(S,) mean squared errors of the clean estimate, in the unit of the network's own output."""
        if piece.clean is None:
            raise ValueError("regression needs clean estimates, got None")
        schedule = self.task.schedule
        z, clean = piece.z.to(device), piece.clean.to(device)
        alpha, sigma = (v[piece.tau].to(device) for v in (schedule.alpha, schedule.sigma))
        lam = None if piece.lam is None else piece.lam.to(device)
        estimate = network(z, alpha, sigma, lam, piece.problem)
        errors: Tensor = ((estimate - clean) / network.scales(alpha, sigma)[2]).square().mean(-1)
        return errors

    def notes(self) -> dict[str, float]:
        """Figures for the training curve."""
        return {"rollout_calls": float(self.task.calls)}

    def state(self) -> dict[str, Tensor]:
        todo = {} if self.todo is None else {"todo": torch.tensor(self.todo, dtype=torch.long)}
        return self.buffer.state() | {"calls": torch.tensor(self.task.calls)} | todo

    def restore(self, state: dict[str, Tensor]) -> None:
        self.buffer.restore(state)
        self.task.calls = int(state["calls"])
        self.todo = state["todo"].tolist() if "todo" in state else None


class Replay(Source):
    """Algorithm 1: pairs (x_t, λ_t) of rollouts, λ of a prior mixed in, targets by Monte Carlo.

    The buffer is seeded by rollouts of the Monte-Carlo score, or of a supervised network
    (`teacher`), so that the first gradient steps already see what the sampler will.
    """

    unread = EXPERT | PROXIMAL | {"dual_step"}

    def __init__(self, task: Task, teacher: CleanEstimator | None = None):
        super().__init__(task)
        self.teacher = teacher

    def plan(self, step: int) -> list[int]:
        task, options = self.task, self.task.training
        if step % options.inner:
            return []
        seeds = task.choose(options.seed_rollouts, len(task.problems)) if step == 0 else []
        return seeds or task.choose(options.rollouts, len(task.problems))

    def visit(self, which: int, step: int, network: CleanEstimator) -> None:
        self.buffer.push(rollout(self.task, which, self._score(which, step, network))[0])

    def _score(self, which: int, step: int, network: CleanEstimator) -> ScoreField:
        if step > 0 or self.task.training.seed_rollouts == 0:
            return self.task.network_score(network, which)
        if self.teacher is not None:
            return self.task.network_score(self.teacher, which)
        return self.task.monte_carlo(which)

    def pieces(self, step: int) -> Iterator[Piece]:
        task, options = self.task, self.task.training
        exploit = options.exploit * min(1.0, step / options.exploit_steps)
        used = []
        for pairs in self.buffer.sample(task):
            lam = pairs.lam
            mean = options.prior_low + options.prior_high * (1 - task.schedule.alpha[pairs.tau])
            drawn = mean * torch.empty_like(lam).exponential_(generator=task.generator)
            replayed = torch.rand((len(lam), 1), generator=task.generator) < exploit
            z, lam = self.perturb(pairs.z, torch.where(replayed, lam, drawn))
            clean = task.target(pairs.which, z, pairs.tau, lam)
            used.append(lam)
            yield Piece(task.problems[pairs.which], z, pairs.tau, lam, clean)
        self.lam = torch.cat(used)


def _ascending(options: DenoisingOptions) -> DualTrainingOptions | DiffusionOptions:
    if not isinstance(options, DualTrainingOptions | DiffusionOptions):
        raise TypeError(f"dual training needs options with multipliers, got {type(options).__name__}")
    return options


class Duals(Source):
    """Algorithm 3: multipliers per training instance, raised by rollouts of a network that never sees them.

    The rollouts that move the multipliers also fill the buffer for the next gradient steps. `frozen`
    multipliers stay: the second stage of DT+.
    """

    lam: Tensor
    unread = EXPERT | PROXIMAL | _PRIOR | {"seed_rollouts"}

    def __init__(self, task: Task, reference: Callable[[], Tensor] | None = None, frozen: bool = False):
        super().__init__(task)
        m = task.problems[0].n_constraints
        # Frozen multipliers are those of another training, so their sampler's options have none.
        first = [0.0 if frozen else float(_ascending(o).dual_init) for o in task.options]
        self.lam = torch.tensor(first).unsqueeze(1).repeat(1, m)
        self.frozen = frozen
        self._reference = reference

    @cached_property
    def reference(self) -> Tensor | None:
        """Multipliers (r, m) that PDI finds on the first r instances, for the training curve."""
        return None if self._reference is None else self._reference()

    def plan(self, step: int) -> list[int]:
        task, options = self.task, self.task.training
        return [] if step % options.inner else task.choose(options.rollouts, len(task.problems))

    def visit(self, which: int, step: int, network: CleanEstimator) -> None:
        task, options = self.task, self.task.training
        problem = task.problems[which]
        pairs, z = rollout(task, which, task.network_score(network, which), FROZEN_AT_ZERO)
        self.buffer.push(pairs)
        if step == 0 or self.frozen:
            return
        sampler = _ascending(task.options[which])
        dual_step = 4 * sampler.dual_step if options.dual_step is None else options.dual_step
        if dual_step > 0:
            xi = None if problem.exact else problem.draw(8 * sampler.n_draws, task.generator)
            residual = problem.constraints(problem.decode(z), xi).mean(0)
            self.lam[which] = ascend(self.lam[which], residual, dual_step, most=sampler.dual_max)

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

    unread = PROXIMAL | _PRIOR | _ROLLOUTS | {"dual_step"}

    def __init__(self, task: Task):
        super().__init__(task)
        self.data: dict[int, Tensor] = {}

    def plan(self, step: int) -> list[int]:
        """As many as a step mixes before the first steps, then one more before each, until all are solved."""
        wanted = max(self.task.training.problems, len(self.data) + (step >= self.task.training.problems))
        return list(range(len(self.data), min(wanted, len(self.task.problems))))

    def visit(self, which: int, step: int, network: CleanEstimator) -> None:
        self.data[which] = self._solve(self.task.problems[which])

    def _solve(self, problem: Problem) -> Tensor:
        """What the agent `expert` would answer, but for the margin."""
        options, generator = self.task.training, self.task.generator
        given = {} if options.expert_steps is None else {"steps": options.expert_steps}
        expert = presets.resolve(ExpertOptions, problem, "fast", given)
        scales = presets.scales(problem, expert)
        view = in_scales(problem, scales)
        start = view.project(0.1 * torch.randn((expert.chains, problem.latent_dim), generator=generator))
        z = run_expert(
            view, start, expert, n=options.keep, generator=generator, margin=options.expert_margin
        ).z
        return z if scales is None else z * scales.latent

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
