"""Features of decisions against gradients, and the network that sees them against symmetries."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from pdi_gym import Problem
from pdi_gym.features import gradient_features
from pdi_gym.networks import Denoiser, NetworkConfig, columns_for
from pdi_gym.problem import autograd_lagrangian_grad
from pdi_gym.problems import MixtureOfGaussians, Portfolio, WirelessPower
from tests.cases import PROBLEMS, Sensors


@pytest.fixture(params=PROBLEMS)
def problem(request: pytest.FixtureRequest) -> Problem:
    return PROBLEMS[request.param]()


def points(problem: Problem, n: int = 5) -> tuple[Tensor, Tensor]:
    """Latents and multipliers of the size that the problem's units tell."""
    generator = torch.Generator().manual_seed(3)
    z = problem.project(
        0.3 * problem.action_scale * torch.randn((n, problem.latent_dim), generator=generator)
    )
    lam = torch.empty(n, problem.n_constraints).exponential_(generator=generator)
    return z, problem.units.dual * lam


def test_features_of_every_problem(problem: Problem) -> None:
    z, lam = points(problem, 6)
    x = problem.decode(z)
    features = problem.features(x, lam)
    assert features.shape[:-1] == (6, problem.latent_dim)
    assert torch.isfinite(features).all()
    stacked = problem.features(x.view(2, 3, -1), lam.view(2, 3, -1))
    torch.testing.assert_close(stacked.reshape(features.shape), features, rtol=1e-4, atol=1e-5)
    # Of order one, so that a network can take them as they are.
    assert features.square().mean().sqrt() < 10


def test_features_are_differentiable(problem: Problem) -> None:
    """Along a direction, the derivative that a network is trained by is that of central differences."""
    z, lam = points(problem)
    direction = torch.randn(z.shape, generator=torch.Generator().manual_seed(5))
    weight = torch.randn(
        problem.features(problem.decode(z), lam).shape, generator=torch.Generator().manual_seed(6)
    )

    def value(step: float) -> Tensor:
        return (weight * problem.features(problem.decode(z + step * direction), lam)).sum()

    point = z.clone().requires_grad_(True)
    (slope,) = torch.autograd.grad((weight * problem.features(problem.decode(point), lam)).sum(), point)
    step = 1e-3 * problem.action_scale
    difference = (value(step) - value(-step)) / (2 * step)
    scale = float(slope.norm() * direction.norm())
    assert abs(float((slope * direction).sum() - difference)) < 0.03 * scale


class Cents(Sensors):
    """The sensors' problem with the objective and the constraint in other units."""

    def objective(self, x: Tensor, xi: Tensor | None = None) -> Tensor:
        return 100 * super().objective(x, xi)

    def constraints(self, x: Tensor, xi: Tensor | None = None) -> Tensor:
        return super().constraints(x, xi) / 1000


def test_features_do_not_depend_on_units() -> None:
    plain, cents = Sensors(), Cents()
    assert cents.units.objective == pytest.approx(100 * plain.units.objective, rel=1e-4)
    assert cents.units.residual == pytest.approx(plain.units.residual / 1000, rel=1e-4)
    z, lam = points(plain)
    expected = plain.features(plain.decode(z), lam)
    other = cents.features(cents.decode(z), lam / plain.units.dual * cents.units.dual)
    torch.testing.assert_close(other, expected, rtol=1e-4, atol=1e-5)


