"""What a training learns from: buffers, targets, multipliers per instance, experts' data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from pdi_gym.agents import make_agent
from pdi_gym.checkpoints import load_tensors
from pdi_gym.options import DiffusionOptions
from pdi_gym.problems import MixtureOfGaussians, Portfolio
from pdi_gym.training.loop import Stopped
from pdi_gym.training.options import TrainingOptions
from pdi_gym.training.presets import setup
from pdi_gym.training.rollouts import Buffer, Pairs, Task
from pdi_gym.training.sources import Duals, Experts, Replay
from pdi_gym.training.state import STATE
from tests.training_cases import USERS, interrupt, learn, task


def test_a_minibatch_mixes_rollouts_and_old_ones_leave() -> None:
    work = task(problems=3, pairs=5)
    buffer = Buffer(4)
    for which in range(7):
        size = (20, 8)
        buffer.push(
            Pairs(which % 4, torch.full(size, float(which)), torch.ones(20, 1).long(), torch.zeros(size))
        )
    met = set()
    for _ in range(30):
        batch = list(buffer.sample(work))
        values = [set(p.z.flatten().tolist()) for p in batch]
        assert len(batch) == 3 and all(len(v) == 1 for v in values)
        assert len(set.union(*values)) == 3
        met |= set.union(*values)
    assert met == {3.0, 4.0, 5.0, 6.0}


def test_replay_shifts_from_the_prior_to_the_rollouts_multipliers() -> None:
    work = task(
        problems=2, pairs=50, perturb=0.0, exploit=1.0, exploit_steps=10, prior_low=100.0, prior_high=0.0
    )
    source = Replay(work)
    list(source.prepare(0, lambda *_: None))
    early = torch.cat([p.lam for p in source.pieces(0) if p.lam is not None])
    late = torch.cat([p.lam for p in source.pieces(10) if p.lam is not None])
    # 800 exponential draws of mean 100: four standard errors are 14.
    assert early.mean() == pytest.approx(100, abs=14)
    assert late.max() < 5


def test_targets_are_projected_and_follow_the_score() -> None:
    """For a Gaussian the clean estimate is known: E[x | z]."""
    problem = MixtureOfGaussians(
        means=torch.zeros(1, 2),
        covariances=torch.eye(2).unsqueeze(0),
        weights=torch.ones(1),
        A=torch.eye(2)[:1],
        b=torch.zeros(1),
    )
    options = DiffusionOptions(T=10, beta=1.0, n_candidates=4000, alpha_min=0.0)
    work = Task([problem], [options], TrainingOptions(), torch.Generator().manual_seed(0))
    z, tau, lam = (
        torch.tensor([[0.5, -1.0], [1.0, 0.3]]),
        torch.tensor([[3], [5]]),
        torch.tensor([[0.0], [0.7]]),
    )
    alpha, sigma = work.schedule.alpha[tau], work.schedule.sigma[tau]
    mean = lam * torch.tensor([[1.0, 0.0]])
    expected = mean + alpha / (alpha**2 + sigma**2) * (z - alpha * mean)
    assert torch.allclose(work.target(0, z, tau, lam), expected, atol=0.1)
    short = Task([problem], [options], TrainingOptions(noise_norm=1e-6), work.generator, project=False)
    assert torch.allclose(short.target(0, z, tau, lam), z / alpha, atol=1e-4)


@pytest.mark.parametrize(("preset", "floor"), [("fast", 0.5), ("paper", 0.0)])
def test_a_network_of_the_noise_can_reach_its_targets(preset: str, floor: float) -> None:
    """What is asked of its output, (target − c_skip z)/c_out, is −ε: within the norm that targets keep."""
    problem = Portfolio.instance(0, 12, 4, split="train")
    sampler = make_agent("pdi-net", preset=preset).options(problem)
    config, options = setup("pdi-net", problem, "cpu", {}, sampler.alpha_min)
    assert config.alpha_min == floor
    generator = torch.Generator().manual_seed(0)
    work = Task([problem], [sampler], options, generator, project=False)
    tau = torch.arange(1, work.schedule.T + 1).unsqueeze(1)
    z = torch.randn((len(tau), 12), generator=generator)
    target = work.target(0, z, tau, torch.zeros(len(tau), 12))
    _, c_skip, c_out = config.build().scales(work.schedule.alpha[tau], work.schedule.sigma[tau])
    assert ((target - c_skip * z) / c_out).norm(dim=1).max() < 1.01 * options.noise_norm


def test_a_perceptron_trains_on_a_simplex(tmp_path: Path) -> None:
    problem = Portfolio.instance(0, 12, 4, split="train")
    agent = learn("pdi-net", tmp_path, [problem], body="mlp")
    assert agent.network.config.simplex and agent.sample(problem, n=8).actions.shape == (8, 12)


def test_dual_training_moves_the_multipliers_of_rolled_out_instances_only() -> None:
    work = task(rollouts=2, dual_step=1.0)
    source = Duals(work)
    full = lambda z, *_: torch.full_like(z, 0.5)  # noqa: E731  (everybody at full power)
    list(source.prepare(0, full))
    assert torch.equal(source.lam, torch.ones(4, 8))  # the first round only fills the buffer
    list(source.prepare(work.training.inner, full))
    moved = [i for i in range(4) if not torch.equal(source.lam[i], torch.ones(8))]
    assert len(moved) == 2
    for i in moved:
        residual = USERS[i].constraints(USERS[i].decode(torch.full((1, 8), 0.5)))[0]
        assert torch.allclose(source.lam[i], (1 + residual).clamp(min=0), atol=0.35)
    list(source.prepare(work.training.inner + 1, full))
    assert moved == [i for i in range(4) if not torch.equal(source.lam[i], torch.ones(8))]


def test_dual_training_steps_in_the_units_of_the_problem() -> None:
    """An equal-weight portfolio's multipliers move by four of the sampler's steps."""
    problem = Portfolio.instance(0, 12, 4, split="train")
    agent = make_agent("dt")
    options = agent.options(problem)
    training = TrainingOptions(inner=1, rollouts=1, chains=4, groups=1)
    source = Duals(Task([problem], [options], training, torch.Generator().manual_seed(0)))
    before = source.lam.clone()
    assert torch.allclose(before, torch.full((1, 12), options.dual_init))
    list(source.prepare(1, lambda z, *_: torch.zeros_like(z)))
    # Almost equal weights x = 1/12 whatever the noise left by the last step: closed form of the residual.
    x = torch.full((12,), 1 / 12, dtype=torch.float64)
    residual = x * (problem.sigma.double() @ x) - problem.budgets
    expected = (before[0].double() + 4 * options.dual_step * residual).clamp(0, options.dual_max)
    assert not torch.allclose(source.lam, before, rtol=0.05)
    assert torch.allclose(source.lam[0].double(), expected, rtol=0.05, atol=0.01 * options.dual_max)


def test_expert_data_are_feasible_with_the_margin() -> None:
    source = Experts(task(expert_steps=800, expert_margin=0.3, keep=100))
    list(source.prepare(0, lambda *_: None))
    z = source.data[0]
    average = USERS[0].constraints(USERS[0].decode(z)).mean(0)
    assert average.max() < -0.1
    for piece in source.pieces(0):
        assert piece.lam is None and piece.clean.abs().max() <= 0.5


def test_frozen_multipliers_stay(tmp_path: Path) -> None:
    """DT+ on the plane, where no preset says so; and of a DT with fewer instances than DT+'s preset."""
    problem = MixtureOfGaussians.toy()
    learn("dt", tmp_path / "dt", [problem], inner=1)
    learn("dt-plus", tmp_path / "dt-plus", [problem], start=tmp_path / "dt", inner=1)
    first, then = (load_tensors(tmp_path / d / STATE)[0]["source.duals"] for d in ("dt", "dt-plus"))
    assert torch.equal(first, then) and not torch.equal(first, torch.zeros_like(first))
    with pytest.raises(TypeError, match="training of .* has no option 'dual_step'"):
        learn("dt-plus", tmp_path / "moving", [problem], start=tmp_path / "dt", dual_step=1.0)


