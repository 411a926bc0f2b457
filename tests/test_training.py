"""Training: toys that must be solved, an exact law, resumption, signals, and what a buffer mixes."""

from __future__ import annotations

import json
import os
import signal
import threading
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from pdi_gym.agents import make_agent
from pdi_gym.agents.learned import judge
from pdi_gym.checkpoints import load_tensors
from pdi_gym.evaluation import evaluate
from pdi_gym.networks import NetworkConfig
from pdi_gym.options import DiffusionOptions
from pdi_gym.problems import MixtureOfGaussians, Portfolio, WirelessPower
from pdi_gym.rollouts import Buffer, Pairs, Task
from pdi_gym.schedules import make_schedule
from pdi_gym.scores import ExactScore, NetworkScore
from pdi_gym.sources import Duals, Experts, Replay
from pdi_gym.training import STATE, Stopped, Training
from pdi_gym.training_options import TrainingOptions

USERS = [WirelessPower.instance(i, "train", n_users=8) for i in range(4)]
SHORT = {
    "steps": 6, "validate_every": 3, "seed_rollouts": 2, "chains": 6, "groups": 1, "keep": 20, "inner": 2,
    "rollouts": 1, "problems": 2, "pairs": 4, "validation_n": 8, "validation_instances": 1, "width": 8,
    "depth": 1, "messages": 4, "expert_steps": 30,
}  # fmt: skip
TOY = {
    "steps": 100, "validate_every": 50, "seed_rollouts": 4, "chains": 20, "groups": 1, "keep": 200,
    "validation_n": 20, "validation_instances": 1, "width": 16, "depth": 2, "messages": 8,
    "expert_steps": 300,
}  # fmt: skip


def learn(name: str, out: Path, problems: Any = USERS, **more: Any) -> Any:
    options = {k: more.pop(k) for k in ("T",) if k in more}
    return make_agent(name, **options).learn(problems, out=out, quiet=True, **(SHORT | more))


def weights(folder: Path) -> dict[str, bytes]:
    tensors, _ = load_tensors(folder / "weights.safetensors")
    return {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}


# Toys.


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Every learned agent, trained for seconds on four networks of eight users."""
    out = tmp_path_factory.mktemp("toys")
    starts = {"pdi-net-warm": out / "st", "dt-plus": out / "dt"}
    for name in ("st", "pdi-net", "pdi-net-warm", "dt", "dt-plus"):
        learn(name, out / name, start=starts.get(name), **TOY)
    return {
        name: make_agent(name).load(out / name) for name in ("st", "pdi-net", "pdi-net-warm", "dt", "dt-plus")
    }


@pytest.mark.parametrize("name", ["st", "pdi-net", "pdi-net-warm", "dt", "dt-plus"])
def test_learned_agents_solve_eight_users(trained: dict[str, Any], name: str) -> None:
    """Feasible on an unseen network, with at least nine tenths of the Monte-Carlo score's rate."""
    problem = WirelessPower.instance(0, "validation", n_users=8)
    reference = evaluate(make_agent("pdi-mc").sample(problem, n=60), problem, trials=5)
    figures = evaluate(trained[name].sample(problem, n=60), problem, trials=5)
    assert figures["feasible"] == 1
    assert figures["mean_rate"] > 0.9 * reference["mean_rate"]


def test_pdi_net_solves_the_plane(tmp_path: Path) -> None:
    """Average violation below .06 (one standard deviation is 1), objective within .5 of Monte Carlo's."""
    problem = MixtureOfGaussians.toy()
    agent = make_agent("pdi-net").learn(
        [problem], out=tmp_path, quiet=True, steps=400, validate_every=200, seed_rollouts=4, chains=64,
        problems=4, pairs=64, inner=50, width=64, depth=2, validation_n=64,
    )  # fmt: skip
    got = evaluate(agent.sample(problem, n=400), problem)
    reference = evaluate(make_agent("pdi-mc").sample(problem, n=400), problem)
    assert got["mean_violation"] < 0.06
    assert got["objective"] == pytest.approx(reference["objective"], abs=0.5)


