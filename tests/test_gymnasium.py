"""What Gymnasium asks of environments and their vector forms, and does not test outside of its own ids."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import CloudpickleWrapper
from gymnasium.wrappers import TimeAwareObservation, TimeLimit

import pdi_gym.envs
from pdi_gym.envs import ENV_IDS, ErgodicEnv, LagrangianReward, RecordConstraintStatistics
from pdi_gym.problems import MixtureOfGaussians
from tests.cases import PROBLEMS, Sensors
from tests.test_envs import OBSERVED, SMALL, make, same

FORMS = ("sync", "async", "vector_entry_point")
COPIES: dict[str, Callable[[Any], Any]] = {
    "deep": copy.deepcopy,
    "pickle": lambda env: unpickled(CloudpickleWrapper(env).__getstate__()),
}


def unpickled(content: bytes) -> Any:
    """As Gymnasium's workers get what is sent to them."""
    received = CloudpickleWrapper(None)  # type: ignore[arg-type]
    received.__setstate__(content)
    return received.fn


def vector(env_id: str, form: str, n: int = 2, **kwargs: Any) -> Any:
    return gym.make_vec(env_id, n, vectorization_mode=form, **SMALL.get(env_id, {}), **kwargs)


def wrapped(env_id: str, **kwargs: Any) -> Any:
    env = LagrangianReward(make(env_id, **kwargs), dual_step=0.3, dual_init=0.5, dual_unit=2.0, margin=0.1)
    return RecordConstraintStatistics(env)


def play(env: Any, slots: int) -> list[Any]:
    """What an environment or a batch answers to seeded actions, with resets where a horizon ends."""
    rng, seen = np.random.default_rng(1), []
    for _ in range(slots):
        action = rng.uniform(-1, 1, env.action_space.shape).astype(np.float32)
        step = env.step(action)
        seen.append(step)
        if isinstance(env, gym.Env) and step[3]:
            seen.append(env.reset())
    return seen


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize(("env_id", "observation"), OBSERVED)
def test_a_copy_of_a_running_environment_continues_identically(
    env_id: str, observation: str, how: str
) -> None:
    kwargs = {"horizon": 5, "observation": observation}
    made = [make(env_id, render_mode="rgb_array", **kwargs), vector(env_id, "vector_entry_point", **kwargs)]
    if observation != "graph":
        made += [wrapped(env_id, **kwargs)]
    for env in made:
        env.reset(seed=4)
        play(env, 3)
        twin = COPIES[how](env)
        before = play(env, 9)  # through the end of a horizon, after which another instance is drawn
        assert data_equivalence(before, play(twin, 9), exact=True)


@pytest.mark.parametrize("form", ["scalar", "vector_entry_point"])
def test_a_copy_before_the_first_reset_draws_the_same(form: str) -> None:
    kwargs: dict[str, Any] = {"env_id": "WirelessPower-v0", "split": "train", "horizon": 4}
    env = make(**kwargs) if form == "scalar" else vector(form=form, **kwargs)
    twin = copy.deepcopy(env)
    assert data_equivalence(env.reset(), twin.reset(), exact=True)
    assert data_equivalence(play(env, 9), play(twin, 9), exact=True)


def test_a_copy_in_the_middle_of_a_long_path() -> None:
    """Past the first chunks of the fading, where a path is no longer at its beginning."""
    env = gym.make("WirelessPower-v0", n_users=120, horizon=80)
    env.reset(seed=2)
    play(env, 61)
    twin = copy.deepcopy(env)
    assert data_equivalence(play(env, 25), play(twin, 25), exact=True)


@pytest.mark.parametrize("env_id", ENV_IDS)
def test_a_spec_makes_the_same_environment(env_id: str) -> None:
    env = wrapped(env_id, horizon=3)
    again = gym.make(env.spec)
    assert again.spec == env.spec and env.spec.max_episode_steps == 3
    assert data_equivalence(env.reset(seed=3), again.reset(seed=3), exact=True)
    assert data_equivalence(play(env, 7), play(again, 7), exact=True)


