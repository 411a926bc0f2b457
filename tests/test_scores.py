import math

import numpy as np
import pytest
import torch

from pdi_gym.diffusion import tweedie
from pdi_gym.problem import AutogradProblem
from pdi_gym.problems.mixture import MixtureOfGaussians
from pdi_gym.schedules import make_schedule
from pdi_gym.scores import ExactScore, MonteCarloScore, NetworkScore
from tests.oracles import (
    fixed_noise,
    one_constraint,
    slope,
    tilted_gaussian_score,
    two_constraints,
    two_modes,
)

COUNTS = [64, 256, 1024, 4096]


def thirty_dimensions() -> MixtureOfGaussians:
    rng = np.random.RandomState(3)
    rows = rng.randn(2, 30) / math.sqrt(30)
    return MixtureOfGaussians(
        0.3 * rng.randn(1, 30), rng.uniform(0.5, 2, (1, 30)), [1.0], rows, [1.0, 1.0], bound=math.inf
    )


def noisy_points(problem, lam, variance, n):
    """n draws of the noised tilted Gaussian, its covariance diagonal."""
    g = torch.Generator().manual_seed(5)
    cov = problem.covariances[0].diagonal()
    mean = problem.means[0] + cov * (lam @ problem.A)
    clean = mean + cov.sqrt() * torch.randn(n, len(cov), generator=g)
    return math.sqrt(1 - variance) * clean + math.sqrt(variance) * torch.randn(clean.shape, generator=g)


def relative_error(problem, lam, variance, count, n, candidates="lemma"):
    z = noisy_points(problem, lam, variance, n)
    score = MonteCarloScore(problem, fixed_noise(variance), 1.0, count, candidates)
    got = score(z.unsqueeze(0), 1, lam.view(1, 1, -1), None, torch.Generator().manual_seed(6)).value[0]
    exact = tilted_gaussian_score(problem, lam, z, variance)
    return math.sqrt(float((got - exact).square().sum() / exact.square().sum()))


@pytest.mark.parametrize(
    ("problem", "variance", "n"),
    [(two_constraints(), 0.05, 400), (two_constraints(), 0.5, 400), (thirty_dimensions(), 0.05, 60)],
    ids=["d3-low", "d3-half", "d30-low"],
)
def test_lemma_converges_at_the_monte_carlo_rate(problem, variance, n):
    lam = torch.tensor([0.5, 0.3])
    errors = [relative_error(problem, lam, variance, count, n) for count in COUNTS]
    assert -0.6 <= slope(COUNTS, errors) <= -0.38
    if problem.latent_dim == 3 and variance == 0.5:
        assert errors[-1] < 0.09


def unit_gaussian(b: float = -100.0) -> MixtureOfGaussians:
    return MixtureOfGaussians([[0.0]], [[1.0]], [1.0], [[1.0]], [b], bound=math.inf)


@pytest.mark.parametrize("variance", [0.2, 0.5, 0.8])
def test_unscaled_converges_to_the_convolved_score(variance):
    """On a unit Gaussian −z/(1 + σ²) and not −z: short by the fraction σ²/(1 + σ²)."""
    z = torch.linspace(-2, 2, 9).view(1, 9, 1)
    zero = torch.zeros(1, 1, 1)
    draws = {}
    for form in ("lemma", "unscaled"):
        score = MonteCarloScore(unit_gaussian(), fixed_noise(variance), 1.0, 200_000, form)
        draws[form] = score(z, 1, zero, None, torch.Generator().manual_seed(0)).value
    assert torch.allclose(draws["lemma"], -z, atol=0.04)
    assert torch.allclose(draws["unscaled"], -z / (1 + variance), atol=0.04)
    missing = 1 - float((draws["unscaled"] * -z).sum() / z.square().sum())
    assert missing == pytest.approx(variance / (1 + variance), abs=0.02)


def effective_sample_size(problem, variance, count=512):
    lam = torch.zeros(problem.n_constraints)
    z = noisy_points(problem, lam, variance, 50).unsqueeze(0)
    score = MonteCarloScore(problem, fixed_noise(variance), 1.0, count)
    return score(z, 1, lam.view(1, 1, -1), None, torch.Generator().manual_seed(0)).effective_sample_size