def test_pdi_net_solves_twelve_assets(tmp_path: Path) -> None:
    """Budgets met to one percent of themselves on average, with nine tenths of Monte Carlo's return."""
    problems = [Portfolio.instance(i, 12, 4, split="train") for i in range(3)]
    agent = make_agent("pdi-net").learn(
        problems, out=tmp_path, quiet=True,
        **(TOY | {"steps": 250, "problems": 4, "pairs": 32, "inner": 25, "validation_n": 64}),
    )  # fmt: skip
    problem = Portfolio.instance(0, 12, 4, split="validation")
    got = evaluate(agent.sample(problem, n=200), problem)
    reference = evaluate(make_agent("pdi-mc").sample(problem, n=200), problem)
    assert got["mean_violation"] < 0.01 * float(problem.budgets.mean())
    assert got["mean_return"] > 0.9 * reference["mean_return"]


def test_a_network_learns_the_score_of_a_gaussian(tmp_path: Path) -> None:
    """Against the closed form, at mid noise and multipliers that the prior covers: error below .15."""
    problem = MixtureOfGaussians(
        means=torch.zeros(1, 2), covariances=torch.tensor([[[0.5, 0.2], [0.2, 1.0]]]), weights=torch.ones(1),
        A=torch.tensor([[1.0, 0.0]]), b=torch.tensor([0.5]),
    )  # fmt: skip
    agent = make_agent("pdi-net", beta=1.0, T=50, n_candidates=128, dual_step=0.05, alpha_min=0.0).learn(
        [problem], out=tmp_path, quiet=True, steps=800, validate_every=400, seed_rollouts=4, chains=64,
        problems=4, pairs=64, inner=100, width=64, depth=2, predicts="clean", prior_low=0.5, prior_high=0.5,
    )  # fmt: skip
    schedule = make_schedule("cosine", 50)
    generator = torch.Generator().manual_seed(0)
    exact, learnt = ExactScore(problem, schedule, 1.0), NetworkScore(agent.network, problem, schedule)
    for tau in (20, 25, 30):
        for value in (0.2, 0.6):
            lam = torch.full((1, 1, 1), value)
            mean = torch.tensor([0.5, 0.2]) * value  # C Aᵀλ
            root = torch.linalg.cholesky(problem.covariances[0])
            x = mean + torch.randn(1, 500, 2, generator=generator) @ root.T
            z = schedule.alpha[tau] * x + schedule.sigma[tau] * torch.randn(x.shape, generator=generator)
            truth = exact(z, tau, lam, None, generator)
            error = learnt(z, tau, lam, None, generator) - truth
            assert error.norm() / truth.norm() < 0.15


@pytest.mark.parametrize("name", ["dt", "st", "dt-plus"])
@pytest.mark.parametrize("problem", [Portfolio.instance(0, 12, 4, split="train"), MixtureOfGaussians.toy()])
def test_every_method_trains_on_every_problem(tmp_path: Path, name: str, problem: Any) -> None:
    start = None
    if name == "dt-plus":
        start = tmp_path / "dt"
        learn("dt", start, [problem])
    agent = learn(name, tmp_path / name, [problem], start=start)
    figures = evaluate(agent.sample(problem, n=16), problem)
    assert all(np.isfinite(v) for v in figures.values())


# What a source gives.


def task(**more: Any) -> Task:
    names = {f.name for f in fields(TrainingOptions)}
    options = TrainingOptions(**{k: v for k, v in (SHORT | more).items() if k in names})
    sampler = DiffusionOptions(T=5, alpha_min=0.0, dual_step=0.1, dual_init=1.0, candidates="unscaled")
    return Task(USERS, [sampler] * len(USERS), options, torch.Generator().manual_seed(0))


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
    source.prepare(0, lambda *_: None)
    early = torch.cat([p.lam for p in source.pieces(0) if p.lam is not None])
    late = torch.cat([p.lam for p in source.pieces(10) if p.lam is not None])
    # 800 exponential draws of mean 100: four standard errors are 14.
    assert early.mean() == pytest.approx(100, abs=14)
    assert late.max() < 5


