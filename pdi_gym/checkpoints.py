"""Weights and training states on disk: safetensors and JSON, whole or not there, never unpickled."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from pdi_gym.files import whole_file, write_text
from pdi_gym.networks import Denoiser, NetworkConfig

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
    return tensors, json.loads(metadata["content"])


def digest(tensors: dict[str, Tensor]) -> str:
    """Tells networks apart where results are kept."""
    content = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        content.update(name.encode() + value.detach().cpu().contiguous().numpy().tobytes())
    return content.hexdigest()[:16]


def save_network(folder: Path, network: Denoiser, card: dict[str, Any], half: bool = False) -> None:
    """weights.safetensors, in half precision if asked, and card.json, from which the network is rebuilt."""
    dtype = torch.float16 if half else torch.float32
    weights = {name: tensor.to(dtype) for name, tensor in network.state_dict().items()}
    save_tensors(folder / WEIGHTS, weights, {"agent": card["agent"], "problem": card["problem"]})
    content = {"format": FORMAT, "network": asdict(network.config), **card}
    write_text(folder / CARD, json.dumps(content, indent=1) + "\n")


def load_card(folder: Path, agent: str) -> dict[str, Any]:
    """The card of that agent's network, checked to describe one that this version can build."""
    path = folder / CARD
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: give the folder of a trained agent")
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not JSON ({error}): it is cut short or not ours") from None
    if card.get("format") != FORMAT:
        raise ValueError(f"{path} has format {card.get('format')!r}, this version reads {FORMAT}")
    if card.get("agent") != agent:
        raise ValueError(
            f"{path} is of agent {card.get('agent')!r}, not {agent!r}: use make_agent of that name"
        )
    unknown = set(card["network"]) - {f.name for f in fields(NetworkConfig)}
    if unknown:
        raise ValueError(f"{path} describes a network with unknown {', '.join(sorted(unknown))}")
    return dict(card)


def load_network(folder: Path, agent: str) -> tuple[Denoiser, dict[str, Any]]:
    """The network of that agent and its card."""
    card = load_card(folder, agent)
    tensors, metadata = load_tensors(folder / WEIGHTS)
    if metadata != {"agent": card["agent"], "problem": card["problem"]}:
        raise ValueError(
            f"{folder / WEIGHTS} is of {metadata}, its card of {card['agent']}, {card['problem']}"
        )
    network = NetworkConfig(**card["network"]).build()
    expected = {name: tensor.shape for name, tensor in network.state_dict().items()}
    found = {name: tensor.shape for name, tensor in tensors.items()}
    if expected != found:
        wrong = sorted(n for n in expected.keys() | found.keys() if expected.get(n) != found.get(n))
        raise ValueError(f"{folder / WEIGHTS} does not fit its card: {', '.join(wrong[:3])} differ")
    network.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
    return network.eval().requires_grad_(False), card
