"""The agent `ppo`: it learns to take turns, and keeps what it learnt."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pdi_gym import files
from pdi_gym.agents import make_agent
from pdi_gym.checkpoints import load_tensors, save_tensors
from pdi_gym.envs import ErgodicEnv
from pdi_gym.evaluation import evaluate
from pdi_gym.problems import WirelessPower
from pdi_gym.rl import storage, training
from pdi_gym.training.loop import Stopped
from tests.cases import Sensors, Unbounded
from tests.training_cases import interrupt

TINY: dict[str, Any] = {
    "n_envs": 2,
    "n_steps": 4,
    "batch_size": 8,
    "n_epochs": 2,
    "channels": 4,
    "horizon": 10,
}
ROUND = 8 * 4 * 2
"""Slots of a round with these options."""


def conflict() -> WirelessPower:
    """Two users who drown each other: together they get .26 bit each, half the time alone 1.45.

    (With the fading: E log2(1 + 10 ξ) = 2.90 for one alone.) No single decision gives both .9.
    """
    gains = np.array([[1.0, 5.0], [5.0, 1.0]])
    return WirelessPower.from_gains(gains, r_min=0.9, noise=0.1, p_max=1.0)


@pytest.fixture(scope="module")
def trained() -> Any:
    agent = make_agent("ppo", n_envs=32, n_steps=16, batch_size=256, margin=0.1)
    return agent.learn(conflict(), steps=40_000)


def test_it_learns_to_take_turns(trained: Any) -> None:
    problem = conflict()
    x = torch.cartesian_prod(*[torch.linspace(0, 1, 21)] * 2)
    assert problem.constraints(x).amax(-1).min() > 0.1, "a single decision would do"
    found = evaluate(trained.sample(problem, n=200, seed=1), problem, trials=10)
    random = evaluate(make_agent("random").sample(problem, n=200, seed=1), problem, trials=10)
    assert random["mean_violation"] > 0.15
    assert found["mean_violation"] < 0.03
    assert found["mean_rate"] > random["mean_rate"] + 0.2


def test_its_policy_is_what_it_played(trained: Any) -> None:
    steps: list[Any] = []
    policy = trained.sample(conflict(), n=12, seed=1, callback=steps.append)
    assert len(policy) == 12 and len(steps) == 200 + 12
    lam = steps[-5].lam + 0.5 * (steps[-5].residual + 0.1)  # what the next slot was charged with
    torch.testing.assert_close(steps[-4].lam, lam.clamp(min=0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(policy.duals, steps[-1].lam, rtol=1e-5)
    np.testing.assert_allclose(policy.mean_duals[0], np.mean([s.lam[0] for s in steps[200:]], 0), rtol=1e-4)
    again = trained.sample(conflict(), n=12, seed=1)
    assert np.array_equal(policy.actions, again.actions)
    assert not np.array_equal(policy.actions, trained.sample(conflict(), n=12, seed=2).actions)


def test_a_graph_network_takes_any_number_of_users(trained: Any) -> None:
    assert trained.sample(WirelessPower.instance(0, "validation", n_users=5), n=3).actions.shape == (3, 5)


def test_it_plays_in_an_environment(trained: Any) -> None:
    env = ErgodicEnv(conflict(), horizon=5)
    observation, _ = env.reset(seed=0)
    action, _ = trained.bind(env).predict(observation)
    assert env.action_space.contains(action)


def test_untrained_it_says_so_and_is_left_out() -> None:
    agent = make_agent("ppo")
    with pytest.raises(RuntimeError, match="pdi-gym train ppo ENV_ID --out FOLDER"):
        agent.sample(conflict(), n=2)
    assert not type(agent).ready(conflict()) and type(agent).applies(conflict())
    with pytest.raises(RuntimeError, match="pdi-gym train ppo"):
        agent.save("nowhere")


def test_save_and_load(trained: Any, tmp_path: Path) -> None:
    trained.save(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["agent.json", "ppo.safetensors"]
    loaded = make_agent("ppo").load(tmp_path)
    assert np.array_equal(
        loaded.sample(conflict(), n=3, seed=4).actions, trained.sample(conflict(), n=3, seed=4).actions
    )
    assert loaded.config(conflict()) == trained.config(conflict())
    with pytest.raises(ValueError, match="was trained on WirelessPower, not on Sensors"):
        loaded.sample(Sensors(), n=2)
    with pytest.raises(ValueError, match="without its training's state"):
        make_agent("ppo", **trained.overrides).learn(conflict(), out=tmp_path, steps=1, resume=True)


def test_load_refuses_other_files(tmp_path: Path) -> None:
    agent = make_agent("ppo")
    with pytest.raises(FileNotFoundError, match=r"agent\.json does not exist"):
        agent.load(tmp_path)
    make_agent("random").save(tmp_path)
    with pytest.raises(ValueError, match="holds 'random', not 'ppo'"):
        agent.load(tmp_path)
    (tmp_path / "agent.json").write_text('{"agent": "ppo", "preset": "fast", "options": {"rows": 2}}')
    with pytest.raises(FileNotFoundError, match=r"ppo\.safetensors does not exist"):
        agent.load(tmp_path)
    (tmp_path / "ppo.safetensors").write_bytes(b"\x80\x04K\x01.")  # the number 1, pickled
    with pytest.raises(ValueError, match="is not a whole safetensors file"):
        agent.load(tmp_path)
    save_tensors(tmp_path / "ppo.safetensors", {"w": torch.zeros(2)}, {"agent": "st"})
    with pytest.raises(ValueError, match="holds no network of ppo"):
        agent.load(tmp_path)
    save_tensors(tmp_path / "ppo.safetensors", {"policy.w": torch.tensor(torch.nan)}, {"setup": {}})
    with pytest.raises(ValueError, match="holds NaN or infinite weights in w"):
        agent.load(tmp_path)
    assert agent.overrides == {}
    with pytest.raises(RuntimeError, match="needs training"):
        agent.sample(conflict(), n=2)


@pytest.mark.parametrize("problem", [Sensors(), conflict()], ids=["flat", "graph"])
def test_a_resumed_training_ends_as_one_without_a_stop(problem: Any, tmp_path: Path) -> None:
    whole = make_agent("ppo", **TINY).learn(problem, steps=3 * ROUND, seed=5)
    make_agent("ppo", **TINY).learn(problem, steps=ROUND, seed=5, out=tmp_path)
    random_state = np.random.get_state()[1].copy(), torch.get_rng_state()  # type: ignore[index, union-attr]
    resumed = make_agent("ppo", **TINY).learn(problem, steps=3 * ROUND, seed=5, out=tmp_path, resume=True)
    assert np.array_equal(random_state[0], np.random.get_state()[1])  # type: ignore[index, arg-type]
    assert torch.equal(random_state[1], torch.get_rng_state())
    for agent in (resumed, make_agent("ppo").load(tmp_path)):
        assert agent.config(problem)["weights"] == whole.config(problem)["weights"]
    other = make_agent("ppo", **TINY).learn(problem, steps=ROUND, seed=6)
    assert other.config(problem)["weights"] != whole.config(problem)["weights"]
    with pytest.raises(ValueError, match="holds a training: go on with resume"):
        make_agent("ppo", **TINY).learn(problem, steps=ROUND, out=tmp_path)
    with pytest.raises(ValueError, match="holds a training with another options and seed"):
        make_agent("ppo", **TINY, log_std=0.0).learn(problem, steps=ROUND, out=tmp_path, seed=1, resume=True)
    assert list((tmp_path / "tensorboard").glob("events*"))


@pytest.mark.parametrize("at", [1, 35, 70], ids=["at once", "later", "last"])
def test_a_stopped_training_goes_on_to_the_same_end(
    at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM comes in a slot of the first, second and third round."""
    problem = Sensors()
    whole = make_agent("ppo", **TINY).learn(problem, steps=3 * ROUND, seed=5)
    with monkeypatch.context() as patch:
        interrupt(patch, "_on_step", at, owner=training._Watch)
        with pytest.raises(Stopped, match="whole rounds of training are in .*; go on with --resume"):
            make_agent("ppo", **TINY).learn(problem, steps=3 * ROUND, seed=5, out=tmp_path)
    resumed = make_agent("ppo", **TINY).learn(problem, steps=3 * ROUND, seed=5, out=tmp_path, resume=True)
    assert resumed.config(problem)["weights"] == whole.config(problem)["weights"]
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize(
    "name, value",
    [
        ("progress", {"rounds": True, "rewards": [0.0, 1.0, 1.0]}),
        ("progress", {"rounds": 1}),
        ("progress", [1]),
        ("setup", {"problem": "Sensors"}),
        ("policy.log_std", torch.zeros(7)),
        ("policy.log_std", torch.zeros(3, dtype=torch.long)),
        ("optimiser.0.exp_avg", None),
        ("surprise", torch.zeros(1)),
    ],
)
def test_an_incomplete_checkpoint_is_refused(tmp_path: Path, name: str, value: Any) -> None:
    make_agent("ppo", **TINY).learn(Sensors(), steps=ROUND, out=tmp_path)
    tensors, metadata = load_tensors(tmp_path / storage.FILE)
    place: dict[str, Any] = metadata if name in metadata else tensors
    place[name] = value
    kept = {k: v for k, v in tensors.items() if v is not None}
    save_tensors(tmp_path / storage.FILE, kept, metadata)
    with pytest.raises(ValueError, match=rf"ppo\.safetensors .*{name.removeprefix('policy.')}"):
        make_agent("ppo", **TINY).learn(Sensors(), steps=2 * ROUND, out=tmp_path, resume=True)


