"""Weights and training states on disk: safetensors and JSON, whole or not there, never unpickled."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from pdi_gym import presets
from pdi_gym.files import parse_json, read_object, regular_file, whole_file, write_text
from pdi_gym.labels import brief
from pdi_gym.networks import Denoiser, NetworkConfig
from pdi_gym.problem import Problem

FORMAT = 2
"""Of what is written; format 1, which has no digests, is still read."""
WEIGHTS, CARD = "weights.safetensors", "card.json"
_MOST_BYTES = 8 * 2**30
_FLOATING = ("F16", "BF16", "F32", "F64")


def check_format(path: Path, found: Any) -> None:
    if isinstance(found, bool) or found not in (1, FORMAT):
        raise ValueError(f"{path} has format {found!r:.60}, this version reads 1 and {FORMAT}: save it anew")


def sealed(content: dict[str, Any]) -> dict[str, Any]:
    """The content of a JSON file with a digest of its own, by which any later change is noticed."""
    return content | {"digest": _digest_of(content)}


def check_seal(path: Path, content: dict[str, Any]) -> None:
    """Refuse what was changed since it was saved."""
    if "digest" not in content and content["format"] == 1:
        return
    if content.get("digest") != _digest_of(content):
        raise ValueError(f"{path} was changed since it was saved: its digest differs; restore it")


def _digest_of(content: dict[str, Any]) -> str:
    own = {name: value for name, value in content.items() if name != "digest"}
    return hashlib.sha256(json.dumps(own, sort_keys=True, allow_nan=False).encode()).hexdigest()


def save_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, Any]) -> str:
    """One file with the tensors and, in its header, JSON-ready metadata; returns the digest of both."""
    packed = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    content = json.dumps(metadata, allow_nan=False)
    whole = _whole_digest(packed, content)
    with whole_file(path) as temporary:
        temporary.write_bytes(save(packed, {"format": str(FORMAT), "content": content, "digest": whole}))
    return whole


def _whole_digest(tensors: dict[str, Tensor], content: str) -> str:
    whole = hashlib.sha256(content.encode())
    for name, tensor in sorted(tensors.items()):
        whole.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        whole.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return whole.hexdigest()


class Header(NamedTuple):
    """What a file of tensors says before they are read: metadata, digest (None in format 1), layout."""

    metadata: dict[str, Any]
    digest: str | None
    layout: dict[str, tuple[str, tuple[int, ...]]]


def read_header(path: Path) -> Header:
    """Metadata, and the type and shape of every tensor, without reading any."""
    with _opened(path) as file:
        return _header(path, file)


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `save_tensors` wrote, verified by its digest; anything else is refused."""
    with _opened(path) as file:
        header = _header(path, file)
        tensors = {name: file.get_tensor(name) for name in header.layout}
        if header.digest not in (None, _whole_digest(tensors, file.metadata()["content"])):
            raise ValueError(f"{path} was changed since it was saved: its digest differs; restore it")
    return tensors, header.metadata


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: give the folder of a trained agent")
    try:
        with safe_open(regular_file(path, _MOST_BYTES), "pt") as file:
            yield file
    except SafetensorError as error:
        raise ValueError(
            f"{path} is not a whole safetensors file ({brief(error)}): it is cut short, or a pickle, "
            "which is never loaded; write it again with save or `pdi-gym train`"
        ) from None


def _header(path: Path, file: Any) -> Header:
    said = file.metadata() or {}
    if said.get("format") not in ("1", str(FORMAT)):
        found = said.get("format")
        raise ValueError(f"{path} has format {found!r:.60}, this version reads 1 and {FORMAT}: save it anew")
    content = parse_json(path, said["content"]) if "content" in said else None
    if not isinstance(content, dict) or (said["format"] != "1" and "digest" not in said):
        raise ValueError(f"{path} does not say in its header what it is of: save it anew")
    slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
    layout = {name: (part.get_dtype(), tuple(part.get_shape())) for name, part in slices.items()}
    return Header(content, said.get("digest"), layout)


