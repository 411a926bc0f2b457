"""Weights on disk: what is written comes back, and everything else is refused."""

from __future__ import annotations

import json
import shutil
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from pdi_gym import zoo
from pdi_gym.agents import AGENTS, make_agent
from pdi_gym.checkpoints import digest, fingerprint, load_network, save_network
from pdi_gym.evaluation import compare
from pdi_gym.networks import NetworkConfig
from pdi_gym.problems import MixtureOfGaussians, Portfolio, WirelessPower
from tests.cases import Sensors

CARD = {"agent": "pdi-net", "problem": "wireless"}
SHIPPED = sorted(p.parent for p in zoo.FOLDER.glob("*/card.json"))


@pytest.fixture()
def folder(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    save_network(tmp_path, NetworkConfig(inputs=3, width=8, depth=1, messages=4).build(), CARD)
    return tmp_path


def saved(folder: Path, card: dict[str, Any], **config: Any) -> Any:
    """An agent with an untrained network of that card, written to `folder`."""
    torch.manual_seed(0)
    agent = make_agent("pdi-net", T=3, n_candidates=2)
    agent.network = NetworkConfig(width=4, depth=1, messages=2, **config).build().requires_grad_(False)
    agent.card = {"agent": "pdi-net", **card}
    agent.save(folder)
    return agent


def edit(path: Path, **changes: Any) -> None:
    """Change entries of a JSON file, None removing one, as if it were of the format without digests."""
    content = json.loads(path.read_text()) | {"format": 1, "digest": None} | changes
    path.write_text(json.dumps({k: v for k, v in content.items() if v is not None}))


@pytest.mark.parametrize("half", [False, True])
def test_networks_come_back(tmp_path: Path, half: bool) -> None:
    net = NetworkConfig(inputs=3, width=8, depth=1, messages=4).build()
    save_network(tmp_path, net, CARD | {"note": 1}, half=half)
    back, card = load_network(tmp_path, "pdi-net")
    assert card["note"] == 1 and back.config == net.config
    for name, tensor in net.state_dict().items():
        expected = tensor.half().float() if half else tensor
        assert torch.equal(back.state_dict()[name], expected)
    assert [p.name for p in tmp_path.iterdir() if p.suffix == ".tmp"] == []


def test_a_cut_file_is_refused(folder: Path) -> None:
    path = folder / "weights.safetensors"
    whole = path.read_bytes()
    for length in (0, 5, 100, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="is not a whole safetensors file"):
            load_network(folder, "pdi-net")


def test_a_pickle_is_refused_and_never_run(folder: Path) -> None:
    path = folder / "weights.safetensors"
    path.unlink()
    with zipfile.ZipFile(path, "w") as archive:  # what torch.save writes is such an archive
        archive.writestr("archive/data.pkl", b"cos\nsystem\n(S'touch /tmp/never'\ntR.")
    with pytest.raises(ValueError, match="a pickle, which is never loaded"):
        load_network(folder, "pdi-net")


def test_another_agents_weights_are_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="is of agent 'pdi-net', not 'dt': use make_agent of that name"):
        load_network(folder, "dt")


def test_an_unknown_version_is_refused(folder: Path) -> None:
    card = json.loads((folder / "card.json").read_text())
    (folder / "card.json").write_text(json.dumps(card | {"format": 99}))
    with pytest.raises(ValueError, match="has format 99, this version reads 1 and 2"):
        load_network(folder, "pdi-net")


def test_weights_of_another_version_are_refused(folder: Path) -> None:
    save_file({"a": torch.zeros(1)}, folder / "weights.safetensors", {"format": "7", "content": "{}"})
    with pytest.raises(ValueError, match="has format '7', this version reads 1"):
        load_network(folder, "pdi-net")


def test_a_card_that_does_not_fit_is_refused(folder: Path) -> None:
    card = json.loads((folder / "card.json").read_text())
    for change, message in (
        ({"network": card["network"] | {"width": 16}}, "was saved with width = 8, .*card.json tells 16"),
        ({"network": card["network"] | {"colour": 1}}, "unknown colour"),
        ({"problem": "portfolio"}, "card.json of pdi-net, portfolio"),
    ):
        edit(folder / "card.json", **(card | change | {"format": 1, "digest": None}))
        with pytest.raises(ValueError, match=message):
            load_network(folder, "pdi-net")
    (folder / "card.json").write_text("{")
    with pytest.raises(ValueError, match="is not JSON"):
        load_network(folder, "pdi-net")
    with pytest.raises(FileNotFoundError, match="give the folder of a trained agent"):
        load_network(folder / "nowhere", "pdi-net")


