"""What every agent can do: sample a time-sharing policy, and play it in an environment."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from pdi_gym import presets, seeding
from pdi_gym._version import __version__
from pdi_gym.advice import advise
from pdi_gym.checkpoints import FORMAT, check_format, check_seal, sealed
from pdi_gym.files import read_object, write_text
from pdi_gym.labels import brief
from pdi_gym.policy import TimeSharingPolicy
from pdi_gym.problem import Problem, check_problem
from pdi_gym.processes import one_thread
from pdi_gym.samplers import Samples, Step
from pdi_gym.scales import Scales, in_scales
from pdi_gym.validation import check_choice, check_int

Observer = Callable[[Step], None]
POLICIES_KEPT = 256
"""Policies that a bound agent keeps for instances that come again."""


@dataclass(frozen=True)
class NoOptions:
    """An agent that has nothing to set."""


class Agent(ABC):
    """Answers a problem with a time-sharing policy; subclasses write `_sample`.

    Settings come from the preset of the problem's kind, with the given options on top.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    options_type: ClassVar[type[Any]] = NoOptions
    needs_training: ClassVar[bool] = False
    """Whether it must learn, or load weights, before it can sample."""
    aims_at_constraints: ClassVar[bool] = True
    """Whether it tries to meet the constraints, so that a user wants to hear if it does not."""

    def __init__(self, preset: str = "fast", **options: Any):
        check_choice("preset", preset, presets.PRESETS)
        self.preset = preset
        self.overrides = presets.check_overrides(self.name, self.options_type, options)
        self._env: Any = None
        self._playing: list[_Player] = []
        self._atoms: dict[str, tuple[TimeSharingPolicy, np.ndarray]] = {}

    @classmethod
    def applies(cls, problem: Problem) -> bool:
        """Whether this agent can answer that problem."""
        return True

    @classmethod
    def missing(cls) -> str | None:
        """The command that installs what this agent needs and is not there, or None."""
        return None

    @classmethod
    def shipped(cls, problem: Problem) -> bool:
        """Whether weights for that problem come with the package."""
        return False

    @classmethod
    def ready(cls, problem: Problem) -> bool:
        """Whether it answers that problem as installed: nothing to install, nothing to train."""
        usable = cls.applies(problem) and cls.missing() is None
        return usable and (not cls.needs_training or cls.shipped(problem))

    @abstractmethod
    def _sample(
        self, problem: Problem, options: Any, n: int, generator: torch.Generator, callback: Observer | None
    ) -> TimeSharingPolicy: ...

    def options(self, problem: Problem) -> Any:
        """The settings used for that problem; in units of `scales` for a user's own."""
        return presets.resolve(self.options_type, problem, self.preset, self.overrides)

    def scales(self, problem: Problem) -> Scales | None:
        """The units of the settings, from a pilot estimate; None where they are the problem's own.

        Only a user's own problem has them, and only for agents without a network or a closed form.
        """
        return presets.scales(problem, self.options(problem))

    def config(self, problem: Problem) -> dict[str, Any]:
        """Name, preset and settings as JSON-ready values: what a result file keeps."""
        scales = self.scales(problem)
        units = {} if scales is None else {"scales": asdict(scales)}
        return {"agent": self.name, "preset": self.preset, "options": asdict(self.options(problem)), **units}

    @one_thread()
    def sample(
        self, problem: Problem, n: int | None = None, seed: int = 0, callback: Observer | None = None
    ) -> TimeSharingPolicy:
        """A policy of n decisions (the preset's number when left out), the same for the same seed.

        It is made on one thread, so that it does not depend on how many there are.
        """
        check_problem(problem)
        if not type(self).applies(problem):
            raise ValueError(
                f"{self.name} does not apply to {type(problem).__name__}: see list_agents(problem)"
            )
        if command := type(self).missing():
            raise ImportError(f"{self.name} needs a package that is not installed: {command}")
        n = presets.n_policies(problem) if n is None else check_int("n", n, 1)
        generator = seeding.generator(seed, seeding.POLICY)
        options, scales = self.options(problem), self.scales(problem)
        seen = callback if scales is None else scales.callback(callback)
        with torch.no_grad():
            policy = self._sample(in_scales(problem, scales), options, n, generator, seen)
        if scales is not None:
            policy = scales.policy(policy)
            advise(self.name, problem, policy, scales, self.aims_at_constraints)
        return policy

    # Playing in an environment.

    def bind(self, env: Any, seed: int = 0) -> Agent:
        """Attach an environment, vector environment or SB3 VecEnv: `predict` plays its instances."""
        self._env, self._seed, self._playing, self._atoms = env, seed, [], {}
        return self

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[np.ndarray, Any]:
        """The next slot's action in the environment's units, for one environment or a batch.

        The policy is sampled when an instance is first seen, once for all environments that play it, in
        this process or in others. Atoms are drawn by their weights; `deterministic` plays them in a
        fixed, seeded round. `state` is passed through.
        """
        if self._env is None:
            raise RuntimeError(f"{self.name}.predict needs an environment: call agent.bind(env) first")
        tokens, batched = _tokens_of(self._env)
        batched = batched or _has_batch_axis(observation, self._env.observation_space)
        for i, token in enumerate(tokens):
            if i == len(self._playing):
                self._playing.append(self._seat(token, i))
            elif self._playing[i].token != token:
                self._playing[i] = self._seat(token, i)
        actions = [player.next(deterministic) for player in self._playing]
        return (np.stack(actions) if batched else actions[0]), state

    def _seat(self, token: str, index: int) -> _Player:
        if token not in self._atoms:
            problem = _problem_of(self._env, index)
            policy = self.sample(problem, seed=self._seed)
            actions = problem.to_action(torch.as_tensor(policy.actions)).numpy().astype(np.float32)
            playing = {player.token for player in self._playing}
            for old in [t for t in self._atoms if t not in playing][: len(self._atoms) - POLICIES_KEPT + 1]:
                del self._atoms[old]
            self._atoms[token] = policy, actions
        return _Player(token, *self._atoms[token], seeding.rng(self._seed, seeding.TRIALS, index))

    # Learning and storage.

    def learn(self, *args: Any, **kwargs: Any) -> Agent:
        """Training-free agents have nothing to learn and return themselves."""
        return self

    def save(self, folder: str | Path) -> None:
        """Write the agent's settings to `folder`/agent.json."""
        content = {
            "format": FORMAT,
            "version": __version__,
            "agent": self.name,
            "preset": self.preset,
            "options": self.overrides,
        }
        write_text(Path(folder) / "agent.json", json.dumps(sealed(content), indent=1))

    def load(self, folder: str | Path) -> Agent:
        """Take over the settings that `save` wrote."""
        self.preset, self.overrides = self._stored_settings(folder)
        return self

    def _stored_settings(self, folder: str | Path) -> tuple[str, dict[str, Any]]:
        """Preset and options that `save` wrote, checked."""
        path = Path(folder) / "agent.json"
        if not path.exists():
            raise FileNotFoundError(f"{path} does not exist: give the folder that agent.save wrote")
        content = read_object(path)
        if "version" not in content:  # what was written by hand
            content = {"format": 1} | content
        check_format(path, content.get("format"))
        if content.get("agent") != self.name:
            raise ValueError(
                f"{path} holds {content.get('agent')!r:.60}, not {self.name!r}: use make_agent of that name"
            )
        preset, options = content.get("preset"), content.get("options")
        if not isinstance(options, dict):
            raise ValueError(f"{path} must tell the options, got {options!r:.60}: save it anew")
        try:
            check_choice("preset", preset, presets.PRESETS)
            options = presets.check_overrides(self.name, self.options_type, options)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path} cannot be used: {brief(error)}") from None
        check_seal(path, content)
        return str(preset), options