def check_finite(path: Path, tensors: dict[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise ValueError(f"{path} holds NaN or infinite weights in {brief(name)}: train it again")


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
            f"the network was trained on problems of the kind {card['problem']!r:.60}, {name} is {kind!r}: "
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
    whole = save_tensors(
        folder / WEIGHTS, weights, {"agent": card["agent"], "problem": card["problem"], "network": config}
    )
    content = {"format": FORMAT, "network": {}, **card}
    content |= {"format": FORMAT, "network": config, "weights": whole}
    write_text(folder / CARD, json.dumps(sealed(content), indent=1) + "\n")


def load_card(folder: Path, agent: str) -> dict[str, Any]:
    """The card of that agent's network, checked to describe one that this version can build."""
    path = folder / CARD
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: give the folder of a trained agent")
    card = read_object(path)
    check_format(path, card.get("format"))
    if card.get("agent") != agent:
        raise ValueError(
            f"{path} is of agent {card.get('agent')!r:.60}, not {agent!r}: use make_agent of that name"
        )
    wanted: list[tuple[str, type]] = [("problem", str), ("network", dict)]
    wanted += [("weights", str)] * (card["format"] == FORMAT) + [("fingerprints", list)] * (
        "fingerprints" in card
    )
    for name, kind in wanted:
        if not isinstance(card.get(name), kind):
            raise ValueError(f"{path} must tell the {name}, got {card.get(name)!r:.60}: save it anew")
    unknown = set(card["network"]) - {f.name for f in fields(NetworkConfig)}
    if unknown:
        raise ValueError(f"{path} describes a network with unknown {brief(', '.join(sorted(unknown)))}")
    try:
        NetworkConfig(**card["network"])
    except ValueError as error:
        raise ValueError(f"{path} describes no network: {brief(error)}") from None
    check_seal(path, card)
    return card


def load_network(folder: Path, agent: str) -> tuple[Denoiser, dict[str, Any]]:
    """The network of that agent and its card; nothing is built before header and card agree."""
    card, path = load_card(folder, agent), folder / WEIGHTS
    header = read_header(path)
    _check_same(path, header.metadata, card)
    config = NetworkConfig(**card["network"])
    _check_layout(path, header.layout, config.shapes())
    if card.get("weights") != header.digest:
        raise ValueError(f"{path} holds other weights than {folder / CARD} tells: restore both")
    tensors, _ = load_tensors(path)
    check_finite(path, tensors)
    network = config.build()
    network.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
    return network.eval().requires_grad_(False), card


def _check_same(path: Path, metadata: dict[str, Any], card: dict[str, Any]) -> None:
    """Refuse weights of another agent, kind of problem or network than the card's."""
    saved = metadata.get("network", card["network"])  # the first weights did not keep it
    own = {name: value for name, value in metadata.items() if name != "network"}
    if own != {"agent": card["agent"], "problem": card["problem"]} or not isinstance(saved, dict):
        told = f"{card['agent']}, {brief(card['problem'])}"
        raise ValueError(f"{path} is of {brief(own)}, {path.with_name(CARD)} of {told}: restore the card")
    for name in sorted({*saved, *card["network"]}):
        ours, theirs = card["network"].get(name), saved.get(name)
        if ours != theirs:
            raise ValueError(
                f"{path} was saved with {name} = {theirs!r:.60}, {path.with_name(CARD)} tells {ours!r:.60}: "
                "restore the card"
            )


def _check_layout(
    path: Path, layout: dict[str, tuple[str, tuple[int, ...]]], expected: dict[str, tuple[int, ...]]
) -> None:
    found = {name: shape for name, (_, shape) in layout.items()}
    if expected != found:
        wrong = sorted(n for n in expected.keys() | found.keys() if expected.get(n) != found.get(n))
        names = brief(", ".join(wrong[:3]))
        raise ValueError(f"{path} does not fit {path.with_name(CARD)}: {names} differ")
    for name, (dtype, _) in layout.items():
        if dtype not in _FLOATING:
            raise ValueError(
                f"{path} holds {dtype} in {brief(name)}, weights are floating-point: train it again"
            )
