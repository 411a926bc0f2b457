"""PPO on the Lagrangian reward: the environments of a training, its loop and its checkpoints."""

from __future__ import annotations

import inspect
import random
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger, configure
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.vec_env import VecEnv, VecNormalize
from torch import Tensor

from pdi_gym import seeding
from pdi_gym.envs import ErgodicVectorEnv, make_env
from pdi_gym.event_files import event_failures
from pdi_gym.problem import Problem
from pdi_gym.problems.portfolio import Portfolio
from pdi_gym.processes import one_thread
from pdi_gym.rl.graph import GraphObservation, GraphPolicy
from pdi_gym.rl.lagrangian import LagrangianVecReward
from pdi_gym.rl.storage import checkpoint, restore
from pdi_gym.rl.vec_env import SB3VecEnv
from pdi_gym.training.loop import Stopped, stop_signals

ROLLOUTS = 8
"""Rollouts of a round: it starts with fresh horizons and ends with a checkpoint."""


@dataclass(frozen=True)
class Setup:
    """Where a network plays: an environment's id and arguments, or no id for a user's own problem."""

    env_id: str | None
    env_kwargs: dict[str, Any]

    @cached_property
    def problem(self) -> Problem:
        """One of its instances."""
        problem: Problem = self.vector_env(1).get_attr("problem")[0]
        return problem

    @property
    def graph(self) -> bool:
        """Whether instances are graphs with a decision for each node, which `GraphPolicy` wants."""
        graph = self.problem.graph
        return graph is not None and len(graph.node_features) == self.problem.latent_dim

    def vector_env(self, num_envs: int, **changes: Any) -> SB3VecEnv:
        """The environments of the training with some arguments changed."""
        kwargs = {**self.env_kwargs, **changes}
        if self.env_id is None:
            return SB3VecEnv(ErgodicVectorEnv(num_envs, **kwargs))
        mode = "vector_entry_point"
        return SB3VecEnv(gym.make_vec(self.env_id, num_envs=num_envs, vectorization_mode=mode, **kwargs))


def setup_of(env: str | Problem, kwargs: dict[str, Any]) -> Setup:
    """Train on the training split where the environment has splits and none is asked for."""
    if not isinstance(env, str):
        return Setup(None, {"problem": env, **kwargs})
    arguments = inspect.signature(type(make_env(env, kwargs))).parameters
    if "split" in arguments and "problem" not in kwargs:
        kwargs = {"split": "train", **kwargs}
    return Setup(env, kwargs)


def lagrangian_env(
    setup: Setup, options: Any, num_envs: int, horizon: int, shared: bool = False
) -> tuple[VecEnv, LagrangianVecReward]:
    """What the network plays in: the Lagrangian reward, λ and the graph observed; and λ's keeper."""
    problem = setup.problem
    venv = setup.vector_env(num_envs, observation="dict" if setup.graph else "flat", horizon=horizon)
    # λ is return per variance in a portfolio, and residuals are near 1e-4: keep the options of order one.
    unit, size = 1.0, 1.0
    if isinstance(problem, Portfolio):
        unit = float(problem.mu.abs().mean() / problem.budgets.sum())
        size = float(problem.budgets.mean())
    charged = LagrangianVecReward(
        venv,
        shared,
        dual_step=options.dual_step * unit / size,
        dual_init=options.dual_init * unit,
        dual_unit=unit,
        margin=options.margin * size,
    )
    return (GraphObservation(charged) if setup.graph else charged), charged


def policy_settings(options: Any, graph: bool) -> dict[str, Any]:
    """Arguments of the policy's class."""
    if graph:
        extractor = {"channels": options.channels, "layers": options.layers}
        return {"features_extractor_kwargs": extractor, "log_std_init": options.log_std}
    return {"net_arch": [options.channels] * options.layers, "log_std_init": options.log_std}


def build_policy(venv: VecEnv, options: Any, graph: bool, weights: dict[str, Tensor]) -> ActorCriticPolicy:
    """The network with those weights for the spaces of `venv`."""
    cls = GraphPolicy if graph else ActorCriticPolicy
    settings = policy_settings(options, graph)
    policy = cls(venv.observation_space, venv.action_space, lambda _: 0.0, **settings)
    expected = {k: tuple(v.shape) for k, v in policy.state_dict().items()}
    found = {k: tuple(v.shape) for k, v in weights.items()}
    if expected != found:
        differing = sorted(k for k in expected.keys() | found.keys() if expected.get(k) != found.get(k))
        raise ValueError(
            f"the network does not fit: {differing[0]} is {found.get(differing[0])}, this problem and these "
            f"options want {expected.get(differing[0])}: train on problems of this kind and size"
        )
    policy.load_state_dict(weights)
    policy.set_training_mode(False)
    return policy


