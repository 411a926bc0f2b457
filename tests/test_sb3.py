"""Stable-Baselines3 on our environments, and our agents in Stable-Baselines3."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.callbacks import CheckpointCallback, EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor

from pdi_gym.agents import make_agent
from pdi_gym.envs import ENV_IDS, LagrangianReward
from pdi_gym.problems import WirelessPower
from pdi_gym.sb3 import (
    AgentAlgorithm,
    GraphExtractor,
    GraphObservation,
    GraphPolicy,
    LagrangianVecReward,
    SB3VecEnv,
    make_sb3_vec,
)
from tests.test_envs import SMALL, same

ROOT = Path(__file__).parents[1]


def dummy(env_id: str, n: int, **kwargs: Any) -> DummyVecEnv:
    """SB3's own batch of the scalar environment."""
    return DummyVecEnv([lambda: gym.make(env_id, **kwargs) for _ in range(n)])


# The adapter.


@pytest.mark.parametrize("observation", ["flat", "dict"])
@pytest.mark.parametrize("env_id", ENV_IDS)
def test_adapter_equals_dummy_vec_env(env_id: str, observation: str) -> None:
    """Same seeds, same trajectories, through two ends of horizons: all that SB3 sees of them."""
    kwargs = {**SMALL.get(env_id, {}), "horizon": 4, "observation": observation}
    ours, theirs = make_sb3_vec(env_id, 3, monitor=False, **kwargs), dummy(env_id, 3, **kwargs)
    assert ours.observation_space == theirs.observation_space and ours.action_space == theirs.action_space
    for venv in (ours, theirs):
        venv.seed(11)
    same(ours.reset(), theirs.reset())
    for a, b in zip(ours.reset_infos, theirs.reset_infos, strict=True):
        same(a, b)
    rng, ended = np.random.default_rng(0), 0
    for _ in range(10):
        actions = rng.uniform(-1, 1, (3, *(ours.action_space.shape or ()))).astype(np.float32)
        (obs, rewards, dones, infos), (obs2, rewards2, dones2, infos2) = (
            ours.step(actions),
            theirs.step(actions),
        )
        same((obs, rewards, dones), (obs2, rewards2, dones2))
        ended += int(dones.sum())
        for a, b in zip(infos, infos2, strict=True):
            assert type(a["cost"]) is type(b["cost"]) is np.float64 and type(a["TimeLimit.truncated"]) is bool
            same(a, b)
        for a, b in zip(ours.reset_infos, theirs.reset_infos, strict=True):
            same(a, b)
    assert ended == 6


def test_adapter_options_and_problems_per_row() -> None:
    ours = make_sb3_vec("WirelessPower-v0", 2, monitor=False, n_users=4, split="train")
    theirs = dummy("WirelessPower-v0", 2, n_users=4, split="train")
    for _ in range(2):  # the first reset, and a later one
        for venv in (ours, theirs):
            venv.seed(5), venv.set_options([{"instance": 3}, {"instance": 7}])
        same(ours.reset(), theirs.reset())
    for own, other in zip(ours.get_attr("problem"), theirs.get_attr("problem"), strict=True):
        assert torch.equal(own.gains, other.gains)
    assert not torch.equal(*(p.gains for p in ours.get_attr("problem")))
    assert len(ours.get_attr("horizon", indices=[1])) == 1
    for indices in (None, [1]):
        same(*(tuple(v.env_method("to_action", np.zeros(4), indices=indices)) for v in (ours, theirs)))
        same(*(tuple(v.get_attr("constraint_limits", indices=indices)) for v in (ours, theirs)))
    ours.set_attr("horizon", 3)
    assert ours.get_attr("horizon") == [3, 3]
    with pytest.raises(ValueError, match=r"horizon must be set in all rows, .* got \[1\]"):
        ours.set_attr("horizon", 3, indices=[1])
    with pytest.raises(ValueError, match="problem must be alike in all rows"):
        ours.set_attr("problem", ours.get_attr("problem")[0])


def test_adapter_refuses_what_it_cannot_adapt() -> None:
    sync: Any = gym.make_vec("MixtureOfGaussians2D-v0", num_envs=2, vectorization_mode="sync")
    with pytest.raises(ValueError, match="env must be a native vector environment, got SyncVectorEnv"):
        SB3VecEnv(sync)
    with pytest.raises(ValueError, match='observation must be "flat" or "dict", got "graph"'):
        make_sb3_vec("WirelessPower-v0", 2, n_users=4, observation="graph")


