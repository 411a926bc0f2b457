"""Networks against torch-geometric, permutations and finite differences."""

from __future__ import annotations

import math

import pytest
import torch
from torch_geometric.nn import TAGConv

from pdi_gym.graph import Graph
from pdi_gym.networks import NetworkConfig
from pdi_gym.networks.graph_layers import FoldedTAGConv
from pdi_gym.networks.ugnn import pyramid
from pdi_gym.problems import MixtureOfGaussians, Portfolio, WirelessPower
from tests import cases

GRAPH_BODIES = ("gnn", "ugnn")


@pytest.fixture(scope="module")
def network() -> WirelessPower:
    return WirelessPower.instance(0, "train", n_users=12)


def random_graph(n: int = 9, edges: int = 30) -> Graph:
    generator = torch.Generator().manual_seed(0)
    index = torch.randint(n, (2, edges), generator=generator).unique(dim=1)
    weight = torch.rand(index.shape[1], generator=generator)
    return Graph(torch.randn(n, 3, generator=generator), index, weight)


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_folded_convolution_equals_torch_geometrics(hops: int) -> None:
    """Sample by sample, with the same weights and edges, forwards and in both gradients."""
    graph = random_graph()
    ours = FoldedTAGConv(4, 5, hops)
    theirs = TAGConv(4, 5, K=hops, bias=False, normalize=False)
    theirs.load_state_dict(ours.state_dict())
    h = torch.randn(9, 6, 4, generator=torch.Generator().manual_seed(1), requires_grad=True)
    got = ours(h, graph.adjacency)
    for s in range(6):
        expected = theirs(h[:, s], graph.edge_index, graph.edge_weight)
        assert torch.allclose(got[:, s], expected, atol=1e-5)
    weight = torch.randn_like(got)
    mine = torch.autograd.grad((got * weight).sum(), [h, *ours.parameters()])
    reference = sum(
        (theirs(h[:, s], graph.edge_index, graph.edge_weight) * weight[:, s]).sum() for s in range(6)
    )
    theirs_grad = torch.autograd.grad(reference, [h, *theirs.parameters()])
    for a, b in zip(mine, theirs_grad, strict=True):
        assert torch.allclose(a, b, atol=1e-4)


def test_adjacency_is_edges_from_source_to_target_and_its_transpose() -> None:
    graph = Graph(torch.zeros(3, 1), torch.tensor([[0, 2], [1, 1]]), torch.tensor([0.5, 2.0]))
    expected = torch.tensor([[0, 0, 0], [0.5, 0, 2.0], [0, 0, 0]])
    assert torch.equal(graph.adjacency.forward.to_dense(), expected)
    assert torch.equal(graph.adjacency.backward.to_dense(), expected.T)
    assert torch.equal(graph.adjacency @ torch.eye(3), expected)
    assert torch.equal(graph.adjacency.reversed @ torch.eye(3), expected.T)


def test_a_harmful_transmitter_hears_its_victims(network: WirelessPower) -> None:
    """A receiver's multiplier reaches the transmitter that harms it, against the edge's direction.

    The mean over nodes and the convolution along the edges are switched off: with one hop, whom a
    node hears are the ends of its own edges.
    """
    torch.manual_seed(0)
    net = NetworkConfig(body="gnn", inputs=3, width=16, depth=1, messages=8, hops=1).build()
    with torch.no_grad():
        for p in net.parameters():
            p.add_(0.1 * torch.randn_like(p))
        block = net.body.blocks[0]
        for p in (*block.everyone.parameters(), *block.along.parameters()):
            p.zero_()
    n = 12
    edge = network.graph.adjacency.forward.to_dense() != 0  # [target, source]
    lam = torch.ones(1, n, requires_grad=True)
    level = torch.full((1, 1), math.sqrt(0.5))
    out = net(torch.zeros(1, n), level, level, lam, network)
    slopes = torch.stack([torch.autograd.grad(out[0, i], lam, retain_graph=True)[0][0] for i in range(n)])
    others = ~torch.eye(n, dtype=torch.bool)
    assert (edge & others).any() and not torch.equal(edge, edge.T)
    assert torch.equal((slopes.abs() > 1e-6) & others, edge.T & others)


@pytest.mark.parametrize("body", GRAPH_BODIES)
@pytest.mark.parametrize("dual", [True, False])
def test_graph_networks_do_not_care_how_users_are_numbered(
    network: WirelessPower, body: str, dual: bool
) -> None:
    torch.manual_seed(0)
    net = NetworkConfig(body=body, inputs=3, width=16, depth=2, messages=8, dual=dual, levels=2).build()
    generator = torch.Generator().manual_seed(1)
    z, lam = torch.randn(5, 12, generator=generator), torch.rand(5, 12, generator=generator)
    alpha, sigma = torch.full((5, 1), 0.6), torch.full((5, 1), 0.8)
    order = torch.randperm(12, generator=generator)
    moved = WirelessPower.from_gains(
        network.gains[order][:, order], r_min=network.r_min, noise=network.noise, p_max=network.p_max
    )
    plain = net(z, alpha, sigma, lam, network)
    renamed = net(z[:, order], alpha, sigma, lam[:, order], moved)
    assert torch.allclose(renamed, plain[:, order], atol=1e-4)
    assert not torch.allclose(plain[:, 0], plain[:, 1], atol=1e-3)