@pytest.mark.parametrize(
    "change, message",
    [
        ({"network": None}, "card.json must tell the network, got None"),
        ({"network": []}, r"card.json must tell the network, got \[\]"),
        ({"problem": None}, "card.json must tell the problem, got None"),
        ({"network": {"inputs": 0}}, "card.json describes no network: inputs must be"),
    ],
)
def test_a_card_that_lacks_something_is_refused(folder: Path, change: dict[str, Any], message: str) -> None:
    edit(folder / "card.json", **change)
    with pytest.raises(ValueError, match=message):
        load_network(folder, "pdi-net")


def test_files_of_another_making_are_refused(folder: Path) -> None:
    save_file({"a": torch.zeros(1)}, folder / "weights.safetensors")
    with pytest.raises(ValueError, match="weights.safetensors has format None, this version reads 1"):
        load_network(folder, "pdi-net")
    for header in ({}, {"content": "{"}, {"content": "1"}):
        save_file({"a": torch.zeros(1)}, folder / "weights.safetensors", {"format": "1", **header})
        with pytest.raises(ValueError, match="weights.safetensors (does not say in its header|is not JSON)"):
            load_network(folder, "pdi-net")
    (folder / "card.json").write_text("[]")
    with pytest.raises(ValueError, match="card.json must hold an object, got list"):
        load_network(folder, "pdi-net")


@pytest.mark.parametrize("change", [{"predicts": "noise"}, {"data_scale": 9.0}])
def test_weights_know_the_settings_of_their_network(folder: Path, change: dict[str, Any]) -> None:
    network = json.loads((folder / "card.json").read_text())["network"]
    edit(folder / "card.json", network=network | change)
    with pytest.raises(ValueError, match=f"was saved with {next(iter(change))} = .*: restore the card"):
        load_network(folder, "pdi-net")


def test_weights_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    net = NetworkConfig(inputs=3, width=8, depth=1, messages=4).build()
    next(net.parameters()).data[0] = float("nan")
    save_network(tmp_path, net, CARD)
    with pytest.raises(ValueError, match="weights.safetensors holds NaN or infinite weights in body"):
        load_network(tmp_path, "pdi-net")


def test_weights_that_do_not_keep_their_settings_are_judged_by_shape(tmp_path: Path) -> None:
    shutil.copytree(zoo.FOLDER / "dt-wireless", tmp_path, dirs_exist_ok=True)
    network = json.loads((tmp_path / "card.json").read_text())["network"]
    edit(tmp_path / "card.json", network=network | {"width": 16})
    with pytest.raises(ValueError, match="weights.safetensors does not fit .*card.json: body.* differ"):
        load_network(tmp_path, "dt")


def test_a_card_of_fewer_settings_is_completed(tmp_path: Path) -> None:
    """The first cards lack settings that came later; saved anew, weights and card agree."""
    network, card = load_network(zoo.FOLDER / "dt-wireless", "dt")
    assert "predicts" not in card["network"]
    save_network(tmp_path, network, card)
    assert load_network(tmp_path, "dt")[0].config == network.config


