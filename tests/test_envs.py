"""The conformance table of environments: every registered id, every observation, both forms."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from stable_baselines3.common.env_checker import check_env as check_env_sb3

import pdi_gym
from pdi_gym.envs import ENV_IDS, ErgodicEnv, ErgodicVectorEnv, RecordConstraintStatistics, register
from pdi_gym.problems import WirelessPower
from tests.cases import Sensors

SMALL: dict[str, dict[str, Any]] = {
    "MixtureOfGaussians-v0": {"dim": 5, "n_modes": 3, "n_constraints": 4},
    "WirelessPower-v0": {"n_users": 8},
    "Portfolio-v0": {"n_assets": 12, "n_sectors": 4},
}
OBSERVED = [(i, o) for i in ENV_IDS for o in gym.make(i, **SMALL.get(i, {})).unwrapped.observations]  # type: ignore[attr-defined]


def make(env_id: str, **kwargs: Any) -> Any:
    return gym.make(env_id, **SMALL.get(env_id, {}), **kwargs)


@pytest.mark.parametrize(("env_id", "observation"), OBSERVED)
def test_checkers_pass_without_a_warning(env_id: str, observation: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(make(env_id, observation=observation, render_mode="rgb_array").unwrapped)
        if observation != "graph":
            check_env_sb3(make(env_id, observation=observation).unwrapped)


@pytest.mark.parametrize("env_id", ENV_IDS)
def test_a_horizon(env_id: str) -> None:
    env = make(env_id, horizon=6)
    _, info = env.reset(seed=1, options={"instance": 0})
    problem = env.unwrapped.problem
    seen = []
    for slot in range(6):
        action = env.action_space.sample()
        _, reward, terminated, truncated, info = env.step(action)
        assert type(reward) is float and not terminated and truncated == (slot == 5)
        assert info["residuals"].shape == (problem.n_constraints,) and info["residuals"].dtype == np.float32
        assert info["cost"] == pytest.approx(np.maximum(info["residuals"], 0).mean(), rel=1e-5)
        seen.append(info["residuals"])
    np.testing.assert_allclose(info["ergodic_residuals"], np.mean(seen, 0), rtol=1e-5, atol=1e-8)
    assert len(env.unwrapped.constraint_names) == len(env.unwrapped.constraint_limits)
    with pytest.raises(gym.error.ResetNeeded):
        env.unwrapped.step(action)


@pytest.mark.parametrize("env_id", ENV_IDS)
def test_reward_and_residuals_are_the_problems_own(env_id: str) -> None:
    env = make(env_id)
    env.reset(seed=4, options={"instance": 0})
    problem = env.unwrapped.problem
    twin = make(env_id).unwrapped
    twin.reset(seed=4, options={"instance": 0})
    for _ in range(3):
        action = env.action_space.sample()
        xi = twin._state.next_realisation()
        _, reward, _, _, info = env.step(action)
        x = torch.as_tensor(env.unwrapped.to_decision(action))[None]
        assert reward == pytest.approx(-float(problem.objective(x, xi)), rel=1e-4)
        np.testing.assert_allclose(info["residuals"], problem.constraints(x, xi)[0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("env_id", ENV_IDS)
def test_same_seed_same_horizon(env_id: str) -> None:
    runs = []
    for _ in range(2):
        env = make(env_id)
        env.reset(seed=5)
        env.action_space.seed(0)
        runs.append([env.step(env.action_space.sample())[1] for _ in range(5)])
    assert runs[0] == runs[1]


@pytest.mark.parametrize(("env_id", "observation"), [(i, o) for i, o in OBSERVED if o != "graph"])
def test_native_vector_equals_sync(env_id: str, observation: str) -> None:
    kwargs = {**SMALL.get(env_id, {}), "horizon": 4, "observation": observation}
    native = gym.make_vec(env_id, num_envs=3, vectorization_mode="vector_entry_point", **kwargs)
    sync = gym.make_vec(env_id, num_envs=3, vectorization_mode="sync", **kwargs)
    assert isinstance(native, ErgodicVectorEnv)
    assert native.observation_space == sync.observation_space and native.action_space == sync.action_space
    same(native.reset(seed=7), sync.reset(seed=7))
    rng = np.random.default_rng(0)
    for _ in range(12):  # past two horizons, through the resets
        actions = rng.uniform(-1, 1, native.action_space.shape).astype(np.float32)
        same(native.step(actions), sync.step(actions))


def test_native_vector_with_different_problems_in_its_rows() -> None:
    """Two networks with other power limits, swapped into one row each, still equal the scalar form."""
    gains = np.array([[1.0, 0.2], [0.1, 0.5]])
    networks = [WirelessPower.from_gains(gains, r_min=0.5, noise=0.1, p_max=p) for p in (1.0, 3.0)]
    native = gym.make_vec(
        "WirelessPower-v0", num_envs=2, vectorization_mode="vector_entry_point", problem=networks[0]
    )
    native.reset(seed=3, options={"problem": networks[0]})
    mask = np.array([False, True])
    _, info = native.reset(seed=[None, 4], options={"problem": networks[1], "reset_mask": mask})  # type: ignore[arg-type]
    assert info["_ergodic_residuals"].tolist() == [False, True]
    actions = np.array([[0.3, -0.2], [0.6, 0.1]], dtype=np.float32)
    _, rewards, *_ = native.step(actions)
    for row, network in enumerate(networks):
        env = gym.make("WirelessPower-v0", problem=network).unwrapped
        env.reset(seed=3 + row)
        assert rewards[row] == pytest.approx(env.step(actions[row])[1], rel=1e-5)


def same(a: Any, b: Any) -> None:
    """Equal trees of arrays, floats within 1e-6 of their scale."""
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            same(a[key], b[key])
    elif isinstance(a, tuple):
        for x, y in zip(a, b, strict=True):
            same(x, y)
    else:
        scale = max(float(np.abs(b).max()), 1e-12) if np.size(b) else 1.0
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6 * scale)
        assert np.asarray(a).dtype == np.asarray(b).dtype


def test_vector_with_autoreset_disabled() -> None:
    env = gym.make_vec(
        "MixtureOfGaussians2D-v0",
        num_envs=2,
        vectorization_mode="vector_entry_point",
        horizon=2,
        autoreset_mode=AutoresetMode.DISABLED,
    )
    env.reset(seed=0)
    actions = np.zeros((2, 2), dtype=np.float32)
    env.step(actions)
    *_, truncated, _ = env.step(actions)
    assert truncated.all()
    with pytest.raises(gym.error.ResetNeeded, match="reset_mask"):
        env.step(actions)
    env.reset(options={"reset_mask": np.array([True, False])})
    with pytest.raises(gym.error.ResetNeeded, match="reset_mask"):
        env.step(actions)
    env.reset(options={"reset_mask": np.array([False, True])})
    env.step(actions)


@pytest.mark.parametrize("env_id", ENV_IDS)
def test_render(env_id: str) -> None:
    env = make(env_id, render_mode="rgb_array", horizon=5)
    env.reset(seed=0)
    empty = env.render()
    for _ in range(4):
        env.step(env.action_space.sample())
    picture = env.render()
    assert picture.dtype == np.uint8 and picture.ndim == 3 and picture.shape[-1] == 3
    assert (picture != empty[: picture.shape[0], : picture.shape[1]]).any()
    text = make(env_id, render_mode="ansi")
    text.reset(seed=0)
    text.step(text.action_space.sample())
    assert text.render().startswith("slot 1/500")


def test_any_problem_is_an_environment() -> None:
    env = ErgodicEnv(Sensors(), horizon=4)
    check_env(env, skip_render_check=True)
    env.reset(seed=0, options={"problem": Sensors()})
    with pytest.raises(ValueError, match="must have latent_dim = 3 as the environment, got 2"):
        env.reset(options={"problem": pdi_gym.problems.MixtureOfGaussians.toy()})
    with pytest.raises(TypeError, match="needs problem="):
        ErgodicEnv()


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="horizon must be a whole number ≥ 1, got 0"):
        make("MixtureOfGaussians2D-v0", horizon=0)
    with pytest.raises(ValueError, match="observation must be one of flat, dict; got 'flt'"):
        make("MixtureOfGaussians2D-v0", observation="flt")
    env = make("MixtureOfGaussians2D-v0").unwrapped
    with pytest.raises(gym.error.ResetNeeded):
        env.step(np.zeros(2))
    with pytest.raises(ValueError, match=r"options\['instance'\] must be < 1, got 7"):
        env.reset(options={"instance": 7})
    with pytest.raises(ValueError, match="got instnce"):
        env.reset(options={"instnce": 0})
    env.reset(seed=0)
    with pytest.raises(ValueError, match="must not contain NaN"):
        env.step(np.array([0, np.nan]))
    with pytest.raises(ValueError, match=r"action must have shape \(2,\), got \(3,\)"):
        env.step(np.zeros(3))
    inside, outside = (make("MixtureOfGaussians2D-v0").unwrapped for _ in range(2))
    inside.reset(seed=0), outside.reset(seed=0)
    assert inside.step(np.ones(2))[1] == outside.step(np.full(2, 9.0))[1]  # clipped, as documented


def test_record_constraint_statistics_survives_autoreset() -> None:
    env = gym.make_vec(
        "MixtureOfGaussians2D-v0",
        num_envs=2,
        vectorization_mode="sync",
        horizon=3,
        wrappers=[RecordConstraintStatistics],
    )
    env.reset(seed=0)
    rng, seen = np.random.default_rng(0), []
    for _ in range(3):
        *_, info = env.step(rng.uniform(-1, 1, (2, 2)).astype(np.float32))
        seen.append(info["residuals"])
    np.testing.assert_allclose(info["ergodic"]["residuals"], np.mean(seen, 0), rtol=1e-5)


def test_registering_twice_changes_nothing() -> None:
    before = dict(gym.registry)
    register()
    assert gym.registry == before
    assert gym.make("pdi_gym:MixtureOfGaussians2D-v0").unwrapped.problem.latent_dim == 2  # type: ignore[attr-defined]
