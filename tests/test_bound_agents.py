"""Bound agents play the same actions wherever the environments are: here, in processes, or in one batch."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

from pdi_gym.agents import base
from pdi_gym.agents.base import Agent
from pdi_gym.envs import ErgodicEnv
from pdi_gym.policy import TimeSharingPolicy
from pdi_gym.problem import Problem
from pdi_gym.problems import WirelessPower
from pdi_gym.sb3 import make_sb3_vec
from tests.cases import Sensors

KWARGS: dict[str, Any] = {"n_users": 4, "horizon": 6, "split": "train"}
ROWS = 2


class Marking(Agent):
    """Plays decisions that tell the instance and the atom apart, and remembers what it was asked."""

    name = "marking"
    summary = "for tests"

    def __init__(self) -> None:
        super().__init__()
        self.sampled: list[Problem] = []

    def _sample(
        self, problem: Problem, options: Any, n: int, generator: torch.Generator, callback: Any
    ) -> TimeSharingPolicy:
        assert isinstance(problem, WirelessPower)
        self.sampled.append(problem)
        mark = float(problem.gains.log().sum()) % 1
        return TimeSharingPolicy(problem.p_max * np.linspace([0, 0, 0, mark], [1, 1, 1, mark], n))


def record(env: Any) -> list[str]:
    """What is fetched from the environments, by name."""
    fetched: list[str] = []
    original = env.get_attr

    def spy(name: str, *args: Any, **kwargs: Any) -> Any:
        fetched.append(name)
        return original(name, *args, **kwargs)

    env.get_attr = spy
    return fetched


def play_sb3(venv: Any, slots: int) -> tuple[np.ndarray, Marking, list[str]]:
    agent = Marking()
    venv.seed(3)
    observation = venv.reset()
    agent.bind(venv)
    fetched = record(venv)
    actions = []
    for _ in range(slots):
        action, _ = agent.predict(observation)
        actions.append(action)
        observation, *_ = venv.step(action)
    venv.close()
    return np.array(actions), agent, fetched


def play_gymnasium(env: Any, slots: int) -> tuple[np.ndarray, Marking, list[str]]:
    agent = Marking().bind(env)
    assert isinstance(agent, Marking)
    observation, _ = env.reset(seed=3)
    fetched = record(env.unwrapped)
    actions = []
    for _ in range(slots):
        action, _ = agent.predict(observation)
        actions.append(action)
        observation, *_ = env.step(action)
    env.close()
    return np.array(actions), agent, fetched


def check(runs: list[tuple[np.ndarray, Marking, list[str]]]) -> None:
    """Equal actions of distinct atoms, one policy an instance, and problems fetched for policies alone."""
    first = runs[0][0]
    assert all(len(np.unique(first[:6, row], axis=0)) >= 4 for row in range(ROWS))
    marks = {tuple(marks) for marks in first[:, :, -1].tolist()}
    assert len(marks) >= 2  # other instances after the reset were noticed
    for actions, agent, fetched in runs:
        np.testing.assert_array_equal(actions, first)
        contents = [problem.gains.numpy().tobytes() for problem in agent.sampled]  # type: ignore[attr-defined]
        assert len(set(contents)) == len(contents) == len(np.unique(first[:, :, -1]))
        assert fetched.count("problem") <= len(contents)
        assert fetched.count("instance_token") >= len(actions)


def test_actions_are_equal_in_stable_baselines_vec_envs() -> None:
    make = partial(gym.make, "pdi_gym:WirelessPower-v0", **KWARGS)
    envs = (
        DummyVecEnv([make] * ROWS),
        SubprocVecEnv([make] * ROWS),
        make_sb3_vec("WirelessPower-v0", ROWS, **KWARGS),
    )
    check([play_sb3(venv, 15) for venv in envs])


def test_actions_are_equal_in_gymnasiums_vector_forms() -> None:
    forms = ("sync", "async", "vector_entry_point")
    envs = [gym.make_vec("WirelessPower-v0", ROWS, vectorization_mode=form, **KWARGS) for form in forms]
    check([play_gymnasium(env, 15) for env in envs])


def test_equal_rows_share_one_policy() -> None:
    """Rows that play one network by index, each with an object of its own."""
    env = gym.make_vec("WirelessPower-v0", 3, vectorization_mode="sync", **KWARGS)
    agent = Marking().bind(env)
    for _ in range(2):
        observation, _ = env.reset(options={"instance": 5})
        agent.predict(observation)
    assert len(agent.sampled) == 1  # type: ignore[attr-defined]
    assert len({id(problem) for problem in env.get_attr("problem")}) == 3


def test_an_instance_that_comes_again_is_known_until_too_many_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "POLICIES_KEPT", 2)
    env = gym.make("WirelessPower-v0", **KWARGS)
    agent = Marking().bind(env)
    asked = []
    for instance in (0, 1, 0, 1, 2, 1, 0):
        observation, _ = env.reset(options={"instance": instance})
        agent.predict(observation)
        asked.append(len(agent.sampled))  # type: ignore[attr-defined]
    assert asked == [1, 2, 2, 2, 3, 3, 4]


def test_tokens_follow_content() -> None:
    a, b = (gym.make("WirelessPower-v0", **KWARGS).unwrapped for _ in range(2))
    a.reset(options={"instance": 1}), b.reset(options={"instance": 2})
    assert a.instance_token != b.instance_token  # type: ignore[attr-defined]
    b.reset(options={"instance": 1})
    assert a.instance_token == b.instance_token  # type: ignore[attr-defined]


def test_a_problem_without_content_has_a_token_of_its_own() -> None:
    class Open(Sensors):
        def __init__(self) -> None:
            self.lines = (line for line in ())  # a generator tells nothing of what it will give

    problem = Open()
    one, other = ErgodicEnv(problem), ErgodicEnv(problem)
    token = one.instance_token
    assert token == one.instance_token != other.instance_token
    one.reset(options={"problem": Open()})
    assert one.instance_token != token
