"""Calls with one wrong argument, of the public interface and of the command line."""

from __future__ import annotations

import contextlib
import functools
import io
import time
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import campaign_commands
import gymnasium as gym
import numpy as np

from pdi_gym import TimeSharingPolicy
from pdi_gym.agents import AGENTS, make_agent
from pdi_gym.evaluation import averages, compare, evaluate
from pdi_gym.problems import MixtureOfGaussians, Portfolio, WirelessPower
from pdi_gym.training.options import TrainingOptions

NAN, INF = float("nan"), float("inf")
NO_NUMBERS: tuple[Any, ...] = ("50", "many", [1, 2], {"a": 1}, 1j, NAN, object, b"5", True)
NO_WHOLES: tuple[Any, ...] = (*NO_NUMBERS, 1.5, -1, None)
NO_WORDS: tuple[Any, ...] = ("no such", "", 3, 1.5, [1], {}, object)
NO_ARRAYS: tuple[Any, ...] = ("x", [["a"]], object, {"a": 1}, [], [[1.0], [1.0, 2.0]], np.array("x"), 1j)
TOY = "MixtureOfGaussians2D-v0"
IDS = ("WirelessPower-v0", "Portfolio-v0", "MixtureOfGaussians-v0")


class Call(NamedTuple):
    """What is called with which wrong value, and the word that the error must hold."""

    told: str
    run: Callable[[], Any]
    word: str


def groups() -> Iterator[tuple[str, Callable[[Path], dict[str, Any]]]]:
    for name in AGENTS:
        yield f"options of {name}", functools.partial(_interface, functools.partial(_options, name))
    for make in (_problems, _environments, _policies, _evaluations, _trainings):
        yield make.__name__.strip("_"), functools.partial(_interface, make)
    yield "command line", campaign_commands.run


def wrong(
    told: str,
    function: Callable[..., Any],
    good: dict[str, Any],
    bad: dict[str, Any],
    words: dict[str, str] | None = None,
) -> list[Call]:
    """A call for every wrong value of every argument, the others being right.

    The error must hold the argument's name, or one of the `words` for it, parted by |.
    """
    return [
        Call(
            f"{told}({name}={value!r:.40})",
            functools.partial(function, **{**good, name: value}),
            (words or {}).get(name, name),
        )
        for name, values in bad.items()
        for value in values
    ]


def _options(name: str) -> list[Call]:
    """Options of an agent, by the type that each is declared with."""
    bad: dict[str, Any] = {}
    for field in fields(AGENTS[name].options_type):
        kind = str(field.type)
        if kind.startswith(("int", "float")):
            values = [v for v in (NO_WHOLES if kind.startswith("int") else NO_NUMBERS)]
            bad[field.name] = [v for v in values if not (v is None and "None" in kind)]
        elif kind.startswith("bool"):
            bad[field.name] = ("yes", 2, None, [True])
        else:
            bad[field.name] = [v for v in NO_WORDS if v != ""]
    return wrong(f"make_agent[{name}]", functools.partial(make_agent, name), {}, bad) + wrong(
        "make_agent", make_agent, {"name": name, "preset": "fast"}, {"preset": ("quick", "", 3, None)}
    )


def _problems() -> list[Call]:
    gains = np.array([[1.0, 0.1], [0.1, 1.0]])
    wireless = {"gains": gains, "r_min": 0.5, "noise": 0.1, "p_max": 1.0}
    moments = {"mu": np.array([0.1, 0.2]), "sigma": np.eye(2), "budgets": np.array([0.5, 0.5])}
    mixture = {
        "means": [[0.0, 0.0]],
        "covariances": [[1.0, 1.0]],
        "weights": [1.0],
        "A": [[1.0, 0.0]],
        "b": [0.5],
    }
    numbers = (*(v for v in NO_NUMBERS if v is not True), -1, INF)
    calls = wrong("from_gains", WirelessPower.from_gains, wireless, {
        "gains": (*NO_ARRAYS, -gains, gains[:1], gains * NAN),
        **dict.fromkeys(("r_min", "noise", "p_max"), numbers),
    })  # fmt: skip
    calls += wrong("from_moments", Portfolio.from_moments, moments, {
        "mu": (*NO_ARRAYS, np.array([NAN, 1.0])), "sigma": (*NO_ARRAYS, -np.eye(2), np.eye(3)),
        "budgets": (*NO_ARRAYS[:-2], np.array([-1.0, 0.5])),
    })  # fmt: skip
    calls += wrong("from_returns", Portfolio.from_returns, {"returns": np.eye(4)}, {"returns": NO_ARRAYS})
    calls += wrong("MixtureOfGaussians", MixtureOfGaussians, mixture, {
        "means": NO_ARRAYS, "covariances": (*NO_ARRAYS, [[-1.0, 1.0]]), "weights": (*NO_ARRAYS, [-1.0]),
        "A": NO_ARRAYS, "b": NO_ARRAYS,
    })  # fmt: skip
    for make, names in (
        (WirelessPower.instance, ("index", "n_users")),
        (Portfolio.instance, ("index", "n_assets", "n_sectors")),
        (MixtureOfGaussians.instance, ("dim", "n_modes", "n_constraints", "seed")),
    ):
        told = make.__qualname__
        calls += wrong(told, make, {}, dict.fromkeys(names, (*NO_WHOLES[:-1], 1.5)))
    calls += wrong("WirelessPower.instance", WirelessPower.instance, {}, {"split": NO_WORDS})
    return calls


