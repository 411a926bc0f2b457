"""`pdi-gym train`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console

from pdi_gym.agents import AGENTS, make_agent
from pdi_gym.agents.learned import LearnedAgent
from pdi_gym.processes import one_thread
from pdi_gym.report import tables
from pdi_gym.validation import suggest

_ARGUMENTS = {name: f"--{name}" for name in ("seed", "size", "start", "device", "out", "resume", "quiet")}
_ARGUMENTS |= {"on": "the second", "env": "the second", "command": "that of the shell"}


@dataclass
class Train:
    """Train an agent that learns, on the training instances of an environment."""

    agent: tyro.conf.Positional[str]
    """Agent by name: pdi-net, pdi-net-warm, dt, dt-plus, st or ppo."""
    env: tyro.conf.Positional[str]
    """Environment id, for example WirelessPower-v0."""
    set: tuple[str, ...] = ()
    """Settings of the network and of the training as name=value, for example steps=500 width=64."""
    option: tuple[str, ...] = ()
    """Options of the agent's sampler as name=value, for example dual_init=10 dual_step=0.5."""
    size: str | None = None
    """Preset of the network: cpu (when left out) or paper; ppo has one size."""
    start: Path | None = None
    """Folder of the training to start from: dt for dt-plus, st for pdi-net-warm (shipped when left out)."""
    seed: int = 0
    """Seed of weights, rollouts and minibatches."""
    device: str = "cpu"
    """Where the network is trained: cpu or cuda."""
    out: str | None = None
    """Folder for weights, state, curve and events; runs/logs/<agent>-<env> when left out."""
    resume: bool = False
    """Go on from the state in that folder."""
    quiet: bool = False
    """Print no progress."""

    def run(self, console: Console) -> None:
        learners = [name for name, cls in AGENTS.items() if cls.needs_training]
        if self.agent not in learners:
            raise ValueError(
                f"agent must be one that learns, got {self.agent!r}{suggest(self.agent, learners)}; "
                f"there are {', '.join(learners)}"
            )
        out = f"runs/logs/{self.agent}-{self.env}" if self.out is None else self.out
        agent = make_agent(self.agent, **dict(parse("option", pair) for pair in self.option))
        given: dict[str, Any] = dict(parse("set", pair) for pair in self.set)
        for name in given:
            if name in _ARGUMENTS:
                raise ValueError(f"set must not hold {name}: it is an argument, {_ARGUMENTS[name]}")
        own = {"start": self.start, "size": self.size}
        given |= {name: value for name, value in own.items() if value is not None}
        if isinstance(agent, LearnedAgent):
            given["command"] = tables.command()
        else:
            for name, value in own.items():
                if value is not None:
                    raise ValueError(f"{name} must be left out for {self.agent}, got {str(value)!r}")
        with one_thread():
            agent.learn(
                self.env,
                out=out,
                seed=self.seed,
                device=self.device,
                resume=self.resume,
                quiet=self.quiet,
                **given,
            )
        if not self.quiet:
            console.print(
                f"Trained: {out}\nUse it: make_agent({self.agent!r}).load({out!r})\n"
                f"TensorBoard: tensorboard --logdir {out}/tensorboard",
                soft_wrap=True,
            )


def parse(argument: str, pair: str) -> tuple[str, Any]:
    """name=value with a JSON value, or a bare word."""
    name, equals, value = pair.partition("=")
    if not equals or not name:
        raise ValueError(f"{argument} must be name=value, got {pair!r}")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value
