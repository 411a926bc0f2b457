import math

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

from pdi_gym.problem import autograd_lagrangian_grad
from pdi_gym.problems.mixture import MixtureOfGaussians
from tests.oracles import two_modes

MEANS = np.array([[0.5, -1.0, 0.0], [-1.0, 1.0, 2.0]])
FULL = np.array(
    [[[1.0, 0.3, 0.0], [0.3, 0.8, -0.2], [0.0, -0.2, 0.6]], [[0.5, 0, 0.1], [0, 2.0, 0], [0.1, 0, 1.0]]]
)
A, B = np.array([[1.0, 0.0, 0.5], [0.0, -1.0, 0.2]]), np.array([0.3, -0.1])
PROBLEMS = {
    "own covariances": MixtureOfGaussians(MEANS, FULL, [0.3, 0.7], A, B),
    "shared covariance": MixtureOfGaussians(MEANS, FULL[[0, 0]], [0.3, 0.7], A, B),
    "diagonals": MixtureOfGaussians(MEANS, [[0.5, 1, 2], [1, 0.2, 0.4]], [0.3, 0.7], A, B),
}


def points(n: int = 40) -> torch.Tensor:
    return 1.5 * torch.randn(n, 3, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", PROBLEMS)
def test_objective_is_minus_the_log_density(name):
    p, x = PROBLEMS[name], points()
    modes = [multivariate_normal(m, c) for m, c in zip(p.means.numpy(), p.covariances.numpy(), strict=True)]
    density = 0.3 * modes[0].pdf(x.numpy()) + 0.7 * modes[1].pdf(x.numpy())
    assert np.allclose(p.objective(x).numpy(), -np.log(density), rtol=1e-4, atol=1e-4)
    share = 0.3 * modes[0].pdf(x.numpy()) / density
    assert np.allclose(p.responsibilities(x)[:, 0].numpy(), share, atol=1e-4)


def test_constraints_are_b_minus_a_x():
    p, x = PROBLEMS["diagonals"], points()
    assert np.allclose(p.constraints(x).numpy(), B - x.numpy() @ A.T, atol=1e-5)
    assert p.constraint_limits.tolist() == pytest.approx(B.tolist())


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("weight", [1.0, 0.0, 2.5])
def test_gradient_matches_finite_differences_and_autograd(name, weight):
    p, z = PROBLEMS[name], points(6).double()
    lam = torch.tensor([0.7, 1.9])
    value, grad = p.lagrangian_grad(z.float(), lam, objective_weight=weight)

    def lagrangian(x):
        modes = [
            multivariate_normal(m, c) for m, c in zip(p.means.numpy(), p.covariances.numpy(), strict=True)
        ]
        density = 0.3 * modes[0].pdf(x) + 0.7 * modes[1].pdf(x)
        return -weight * np.log(density) + (B - x @ A.T) @ lam.numpy()

    assert np.allclose(value.numpy(), lagrangian(z.numpy()), rtol=1e-4, atol=1e-4)
    for i in range(3):
        h = np.eye(3)[i] * 1e-5
        numeric = (lagrangian(z.numpy() + h) - lagrangian(z.numpy() - h)) / 2e-5
        assert np.allclose(grad[:, i].numpy(), numeric, rtol=1e-3, atol=1e-3)
    _, auto = autograd_lagrangian_grad(p, z.float(), lam, objective_weight=weight)
    assert torch.allclose(grad, auto, rtol=1e-3, atol=1e-4)


def test_gradient_far_from_every_mode_stays_finite_and_right():
    p, z = PROBLEMS["shared covariance"], torch.tensor([[60.0, -40.0, 55.0], [-50.0, 3.0, 80.0]])
    value, grad = p.lagrangian_grad(z, torch.zeros(2))
    pull = np.linalg.solve(FULL[0], (z.numpy()[:, None] - MEANS).transpose(0, 2, 1))
    square = np.einsum("nik,nik->nk", pull, (z.numpy()[:, None] - MEANS).transpose(0, 2, 1))
    nearest = square.argmin(1)
    assert np.allclose(grad.numpy(), pull[np.arange(2), :, nearest], rtol=1e-3)
    assert torch.isfinite(value).all()


def test_multipliers_broadcast_over_groups():
    p = MixtureOfGaussians.toy()
    z, lam = torch.randn(5, 3, 7, 2), torch.rand(3, 1, 2)
    value, grad = p.lagrangian_grad(z, lam)
    for c in range(3):
        one_value, one_grad = p.lagrangian_grad(z[:, c], lam[c, 0])
        assert torch.allclose(value[:, c], one_value, atol=1e-4)
        assert torch.allclose(grad[:, c], one_grad, atol=1e-4)
    assert p.lagrangian_grad(torch.zeros(7, 2), lam)[1].shape == (3, 7, 2)


def grid(width: float = 9.0, n: int = 401) -> tuple[np.ndarray, float]:
    axis = np.linspace(-width, width, n)
    return np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2), (axis[1] - axis[0]) ** 2