def test_any_change_of_weights_or_card_is_noticed(folder: Path) -> None:
    """A flipped bit that leaves every weight finite, weights of a sibling, a figure of the card."""
    path, card = folder / "weights.safetensors", folder / "card.json"
    whole, told = path.read_bytes(), card.read_text()
    path.write_bytes(whole[:-4] + bytes([whole[-4] ^ 1]) + whole[-3:])
    with pytest.raises(ValueError, match="weights.safetensors was changed since it was saved"):
        load_network(folder, "pdi-net")
    torch.manual_seed(1)
    sibling = NetworkConfig(inputs=3, width=8, depth=1, messages=4).build()
    save_network(folder / "sibling", sibling, CARD)
    path.write_bytes((folder / "sibling" / path.name).read_bytes())
    with pytest.raises(ValueError, match="weights.safetensors holds other weights than .*card.json tells"):
        load_network(folder, "pdi-net")
    path.write_bytes(whole)
    for change in ({"seconds": 1.0}, {"weights": "0"}, {"digest": "0"}, {"format": 1}):
        card.write_text(json.dumps(json.loads(told) | change))
        with pytest.raises(ValueError, match="card.json was changed since it was saved"):
            load_network(folder, "pdi-net")
    card.write_text(json.dumps({k: v for k, v in json.loads(told).items() if k != "digest"}))
    with pytest.raises(ValueError, match="card.json was changed since it was saved"):
        load_network(folder, "pdi-net")
    card.write_text(json.dumps(json.loads(told)))  # other white space says the same
    assert load_network(folder, "pdi-net")[1]["problem"] == "wireless"


def test_weights_of_whole_numbers_are_refused(folder: Path) -> None:
    net = NetworkConfig(inputs=3, width=8, depth=1, messages=4).build()
    whole = {name: tensor.long() for name, tensor in net.state_dict().items()}
    content = json.dumps({"agent": "pdi-net", "problem": "wireless"})
    save_file(whole, folder / "weights.safetensors", {"format": "1", "content": content})
    edit(folder / "card.json", weights=None)
    with pytest.raises(ValueError, match="weights.safetensors holds I64 in body.*floating-point"):
        load_network(folder, "pdi-net")


