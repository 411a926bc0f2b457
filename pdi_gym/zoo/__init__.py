"""Weights that come with the package: a folder per agent and kind of problem, each with its card."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from pdi_gym import presets
from pdi_gym.checkpoints import CARD, check_fits, load_card, load_network
from pdi_gym.networks import Denoiser, NetworkConfig
from pdi_gym.problem import Problem, keeps
from pdi_gym.problems import MixtureOfGaussians, Portfolio, WirelessPower

_KINDS: tuple[type[Problem], ...] = (MixtureOfGaussians, Portfolio, WirelessPower)
FOLDER = Path(__file__).parent


def folder(agent: str, problem: Problem) -> Path:
    """Where the weights of that agent for that kind of problem are, if they are shipped."""
    return FOLDER / f"{agent}-{presets.kind(problem)}"


def _exists(place: Path, problem: Problem) -> bool:
    """Whether there are weights, trained for this objective and these constraints."""
    trained = any(keeps(problem, kind, "objective", "constraints", "decode") for kind in _KINDS)
    return trained and (place / CARD).exists()


def shipped(agent: str, problem: Problem) -> bool:
    """Whether there are weights that fit the problem."""
    place = folder(agent, problem)
    if not _exists(place, problem):
        return False
    card = load_card(place, agent)
    try:
        check_fits(NetworkConfig(**card["network"]), card, problem)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=16)
def load(place: Path, agent: str) -> Denoiser:
    return load_network(place, agent)[0]


def network(agent: str, problem: Problem) -> Denoiser:
    """The shipped network of that agent for that problem, or an error that says how to get one."""
    place = folder(agent, problem)
    if not _exists(place, problem):
        raise RuntimeError(
            f"no weights of {agent} are shipped for {type(problem).__name__}: train them with "
            f"`pdi-gym train {agent} ENV --out FOLDER`, then make_agent({agent!r}).load(FOLDER)"
        )
    found = load(place, agent)
    check_fits(found.config, load_card(place, agent), problem)
    return found