# Algorithms on our environments, unmodified.


@pytest.mark.parametrize("env_id", ENV_IDS)
def test_ppo_and_sac_train(env_id: str) -> None:
    kwargs = {**SMALL.get(env_id, {}), "horizon": 50}
    ppo = PPO("MlpPolicy", make_sb3_vec(env_id, 4, seed=0, **kwargs), n_steps=32, batch_size=64, seed=0)
    sac = SAC("MlpPolicy", gym.make(env_id, **kwargs), learning_starts=50, batch_size=32, seed=0)
    for model, steps in ((ppo, 256), (sac, 120)):
        before = [p.detach().clone() for p in model.policy.parameters()]
        model.learn(steps)
        after = list(model.policy.parameters())
        assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
        assert all(torch.isfinite(p).all() for p in after)
        action, _ = model.predict(model.get_env().reset())  # type: ignore[union-attr]
        assert model.action_space.contains(action[0])


def test_ppo_solves_a_one_slot_problem() -> None:
    """Reward −|x|² + const over [-5, 5]²: PPO must come close to 0, where a random action is at 16.7."""
    venv = make_sb3_vec("MixtureOfGaussians2D-v0", 32, seed=0, problem=_one_gaussian(), horizon=25)
    model = PPO("MlpPolicy", venv, n_steps=16, batch_size=256, gamma=0.0, learning_rate=3e-3, seed=0)
    model.learn(6_000)
    action, _ = model.predict(venv.reset(), deterministic=True)
    bound = venv.get_attr("problem")[0].bound
    assert np.abs(action * bound).max() < 0.5


def _one_gaussian() -> Any:
    from pdi_gym.problems import MixtureOfGaussians

    return MixtureOfGaussians([[0.0, 0.0]], [[1.0, 1.0]], [1.0], [[1.0, 0.0]], [-9.0], 5.0)


# The Lagrangian reward.


@pytest.mark.parametrize("observation", ["flat", "dict"])
def test_lagrangian_reward_by_hand(observation: str) -> None:
    """reward − λᵀf with the λ that was seen, then λ ← [λ + η (f + margin)]₊, through a reset."""
    kwargs: dict[str, Any] = {"horizon": 3, "observation": observation}
    env = LagrangianReward(gym.make("MixtureOfGaussians2D-v0", **kwargs), 0.5, 1.0, dual_unit=2.0, margin=0.1)
    plain = gym.make("MixtureOfGaussians2D-v0", **kwargs)
    seen, _ = env.reset(seed=0)
    plain.reset(seed=0)
    rng, lam = np.random.default_rng(1), np.ones(2)
    for slot in range(6):
        shown = seen["duals"] if observation == "dict" else seen[-2:]
        np.testing.assert_allclose(shown, np.log1p(lam / 2), rtol=1e-6)
        assert env.observation_space.contains(seen)
        action = rng.uniform(-1, 1, 2).astype(np.float32)
        seen, reward, _, truncated, info = env.step(action)
        _, earned, *_, told = plain.step(action)
        f = told["residuals"].astype(np.float64)
        assert reward == pytest.approx(float(earned) - lam @ f) and info["slot_reward"] == earned
        np.testing.assert_allclose(info["duals"], lam, rtol=1e-6)
        lam = np.maximum(lam + 0.5 * (f + 0.1), 0)
        if truncated:
            assert slot in (2, 5)
            seen, _ = env.reset()
            plain.reset()


def test_multipliers_belong_to_an_instance_and_a_seed() -> None:
    env = LagrangianReward(gym.make("WirelessPower-v0", n_users=3, r_min=50.0, horizon=2), dual_step=1.0)
    for instance, fresh in (
        (0, True),
        (0, False),
        (1, True),
        (0, True),
    ):  # each index builds its network anew
        seen, _ = env.reset(options={"instance": instance})
        assert (seen[-3:] == 0).all() == fresh
        env.step(np.zeros(3))
    own = gym.make("WirelessPower-v0", problem=WirelessPower.instance(0, n_users=3, r_min=50.0), horizon=2)
    env = LagrangianReward(own, dual_step=1.0)
    rewards = []
    for seed in (0, 0, None):
        env.reset(seed=seed)
        rewards.append([env.step(np.zeros(3))[1] for _ in range(2)])
    assert rewards[0] == rewards[1]  # a seed starts everything anew
    assert rewards[2][0] < min(rewards[0])  # λ goes on


