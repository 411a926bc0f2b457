"""Weights and training states on disk: safetensors and JSON, whole or not there, never unpickled."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from pdi_gym import presets
from pdi_gym.files import read_object, whole_file, write_text
from pdi_gym.networks import Denoiser, NetworkConfig
from pdi_gym.problem import Problem

FORMAT = 1
WEIGHTS, CARD = "weights.safetensors", "card.json"


def save_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, Any]) -> None:
    """One file with the tensors and, in its header, JSON-ready metadata."""
    packed = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    with whole_file(path) as temporary:
        temporary.write_bytes(save(packed, {"format": str(FORMAT), "content": json.dumps(metadata)}))


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `save_tensors` wrote; anything else is refused."""
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: give the folder of a trained agent")
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(
            f"{path} is not a whole safetensors file ({error}): it is cut short, or a pickle, which is "
            "never loaded; write it again with save or `pdi-gym train`"
        ) from None
    if metadata.get("format") != str(FORMAT):
        raise ValueError(
            f"{path} has format {metadata.get('format')!r}, this version reads {FORMAT}: save it anew"
        )
    try:
        return tensors, dict(json.loads(metadata["content"]))
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"{path} does not say in its header what it is of: save it anew") from None


def check_finite(path: Path, tensors: dict[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise ValueError(f"{path} holds NaN or infinite weights in {name}: train it again")


def digest(tensors: dict[str, Tensor]) -> str:
    """Tells networks apart where results are kept."""
    content = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        content.update(name.encode() + value.detach().cpu().contiguous().numpy().tobytes())
    return content.hexdigest()[:16]


def fingerprint(problem: Problem) -> str:
    """Tells problems apart by the numbers they were made of, to three digits.

    Not to the last bit: how that of a sum is rounded depends on the machine. What is private, cached
    or has a default in the class is left out.
    """
    numbers = {
        name: torch.as_tensor(value).bfloat16().float()
        for name, value in getattr(problem, "__dict__", {}).items()
        if isinstance(value, Tensor | float | int) and name[0] != "_" and not hasattr(type(problem), name)
    }
    return digest(numbers)


def fingerprints(config: NetworkConfig, problems: Sequence[Problem]) -> list[str]:
    """Those of the problems to which a training ties its network: all for an mlp, none for a graph's."""
    return sorted({fingerprint(p) for p in problems}) if config.body == "mlp" else []


def check_fits(config: NetworkConfig, card: dict[str, Any] | None, problem: Problem) -> None:
    """Refuse a problem of another kind or size than the card's and, for an mlp, any other problem.

    Without a card, as of a network built by hand, the size alone is checked.
    """
    name, kind = type(problem).__name__, presets.kind(problem)
    if card is not None and card["problem"] != kind:
        raise ValueError(
            f"the network was trained on problems of the kind {card['problem']!r}, {name} is {kind!r}: "
            "train one with `pdi-gym train` or use pdi-mc"
        )
    config.check(problem)
    if card is None or config.body != "mlp":
        return
    known = card.get("fingerprints")
    if not known or fingerprint(problem) not in known:
        raise ValueError(
            f"the network was trained on {'another' if known else 'an unknown'} {name}, and an mlp sees "
            "nothing of the problem: train one with agent.learn([problem], out=FOLDER) or use pdi-mc"
        )


def save_network(folder: Path, network: Denoiser, card: dict[str, Any], half: bool = False) -> None:
    """weights.safetensors, in half precision if asked, and card.json, from which the network is rebuilt."""
    dtype = torch.float16 if half else torch.float32
    weights = {name: tensor.to(dtype) for name, tensor in network.state_dict().items()}
    config = asdict(network.config)
    save_tensors(
        folder / WEIGHTS, weights, {"agent": card["agent"], "problem": card["problem"], "network": config}
    )
    content = {"format": FORMAT, "network": {}, **card} | {"network": config}
    write_text(folder / CARD, json.dumps(content, indent=1) + "\n")


def load_card(folder: Path, agent: str) -> dict[str, Any]:
    """The card of that agent's network, checked to describe one that this version can build."""
    path = folder / CARD
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: give the folder of a trained agent")
    card = read_object(path)
    if card.get("format") != FORMAT:
        raise ValueError(f"{path} has format {card.get('format')!r}, this version reads {FORMAT}")
    if card.get("agent") != agent:
        raise ValueError(
            f"{path} is of agent {card.get('agent')!r}, not {agent!r}: use make_agent of that name"
        )
    for name, kind in (("problem", str), ("network", dict)):
        if not isinstance(card.get(name), kind):
            raise ValueError(f"{path} must tell the {name}, got {card.get(name)!r}: save it anew")
    unknown = set(card["network"]) - {f.name for f in fields(NetworkConfig)}
    if unknown:
        raise ValueError(f"{path} describes a network with unknown {', '.join(sorted(unknown))}")
    try:
        NetworkConfig(**card["network"])
    except ValueError as error:
        raise ValueError(f"{path} describes no network: {error}") from None
    return card


def load_network(folder: Path, agent: str) -> tuple[Denoiser, dict[str, Any]]:
    """The network of that agent and its card."""
    card = load_card(folder, agent)
    tensors, metadata = load_tensors(folder / WEIGHTS)
    saved = metadata.pop("network", card["network"])  # the first weights did not keep it
    if metadata != {"agent": card["agent"], "problem": card["problem"]}:
        raise ValueError(
            f"{folder / WEIGHTS} is of {metadata}, its card of {card['agent']}, {card['problem']}"
        )
    differing = sorted(k for k in {*saved, *card["network"]} if saved.get(k) != card["network"].get(k))
    if differing:
        k = differing[0]
        raise ValueError(
            f"{folder / WEIGHTS} was saved with {k} = {saved.get(k)!r}, its card tells "
            f"{card['network'].get(k)!r}: restore the card"
        )
    network = NetworkConfig(**card["network"]).build()
    expected = {name: tensor.shape for name, tensor in network.state_dict().items()}
    found = {name: tensor.shape for name, tensor in tensors.items()}
    if expected != found:
        wrong = sorted(n for n in expected.keys() | found.keys() if expected.get(n) != found.get(n))
        raise ValueError(f"{folder / WEIGHTS} does not fit its card: {', '.join(wrong[:3])} differ")
    check_finite(folder / WEIGHTS, tensors)
    network.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
    return network.eval().requires_grad_(False), card