def test_weights_degenerate_where_the_docs_say():
    """σ/α = 4 in three dimensions, σ² = .5 in thirty: a handful of 512 candidates carries the weight."""
    small, large = two_constraints(), thirty_dimensions()
    assert effective_sample_size(small, 0.05) > 350
    assert effective_sample_size(small, 16 / 17) < 20
    assert effective_sample_size(large, 0.05) > 50
    assert effective_sample_size(large, 0.5) < 6


def test_effective_sample_size_against_quadrature():
    """K (E w)²/E w² for w = exp(−c²/2), c ~ N(z/α, (σ/α)²): Gaussian integrals."""
    variance, count, z = 0.5, 100_000, 1.0
    s2, mean = 1.0, z / math.sqrt(0.5)
    first = math.exp(-(mean**2) / (2 * (1 + s2))) / math.sqrt(1 + s2)
    second = math.exp(-(mean**2) / (1 + 2 * s2)) / math.sqrt(1 + 2 * s2)
    score = MonteCarloScore(unit_gaussian(), fixed_noise(variance), 1.0, count)
    at = torch.full((1, 1, 1), z)
    found = score(at, 1, torch.zeros(1, 1, 1), None, torch.Generator().manual_seed(0))
    assert found.effective_sample_size == pytest.approx(count * first**2 / second, rel=0.03)


@pytest.mark.parametrize("bound", [math.inf, 0.8])
@pytest.mark.parametrize("form", ["lemma", "unscaled"])
def test_estimate_is_the_gradient_of_its_own_log_mean(form, bound):
    """Against autograd through log Σ exp(−E(clip(c_k)/β)) on the same candidates."""
    p = MixtureOfGaussians(
        [[0.5, 0.0], [-1.0, 1.0]], [[0.5, 1], [1, 0.4]], [0.4, 0.6], [[1.0, 1]], [0.5], bound
    )
    variance, beta, count = 0.4, 0.7, 16
    z = torch.randn(2, 5, 2, generator=torch.Generator().manual_seed(2))
    lam = torch.tensor([0.3, 1.2]).view(2, 1, 1)
    score = MonteCarloScore(p, fixed_noise(variance), beta, count, form)
    got = score(z, 1, lam, None, torch.Generator().manual_seed(3)).value
    noise = torch.randn(count, *z.shape, generator=torch.Generator().manual_seed(3))
    z = z.requires_grad_(True)
    c = (z + math.sqrt(variance) * noise) / (math.sqrt(1 - variance) if form == "lemma" else 1.0)
    c = c.clamp(-bound, bound)
    energy = (p.objective(c) + (lam * p.constraints(c)).sum(-1)) / beta
    (expected,) = torch.autograd.grad(torch.logsumexp(-energy, 0).sum(), z)
    assert torch.allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_alpha_floor_scales_candidates():
    """With the floor the estimate is that of a schedule whose α equals the floor, at the same σ."""
    z = torch.full((1, 3, 1), 0.5)
    low = fixed_noise(0.99)
    floored = MonteCarloScore(unit_gaussian(), low, 1.0, 50_000, alpha_min=0.3)
    got = floored(z, 1, torch.zeros(1, 1, 1), None, torch.Generator().manual_seed(0)).value
    # exp(−E) convolved with N(0, σ²/α'²) at z/α': variance 1 + σ²/α'².
    expected = -0.5 / (0.3**2 + 0.99)
    assert torch.allclose(got, torch.full_like(got, expected), atol=0.03)


def test_huge_energies_do_not_overflow():
    p = MixtureOfGaussians.instance()
    score = MonteCarloScore(p, make_schedule("cosine", 10), 1e-6, 8)
    z = 30 * torch.randn(1, 4, 30, generator=torch.Generator().manual_seed(0))
    assert torch.isfinite(score(z, 10, torch.full((1, 1, 10), 1e4), None, torch.Generator()).value).all()