@pytest.mark.parametrize("observation", ["flat", "dict"])
def test_lagrangian_of_a_batch_equals_that_of_each(observation: str) -> None:
    kwargs = {"n_users": 4, "horizon": 3, "observation": observation, "split": "train"}
    duals = {"dual_step": 0.3, "dual_init": 0.5, "margin": 0.05}
    ours = LagrangianVecReward(make_sb3_vec("WirelessPower-v0", 3, monitor=False, **kwargs), **duals)
    theirs = DummyVecEnv(
        [lambda: LagrangianReward(gym.make("WirelessPower-v0", **kwargs), **duals) for _ in range(3)]
    )
    assert ours.observation_space == theirs.observation_space
    for venv in (ours, theirs):
        venv.seed(2)
    same(ours.reset(), theirs.reset())
    rng = np.random.default_rng(0)
    for _ in range(7):
        actions = rng.uniform(-1, 1, (3, 4)).astype(np.float32)
        (*a, infos), (*b, infos2) = ours.step(actions), theirs.step(actions)
        same(tuple(a), tuple(b))
        for own, other in zip(infos, infos2, strict=True):
            own.pop("slot_reward"), other.pop("slot_reward")  # a float32 in the batch
            same(own, other)


def test_shared_multipliers_follow_the_average() -> None:
    problem = WirelessPower.instance(0, n_users=3, r_min=5.0)
    inner = make_sb3_vec("WirelessPower-v0", 4, monitor=False, problem=problem)
    venv = LagrangianVecReward(inner, shared=True, dual_step=2.0)
    venv.seed(0), venv.reset()
    lam = np.zeros(3)
    for _ in range(5):
        _, _, _, infos = venv.step(np.random.default_rng(0).uniform(-1, 1, (4, 3)).astype(np.float32))
        np.testing.assert_allclose([i["duals"] for i in infos], np.tile(lam, (4, 1)), rtol=1e-5)
        lam = np.maximum(lam + 2.0 * np.mean([i["residuals"] for i in infos], 0), 0)
    assert lam.any()
    np.testing.assert_allclose(venv.multipliers.values, np.tile(lam, (4, 1)), rtol=1e-5)


def test_a_new_seed_restarts_the_multipliers_of_a_batch() -> None:
    problem = WirelessPower.instance(0, n_users=3, r_min=5.0)
    venv = LagrangianVecReward(make_sb3_vec("WirelessPower-v0", 2, problem=problem), dual_step=2.0)
    shown = []
    for seed in (0, 0, None):
        if seed is not None:
            venv.seed(seed)
        shown.append(np.array(venv.reset())[:, -3:])
        shown.append(venv.step(np.zeros((2, 3), dtype=np.float32))[1])
    assert (shown[0] == 0).all() and (shown[2] == 0).all() and (shown[4] > 0).any()
    np.testing.assert_array_equal(shown[1], shown[3])


# Graphs.


def graph_env(n_users: int = 6, rows: int = 3, **kwargs: Any) -> GraphObservation:
    inner = make_sb3_vec("WirelessPower-v0", rows, seed=0, n_users=n_users, observation="dict", **kwargs)
    return GraphObservation(LagrangianVecReward(inner, dual_init=1.0))


def test_graph_observation_is_the_problems_graph() -> None:
    venv = graph_env(horizon=2, split="train")
    observation: Any = venv.reset()
    before = venv.get_attr("problem")
    for slot in range(3):
        for i, problem in enumerate(venv.get_attr("problem")):
            np.testing.assert_array_equal(observation["nodes"][i], problem.graph.node_features)
            np.testing.assert_array_equal(observation["edge_index"][i], problem.graph.edge_index)
            np.testing.assert_array_equal(observation["edge_weight"][i], problem.graph.edge_weight)
        one = {k: v[0] for k, v in observation.items()}
        assert venv.observation_space.contains(one) and "features" not in one
        observation, _, dones, infos = venv.step(np.zeros((3, 6), dtype=np.float32))
        if slot == 1:
            assert dones.all()
            last = infos[0]["terminal_observation"]
            np.testing.assert_array_equal(last["nodes"], before[0].graph.node_features)
            assert venv.observation_space.contains(last)
    with pytest.raises(ValueError, match='needs observation="dict" and a problem with a graph'):
        GraphObservation(make_sb3_vec("MixtureOfGaussians2D-v0", 1, observation="dict"))


