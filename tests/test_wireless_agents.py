"""WirelessPower-v0 and the agents on it: conformance, known answers on two users, independent fading."""

import dataclasses
import math
import warnings

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from stable_baselines3 import PPO
from stable_baselines3.common.env_checker import check_env as check_sb3_env
from stable_baselines3.common.evaluation import evaluate_policy

import pdi_gym  # noqa: F401  (registers the environments)
from pdi_gym import drawing, seeding
from pdi_gym.agents import list_agents, make_agent
from pdi_gym.agents.dps import Guide
from pdi_gym.agents.pdm import gradient_projection
from pdi_gym.evaluation import evaluate
from pdi_gym.options import ProjectionOptions
from pdi_gym.policy import TimeSharingPolicy
from pdi_gym.problems import MixtureOfGaussians, WirelessPower
from pdi_gym.schedules import make_schedule
from pdi_gym.scores import ExactScore

torch.set_num_threads(1)
ENV = "WirelessPower-v0"
AGENTS = (
    "pdi-mc",
    "unconstrained",
    "frozen-last",
    "frozen-mean",
    "pdl",
    "pdm",
    "dps",
    "expert",
    "full-power",
    "random",
)


def conflict(r_min=1.5):
    """Two pairs that hear each other as well as themselves: alone 5.5 bit/s/Hz on average, together 1.4."""
    return WirelessPower.from_gains(np.full((2, 2), 80.0), r_min=r_min, noise=1.0, p_max=1.0)


# The environment.


@pytest.mark.parametrize("observation", ["flat", "dict", "graph"])
def test_checkers_pass_without_warnings(observation):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gym.make(ENV, n_users=6, observation=observation, horizon=12, render_mode="rgb_array").unwrapped
        check_env(env, skip_render_check=True)
        if observation != "graph":
            check_sb3_env(env)