class _Player:
    """Plays one policy, whose atoms are `actions` (n, d), in one environment."""

    def __init__(self, token: str, policy: TimeSharingPolicy, actions: np.ndarray, rng: np.random.Generator):
        self.token, self.policy, self.actions, self.rng = token, policy, actions, rng
        self.round = policy.schedule(max(len(policy), 500), rng, "stratified")
        self.slot = 0

    def next(self, deterministic: bool) -> np.ndarray:
        if deterministic:
            atom = self.round[self.slot % len(self.round)]
            self.slot += 1
        else:
            atom = self.policy.schedule(1, self.rng)[0]
        return np.array(self.actions[atom])


def _tokens_of(env: Any) -> tuple[list[str], bool]:
    """What tells the instance of every environment behind `env` from others, and whether it is a batch."""
    if isinstance(env, gym.Env):
        own: Any = env.unwrapped
        return [own.instance_token], False
    return list(_batch(env).get_attr("instance_token")), True


def _problem_of(env: Any, index: int) -> Problem:
    """The current instance of one environment: a copy of all its arrays if it is in another process."""
    if isinstance(env, gym.Env):
        own: Any = env.unwrapped
        problem: Problem = own.problem
        return problem
    if isinstance(env, gym.vector.VectorEnv):
        problem = _batch(env).get_attr("problem")[index]
    else:
        (problem,) = env.get_attr("problem", indices=[index])
    return problem


def _batch(env: Any) -> Any:
    return env.unwrapped if isinstance(env, gym.vector.VectorEnv) else env


def _has_batch_axis(observation: Any, space: gym.Space[Any]) -> bool:
    """Whether a single environment was put behind a vector form of one, as SB3's evaluation does."""
    if isinstance(space, gym.spaces.Dict):
        key, part = next(iter(space.spaces.items()))
        return isinstance(observation, dict) and _has_batch_axis(observation[key], part)
    return isinstance(space, gym.spaces.Box) and np.ndim(observation) == len(space.shape) + 1


def to_policy(problem: Problem, samples: Samples, info: dict[str, Any]) -> TimeSharingPolicy:
    """Decode a sampler's latents into a policy with uniform weights."""
    return TimeSharingPolicy(
        actions=problem.decode(samples.z).numpy(),
        duals=samples.duals.numpy(),
        mean_duals=samples.mean_duals.numpy(),
        info=info,
    )


class Trace:
    """A callback that keeps λ, residuals and effective sample size of about `points` steps."""

    def __init__(self, T: int, also: Observer | None = None, points: int = 50):
        self._steps = set(np.linspace(0, T - 1, min(points, T)).astype(int).tolist())
        self._also = also
        self._rows: list[tuple[int, Tensor, Tensor, float]] = []

    def __call__(self, step: Step) -> None:
        if step.t in self._steps:
            self._rows.append((step.t, step.lam.mean(0), step.residual.mean(0), step.effective_sample_size))
        if self._also is not None:
            self._also(step)

    def arrays(self) -> dict[str, np.ndarray]:
        """step (k,), duals (k, m), residuals (k, m) averaged over groups, and ess (k,)."""
        t, lam, residual, ess = zip(*self._rows, strict=True)
        return {
            "step": np.array(t),
            "duals": torch.stack(lam).numpy(),
            "residuals": torch.stack(residual).numpy(),
            "ess": np.array(ess),
        }