def mixture_pdf(problem, x):
    parts = zip(problem.weights, problem.means.numpy(), problem.covariances.numpy(), strict=True)
    return sum(float(w) * multivariate_normal(m, c).pdf(x) for w, m, c in parts)


def test_tilted_and_noised_laws_match_quadrature():
    """In the plane: tilt exp(−f0 − λᵀf), normalise and convolve on a grid; scores by differences."""
    p, lam = two_modes(), torch.tensor([0.8], dtype=torch.float64)
    x, cell = grid()
    unnormalised = mixture_pdf(p, x) * np.exp(-0.8 * (0.5 - x @ np.array([0.8, 0.6])))
    clean = unnormalised / (unnormalised.sum() * cell)
    law = p.tilted(lam, 1.0)
    assert np.allclose(law.log_density(torch.from_numpy(x)).exp().numpy(), clean, rtol=1e-4, atol=1e-7)
    mean = (clean[:, None] * x).sum(0) * cell
    covariance = (clean[:, None, None] * (x - mean)[:, :, None] * (x - mean)[:, None]).sum(0) * cell
    assert np.allclose(law.mean().numpy(), mean, atol=1e-5)
    assert np.allclose(law.covariance().numpy(), covariance, atol=1e-5)

    alpha, sigma = 0.8, 0.6

    def noised(z):
        return (clean * multivariate_normal(z, sigma**2 * np.eye(2)).pdf(alpha * x)).sum() * cell

    for z in (np.array([0.1, 0.4]), np.array([-1.0, 0.2])):
        h = 1e-4 * np.eye(2)
        score = [(math.log(noised(z + e)) - math.log(noised(z - e))) / 2e-4 for e in h]
        got = law.noised(alpha, sigma)
        assert float(got.log_density(torch.from_numpy(z))) == pytest.approx(math.log(noised(z)), abs=1e-4)
        assert np.allclose(got.score(torch.from_numpy(z)).numpy(), score, atol=1e-4)


def test_cold_tilt_of_one_gaussian_matches_quadrature():
    p = MixtureOfGaussians([[0.4, -0.2]], [[[0.7, 0.2], [0.2, 0.5]]], [1.0], [[1.0, 0.5]], [0.3])
    x, cell = grid(5.0)
    energy = (-np.log(mixture_pdf(p, x)) + 1.3 * (0.3 - x @ np.array([1.0, 0.5]))) / 0.25
    clean = np.exp(-(energy - energy.min()))
    clean /= clean.sum() * cell
    law = p.tilted(torch.tensor([1.3], dtype=torch.float64), 0.25)
    assert np.allclose(law.log_density(torch.from_numpy(x)).exp().numpy(), clean, rtol=1e-3, atol=1e-6)


def test_law_samples_have_its_moments():
    law = two_modes().tilted(torch.tensor([0.468], dtype=torch.float64), 1.0)
    x = law.sample(100_000, torch.Generator().manual_seed(0))
    error = (law.covariance().diagonal() / len(x)).sqrt()
    assert ((x.mean(0) - law.mean()).abs() < 4 * error).all()
    assert torch.allclose(torch.cov(x.mT), law.covariance(), atol=0.03)


def test_instance_has_the_published_constants():
    p = MixtureOfGaussians.instance()
    assert p.means.shape == (12, 30) and p.A.shape == (10, 30)
    assert p.b.tolist() == pytest.approx(
        [0.9333, 1.7333, 1.4667, 1.6, 1.2, 2.0, 0.8, 1.8667, 1.3333, 1.0667], abs=1e-4
    )
    assert p.bound == pytest.approx(6.414, abs=1e-3) and p.tolerance == 0.02
    assert torch.allclose(p.A.norm(dim=1), torch.ones(10), atol=1e-5)
    centres = np.random.RandomState(0).randn(12, 30) * 4
    ratio = p.means.numpy() * np.sqrt(2 + centres.var(0)) + centres.mean(0)
    assert np.allclose(ratio, centres, atol=1e-4)
    total = p.covariances.diagonal(dim1=1, dim2=2).mean(0) + p.means.var(0, correction=0)
    assert torch.allclose(total, torch.ones(30), atol=1e-4) and p.means.mean(0).abs().max() < 1e-5
    assert int((p.constraints(p.means) <= 0).sum(1).max()) <= 2