def test_a_slot_gives_the_rates_of_its_fading():
    env = gym.make(ENV, n_users=5, horizon=30).unwrapped
    env.reset(seed=3, options={"instance": 2})
    problem = env.problem
    fading = torch.cat(list(problem.path(30, seeding.generator(3, seeding.SLOTS))))
    action = np.linspace(-1, 1, 5, dtype=np.float32)
    x = env.to_decision(action)
    np.testing.assert_allclose(x, 0.01 * np.linspace(0, 1, 5), atol=1e-8)
    total = np.zeros(5)
    for t in range(3):
        _, reward, terminated, truncated, info = env.step(action)
        received = fading[t].double().numpy() * x[:, None] / 0.01
        own = received.diagonal()
        rates = np.log2(1 + own / (1 + received.sum(0) - own))
        total += rates
        np.testing.assert_allclose(info["rates"], rates, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(info["residuals"], 0.6 - rates, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(info["ergodic_rates"], total / (t + 1), rtol=1e-5, atol=1e-6)
        assert isinstance(reward, float) and reward == pytest.approx(rates.sum(), rel=1e-5)
        assert not terminated and not truncated


def test_actions_out_of_range_are_clipped_and_nan_is_refused():
    env = gym.make(ENV, n_users=4, horizon=9).unwrapped
    env.reset(seed=0, options={"instance": 0})
    _, clipped, *_ = env.step(np.full(4, 7.0, dtype=np.float32))
    env.reset(seed=0, options={"instance": 0})
    _, full, *_ = env.step(np.ones(4, dtype=np.float32))
    assert clipped == full
    with pytest.raises(ValueError, match="action must not contain NaN"):
        env.step(np.full(4, np.nan, dtype=np.float32))


def test_flat_observation_is_compact_and_describes_the_network():
    env = gym.make(ENV, n_users=50).unwrapped
    obs, _ = env.reset(seed=0, options={"instance": 1})
    assert obs.shape == (50 * 4 + 50 + 1,)
    snr = env.problem.snr.numpy()
    first = np.sort(np.delete(snr[:, 0], 0))[::-1][:3]
    np.testing.assert_allclose(obs[:4], np.log10([snr[0, 0], *first]) / 5, rtol=1e-5)


def test_graph_observation_has_an_edge_per_kept_interferer():
    env = gym.make(ENV, n_users=20, observation="graph").unwrapped
    obs, _ = env.reset(seed=0)
    assert obs.nodes.shape == (20, 4) and obs.edges.shape == (20 * 11, 1)
    assert env.observation_space.contains(obs)
    degree = np.bincount(obs.edge_links[:, 1], minlength=20)
    assert (degree == 11).all()


@pytest.mark.parametrize("observation", ["flat", "dict", "graph"])
def test_native_vector_equals_the_synchronous_one(observation):
    kwargs = {"num_envs": 3, "n_users": 5, "horizon": 4, "observation": observation}
    native = gym.make_vec(ENV, vectorization_mode="vector_entry_point", **kwargs)
    sync = gym.make_vec(ENV, vectorization_mode="sync", **kwargs)
    rng = np.random.default_rng(0)
    pairs = [(native.reset(seed=5), sync.reset(seed=5))]
    for _ in range(7):  # past the end of the horizon and its automatic reset
        actions = rng.uniform(-1, 1, (3, 5)).astype(np.float32)
        a, b = native.step(actions), sync.step(actions)
        np.testing.assert_allclose(a[1], b[1], rtol=1e-6)
        np.testing.assert_array_equal(a[3], b[3])
        pairs.append(((a[0], a[4]), (b[0], b[4])))
    for (a, a_info), (b, b_info) in pairs:
        for one, other in zip(flatten(a), flatten(b), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)
        for key in ("rates", "residuals", "ergodic_rates"):
            if key in b_info:
                np.testing.assert_allclose(a_info[key], b_info[key], rtol=1e-5, atol=1e-6)


def flatten(observation):
    if isinstance(observation, dict):
        return [observation[k] for k in sorted(observation)]
    if isinstance(observation, tuple):
        return [part for graph in observation for part in graph]
    return [observation]


def test_vector_rates_follow_each_networks_own_requirement():
    lenient = dataclasses.replace(WirelessPower.instance(0, n_users=4), r_min=0.1)
    native = gym.make_vec(ENV, num_envs=2, vectorization_mode="vector_entry_point", n_users=4)
    native.reset(seed=0, options={"problem": lenient})
    info = native.step(np.ones((2, 4), dtype=np.float32))[4]
    np.testing.assert_allclose(info["rates"], 0.1 - info["residuals"], rtol=1e-6)
    assert (info["rates"] >= 0).all()


def test_map_tells_missed_receivers_by_shape():
    problem = WirelessPower.instance(0, n_users=20)
    rates = np.where(np.arange(20) < 5, 0.2, 1.0)
    figure = drawing.network_map(problem, rates, "title")
    _, met, missed = figure.axes[0].collections
    assert len(met.get_offsets()) == 15 and len(missed.get_offsets()) == 5
    assert len(met.get_paths()[0]) != len(missed.get_paths()[0])
    np.testing.assert_allclose(missed.get_array(), 0.2)


@pytest.mark.parametrize("problem", [None, conflict()])
def test_render_draws_a_picture(problem):
    env = gym.make(ENV, n_users=8, render_mode="rgb_array", problem=problem).unwrapped
    env.reset(seed=0)
    before = env.render()
    env.step(env.action_space.sample())
    assert before.dtype == np.uint8 and before.ndim == 3 and before.std() > 0
    assert not np.array_equal(before, env.render())


# Agents.


def test_every_training_free_agent_applies():
    assert set(AGENTS) <= set(list_agents(conflict()))
    assert "full-power" not in list_agents(MixtureOfGaussians.toy())


@pytest.mark.parametrize("name", AGENTS)
def test_agents_answer_with_powers_and_repeat_themselves(name):
    problem = WirelessPower.instance(0, "train", n_users=5)
    small = {"T": 5} if name not in ("pdl", "expert", "full-power", "random") else {}
    small |= {"steps": 5} if name in ("pdl", "expert") else {}
    policy = make_agent(name, **small).sample(problem, n=7, seed=3)
    assert policy.actions.shape == (7, 5)
    assert policy.actions.min() >= 0 and policy.actions.max() <= problem.p_max * (1 + 1e-6)
    again = make_agent(name, **small).sample(problem, n=7, seed=3)
    np.testing.assert_array_equal(policy.actions, again.actions)


def test_two_users_in_conflict_learn_to_take_turns():
    """Together they miss the requirement, in turns they exceed it: only time sharing is feasible."""
    problem = conflict()
    together = evaluate(make_agent("full-power").sample(problem, n=20), problem, trials=5)
    assert together["feasible"] == 0
    for name in ("pdi-mc", "expert"):
        policy = make_agent(name).sample(problem, n=60)
        metrics = evaluate(policy, problem, trials=5)
        assert metrics["feasible"] == 1, name
        assert metrics["mean_rate"] > together["mean_rate"] + 0.5, name
        u = policy.actions / problem.p_max
        assert np.corrcoef(u.T)[0, 1] < -0.5, name


def test_full_power_rate_is_the_exact_one():
    problem = WirelessPower.instance(3, "train", n_users=10)
    metrics = evaluate(make_agent("full-power").sample(problem, n=3), problem, horizon=1500, trials=1)
    exact = float(problem.rates(torch.full((10,), problem.p_max)).mean())
    assert metrics["mean_rate"] == pytest.approx(exact, abs=0.15)


def test_an_unreachable_requirement_is_reported_and_multipliers_stay_finite():
    problem = conflict(r_min=50.0)
    for name in ("pdi-mc", "pdl", "expert"):
        steps = {} if name == "pdi-mc" else {"steps": 200}
        policy = make_agent(name, **steps).sample(problem, n=20)
        assert np.isfinite(policy.duals).all() and policy.duals.min() > 0
        assert evaluate(policy, problem, horizon=50, trials=2)["feasible"] == 0


def test_a_lone_user_transmits():
    problem = WirelessPower.from_gains([[50.0]], r_min=0.6, noise=1.0, p_max=1.0)
    policy = make_agent("pdi-mc").sample(problem, n=20)
    assert policy.actions.mean() > 0.8
    assert evaluate(policy, problem, horizon=100, trials=2)["feasible"] == 1


def test_evaluation_equals_stepping_the_environment():
    problem = WirelessPower.instance(0, "train", n_users=6)
    policy = TimeSharingPolicy(0.01 * np.random.default_rng(0).random((5, 6)), weights=[1, 2, 3, 4, 5])
    metrics = evaluate(policy, problem, horizon=40, trials=3, seed=9)
    env = gym.make(ENV, problem=problem, horizon=40).unwrapped
    averages, rewards = [], []
    for trial in range(3):
        env.reset(seed=seeding.path_seed(9, trial))
        atoms = policy.schedule(40, seeding.rng(9, seeding.TRIALS, trial))
        for atom in atoms:
            _, reward, _, truncated, info = env.step(env.to_action(policy.actions[atom]))
            rewards.append(reward)
        assert truncated
        averages.append(info["ergodic_rates"])
    rates = np.mean(averages, 0)
    assert metrics["objective"] == pytest.approx(-np.mean(rewards), rel=1e-5)
    assert metrics["mean_rate"] == pytest.approx(rates.mean(), rel=1e-5)
    assert metrics["p5_rate"] == pytest.approx(np.quantile(rates, 0.05), rel=1e-4)
    assert metrics["feasible"] == pytest.approx((rates >= 0.59).mean())
    assert metrics["feasible_single"] == pytest.approx((np.array(averages) >= 0.59).mean())


class Spy(WirelessPower):
    """Remembers which generators its fading came from."""

    seeds: tuple[list[int], list[int]] = ([], [])

    def draw(self, n, generator):
        self.seeds[0].append(generator.initial_seed())
        return super().draw(n, generator)

    def path(self, horizon, generator):
        self.seeds[1].append(generator.initial_seed())
        return super().path(horizon, generator)


def test_evaluation_never_sees_the_fading_of_inference():
    problem = Spy(torch.ones(2, 2), 0.6, 1.0, 1.0)
    for seed in range(3):
        policy = make_agent("pdi-mc", T=3).sample(problem, n=4, seed=seed)
        evaluate(policy, problem, horizon=5, trials=1, seed=seed)
    inference, evaluation = map(set, Spy.seeds)
    assert len(evaluation) == 3 and len(inference) >= 3
    assert not inference & evaluation


def test_guidance_goes_through_the_jacobian_of_the_clean_estimate():
    """For one Gaussian x̂0 is linear in x_t, with Jacobian α C (α² C + σ² I)⁻¹."""
    variance = torch.tensor([0.5, 1.0, 2.0])
    problem = MixtureOfGaussians(
        [[0.0] * 3], [variance.tolist()], [1.0], [[1.0, 0, 0]], [0.5], bound=math.inf
    )
    schedule = make_schedule("cosine", 20)
    guide = Guide(problem, ExactScore(problem, schedule, 1.0), schedule, 1.0)
    tau = 8
    z, lam = torch.randn(1, 4, 3, generator=torch.Generator().manual_seed(0)), torch.zeros(1, 1, 1)
    guide(z, tau, lam, None, torch.Generator())
    slope = torch.randn(1, 4, 3, generator=torch.Generator().manual_seed(1))
    alpha, sigma = float(schedule.alpha[tau]), float(schedule.sigma[tau])
    expected = slope * alpha * variance / (alpha**2 * variance + sigma**2)
    torch.testing.assert_close(guide._pull_back(slope, tau, None), expected, rtol=1e-2, atol=1e-2)


def test_projection_trades_distance_for_violation():
    problem = WirelessPower.instance(0, "train", n_users=10)
    generator = torch.Generator().manual_seed(0)
    z = problem.project(torch.randn(1, 8, 10, generator=generator))
    xi = problem.draw(8, generator)

    def merit(w, penalty):
        excess = problem.constraints(problem.decode(w), xi).clamp(min=0)
        return ((w - z).square().sum(-1) + penalty / 2 * excess.square().sum(-1)).mean(), excess.mean()

    for penalty in (3.0, 30.0):
        options = ProjectionOptions(projection_steps=200, projection_rate=0.01, penalty=penalty)
        w = gradient_projection(problem, z, xi, options)
        assert merit(w, penalty)[0] < merit(z, penalty)[0] and merit(w, penalty)[1] < merit(z, penalty)[1]
        assert w.abs().max() <= 0.5


# Stable-Baselines3.


def test_ppo_learns_on_it_unmodified():
    env = gym.make(ENV, n_users=6, horizon=50)
    model = PPO("MlpPolicy", env, n_steps=500, batch_size=250, n_epochs=1, seed=0).learn(2000)
    assert model.num_timesteps >= 2000


@pytest.mark.parametrize("observation", ["flat", "dict"])
def test_sb3_evaluates_our_agents(observation):
    env = gym.make(ENV, n_users=6, horizon=20, observation=observation)
    agent = make_agent("full-power").bind(env)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it recommends a Monitor wrapper
        mean, _ = evaluate_policy(agent, env, n_eval_episodes=2)
    assert mean > 20