def test_targets_are_projected_and_follow_the_score() -> None:
    """For a Gaussian the clean estimate is known: E[x | z]."""
    problem = MixtureOfGaussians(
        means=torch.zeros(1, 2), covariances=torch.eye(2).unsqueeze(0), weights=torch.ones(1),
        A=torch.eye(2)[:1], b=torch.zeros(1),
    )  # fmt: skip
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


def test_dual_training_moves_the_multipliers_of_rolled_out_instances_only() -> None:
    work = task(rollouts=2, dual_step=1.0)
    source = Duals(work)
    full = lambda z, *_: torch.full_like(z, 0.5)  # noqa: E731  (everybody at full power)
    source.prepare(0, full)
    assert torch.equal(source.lam, torch.ones(4, 8))  # the first round only fills the buffer
    source.prepare(work.training.inner, full)
    moved = [i for i in range(4) if not torch.equal(source.lam[i], torch.ones(8))]
    assert len(moved) == 2
    for i in moved:
        residual = USERS[i].constraints(USERS[i].decode(torch.full((1, 8), 0.5)))[0]
        assert torch.allclose(source.lam[i], (1 + residual).clamp(min=0), atol=0.35)
    source.prepare(work.training.inner + 1, full)
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
    source.prepare(1, lambda z, *_: torch.zeros_like(z))
    # Almost equal weights x = 1/12 whatever the noise left by the last step: closed form of the residual.
    x = torch.full((12,), 1 / 12, dtype=torch.float64)
    residual = x * (problem.sigma.double() @ x) - problem.budgets
    expected = (before[0].double() + 4 * options.dual_step * residual).clamp(0, options.dual_max)
    assert not torch.allclose(source.lam, before, rtol=0.05)
    assert torch.allclose(source.lam[0].double(), expected, rtol=0.05, atol=0.01 * options.dual_max)


def test_expert_data_are_feasible_with_the_margin() -> None:
    source = Experts(task(expert_steps=800, expert_margin=0.3, keep=100))
    source.prepare(0, lambda *_: None)
    z = source.data[0]
    average = USERS[0].constraints(USERS[0].decode(z)).mean(0)
    assert average.max() < -0.1
    for piece in source.pieces(0):
        assert piece.lam is None and piece.clean.abs().max() <= 0.5


# Resumption.


@pytest.mark.parametrize("name", ["pdi-net", "dt", "st"])
def test_a_stopped_training_resumes_to_the_same_bits(tmp_path: Path, name: str, monkeypatch: Any) -> None:
    learn(name, tmp_path / "whole")
    asked = {"count": 0}
    step = Training._gradient_step

    def interrupt(self: Training) -> float:
        asked["count"] += 1
        if asked["count"] == 4:
            os.kill(os.getpid(), signal.SIGTERM)
        return step(self)

    monkeypatch.setattr(Training, "_gradient_step", interrupt)
    with pytest.raises(Stopped, match="the state after step 4 is in"):
        learn(name, tmp_path / "parts")
    assert not (tmp_path / "parts" / "weights.safetensors").exists()
    learn(name, tmp_path / "parts", resume=True)
    assert weights(tmp_path / "parts") == weights(tmp_path / "whole")
    histories = [json.loads((tmp_path / d / "history.json").read_text()) for d in ("whole", "parts")]
    for row in histories[0] + histories[1]:
        row.pop("seconds")
    assert histories[0] == histories[1]


def test_resuming_asks_for_the_same_settings(tmp_path: Path) -> None:
    learn("pdi-net", tmp_path)
    with pytest.raises(
        ValueError, match="holds a training state: go on with resume, or choose another folder"
    ):
        learn("pdi-net", tmp_path)
    with pytest.raises(ValueError, match="was trained with rate = 0.002, not 0.1"):
        learn("pdi-net", tmp_path, resume=True, rate=0.1)
    with pytest.raises(ValueError, match="was trained with seed = 0, not 3"):
        learn("pdi-net", tmp_path, resume=True, seed=3)
    with pytest.raises(FileNotFoundError, match=STATE):
        learn("pdi-net", tmp_path / "elsewhere", resume=True)