@pytest.mark.parametrize("body", ["mlp", *GRAPH_BODIES])
def test_samples_do_not_see_each_other(network: WirelessPower, body: str) -> None:
    inputs = 12 if body == "mlp" else 3
    net = NetworkConfig(body=body, inputs=inputs, n_duals=12, width=16, depth=2, messages=8).build()
    z, lam = torch.randn(4, 12), torch.rand(4, 12)
    alpha = torch.tensor([[0.1], [0.5], [0.8], [0.99]])
    sigma = (1 - alpha**2).sqrt()
    together = net(z, alpha, sigma, lam, network)
    for i in range(4):
        one = slice(i, i + 1)
        alone = net(z[one], alpha[one], sigma[one], lam[one], network)
        assert torch.allclose(together[one], alone, atol=1e-5)


@pytest.mark.parametrize("body", ["mlp", *GRAPH_BODIES])
def test_multipliers_matter_only_where_they_are_an_input(network: WirelessPower, body: str) -> None:
    inputs = 12 if body == "mlp" else 3
    level = torch.full((2, 1), math.sqrt(0.5))
    z = torch.randn(2, 12)
    for dual in (True, False):
        net = NetworkConfig(
            body=body, inputs=inputs, n_duals=12, width=16, depth=2, messages=8, dual=dual
        ).build()
        few, many = (net(z, level, level, torch.full((2, 12), v), network) for v in (0.1, 20.0))
        assert torch.equal(few, many) is not dual


@pytest.mark.parametrize("predicts", ["clean", "noise"])
def test_scales_of_the_output(predicts: str) -> None:
    """With F = 0: the best linear estimate, or (z − 0)/α for a network of the noise."""
    net = NetworkConfig(body="mlp", inputs=2, n_duals=1, predicts=predicts, data_scale=2.0).build()
    with torch.no_grad():
        net.body.last.weight.zero_(), net.body.last.bias.zero_()
    alpha, sigma = torch.tensor([[0.6]]), torch.tensor([[0.8]])
    z = torch.tensor([[1.0, -3.0]])
    # z = αx + σε with x of variance 4: E[x | z] = 4α z/(4α² + σ²).
    expected = z / 0.6 if predicts == "noise" else z * 4 * 0.6 / (4 * 0.36 + 0.64)
    assert torch.allclose(net(z, alpha, sigma, torch.zeros(1, 1), cases.gaussian()), expected)


def test_pyramid_halves_the_nodes_and_keeps_the_strong() -> None:
    graph = random_graph(16, 60)
    fine, middle, coarse = pyramid(graph, 3)
    assert [len(level.kept) for level in (fine, middle, coarse)] == [16, 8, 4]
    dense = graph.adjacency.forward.to_dense()
    strength = dense.sum(0) + dense.sum(1)
    assert strength[middle.kept].min() >= strength.sort().values[8] - 1e-6
    two_steps = (dense + dense @ dense)[middle.kept][:, middle.kept]
    got = middle.adjacency.forward.to_dense()
    assert torch.allclose(got, two_steps / torch.linalg.svdvals(two_steps)[0], atol=1e-5)


def test_networks_refuse_problems_that_do_not_fit() -> None:
    wireless = WirelessPower.instance(0, "train", n_users=6)
    mixture = MixtureOfGaussians.instance(2, 3, 2)
    with pytest.raises(ValueError, match="needs a graph, MixtureOfGaussians has none: use body='mlp'"):
        NetworkConfig(inputs=3).check(mixture)
    with pytest.raises(
        ValueError, match="for 5 coordinates and 2 constraints, MixtureOfGaussians has 2 and 2"
    ):
        NetworkConfig(body="mlp", inputs=5, n_duals=2).check(mixture)
    with pytest.raises(ValueError, match="for 7 node features, WirelessPower has 3"):
        NetworkConfig(inputs=7).check(wireless)
    enriched = Portfolio.instance(0, 20, constraints="enriched", split="train")
    with pytest.raises(ValueError, match="one multiplier per node, Portfolio has"):
        NetworkConfig(inputs=3).check(enriched)
    with pytest.raises(ValueError, match="body must be one of mlp, gnn, ugnn"):
        NetworkConfig(body="cnn", inputs=1)