@pytest.mark.parametrize("env_id", ENV_IDS)
def test_wrappers_pass_the_checker(env_id: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # It wants the innermost environment, and warns of anything else: that is what is tested here.
        warnings.filterwarnings("ignore", message=".*is different from the unwrapped version")
        check_env(wrapped(env_id, horizon=20, render_mode="rgb_array"))


@pytest.mark.parametrize("env_id", ENV_IDS)
def test_the_passive_checker_is_silent(env_id: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gym.make(env_id, **SMALL.get(env_id, {}), horizon=3)
        env.reset(seed=0)
        (*_, info) = env.step(env.action_space.sample())
    assert type(info["cost"]) is np.float64
    native = vector(env_id, "vector_entry_point", horizon=3)
    native.reset(seed=0)
    assert native.step(native.action_space.sample())[-1]["cost"].dtype == np.float64


@pytest.mark.parametrize("observation", ["flat", "dict"])
def test_time_aware_observation(observation: str) -> None:
    """It counts to the horizon, which ends once whether a time limit stands beside it or not."""
    env = make("MixtureOfGaussians2D-v0", horizon=4, observation=observation)
    for inner in (env, gym.make(env.spec)):
        aware = TimeAwareObservation(inner, normalize_time=False, dict_time_key="slots", flatten=False)
        observed = [aware.reset(seed=0)[0]]
        ends = []
        for _ in range(4):
            seen, _, terminated, truncated, _ = aware.step(aware.action_space.sample())
            observed.append(seen)
            ends.append((terminated, truncated))
        key = "slots" if observation == "dict" else "time"
        assert [int(o[key][0]) for o in observed] == [0, 1, 2, 3, 4]
        assert all(aware.observation_space.contains(o) for o in observed)
        assert ends == [(False, False)] * 3 + [(False, True)]
    assert isinstance(inner, TimeLimit)


def test_a_shorter_time_limit_still_cuts() -> None:
    env = gym.make("MixtureOfGaussians2D-v0", horizon=9, max_episode_steps=2)
    env.reset(seed=0)
    assert [env.step(np.zeros(2))[3] for _ in range(2)] == [False, True]
    assert env.spec is not None and env.spec.max_episode_steps == 2
    spec = gym.make("MixtureOfGaussians2D-v0", horizon=9).spec
    assert spec is not None
    assert gym.make_vec(spec, 2, vectorization_mode="vector_entry_point").get_attr("horizon") == (9, 9)
    with pytest.raises(ValueError, match="max_episode_steps must be the horizon, 9, got 2"):
        gym.make_vec(spec, 2, vectorization_mode="vector_entry_point", max_episode_steps=2)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_vector_forms_agree_in_all_that_they_offer(mode: AutoresetMode) -> None:
    """Results, seeds, attributes and calls, in this process, in others and in one batch."""
    native = {"autoreset_mode": mode, "horizon": 3, "split": "train"}
    foreign = {"vector_kwargs": {"autoreset_mode": mode}, "horizon": 3, "split": "train"}
    answers = []
    for form in FORMS:
        env = vector("WirelessPower-v0", form, **(native if form == "vector_entry_point" else foreign))
        said: list[Any] = [env.reset(seed=[5, 9]), env.np_random_seed]
        said += play(env, 3)
        if mode == AutoresetMode.DISABLED:
            said += [env.reset(options={"reset_mask": np.array([True, True]), "instance": 3})]
        said += play(env, 2)
        said += [env.call("to_decision", np.zeros(8)), env.get_attr("constraint_limits")]
        said += [env.call("horizon"), env.get_attr("constraint_names"), env.get_attr("instance_token")]
        env.set_attr("horizon", [7, 7])
        said += [env.get_attr("horizon"), env.metadata["autoreset_mode"]]
        env.close()
        answers.append(said)
    for said in answers[1:]:
        assert len(said) == len(answers[0])
        for a, b in zip(said, answers[0], strict=True):
            if isinstance(a, tuple) and isinstance(a[0], np.ndarray):
                same(a, b)
            else:
                assert a == b


def test_unseeded_rows_have_seeds_of_their_own() -> None:
    env = vector("WirelessPower-v0", "vector_entry_point", 3)
    env.reset()
    assert len(set(env.np_random_seed)) == 3
    again = vector("WirelessPower-v0", "vector_entry_point", 3)
    again.reset(seed=list(env.np_random_seed))
    assert again.np_random_seed == env.np_random_seed


def test_what_the_rows_of_a_batch_cannot_have_of_their_own() -> None:
    env = vector("WirelessPower-v0", "vector_entry_point", 2)
    with pytest.raises(ValueError, match="horizon must be alike in all rows"):
        env.set_attr("horizon", [3, 4])
    with pytest.raises(ValueError, match=r"call\('reset'\) would be unseen by the others"):
        env.call("reset")
    with pytest.raises(ValueError, match="values must be one or 2, got 3"):
        env.set_attr("horizon", [3, 3, 3])
    with pytest.raises(ValueError, match="problem must be alike in all rows"):
        env.set_attr("problem", MixtureOfGaussians.toy())


@pytest.mark.parametrize(
    ("env_id", "kind"),
    [
        ("WirelessPower-v0", "WirelessPower"),
        ("Portfolio-v0", "Portfolio"),
        ("MixtureOfGaussians-v0", "MixtureOfGaussians"),
        ("MixtureOfGaussians2D-v0", "MixtureOfGaussians"),
    ],
)
def test_the_wrong_environment_for_a_problem_is_named(env_id: str, kind: str) -> None:
    message = rf"problem must be a {kind} for .*Env, got a Sensors: ErgodicEnv"
    with pytest.raises(ValueError, match=message):
        gym.make(env_id, problem=Sensors())
    with pytest.raises(ValueError, match=message):
        gym.make_vec(env_id, 2, vectorization_mode="vector_entry_point", problem=Sensors())
    env = make(env_id)
    with pytest.raises(ValueError, match=rf"options\['problem'\] must be a {kind} for"):
        env.reset(options={"problem": Sensors()})
    assert ErgodicEnv(PROBLEMS["wireless"]()).problem.latent_dim == 8


def test_every_wrapper_records_what_it_was_told() -> None:
    kinds = [k for k in vars(pdi_gym.envs).values() if isinstance(k, type) and issubclass(k, gym.Wrapper)]
    assert len(kinds) >= 2
    for kind in kinds:
        assert issubclass(kind, gym.utils.RecordConstructorArgs), kind