def train(
    setup: Setup, options: Any, *, steps: int, seed: int, device: str, out: Path | None, quiet: bool
) -> dict[str, Tensor]:
    """Learn for at least `steps` slots, all rows counted, from the checkpoint in `out` if there is one.

    Training goes in rounds. Every round seeds itself by its number and starts fresh horizons, so
    that a run continued from a checkpoint ends as one that was never stopped. SIGINT and SIGTERM end a
    training with `out` at the slot under way; the round that it belongs to is done anew on resuming.
    """
    venv, charged = lagrangian_env(setup, options, options.n_envs, options.horizon)
    scaled = VecNormalize(venv, norm_obs=False, gamma=0.0)
    with own_randomness(seed):
        model = _model(scaled, options, setup.graph, seed, device)
    slots = ROLLOUTS * options.n_steps * options.n_envs
    described = describe(setup, options, seed)
    first = 0 if out is None else restore(out, model, scaled)
    if out is not None and first == 0:  # what a stop in the first round goes on from
        checkpoint(out, model, scaled, 0, described)
    numbers = range(first, -(-steps // slots))
    progress = track(numbers, "training", console=Console(quiet=quiet), disable=quiet)
    stopping: AbstractContextManager[list[int]] = nullcontext([]) if out is None else stop_signals()
    with one_thread(), stopping as asked, _events(out) as logger:
        model.set_logger(logger)
        for number in progress:
            with own_randomness(int(seeding.rng(seed, seeding.POLICY, number).integers(2**31))) as start:
                model.set_random_seed(start)
                model.num_timesteps = number * slots
                model._last_obs = None  # SB3 resets the environments when there is none
                watch = _Watch(charged, asked, f"{number} whole rounds of training are in {out}")
                model.learn(slots, watch, reset_num_timesteps=False)
            if out is not None:
                checkpoint(out, model, scaled, number + 1, described)
    venv.close()
    return {k: v.detach().cpu().clone() for k, v in model.policy.state_dict().items()}


@contextmanager
def _events(out: Path | None) -> Iterator[Logger]:
    """SB3's logger, to TensorBoard if the training has a folder, which an error of writing names."""
    if out is None:
        yield Logger(None, [])
        return
    folder = out / "tensorboard"
    with event_failures(folder):
        logger = configure(str(folder), ["tensorboard"])
        try:
            yield logger
        finally:
            logger.close()


def _model(venv: VecEnv, options: Any, graph: bool, seed: int, device: str) -> PPO:
    # γ = 0: given λ, what a slot earns does not depend on earlier actions, so nothing else is credit.
    return PPO(
        GraphPolicy if graph else "MlpPolicy",
        venv,
        learning_rate=options.learning_rate,
        n_steps=options.n_steps,
        batch_size=options.batch_size,
        n_epochs=options.n_epochs,
        gamma=0.0,
        gae_lambda=1.0,
        policy_kwargs=policy_settings(options, graph),
        seed=seed,
        device=device,
    )


def describe(setup: Setup, options: Any, seed: int) -> dict[str, Any]:
    """JSON of what decides a training, but for its length."""
    kwargs = {k: v if _plain(v) else type(v).__name__ for k, v in setup.env_kwargs.items()}
    return {
        "problem": type(setup.problem).__name__,
        "env_id": setup.env_id,
        "env_kwargs": kwargs,
        "options": asdict(options),
        "seed": seed,
    }


def _plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


class Rolled(NamedTuple):
    """What a network played: actions (slots, rows, d), λ (slots, m) before each slot and its residuals."""

    actions: np.ndarray
    duals: np.ndarray
    residuals: np.ndarray


def roll(
    policy: ActorCriticPolicy, venv: VecEnv, charged: LagrangianVecReward, slots: int, seed: int
) -> Rolled:
    """Consecutive slots of the stochastic policy, λ shared by the rows and rising and falling all along."""
    parts: list[tuple[np.ndarray, ...]] = []
    with own_randomness(seed):
        venv.seed(seed)
        observation: Any = venv.reset()
        for _ in range(slots):
            duals = charged.multipliers.values[0]
            actions, _ = policy.predict(observation)
            observation, _, _, infos = venv.step(actions)
            parts.append((actions, duals, np.mean([info["residuals"] for info in infos], 0)))
    return Rolled(*(np.array(part) for part in zip(*parts, strict=True)))


class _Watch(BaseCallback):
    """Writes how far averages are violated, and λ, beside SB3's own scalars; stops when it is asked to."""

    def __init__(self, charged: LagrangianVecReward, asked: list[int], done: str):
        super().__init__()
        self._charged, self._asked, self._done = charged, asked, done

    def _on_step(self) -> bool:
        if self._asked:
            raise Stopped(f"{self._done}; go on with --resume")
        return True

    def _on_rollout_end(self) -> None:
        infos = self.locals["infos"]
        average = np.stack([info["ergodic_residuals"] for info in infos])
        self.logger.record("duals/mean", float(self._charged.multipliers.values.mean()))
        self.logger.record("constraints/mean_violation", float(np.maximum(average, 0).mean()))
        self.logger.record("constraints/slot_reward", float(np.mean([i["slot_reward"] for i in infos])))


@contextmanager
def own_randomness(seed: int) -> Iterator[int]:
    """SB3 draws from the global generators: seed them, and give them back as they were."""
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        random.seed(seed), np.random.seed(seed), torch.manual_seed(seed)
        yield seed
    finally:
        random.setstate(before[0]), np.random.set_state(before[1])
        torch.set_rng_state(before[2])