def test_training_runs_outside_the_main_thread(tmp_path: Path) -> None:
    """Where no signal handlers can be set, as in a server's worker."""
    thread = threading.Thread(target=learn, args=("pdi-net", tmp_path))
    thread.start()
    thread.join()
    assert (tmp_path / "weights.safetensors").exists()


def test_a_loss_that_is_not_finite_stops(tmp_path: Path) -> None:
    class Bad(Replay):
        def pieces(self, step: int) -> Any:
            for piece in super().pieces(step):
                yield piece._replace(clean=piece.clean * float("nan"))

    work = task()
    net = NetworkConfig(inputs=3, width=8, depth=1, messages=4).build()
    settings = {"agent": "pdi-net", "problem": "wireless"}
    run = Training(net, Bad(work), work.training, lambda _: {"criterion": 0.0}, tmp_path, settings=settings)
    with pytest.raises(FloatingPointError, match="not finite at step 0: lower rate"):
        run.run(quiet=True)


# Validation and records.


def test_the_best_checkpoint_is_kept(tmp_path: Path) -> None:
    work = task(steps=4, validate_every=1)
    net = NetworkConfig(inputs=3, width=8, depth=1, messages=4).build()
    given, seen = iter([3.0, 1.0, 2.0, 1.5]), []

    def validate(network: Any) -> dict[str, float]:
        seen.append(network.state_dict()["body.first.weight"].clone())
        return {"criterion": next(given), "objective": 0.0, "feasible": 1.0}

    settings = {"agent": "pdi-net", "problem": "wireless"}
    best = Training(net, Replay(work), work.training, validate, tmp_path, settings=settings).run(quiet=True)
    assert torch.equal(best.state_dict()["body.first.weight"], seen[1])
    assert not torch.equal(seen[1], seen[3])
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == [
        f"step-{i:06d}" for i in (1, 2, 3, 4)
    ]


def test_the_criterion_is_an_exact_penalty() -> None:
    problem = USERS[0]
    z, lam = torch.full((3, 8), -0.4), torch.arange(8.0)
    figures = judge(problem, z, lam)
    xi = problem.draw(500, torch.Generator().manual_seed(2))
    x = problem.decode(z)
    excess = problem.constraints(x, xi).double().mean(0).clamp(min=0)
    expected = float(problem.objective(x, xi).double().mean()) + 2 * float((lam.double() * excess).sum())
    assert figures["criterion"] == pytest.approx(expected)
    assert figures["mean_violation"] == pytest.approx(float(excess.mean()))


def test_events_tell_losses_by_noise_multipliers_and_validation(tmp_path: Path) -> None:
    learn("pdi-net", tmp_path)
    events = EventAccumulator(str(tmp_path / "tensorboard"), {"histograms": 0, "scalars": 0, "images": 0})
    events.Reload()
    tags = events.Tags()
    assert {"loss/all", "validation/criterion", "validation/mean_rate", "loss by noise/0.75 to 1.00"} <= set(
        tags["scalars"]
    )
    assert tags["histograms"] == ["multipliers"] and tags["images"] == ["validation"]
    assert [e.step for e in events.Scalars("loss/all")] == [3, 6]


def test_dual_training_records_the_distance_to_pdis_multipliers(tmp_path: Path) -> None:
    agent = learn("dt", tmp_path)
    rows = agent.card["curve"]
    assert all(-1 <= row["dual_cosine"] <= 1 and row["dual_distance"] >= 0 for row in rows)
    assert agent.card["budget"]["gradient_steps"] == 6
    # A round before step 0, 2 and 4, one rollout of 6 chains in each, over the sampler's 50 steps.
    assert agent.card["budget"]["rollout_network_calls"] == 3 * 6 * 50
    assert np.isfinite(rows[-1]["validation"]["criterion"])
