"""Weights that come with the package: a folder per agent and kind of problem, each with its card."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from pathlib import Path

from pdi_gym import presets
from pdi_gym.checkpoints import CARD, WEIGHTS, check_fits, load_card, load_network
from pdi_gym.files import read_object, write_text
from pdi_gym.networks import Denoiser, NetworkConfig
from pdi_gym.problem import Problem, keeps
from pdi_gym.problems import MixtureOfGaussians, Portfolio, WirelessPower

_KINDS: tuple[type[Problem], ...] = (MixtureOfGaussians, Portfolio, WirelessPower)
FOLDER = Path(__file__).parent
DIGESTS = "digests.json"


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
    """The network in a folder of the package, verified by the list of digests beside it."""
    known = read_object(FOLDER / DIGESTS)
    for name in (CARD, WEIGHTS):
        if known.get(f"{place.name}/{name}") != file_digest(place / name):
            raise ValueError(f"{place / name} differs from what was shipped: install the package again")
    return load_network(place, agent)[0]


def file_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_digests() -> None:
    """List the digests of all shipped files, after new ones were put there."""
    names = sorted(
        f"{path.parent.name}/{name}" for path in FOLDER.glob(f"*/{CARD}") for name in (CARD, WEIGHTS)
    )
    digests = {name: file_digest(FOLDER / name) for name in names}
    write_text(FOLDER / DIGESTS, json.dumps(digests, indent=1) + "\n")


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