def test_generic_features_are_the_gradients_parts() -> None:
    """|x|² and 1 − Σ ξ̄ x in the box ±2: gradients 2x and −λ ξ̄, times the width over the unit."""
    problem = Sensors()
    z, lam = points(problem)
    place, own, pull, both = problem.features(z, lam).unbind(-1)
    scale = 4 / problem.units.objective
    mean = problem.fixed_draws.mean(0)
    torch.testing.assert_close(place, z / 4)
    torch.testing.assert_close(own.sinh(), 2 * z * scale, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(pull.sinh(), -lam * mean * scale, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(both.sinh(), own.sinh() + pull.sinh(), rtol=1e-4, atol=1e-4)
    # 2z is uniform in ±4 there: its root mean square is 4/√3, times the width.
    assert problem.units.objective == pytest.approx(4 * 4 / math.sqrt(3), rel=0.2)


def test_wireless_features_are_those_of_the_mean_gains() -> None:
    problem = WirelessPower.instance(0, "validation", n_users=8)
    z, lam = points(problem)
    columns = problem.features(problem.decode(z), lam) / 0.3
    own, harm = columns[..., 2].exp() - 1e-4, columns[..., 3].exp() - 1e-4
    _, grad = autograd_lagrangian_grad(problem, z, lam, problem.snr.unsqueeze(0))
    torch.testing.assert_close((harm - own) / math.log(2), grad, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(columns[..., 4].sinh(), own - harm, rtol=1e-3, atol=1e-3)
    rates = problem.rates(problem.decode(z), problem.snr.unsqueeze(0))
    torch.testing.assert_close(columns[..., 1] / math.log(2), rates, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("constraints", ["budgets", "enriched"])
def test_portfolio_features_are_those_of_the_softmax_gradient(constraints: str) -> None:
    problem = Portfolio.instance(0, n_assets=12, n_sectors=4, split="validation", constraints=constraints)
    z, lam = points(problem)
    h = problem.features(problem.decode(z), lam)[..., 4].sinh()
    _, grad = autograd_lagrangian_grad(problem, z, lam)
    size = problem.mu.abs().mean().float()
    torch.testing.assert_close(
        size * problem.decode(z) * h, grad, rtol=1e-3, atol=1e-3 * float(grad.abs().max())
    )


def test_mixture_features_are_the_generic_ones() -> None:
    for problem in (
        MixtureOfGaussians.toy(),
        MixtureOfGaussians([[0.0], [1]], [[1.0], [0.3]], [1, 2], [[1.0]], [0.5]),
    ):
        z, lam = points(problem)
        torch.testing.assert_close(
            problem.features(z, lam), gradient_features(problem, z, lam), rtol=1e-3, atol=1e-4
        )


# The network.


def trained_like(problem: Problem, activation: str = "silu") -> Denoiser:
    """A network whose weights are none of its first ones: gates and FiLM are at work."""
    torch.manual_seed(0)
    net = NetworkConfig(
        body="features",
        width=6,
        hidden=10,
        depth=3,
        proximal=True,
        activation=activation,
        **columns_for(problem),
    ).build()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return net


def inputs(problem: Problem, n: int = 5) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    z, lam = points(problem, n)
    generator = torch.Generator().manual_seed(1)
    alpha = 0.1 + 0.8 * torch.rand((n, 1), generator=generator)
    return z, alpha, (1 - alpha.square()).sqrt(), lam, 0.1 + torch.rand((n, 1), generator=generator)


@pytest.mark.parametrize("activation", ["silu", "relu"])
def test_folded_network_equals_the_plain_one(problem: Problem, activation: str) -> None:
    """With one noise level for all samples FiLM is folded into weights; nothing else changes."""
    net = trained_like(problem, activation)
    z, alpha, sigma, lam, b = inputs(problem)
    for level in (1, 3):
        one = alpha[level : level + 1], sigma[level : level + 1]
        plain = net(z, *(v.expand(5, 1) for v in one), lam, problem, b).detach()
        with torch.no_grad():
            torch.testing.assert_close(net(z, *one, lam, problem, b), plain, rtol=1e-3, atol=1e-4)
    with torch.no_grad():
        before = net(z, *one, lam, problem, b)
        net.body.into.mul_(2.0)
        assert not torch.allclose(net(z, *one, lam, problem, b), before, atol=1e-4)


def test_samples_do_not_see_each_other(problem: Problem) -> None:
    net = trained_like(problem)
    z, alpha, sigma, lam, b = inputs(problem)
    together = net(z, alpha, sigma, lam, problem, b)
    assert together.abs().max() <= problem.action_scale
    for i in range(len(z)):
        row = slice(i, i + 1)
        alone = net(z[row], alpha[row], sigma[row], lam[row], problem, b[row])
        torch.testing.assert_close(together[row], alone, rtol=1e-3, atol=1e-4)


def test_network_does_not_care_how_users_are_numbered() -> None:
    problem = WirelessPower.instance(0, "train", n_users=12)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(2))
    moved = WirelessPower.from_gains(
        problem.gains[order][:, order], r_min=problem.r_min, noise=problem.noise, p_max=problem.p_max
    )
    net = trained_like(problem)
    z, alpha, sigma, lam, b = inputs(problem)
    plain = net(z, alpha, sigma, lam, problem, b)
    renamed = net(z[:, order], alpha, sigma, lam[:, order], moved, b)
    torch.testing.assert_close(renamed, plain[:, order], rtol=1e-3, atol=1e-4)
    assert (plain[:, order] - plain).abs().max() > 0.01
    larger = WirelessPower.instance(0, "train", n_users=20)
    assert net(*inputs(larger)[:4], larger, b).shape == (5, 20)


def test_network_refuses_other_features() -> None:
    config = trained_like(WirelessPower.instance(0, "train", n_users=8)).config
    with pytest.raises(
        ValueError, match="for 3 node features and 5 features of a decision, Sensors has 0 and 4"
    ):
        config.check(Sensors())
