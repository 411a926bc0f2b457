"""WirelessPower against autograd, brute force, quadrature and the paper's full-power figures."""

import dataclasses
import math
import subprocess
import sys

import numpy as np
import pytest
import torch

from pdi_gym.problem import autograd_lagrangian_grad, check_problem
from pdi_gym.problems import WirelessPower
from pdi_gym.problems.wireless import SPLITS

torch.set_num_threads(1)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def small():
    return WirelessPower.instance(0, "train", n_users=12)


def brute_force_rates(problem, x, xi):
    """Loops over draws and users, straight from the definition, in float64."""
    received = xi.double() / problem.p_max
    rates = torch.zeros(len(xi), problem.latent_dim, dtype=torch.float64)
    for r in range(len(xi)):
        for j in range(problem.latent_dim):
            interference = sum(
                float(x[i]) * float(received[r, i, j]) for i in range(problem.latent_dim) if i != j
            )
            rates[r, j] = math.log2(1 + float(x[j]) * float(received[r, j, j]) / (1 + interference))
    return rates


def test_rates_are_the_definition(small):
    x = small.decode(torch.rand(small.latent_dim, generator=seeded()) - 0.5)
    xi = small.draw(3, seeded(1))
    expected = brute_force_rates(small, x, xi)
    torch.testing.assert_close(small.rates(x, xi).double(), expected.mean(0), rtol=1e-5, atol=1e-6)
    value, residuals = small.slot(x.expand(3, -1), xi)
    torch.testing.assert_close(small.r_min - residuals.double(), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(value.double(), -expected.sum(1), rtol=1e-5, atol=1e-5)


def test_a_strong_user_keeps_its_precision():
    """Signal 10⁷ times the noise: subtracting it from a float32 total would lose the interference."""
    problem = WirelessPower.from_gains([[1e7, 1e-3], [1.5, 1.0]], r_min=0.5, noise=1.0, p_max=1.0)
    xi = problem.snr.unsqueeze(0)
    expected = math.log2(1 + 1e7 / 2.5)
    x = torch.ones(1, 2)
    assert float(problem.rates(x, xi)[0, 0]) == pytest.approx(expected, rel=1e-6)
    assert float(problem.r_min - problem.slot(x, xi)[1][0, 0]) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("n_users", [1, 12, 200])
@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_gradient_equals_autograd(n_users, weight):
    problem = WirelessPower.instance(1, "train", n_users=n_users)
    g = seeded(2)
    z = (torch.rand(3, 2, 4, n_users, generator=g) - 0.5).clamp(-0.4)  # some powers alike, some distinct
    z[0, 0, 0] = -0.5
    lam = 20 * torch.rand(2, 1, n_users, generator=g)
    xi = problem.draw(6, g)
    value, grad = problem.lagrangian_grad(z, lam, xi, weight)
    expected_value, expected_grad = autograd_lagrangian_grad(problem, z, lam, xi, weight)
    assert value.shape == (3, 2, 4) and grad.shape == z.shape
    torch.testing.assert_close(value, expected_value, rtol=1e-5, atol=1e-4)
    assert float((grad - expected_grad).norm() / expected_grad.norm()) < 1e-5


def test_gradient_survives_enormous_signals():
    """The product of ratios that replaces logarithms must not underflow."""
    problem = WirelessPower.from_gains(torch.eye(3) * 1e12, r_min=0.6, noise=1.0, p_max=1.0)
    z, lam, xi = torch.full((2, 3), 0.4), torch.ones(3), problem.snr.expand(16, 3, 3)
    value, grad = problem.lagrangian_grad(z, lam, xi)
    rate = math.log2(1 + 0.9e12)
    assert value.tolist() == pytest.approx([3 * (0.6 - 2 * rate)] * 2, rel=1e-5)
    assert grad.flatten().tolist() == pytest.approx([-2 / (0.9 * math.log(2))] * 6, rel=1e-4)


def test_exact_rate_equals_many_draws(small):
    x = small.decode(torch.rand(1, small.latent_dim, generator=seeded()) - 0.5)
    xi = small.draw(20_000, seeded(5))
    _, residuals = small.slot(x.expand(20_000, -1), xi)
    rates = small.r_min - residuals.double()
    error = rates.std(0) / math.sqrt(len(rates))
    exact = small.rates(x)[0].double()
    assert float(((exact - rates.mean(0)).abs() / error).max()) < 5


def test_exact_rate_at_full_size_agrees_with_draws():
    problem = WirelessPower.instance(0, "train")
    x = torch.full((1, 200), problem.p_max)
    _, residuals = problem.slot(x.expand(500, -1), problem.draw(500, seeded(3)))
    rates = problem.r_min - residuals.double()
    z_score = (problem.rates(x)[0].double() - rates.mean(0)) / (rates.std(0) / math.sqrt(500))
    assert float(z_score.abs().max()) < 6  # the averages of rarely served users are skewed
    assert abs(float(z_score.mean())) < 1


def test_draw_and_path_have_the_same_law(small):
    draws = small.draw(4000, seeded()) / small.snr
    assert float(draws.mean()) == pytest.approx(1, abs=5 / math.sqrt(draws.numel()))
    assert float(draws.var()) == pytest.approx(1, abs=5 * math.sqrt(8 / draws.numel()))
    fast = dataclasses.replace(small, speed=30.0)
    path = torch.cat(list(fast.path(2000, seeded()))) / small.snr
    assert path.shape == (2000, 12, 12)
    assert float(path.mean()) == pytest.approx(1, abs=0.02)
    assert torch.isfinite(draws).all() and (draws > 0).all()


def test_draws_depend_on_the_generator_alone(small):
    assert torch.equal(small.draw(2, seeded(4)), small.draw(2, seeded(4)))
    g = seeded(4)
    assert not torch.equal(small.draw(2, g), small.draw(2, g))


MEMORY = """
import resource, torch
torch.set_num_threads(1)
from pdi_gym.problems import WirelessPower
problem = WirelessPower.instance(0, "train")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
slots = sum(len(chunk) for chunk in problem.path(500, torch.Generator().manual_seed(0)))
problem.rates(torch.full((16, 200), problem.p_max))
print(slots, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


def test_a_long_path_and_the_quadrature_stay_under_500_megabytes():
    """In a process of its own, whose peak memory nothing else has raised."""
    out = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True).stdout
    slots, megabytes = out.split()
    assert int(slots) == 500
    assert float(megabytes) < 500


def test_full_power_matches_the_paper_networks():
    rates = torch.stack(
        [p.rates(torch.full((200,), p.p_max)) for p in (WirelessPower.instance(i) for i in range(16))]
    )
    assert 2.75 < float(rates.mean()) < 2.90
    assert 0.84 < float((rates >= 0.59).float().mean()) < 0.88


def test_latent_round_trip_and_protocol(small):
    check_problem(small)
    z = torch.rand(5, 12, generator=seeded()) - 0.5
    torch.testing.assert_close(small.encode(small.decode(z)), z, atol=1e-6, rtol=0)
    assert float(small.decode(torch.tensor(0.5))) == pytest.approx(0.01)
    assert small.project(torch.tensor([2.0, -3.0])).tolist() == [0.5, -0.5]
    assert small.constraint_names[:2] == ("user 0", "user 1")
    np.testing.assert_array_equal(small.constraint_limits, np.full(12, 0.6, dtype=np.float32))


def test_units_do_not_matter(small):
    """Gains a million times larger with a noise a million times larger are the same network."""
    scaled = WirelessPower.from_gains(small.gains * 1e6, r_min=0.6, noise=small.noise * 1e6, p_max=0.01)
    torch.testing.assert_close(scaled.snr, small.snr, rtol=1e-6, atol=0)


def test_splits_do_not_share_networks():
    seen = [set(range(first, first + count)) for first, count in SPLITS.values()]
    assert set.union(*seen) == set(range(256)) and sum(map(len, seen)) == 256
    a, b = WirelessPower.instance(0, "train", n_users=5), WirelessPower.instance(0, "test", n_users=5)
    assert not torch.equal(a.gains, b.gains)


def test_graph_has_self_loops_and_the_strongest_interferers(small):
    graph = small.graph
    edges = set(map(tuple, graph.edge_index.T.tolist()))
    assert len(edges) == graph.edge_index.shape[1] == 12 * 11
    assert all((j, j) in edges for j in range(12))
    gains = small.gains.clone().fill_diagonal_(-1)
    for j in range(12):
        weakest = int(gains[:, j].topk(11).indices[-1])
        assert (weakest, j) not in edges
    adjacency = np.zeros((12, 12))
    adjacency[tuple(graph.edge_index.numpy())] = graph.edge_weight.numpy()
    assert np.linalg.norm(adjacency, 2) == pytest.approx(1, rel=1e-5)
    i, j = graph.edge_index[:, 20].tolist()
    ratio = math.log2(1 + float(small.snr[i, j])) / math.log2(1 + float(small.snr[0, 0]))
    assert float(graph.edge_weight[20] / graph.edge_weight[0]) == pytest.approx(ratio, rel=1e-4)
    assert graph.node_features.shape == (12, 3) and small.graph is graph


def test_slot_batch_of_large_networks_equals_each_alone():
    rng = np.random.default_rng(0)
    problems = [
        WirelessPower.from_gains(rng.exponential(size=(70, 70)), r_min=0.5, noise=1.0, p_max=1.0)
        for _ in range(2)
    ]
    x = torch.rand((2, 70), generator=torch.Generator().manual_seed(1))
    xi = [p.draw(1, torch.Generator().manual_seed(2)) for p in problems]
    value, residuals = WirelessPower.slot_batch(problems, x, xi)
    for b, problem in enumerate(problems):
        torch.testing.assert_close(residuals[b], problem.constraints(x[b], xi[b]), rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(value[b], problem.objective(x[b], xi[b]), rtol=1e-4, atol=1e-6)


def test_slot_batch_of_mixed_networks_equals_each_alone():
    problems = [WirelessPower.instance(i, "train", n_users=6) for i in range(3)]
    x = torch.rand(3, 6, generator=seeded()) * 0.01
    xi = torch.cat([p.draw(1, seeded(i)) for i, p in enumerate(problems)])
    value, residuals = WirelessPower.slot_batch(problems, x, xi.split(1))
    other = [dataclasses.replace(problems[0], r_min=0.3), *problems[1:]]
    _, changed = WirelessPower.slot_batch(other, x, xi.split(1))
    for b, p in enumerate(problems):
        v, f = p.slot(x[b : b + 1], xi[b : b + 1])
        torch.testing.assert_close(value[b : b + 1], v)
        torch.testing.assert_close(residuals[b : b + 1], f)
    torch.testing.assert_close(changed[0], residuals[0] - 0.3)
    torch.testing.assert_close(changed[1:], residuals[1:])


def test_metrics_average_trials_before_percentiles(small):
    residuals = torch.tensor([[0.4, -1.0], [-0.2, -3.0]])
    metrics = small.metrics(torch.zeros(1, 2), torch.ones(1), residuals)
    assert metrics["mean_rate"] == pytest.approx((0.5 + 2.6) / 2)
    assert metrics["p5_rate"] == pytest.approx(0.5 + 0.05 * 2.1)
    assert metrics["p1_rate"] == pytest.approx(0.5 + 0.01 * 2.1)
    assert metrics["sum_violation"] == pytest.approx(0.1)


def test_one_user_alone():
    problem = WirelessPower.from_gains([[2.0]], r_min=0.5, noise=1.0, p_max=1.0)
    check_problem(problem)
    assert problem.graph.edge_index.tolist() == [[0], [0]]
    x = torch.ones(1, 1)
    assert float(problem.objective(x)) == -float(problem.rates(x))
    assert next(problem.path(3, seeded())).shape == (3, 1, 1)


@pytest.mark.parametrize(
    ("gains", "kwargs", "message"),
    [
        (np.ones((2, 3)), {}, "gains must be square"),
        (np.ones(4), {}, r"gains must have shape"),
        ([[1.0, -0.1], [0.2, 1.0]], {}, "gains must be ≥ 0, got -0.1"),
        ([[1.0, math.nan], [0.2, 1.0]], {}, r"gains must be finite.*\(0, 1\)"),
        ([[1.0, 0.1], [0.2, 0.0]], {}, "positive on the diagonal, got 0 for user 1"),
        ([[1.0]], {"r_min": -1}, "r_min must be a finite number ≥ 0, got -1"),
        ([[1.0]], {"noise": 0}, "noise must be a finite number > 0, got 0"),
        ([[1.0]], {"p_max": math.inf}, "p_max must be a finite number > 0, got inf"),
    ],
)
def test_bad_input_is_named(gains, kwargs, message):
    with pytest.raises(ValueError, match=message):
        WirelessPower.from_gains(gains, **({"r_min": 0.6, "noise": 1.0, "p_max": 1.0} | kwargs))


def test_bad_instances_are_named():
    with pytest.raises(ValueError, match="index must be < 64 in the test split, got 64"):
        WirelessPower.instance(64)
    with pytest.raises(ValueError, match=r"split must be one of.*did you mean"):
        WirelessPower.instance(0, "tests")