def test_toy_has_the_published_constants():
    p = MixtureOfGaussians.toy()
    assert p.b.tolist() == pytest.approx([1.943, 3.0], abs=1e-3)
    assert p.bound == pytest.approx(5.468, abs=1e-3)
    scale = np.sqrt(1 + np.array([[3.0, 10], [-2, -8], [5, 0]]).var(0))
    x = np.array([[0.3, -1.2]])
    raw = x * scale + np.array([2.0, 2 / 3])
    expected = 1 - raw @ np.array([[-1 / math.sqrt(2), 1 / math.sqrt(2)], [-1, 0]]).T
    assert np.allclose(p.constraints(torch.tensor(x).float()).numpy(), expected, atol=1e-4)


def test_other_sizes_and_seeds():
    p = MixtureOfGaussians.instance(dim=5, n_modes=3, n_constraints=2, seed=7)
    assert p.latent_dim == 5 and p.n_constraints == 2 and len(p.constraint_names) == 2
    assert not torch.equal(p.means, MixtureOfGaussians.instance(5, 3, 2, seed=8).means)


def test_mode_metrics_count_mass():
    p = MixtureOfGaussians.toy()
    metrics = p.metrics(p.means[[0, 0, 1]], torch.tensor([0.25, 0.25, 0.5]), torch.zeros(1, 2))
    assert metrics["modes"] == 2 and metrics["mode_entropy"] == pytest.approx(math.log(2))


GOOD = {"means": [[0.0, 0.0]], "covariances": [[1.0, 1.0]], "weights": [1.0], "A": [[1.0, 0.0]], "b": [0.5]}
BAD = [
    ({"means": [0.0, 0.0]}, "means must have shape"),
    ({"means": [[math.nan, 0.0]]}, "means must be finite, got nan at index"),
    ({"means": "here"}, "means must be an array of numbers"),
    ({"covariances": [[1.0, math.inf]]}, "covariances must be finite, got inf"),
    ({"covariances": [[1.0, -1.0]]}, "covariances must be positive definite, mode 0 has eigenvalue -1"),
    ({"covariances": [[[1.0, 2.0], [2.0, 1.0]]]}, "covariances must be positive definite"),
    ({"covariances": [[[1.0, 0.5], [0.0, 1.0]]]}, "covariances must be symmetric"),
    ({"covariances": [[1.0, 1.0, 1.0]]}, r"covariances must have shape \(1, 2\), got \(1, 3\)"),
    ({"weights": [0.5, 0.5]}, r"weights must have shape \(1\), got \(2,\)"),
    ({"weights": [0.0]}, "weights must be positive, got 0"),
    ({"A": [[math.nan, 0.0]]}, r"A must be finite, got nan at index \(0, 0\)"),
    ({"A": [[1.0, 0.0, 0.0]]}, r"A must have shape \(any, 2\)"),
    ({"A": np.zeros((0, 2)), "b": []}, "A must have at least one row"),
    ({"b": [math.inf]}, "b must be finite, got inf"),
    ({"b": [0.5, 0.5]}, r"b must have shape \(1\), got \(2,\)"),
    ({"bound": -1.0}, "bound must be a finite number > 0, got -1"),
    ({"bound": math.nan}, "bound must be a finite number > 0, got nan"),
]


@pytest.mark.parametrize(("change", "message"), BAD, ids=[m[:40] for _, m in BAD])
def test_bad_input_names_argument_value_and_fix(change, message):
    with pytest.raises(ValueError, match=message):
        MixtureOfGaussians(**{**GOOD, **change})


@pytest.mark.parametrize("name", ["dim", "n_modes", "n_constraints"])
def test_bad_sizes_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be a whole number ≥ 1, got 0"):
        MixtureOfGaussians.instance(**{name: 0})


def test_closed_form_is_refused_where_there_is_none():
    with pytest.raises(ValueError, match=r"beta must be 1 for a closed form with 2 modes, got 0\.5"):
        two_modes().tilted(torch.zeros(1), 0.5)