def test_dt_plus_has_the_instances_of_its_dt(tmp_path: Path) -> None:
    problems = [Portfolio.instance(i, 12, 4, split="train") for i in range(3)]
    learn("dt", tmp_path / "dt", problems, instances=2)
    plus = learn("dt-plus", tmp_path / "plus", problems, start=tmp_path / "dt", steps=9, inner=1)
    assert plus.card["instances"] == 2
    with pytest.raises(ValueError, match="instances must be 2, those whose multipliers .* holds, got 3"):
        learn("dt-plus", tmp_path / "x", problems, start=tmp_path / "dt", instances=3)
    with pytest.raises(ValueError, match="was trained with problems = '2 with digest .*', not '1 with"):
        learn("dt-plus", tmp_path / "x", problems[:1], start=tmp_path / "dt")


def test_dt_plus_refuses_a_start_that_does_not_fit(tmp_path: Path, monkeypatch: Any) -> None:
    learn("dt", tmp_path / "dt")
    interrupt(monkeypatch, "_gradient_step", 4)
    with pytest.raises(Stopped):
        learn("dt", tmp_path / "part")
    learn("st", tmp_path / "st")

    def refused(match: str, folder: str | None, **more: Any) -> None:
        with pytest.raises(ValueError, match=match):
            learn("dt-plus", tmp_path / "x", start=folder and tmp_path / folder, **more)

    refused("start must be the folder of a DT training, got none", None)
    refused("must hold a dt training, it holds one of st", "st")
    refused("must hold a finished DT training, .* is at step 4 of 6: resume it", "part")
    refused("was trained with width = 8, not 16", "dt", width=16)
    refused(
        "was trained with problem = 'wireless', not 'mixture-plane'",
        "dt",
        on=[MixtureOfGaussians.toy()],
    )
    refused("was trained with problems = '4 with digest", "dt", on=USERS[::-1])
    assert not (tmp_path / "x").exists()