def _environments() -> list[Call]:
    calls: list[Call] = []
    for env_id in IDS:
        make = functools.partial(gym.make, env_id)
        bad: dict[str, Any] = {"horizon": NO_WHOLES, "observation": NO_WORDS}
        if env_id != IDS[2]:
            bad["split"] = NO_WORDS
        calls += wrong(env_id, make, {}, bad)
        env = gym.make(env_id)
        calls += [
            Call(f"{env_id}.reset({o!r:.40})", functools.partial(env.reset, options=o), f"{word}|latent_dim")
            for word, values in {
                "instance": (-1, 10**9, "x", 1.5, NAN),
                "problem": (3, "x", object()),
            }.items()
            for o in ({word: value} for value in values)
        ]
        env.reset(seed=0)
        shape = env.action_space.shape
        calls += [
            Call(f"{env_id}.step({action!r:.40})", functools.partial(env.step, action), "action")
            for action in ("x", None, np.full(shape, NAN), np.zeros(1), np.zeros((*(shape or ()), 2)), [[]])
        ]
    return calls


def _policies() -> list[Call]:
    good = {"actions": np.zeros((2, 2)), "weights": np.ones(2)}
    policy = TimeSharingPolicy(**good)
    calls = wrong("TimeSharingPolicy", TimeSharingPolicy, good, {
        "actions": ("x", [], np.zeros(3), [[NAN, 1.0]], 3, None, [["a"]]),
        "weights": ("x", [], [1.0], [-1.0, 1.0], [0.0, 0.0], [NAN, 1.0], [[1.0, 1.0]], 3),
    })  # fmt: skip
    schedule = functools.partial(policy.schedule, rng=np.random.default_rng(0))
    calls += wrong("schedule", schedule, {"horizon": 3}, {"horizon": NO_WHOLES, "kind": NO_WORDS})
    toy = MixtureOfGaussians.toy()
    bad = {
        "margin": (*NO_NUMBERS, -1),
        "draws": NO_WHOLES,
        "max_atoms": (*NO_WHOLES[:-1], 0),
        "seed": NO_WHOLES,
    }
    calls += wrong("reweight", functools.partial(policy.reweight, toy), {}, bad)
    for name in ("random", "pdi-mc"):
        sample = functools.partial(make_agent(name).sample, toy)
        calls += wrong(f"{name}.sample", sample, {}, {"n": (*NO_WHOLES[:-1], 0), "seed": NO_WHOLES})
    return calls


def _evaluations() -> list[Call]:
    policy, toy = TimeSharingPolicy(np.zeros((2, 2))), MixtureOfGaussians.toy()
    whole: dict[str, Any] = dict.fromkeys(("horizon", "trials", "paths"), (*NO_WHOLES, 0))
    calls: list[Call] = []
    for function in (evaluate, averages):
        calls += wrong(function.__name__, functools.partial(function, policy, toy), {}, whole)
    users = WirelessPower.instance(0, n_users=2)
    calls += wrong("evaluate", functools.partial(evaluate, policy, users, 3, 2, 1), {}, {"seed": NO_WHOLES})
    more = {
        "workers": (*NO_WHOLES, 0),
        "seed": NO_WHOLES,
        "n": (*NO_WHOLES[:-1], 0),
        "instances": (0, -1, "x", 99),
    }
    more |= {"agents": ("random", [], ["no such"], [3], ["random", "random"], {"": "random"}, None, 3)}
    more |= {"env_id": ("no such", 3, None, [], object()), "out": ("", "/dev/null/x")}
    words = {"agents": "agent", "env_id": "environment|problem|latent_dim"}
    return calls + wrong("compare", compare, {"agents": ["random"], "env_id": TOY}, whole | more, words)


def _trainings() -> list[Call]:
    learn = functools.partial(make_agent("pdi-net").learn, TOY, out="never", quiet=True)
    bad: dict[str, Any] = {}
    for field in fields(TrainingOptions):
        kind = str(field.type)
        if field.name not in AGENTS["pdi-net"].unread:  # type: ignore[attr-defined]
            values = NO_WHOLES if kind.startswith("int") else NO_NUMBERS
            bad[field.name] = [v for v in values if not (v is None and "None" in kind)]
    bad |= {"seed": NO_WHOLES, "size": NO_WORDS[:3], "device": NO_WORDS[:2], "start": ("x",), "stepz": (3,)}
    calls = wrong("pdi-net.learn", learn, {}, bad)
    ppo = functools.partial(make_agent("ppo").learn, TOY)
    calls += wrong(
        "ppo.learn", ppo, {}, {"steps": (*NO_WHOLES, 0), "seed": NO_WHOLES, "device": NO_WORDS[:2]}
    )
    calls += [
        Call(f"{name}.load", functools.partial(make_agent(name).load, "nowhere"), "nowhere")
        for name in AGENTS
    ]
    return calls


def _interface(make: Callable[[], list[Call]], folder: Path) -> dict[str, Any]:
    """Count the calls of a group; those that fail the test are told."""
    record: dict[str, Any] = {"failures": []}
    with contextlib.chdir(folder):
        for call in make():
            began = time.process_time()
            kind, failure = _verdict(call)
            seconds = time.process_time() - began
            campaign_commands.count(record, kind, failure and f"{call.told}: {failure}", seconds)
        if left := list(Path().iterdir()):
            record["failures"].append(f"files were written: {left}"[:200])
    return record


def _verdict(call: Call) -> tuple[str, str]:
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            call.run()
    except (ValueError, TypeError, FileNotFoundError) as error:
        words, kind = str(error), type(error).__name__
        if not any(word in words for word in call.word.split("|")):
            return kind, f"{call.word} is not named: {kind}: {words[:120]!r}"
        return kind, f"{words.count(chr(10)) + 1} lines: {words[:120]!r}" if "\n" in words else ""
    except Exception as error:
        return "another error", f"{type(error).__name__}: {str(error)[:120]!r}"
    return "no error", "it was taken"