def permuted(observation: dict[str, Any], order: torch.Tensor) -> dict[str, Any]:
    """The same graph with its nodes renamed: new node i is the old order[i]."""
    new_name = torch.empty_like(order)
    new_name[order] = torch.arange(len(order))
    out = {k: v[:, order] for k, v in observation.items() if k in ("nodes", "residuals", "duals")}
    out |= {k: observation[k] for k in ("time", "edge_weight")}
    return out | {"edge_index": new_name[observation["edge_index"]]}


def as_tensors(observation: Any) -> dict[str, torch.Tensor]:
    return {k: torch.as_tensor(v) for k, v in observation.items()}


def test_permuting_users_permutes_features_and_actions_and_keeps_the_value() -> None:
    venv = graph_env()
    rng = np.random.default_rng(0)
    venv.reset()
    for _ in range(4):  # so that residuals and multipliers differ between users
        raw, *_ = venv.step(rng.uniform(-1, 1, (3, 6)).astype(np.float32))
    observation, order = as_tensors(raw), torch.tensor([3, 0, 5, 1, 4, 2])
    torch.manual_seed(0)
    extractor = GraphExtractor(venv.observation_space, channels=8)  # type: ignore[arg-type]
    with torch.no_grad():
        h = extractor(observation).view(3, 6, 8)
        moved = extractor(permuted(observation, order)).view(3, 6, 8)
    torch.testing.assert_close(moved, h[:, order])
    assert not torch.allclose(moved, h)
    policy = GraphPolicy(venv.observation_space, venv.action_space, lambda _: 1e-3)  # type: ignore[arg-type]
    policy.action_net.map.weight.data.normal_()  # its first weights are tiny
    with torch.no_grad():
        actions, value, _ = policy(observation, deterministic=True)
        actions2, value2, _ = policy(permuted(observation, order), deterministic=True)
    torch.testing.assert_close(actions2, actions[:, order])
    torch.testing.assert_close(value2, value)
    assert actions.std() > 1e-3


def test_extractor_hears_the_neighbours_both_ways_and_no_others() -> None:
    """Nodes 0 → 1 → 2 → 3 in a row, one layer: a node hears those one edge away, and itself."""
    n, arrow = 4, torch.tensor([[0, 1, 2], [1, 2, 3]])
    space = gym.spaces.Dict(
        nodes=gym.spaces.Box(-1, 1, (n, 1)),
        edge_index=gym.spaces.Box(0, n - 1, (2, 3), np.int64),
        edge_weight=gym.spaces.Box(0, 1, (3,)),
    )
    torch.manual_seed(0)
    extractor = GraphExtractor(space, channels=64, layers=1)
    nodes = torch.rand(1, n, 1, requires_grad=True)
    out = extractor({"nodes": nodes, "edge_index": arrow[None], "edge_weight": torch.ones(1, 3)})
    for i in range(n):
        (grad,) = torch.autograd.grad(out.view(n, 64)[i].sum(), nodes, retain_graph=True)
        heard = set(torch.nonzero(grad.flatten()).flatten().tolist())
        assert heard == {j for j in (i - 1, i, i + 1) if 0 <= j < n}


def test_extractor_with_the_multi_input_policy_and_its_errors() -> None:
    venv = graph_env(horizon=20)
    model = PPO(
        "MultiInputPolicy",
        venv,
        n_steps=32,
        batch_size=32,
        seed=0,
        policy_kwargs={
            "features_extractor_class": GraphExtractor,
            "features_extractor_kwargs": {"channels": 4},
        },
    )
    before = model.policy.features_extractor.first.weight.detach().clone()
    model.learn(192)
    assert not torch.equal(before, model.policy.features_extractor.first.weight)
    with pytest.raises(ValueError, match="wrap the environment in pdi_gym.sb3.GraphObservation"):
        GraphExtractor(make_sb3_vec("WirelessPower-v0", 1, n_users=4, observation="dict").observation_space)  # type: ignore[arg-type]


