"""PPO of Stable-Baselines3 on the Lagrangian reward: what reinforcement learning makes of the problem."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pdi_gym.agents.base import Agent, Observer, Trace
from pdi_gym.checkpoints import digest
from pdi_gym.files import remove_leftovers, writable_folder
from pdi_gym.inference import divisor_at_most
from pdi_gym.options import check_device
from pdi_gym.policy import TimeSharingPolicy
from pdi_gym.problem import Problem
from pdi_gym.samplers import Step
from pdi_gym.validation import check_int, check_number, settle

if TYPE_CHECKING:  # Stable-Baselines3 takes seconds to load and brings Matplotlib
    from pdi_gym.rl.training import Rolled


@dataclass(frozen=True, kw_only=True)
class PPOOptions:
    """What PPO can be told: first what a sample uses, then the network, then the training."""

    dual_step: float = 0.5
    """Step η of the dual ascent after every slot; for a portfolio, in its unit of λ per mean budget."""
    dual_init: float = 0.0
    """First value of every multiplier."""
    margin: float = 0.05
    """What the dual steps ask constraints to hold with to spare; in mean budgets, for a portfolio."""
    rows: int = 1
    """Horizons played side by side under one λ while sampling; fewer where it does not divide n."""
    burn_in: int = 200
    """Slots played before the first that is kept, for the multipliers to settle."""
    channels: int = 32
    """Width of the network."""
    layers: int = 3
    """Depth of the network."""
    log_std: float = -0.5
    """Logarithm of the policy's first standard deviation."""
    n_envs: int = 64
    """Environments of the training, each with an instance and multipliers of its own."""
    horizon: int = 50
    """Slots until a training environment draws another instance."""
    n_steps: int = 32
    """Slots of each environment in a rollout."""
    batch_size: int = 512
    """Slots in a gradient step."""
    n_epochs: int = 6
    """Passes over each rollout."""
    learning_rate: float = 3e-3
    """Step size of Adam."""

    def __post_init__(self) -> None:
        for name in ("rows", "channels", "layers", "n_envs", "horizon", "n_steps", "n_epochs"):
            check_int(name, getattr(self, name), 1)
        check_int("burn_in", self.burn_in, 0), check_int("batch_size", self.batch_size, 2)
        for name in ("dual_step", "dual_init", "margin"):
            check_number(name, getattr(self, name), 0)
        check_number("log_std", self.log_std)
        check_number("learning_rate", self.learning_rate, 0, above=True)
        settle(self)


@dataclass(frozen=True)
class Network:
    """A trained policy: its weights, and where it was trained."""

    weights: dict[str, Tensor]
    setup: dict[str, Any]


class PPO(Agent):
    """Proximal policy optimisation of reward − λᵀf with λ in the observation, as RL would have it.

    Trained once over many instances while every one of them runs dual ascent, the network learns
    the best decision for any λ; on the problem to answer it plays on, λ ← [λ + η f]₊ after every
    slot, and what it plays after a burn-in is the policy. On graphs with a decision per node
    (`WirelessPower`, `Portfolio`) the network treats all nodes alike and takes any number of them.
    """

    name = "ppo"
    summary = "Stable-Baselines3 PPO on the Lagrangian reward, λ in the observation"
    options_type = PPOOptions
    needs_training = True

    def __init__(self, preset: str = "fast", **options: Any):
        super().__init__(preset, **options)
        self._network: Network | None = None

    def config(self, problem: Problem) -> dict[str, Any]:
        weights = None if self._network is None else digest(self._network.weights)
        return super().config(problem) | {"weights": weights}

    def learn(
        self,
        env: str | Problem,
        *,
        out: str | Path | None = None,
        seed: int = 0,
        steps: int = 250_000,
        device: str = "cpu",
        resume: bool = False,
        quiet: bool = True,
        **settings: Any,
    ) -> PPO:
        """Train on an environment's id, on its training split unless told otherwise, or on a problem.

        `steps` counts slots over all environments. With `out`, the agent, a checkpoint of every
        round and events for TensorBoard are kept there; `resume` goes on where a stopped training
        was, to the same end; SIGINT and SIGTERM stop it with its last whole round kept. `settings`
        are options of this agent, and arguments of the environment.
        """
        from pdi_gym.rl import storage, training

        check_int("steps", steps, 1), check_device(device), check_int("seed", seed, 0)
        own = {f.name for f in fields(PPOOptions)} & set(settings)
        self.overrides |= {name: settings[name] for name in own}
        options = PPOOptions(**self.overrides)
        setup = training.setup_of(env, {k: v for k, v in settings.items() if k not in own})
        described = training.describe(setup, options, seed)
        folder = None if out is None else writable_folder("out", out)
        if folder is not None:
            storage.claim(folder, described, resume)
            remove_leftovers(folder)
            super().save(folder)
        weights = training.train(
            setup, options, steps=steps, seed=seed, device=device, out=folder, quiet=quiet
        )
        self._network = Network(weights, described)
        return self

    def _sample(
        self,
        problem: Problem,
        options: PPOOptions,
        n: int,
        generator: torch.Generator,
        callback: Observer | None,
    ) -> TimeSharingPolicy:
        network = self._trained()
        if network.setup["problem"] != type(problem).__name__:
            where, here = network.setup["problem"], type(problem).__name__
            raise ValueError(f"ppo was trained on {where}, not on {here}: train it there")
        from pdi_gym.rl import training

        rows = divisor_at_most(n, options.rows)
        slots = options.burn_in + n // rows
        setup = training.Setup(network.setup["env_id"], {"problem": problem})
        venv, charged = training.lagrangian_env(setup, options, rows, slots, shared=True)
        policy = training.build_policy(venv, options, setup.graph, network.weights)
        rolled = training.roll(
            policy, venv, charged, slots, int(torch.randint(2**31, (), generator=generator))
        )
        return _policy(problem, rolled, options.burn_in, callback)

    def _trained(self) -> Network:
        if self._network is None:
            raise RuntimeError(
                "ppo needs training: run `pdi-gym train ppo ENV_ID --out FOLDER`, then agent.load(FOLDER)"
            )
        return self._network

    def save(self, folder: str | Path) -> None:
        """Write settings, and the network with where it was trained as safetensors, to `folder`."""
        from pdi_gym.rl import storage

        network = self._trained()
        super().save(folder)
        storage.write(Path(folder), network.weights, network.setup)

    def load(self, folder: str | Path) -> PPO:
        """Take over what `save`, or a training with `out`, wrote."""
        from pdi_gym.rl import storage

        settings = self._stored_settings(folder)
        self._network = Network(*storage.read(Path(folder)))
        self.preset, self.overrides = settings
        return self


def _policy(problem: Problem, rolled: Rolled, burn_in: int, callback: Observer | None) -> TimeSharingPolicy:
    """The kept slots as atoms of equal weight, in the order they were played."""
    trace = Trace(len(rolled.actions), callback)
    for t, (actions, duals, residuals) in enumerate(zip(*rolled, strict=True)):
        x = problem.to_decision(torch.from_numpy(actions))
        lam, residual = (torch.as_tensor(v, dtype=torch.float32)[None] for v in (duals, residuals))
        trace(Step(t, problem.encode(x)[None], problem.encode(x)[None], lam, residual, float("nan")))
    kept = torch.from_numpy(rolled.actions[burn_in:]).flatten(0, 1)
    return TimeSharingPolicy(
        problem.to_decision(kept).numpy(),
        duals=rolled.duals[-1:],
        mean_duals=rolled.duals[burn_in:].mean(0, keepdims=True),
        info={"trace": trace.arrays()},
    )