def test_training_uses_the_training_split_and_the_options_it_is_given() -> None:
    agent: Any = make_agent("ppo", **TINY).learn("WirelessPower-v0", steps=1, n_users=4, layers=1)
    assert agent.overrides["layers"] == 1
    setup = agent._network.setup
    assert setup["env_kwargs"] == {"split": "train", "n_users": 4} and setup["options"]["layers"] == 1
    portfolio: Any = make_agent("ppo", **TINY).learn("Portfolio-v0", steps=1, n_assets=12, n_sectors=4)
    assert portfolio._network.setup["env_kwargs"]["split"] == "train"


def test_there_must_be_something_to_go_on_from(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"ppo\.safetensors does not exist: leave resume out"):
        make_agent("ppo", **TINY).learn(Sensors(), steps=1, out=tmp_path, resume=True)
    assert not list(tmp_path.iterdir())


def test_a_killed_training_leaves_no_temporaries(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    name = files._temporary(tmp_path / "ppo.safetensors").name.replace(f"-{os.getpid()}-", f"-{dead.pid}-")
    (tmp_path / name).write_text("half")
    make_agent("ppo", **TINY).learn(Sensors(), steps=1, out=tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["agent.json", "ppo.safetensors", "tensorboard"]


def test_a_flat_network_refuses_another_size(tmp_path: Path) -> None:
    agent = make_agent("ppo", **TINY).learn(
        "MixtureOfGaussians-v0", steps=1, dim=3, n_modes=2, n_constraints=2
    )
    from pdi_gym.problems import MixtureOfGaussians

    with pytest.raises(ValueError, match="the network does not fit"):
        agent.sample(MixtureOfGaussians.instance(dim=4, n_modes=2, n_constraints=2), n=2)
    assert agent.sample(MixtureOfGaussians.instance(3, 2, 2, seed=1), n=2).actions.shape == (2, 3)


def test_bad_input() -> None:
    for options, message in (
        ({"dual_step": -1}, "dual_step must be a finite number ≥ 0, got -1"),
        ({"n_envs": 0}, "n_envs must be a whole number ≥ 1, got 0"),
        ({"learning_rate": 0}, "learning_rate must be a finite number > 0, got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            make_agent("ppo", **options)
    with pytest.raises(
        ValueError, match="unknown environment 'WirelesPower-v0' — did you mean WirelessPower-v0"
    ):
        make_agent("ppo").learn("WirelesPower-v0")
    with pytest.raises(ValueError, match="steps must be a whole number ≥ 1, got 0"):
        make_agent("ppo").learn(Unbounded(), steps=0)