# Our agents in SB3's tools.


@pytest.mark.parametrize("native", [True, False])
def test_agents_in_evaluate_policy(native: bool) -> None:
    """The mean return SB3 finds is the return of playing the same policy for as long."""
    kwargs: dict[str, Any] = {"problem": WirelessPower.instance(0, "validation", n_users=4), "horizon": 60}
    env: Any = (
        make_sb3_vec("WirelessPower-v0", 2, seed=0, **kwargs)
        if native
        else make_vec_env("WirelessPower-v0", 2, seed=0, env_kwargs=kwargs)
    )
    agent = make_agent("full-power").bind(env)
    mean, _ = evaluate_policy(agent, env, n_eval_episodes=4)  # type: ignore[arg-type]
    x = torch.full((1, 4), kwargs["problem"].p_max)
    expected = -60 * float(kwargs["problem"].objective(x))  # exact over all fading
    assert mean == pytest.approx(expected, rel=0.15)


def test_agents_in_callbacks(tmp_path: Path) -> None:
    make = {"problem": WirelessPower.instance(0, "validation", n_users=4), "horizon": 10}
    train, test = (make_sb3_vec("WirelessPower-v0", 2, seed=s, **make) for s in (0, 1))
    model = AgentAlgorithm(make_agent("random"), train, test)
    judge = EvalCallback(
        test,
        n_eval_episodes=2,
        eval_freq=10,
        best_model_save_path=str(tmp_path),
        log_path=str(tmp_path),
        verbose=0,
    )
    model.learn(60, [judge, CheckpointCallback(20, str(tmp_path / "every"))])
    found = np.load(tmp_path / "evaluations.npz")
    assert found["timesteps"].tolist() == [20, 40, 60] and (found["ep_lengths"] == 10).all()
    assert make_agent("random").load(tmp_path / "best_model").name == "random"
    assert len(list((tmp_path / "every").iterdir())) == 1


def test_eval_callback_while_sb3_trains(tmp_path: Path) -> None:
    train, test = (make_sb3_vec("MixtureOfGaussians2D-v0", 2, seed=s, horizon=10) for s in (0, 1))
    judge = EvalCallback(test, n_eval_episodes=2, eval_freq=16, log_path=str(tmp_path), verbose=0)
    PPO("MlpPolicy", train, n_steps=16, batch_size=16, seed=0).learn(64, judge)
    assert np.load(tmp_path / "evaluations.npz")["timesteps"].tolist() == [32, 64]


# rl-zoo's settings.


@pytest.mark.parametrize(("algorithm", "name"), [(PPO, "ppo"), (SAC, "sac")])
def test_zoo_settings(algorithm: Any, name: str) -> None:
    """Every id has a block whose keys are rl-zoo's own or arguments of the algorithm."""
    yaml = pytest.importorskip("yaml", reason="reads rl-zoo's files: pip install pyyaml")
    settings = yaml.safe_load((ROOT / "runs" / "rl_zoo" / f"{name}.yml").read_text())
    assert set(settings) == set(ENV_IDS)
    zoo = {"n_envs", "n_timesteps", "policy", "env_wrapper", "normalize", "vec_env_wrapper"}
    known = set(inspect.signature(algorithm.__init__).parameters) - {"self", "env", "policy"}
    for env_id, block in settings.items():
        assert set(block) <= zoo | known, env_id
        assert {"n_timesteps", "policy"} <= set(block)
        for wrapper in block.get("env_wrapper", []):
            ((path, arguments),) = wrapper.items()
            assert path == "pdi_gym.envs.LagrangianReward"
            env = LagrangianReward(gym.make(env_id, **SMALL.get(env_id, {})), **arguments)
            assert env.reset(seed=0)[0].shape == env.observation_space.shape


def test_monitored_by_default() -> None:
    venv = make_sb3_vec("MixtureOfGaussians2D-v0", 2, seed=0, horizon=3)
    assert isinstance(venv, VecMonitor) and venv.env_is_wrapped(Monitor) == [False, False]
    venv.reset()
    for _ in range(3):
        _, rewards, _, infos = venv.step(np.zeros((2, 2), dtype=np.float32))
    assert infos[0]["episode"]["l"] == 3 and infos[0]["episode"]["r"] == pytest.approx(
        3 * rewards[0], rel=1e-5
    )