def test_a_card_cannot_ask_for_all_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bounds nothing is tried; within them, shapes are compared before a network is built."""
    network = json.loads((folder / "card.json").read_text())["network"]
    for name in ("width", "depth", "messages", "hops", "levels", "inputs", "n_duals"):
        edit(folder / "card.json", network=network | {name: 30_000_000})
        with pytest.raises(ValueError, match=f"card.json describes no network: {name} must be at most"):
            load_network(folder, "pdi-net")
    for value in (True, "8", 8.0, None):
        edit(folder / "card.json", network=network | {"width": value})
        with pytest.raises(ValueError, match="card.json describes no network: width must be a whole number"):
            load_network(folder, "pdi-net")
    wide = network | {"width": 4096, "messages": 4096}
    content = json.dumps({"agent": "pdi-net", "problem": "wireless", "network": wide})
    save_file({"a": torch.zeros(1)}, folder / "weights.safetensors", {"format": "1", "content": content})
    edit(folder / "card.json", network=wide, weights=None)
    built: list[str] = []
    build = NetworkConfig.build

    def watched(config: NetworkConfig) -> Any:
        net = build(config)
        built.extend({p.device.type for p in net.parameters()})
        return net

    monkeypatch.setattr(NetworkConfig, "build", watched)
    with pytest.raises(ValueError, match="weights.safetensors does not fit .*card.json"):
        load_network(folder, "pdi-net")
    assert built == ["meta"]


@pytest.mark.parametrize("body", ["mlp", "gnn", "ugnn"])
def test_shapes_are_those_of_the_network(body: str) -> None:
    config = NetworkConfig(body=body, inputs=3, n_duals=2, width=8, depth=2, messages=4, simplex=True)
    assert config.shapes() == {k: tuple(v.shape) for k, v in config.build().state_dict().items()}


def test_a_shipped_file_that_was_changed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(zoo.FOLDER / "st-mixture", tmp_path / "st-mixture")
    shutil.copy(zoo.FOLDER / zoo.DIGESTS, tmp_path)
    monkeypatch.setattr(zoo, "FOLDER", tmp_path)
    problem = MixtureOfGaussians.instance()
    assert zoo.network("st", problem).config.body == "mlp"
    path = tmp_path / "st-mixture" / "weights.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-2] + bytes([whole[-2] ^ 1]) + whole[-1:])
    zoo.load.cache_clear()
    with pytest.raises(ValueError, match="weights.safetensors differs from what was shipped"):
        zoo.network("st", problem)
    zoo.load.cache_clear()


# The settings of an agent.


@pytest.mark.parametrize("value", ["50", b"5", True, np.True_, np.array([5]), None, 1j])
def test_only_numbers_are_taken_for_numbers(value: Any) -> None:
    for name in ("T", "beta"):
        with pytest.raises(ValueError, match=f"{name} must be a"):
            make_agent("pdi-mc", **{name: value})


def test_numbers_of_other_libraries_become_plain(tmp_path: Path) -> None:
    given = {"T": np.int64(7), "beta": np.float32(0.5), "dual_step": torch.tensor(0.25), "n_draws": 3}
    agent = make_agent("pdi-mc", **given)
    assert {k: type(v) for k, v in agent.overrides.items()} == {
        "T": int,
        "beta": float,
        "dual_step": float,
        "n_draws": int,
    }
    agent.save(tmp_path)
    assert make_agent("pdi-mc").load(tmp_path).overrides == agent.overrides
    config = NetworkConfig(inputs=np.int64(3), data_scale=np.float32(0.5), dual=np.True_)
    assert json.loads(json.dumps(asdict(config)))["dual"] is True


def test_changed_settings_are_noticed(tmp_path: Path) -> None:
    make_agent("pdi-mc", T=7).save(tmp_path)
    path = tmp_path / "agent.json"
    path.write_text(path.read_text().replace('"T": 7', '"T": 8'))
    with pytest.raises(ValueError, match="agent.json was changed since it was saved"):
        make_agent("pdi-mc").load(tmp_path)
    content = json.loads(path.read_text())
    path.write_text(json.dumps({k: v for k, v in content.items() if k not in ("format", "digest")}))
    with pytest.raises(ValueError, match="agent.json has format None"):
        make_agent("pdi-mc").load(tmp_path)


@pytest.mark.parametrize(
    "text, message",
    [
        ('{"agent": "pdi', "agent.json is not JSON"),
        ("[]", "agent.json must hold an object, got list"),
        ('{"format": 3, "agent": "pdi-mc"}', "agent.json has format 3, this version reads 1"),
        ('{"agent": "pdi-mc", "preset": "fast"}', "agent.json must tell the options, got None"),
        ('{"agent": "pdi-mc", "options": {}}', "agent.json .*: preset must be one of fast, paper; got None"),
        ('{"agent": "pdi-mc", "preset": "bogus", "options": {}}', "agent.json .*: preset .* got 'bogus'"),
        ('{"agent": "pdi-mc", "preset": "fast", "options": {"TT": 1}}', "agent.json .* no option 'TT'"),
        ('{"agent": "pdi-mc", "preset": "fast", "options": {"T": 0}}', "agent.json .*: T must be"),
    ],
)
def test_bad_settings_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "agent.json").write_text(text)
    agent = make_agent("pdi-mc", "paper", T=7)
    with pytest.raises(ValueError, match=message):
        agent.load(tmp_path)
    assert (agent.preset, agent.overrides) == ("paper", {"T": 7})


def test_a_failed_load_leaves_the_agent_as_it_was(tmp_path: Path) -> None:
    saved(tmp_path, {"problem": "wireless"}, inputs=3)
    agent: Any = make_agent("pdi-net", T=5)
    (tmp_path / "weights.safetensors").write_bytes(b"")
    with pytest.raises(ValueError, match="is not a whole safetensors file"):
        agent.load(tmp_path)
    assert agent.overrides == {"T": 5} and agent.network is None and agent.card is None


# The problems that a network was trained for.


def test_a_checkpoint_of_another_kind_of_problem_is_refused(tmp_path: Path) -> None:
    """Networks for wireless and for portfolios have the same number of inputs."""
    small = WirelessPower.instance(0, "validation", n_users=4)
    portfolio = Portfolio.instance(0, 12, 4)
    agent = saved(tmp_path, {"problem": "wireless"}, inputs=3)
    for one in (agent, make_agent("pdi-net").load(tmp_path)):
        assert len(one.sample(small, n=2)) == 2
        with pytest.raises(ValueError, match="of the kind 'wireless', Portfolio is 'portfolio': train one"):
            one.sample(portfolio, n=2)


def test_an_agent_is_for_what_it_learnt(tmp_path: Path) -> None:
    mixtures = [MixtureOfGaussians.instance(3, 2, 2, seed=i) for i in range(3)]
    agent: Any = make_agent("pdi-net", T=4).learn(
        mixtures[:2],
        out=tmp_path,
        quiet=True,
        steps=1,
        instances=2,
        validate_every=1,
        seed_rollouts=1,
        chains=2,
        problems=1,
        pairs=2,
        width=4,
        depth=1,
        validation_n=2,
    )
    assert agent.card["fingerprints"] == sorted(map(fingerprint, mixtures[:2]))
    for one in (agent, make_agent("pdi-net").load(tmp_path)):
        assert all(len(one.sample(p, n=2)) == 2 for p in mixtures[:2])
        with pytest.raises(ValueError, match="trained on another MixtureOfGaussians, .* or use pdi-mc"):
            one.sample(mixtures[2], n=2)
    edit(tmp_path / "card.json", fingerprints=None)
    with pytest.raises(ValueError, match="trained on an unknown MixtureOfGaussians"):
        make_agent("pdi-net").load(tmp_path).sample(mixtures[0], n=2)


def test_a_users_own_problems_are_told_apart_by_their_numbers(tmp_path: Path) -> None:
    class Others(Sensors):
        pass

    class Weighted(Sensors):
        def __init__(self, weights: list[float]):
            self.weights = torch.tensor(weights)

    card = {"problem": "generic", "fingerprints": [fingerprint(Sensors())]}
    saved(tmp_path, card, body="mlp", inputs=3, n_duals=1)
    agent = make_agent("pdi-net").load(tmp_path)
    assert len(agent.sample(Sensors(), n=2)) == len(agent.sample(Others(), n=2)) == 2
    with pytest.raises(ValueError, match="trained on another Weighted"):
        agent.sample(Weighted([1.0, 2.0, 3.0]), n=2)
    with pytest.raises(ValueError, match="of the kind 'generic', MixtureOfGaussians is 'mixture'"):
        agent.sample(MixtureOfGaussians.instance(3, 2, 1), n=2)


def test_fingerprints_do_not_hang_on_the_last_bits() -> None:
    """How the sum of the weights is rounded depends on the machine, and so do the normalised weights."""
    p = MixtureOfGaussians.instance()
    nudged = p.weights * torch.tensor(1 + 2e-7)
    for weights in (p.weights * 7, nudged):
        same = MixtureOfGaussians(p.means, p.covariances.double(), weights, p.A.numpy(), p.b)
        assert fingerprint(same) == fingerprint(p)
    different = [
        MixtureOfGaussians.instance(seed=3),
        MixtureOfGaussians(p.means, p.covariances, p.weights, p.A, p.b + 0.1),
        MixtureOfGaussians(p.means * 1.1, p.covariances, p.weights, p.A, p.b),
    ]
    assert len({fingerprint(q) for q in [p, *different]}) == 4


# The weights that come with the package.


def test_the_zoo_is_small_and_complete() -> None:
    names = {p.name for p in SHIPPED}
    wireless = {f"{a}-wireless" for a in ("pdi-net", "pdi-net-warm", "dt", "dt-plus", "st")}
    assert wireless | {f"{a}-{p}" for a in ("pdi-net", "st") for p in ("portfolio", "mixture")} <= names
    assert sum(f.stat().st_size for f in zoo.FOLDER.glob("*/*")) < 25e6


@pytest.mark.parametrize("place", SHIPPED, ids=lambda p: p.name)
def test_shipped_cards_tell_how_the_weights_were_made(place: Path) -> None:
    card = json.loads((place / "card.json").read_text())
    agent, _, problem = place.name.rpartition("-")
    assert (card["agent"], card["problem"]) == (agent, problem)
    assert card["command"].startswith(f"pdi-gym train {agent} ")
    assert card["budget"]["seconds"] > 0 and card["hardware"] and card["validation"]["feasible"] > 0
    network, _ = load_network(place, agent)
    assert sum(p.numel() for p in network.parameters()) == card["parameters"]


def test_agents_find_the_shipped_weights_by_problem() -> None:
    small = WirelessPower.instance(0, "validation", n_users=8)
    assert len(make_agent("pdi-net").sample(small, n=4)) == 4
    assert all(AGENTS[name].ready(small) for name in ("pdi-net", "pdi-net-warm", "dt", "dt-plus", "st"))
    assert AGENTS["pdi-net"].ready(Portfolio.instance(0, 12, 4))
    other = MixtureOfGaussians.instance(5, 3, 2)
    assert not AGENTS["pdi-net"].ready(other)  # a perceptron is for one size
    with pytest.raises(
        ValueError, match="for 30 coordinates and 10 constraints, MixtureOfGaussians has 5 and 2"
    ):
        make_agent("pdi-net").sample(other, n=4)
    with pytest.raises(RuntimeError, match="no weights of dt-plus are shipped for Portfolio: train them"):
        make_agent("dt-plus").sample(Portfolio.instance(0, 12, 4), n=4)


def test_shipped_perceptrons_are_for_the_mixture_of_their_training() -> None:
    own, other = MixtureOfGaussians.instance(), MixtureOfGaussians.instance(seed=3)
    for name in ("pdi-net", "dt", "st"):
        card = json.loads((zoo.folder(name, own) / "card.json").read_text())
        assert card["fingerprints"] == [fingerprint(own)] and "MixtureOfGaussians-v0" in card["command"]
        assert AGENTS[name].ready(own) and not AGENTS[name].ready(other)
        with pytest.raises(ValueError, match="trained on another MixtureOfGaussians, .* or use pdi-mc"):
            make_agent(name).sample(other, n=2)
    with pytest.raises(ValueError, match="trained on another MixtureOfGaussians"):
        make_agent("pdi-mc", score="net").sample(other, n=2)
    assert len(make_agent("pdi-net", T=3).sample(own, n=2)) == 2


def test_configs_and_stored_rows_tell_shipped_networks_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = WirelessPower.instance(0, "test", n_users=4)
    agents = {name: make_agent(name, T=3, score="net") for name in ("pdi-net", "pdi-mc")}

    def rows() -> list[Any]:
        return compare(
            agents, "WirelessPower-v0", 1, n=4, trials=2, horizon=20, out=tmp_path, env_kwargs={"n_users": 4}
        )

    shipped = zoo.network("pdi-net", small)
    before, configs = rows(), {name: agent.config(small) for name, agent in agents.items()}
    assert all(config["weights"] == digest(shipped.state_dict()) for config in configs.values())
    assert rows() == before  # stored, their seconds too

    torch.manual_seed(0)
    other = NetworkConfig(width=4, depth=1, messages=2, inputs=3).build().requires_grad_(False)
    monkeypatch.setattr(zoo, "load", lambda place, agent: other)
    after = rows()
    for name, agent in agents.items():
        assert agent.config(small) == configs[name] | {"weights": digest(other.state_dict())}
    assert configs["pdi-net"]["weights"] != digest(other.state_dict())
    assert all(a["metrics"] != b["metrics"] for a, b in zip(before, after, strict=True))


def test_stored_rows_of_one_network_are_not_taken_for_anothers(tmp_path: Path) -> None:
    rows = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        agent = make_agent("pdi-net", T=3)
        agent.network = NetworkConfig(width=4, depth=1, messages=2, inputs=3).build().requires_grad_(False)
        rows += compare(
            {"mine": agent},
            "WirelessPower-v0",
            1,
            n=4,
            trials=2,
            horizon=20,
            out=tmp_path,
            env_kwargs={"n_users": 4},
        )
    assert rows[0]["metrics"] != rows[1]["metrics"]


def test_a_corrupt_shipped_card_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zoo, "FOLDER", tmp_path)
    small = WirelessPower.instance(0, "validation", n_users=4)
    assert not zoo.shipped("pdi-net", small)
    (tmp_path / "pdi-net-wireless").mkdir()
    (tmp_path / "pdi-net-wireless" / "card.json").write_text("{")
    with pytest.raises(ValueError, match="card.json is not JSON"):
        zoo.shipped("pdi-net", small)


def test_every_diffusion_agent_takes_the_network_score() -> None:
    small = WirelessPower.instance(0, "validation", n_users=8)
    for name in ("pdi-mc", "unconstrained", "frozen-mean", "pdm", "dps"):
        policy = make_agent(name, score="net", T=4).sample(small, n=4)
        assert policy.actions.shape == (4, 8)


def test_saving_needs_weights(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="pdi-net has no weights of its own to save"):
        make_agent("pdi-net").save(tmp_path)