def test_analytic_and_autograd_gradients_give_the_same_score():
    p, schedule = MixtureOfGaussians.instance(dim=6, n_modes=3, n_constraints=2), make_schedule("cosine", 10)
    z, lam = torch.randn(1, 9, 6, generator=torch.Generator().manual_seed(0)), torch.ones(1, 1, 2)
    both = [
        MonteCarloScore(q, schedule, 0.1, 32)(z, 5, lam, None, torch.Generator().manual_seed(1)).value
        for q in (p, AutogradProblem(p))
    ]
    assert torch.allclose(*both, rtol=1e-3, atol=1e-3)


def test_exact_score_of_one_gaussian_at_any_temperature():
    p, schedule, beta = one_constraint(), make_schedule("linear", 50), 0.3
    z, lam = (
        torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0)),
        torch.tensor([0.5, 2.0]).view(2, 1, 1),
    )
    got = ExactScore(p, schedule, beta)(z, 20, lam, None, torch.Generator()).value
    alpha, sigma = float(schedule.alpha[20]), float(schedule.sigma[20])
    cov = torch.tensor([0.5, 1.0, 2.0])
    for c in range(2):
        mean = cov * p.A[0] * lam[c, 0, 0]  # β C · Aᵀλ/β
        expected = (alpha * mean - z[c]) / (alpha**2 * beta * cov + sigma**2)
        assert torch.allclose(got[c], expected, atol=1e-4)


@pytest.mark.parametrize("alpha_min", [0.0, 0.99])
def test_network_score_gives_back_the_clean_estimate(alpha_min):
    """Tweedie's formula, with the same floor, undoes it; samples beyond a chunk keep their place."""

    def estimate(z, alpha, sigma, lam, problem):
        assert alpha.shape == sigma.shape == (1, 1) and lam.shape == (len(z), 1) and problem is p
        assert torch.allclose(alpha**2 + sigma**2, torch.ones_like(alpha))
        return z.sin() + lam

    p, schedule = two_modes(), make_schedule("cosine", 10)
    z, lam = torch.linspace(-1, 1, 2 * 90 * 2).view(2, 90, 2), torch.tensor([0.5, 2.0]).view(2, 1, 1)
    got = NetworkScore(estimate, p, schedule, alpha_min)(z, 3, lam, None, torch.Generator()).value
    assert torch.allclose(tweedie(z, got, 3, schedule, alpha_min), z.sin() + lam, atol=1e-5)


def test_monte_carlo_score_at_mixed_times():
    """Times per sample give, row by row, what one time for all gives with the same candidates."""
    p, schedule = two_modes(), make_schedule("cosine", 10)
    score = MonteCarloScore(p, schedule, 1.0, 3)
    generator = torch.Generator().manual_seed(0)
    z, lam = torch.randn(5, 1, 2, generator=generator), torch.rand(5, 1, 1, generator=generator)
    tau = torch.tensor([1, 4, 4, 9, 10]).view(5, 1, 1)
    mixed = score(z, tau, lam, None, torch.Generator().manual_seed(1)).value
    for i, t in enumerate(tau.flatten().tolist()):
        alone = score(z, t, lam, None, torch.Generator().manual_seed(1)).value
        assert torch.allclose(mixed[i], alone[i], rtol=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_candidates": 0}, "n_candidates must be a whole number ≥ 1, got 0"),
        ({"n_candidates": 2.5}, "n_candidates must be a whole number ≥ 1, got 2.5"),
        ({"beta": 0.0}, "beta must be a finite number > 0, got 0"),
        ({"beta": -1.0}, "beta must be a finite number > 0, got -1"),
        ({"beta": math.nan}, "beta must be a finite number > 0, got nan"),
        ({"candidates": "lema"}, "candidates must be one of lemma, unscaled.*did you mean lemma"),
        ({"alpha_min": -0.1}, "alpha_min must be a finite number ≥ 0, got -0.1"),
    ],
)
def test_bad_input_is_refused(change, message):
    arguments = {
        "problem": two_modes(),
        "schedule": make_schedule("cosine", 5),
        "beta": 1.0,
        "n_candidates": 4,
    }
    with pytest.raises(ValueError, match=message):
        MonteCarloScore(**{**arguments, **change})
