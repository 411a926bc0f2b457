import math

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.integrate import trapezoid

from pdi_gym.diffusion import ancestral_step, forward, posterior_step, tweedie
from pdi_gym.schedules import make_schedule

SCHEDULE = make_schedule("cosine", 20)


def test_forward_marginal_has_the_closed_form_moments():
    g = torch.Generator().manual_seed(0)
    clean = 2.0 + 0.5 * torch.randn(200_000, generator=g)
    for tau in (1, 8, 20):
        z = forward(clean, tau, SCHEDULE, torch.randn(clean.shape, generator=g)).double()
        alpha, sigma = float(SCHEDULE.alpha[tau]), float(SCHEDULE.sigma[tau])
        variance = alpha**2 * 0.25 + sigma**2
        assert abs(float(z.mean()) - 2 * alpha) < 4 * math.sqrt(variance / len(z))
        assert float(z.var()) == pytest.approx(variance, rel=4 * math.sqrt(2 / len(z)))


@pytest.mark.parametrize("tau", [3, 10, 17])
def test_tweedie_is_the_posterior_mean(tau):
    """Both sides by quadrature on a bimodal, skewed density; the score by central differences."""
    alpha, sigma = float(SCHEDULE.alpha[tau]), float(SCHEDULE.sigma[tau])
    y = np.linspace(-8, 8, 20_001)
    prior = 0.7 * stats.norm.pdf(y, -1, 0.4) + 0.3 * stats.gamma.pdf(y, 2, loc=1, scale=0.5)

    def density(z):
        return trapezoid(prior * stats.norm.pdf(z, alpha * y, sigma), y)

    for z in (-1.5, 0.2, 1.1):
        weight = prior * stats.norm.pdf(z, alpha * y, sigma)
        posterior_mean = trapezoid(y * weight, y) / trapezoid(weight, y)
        score = (math.log(density(z + 1e-4)) - math.log(density(z - 1e-4))) / 2e-4
        got = tweedie(torch.tensor([z]), torch.tensor([score]), tau, SCHEDULE)
        assert float(got) == pytest.approx(posterior_mean, abs=2e-4)


def test_alpha_floor_divides_by_the_floor_only_where_it_binds():
    z, score = torch.tensor([1.0]), torch.tensor([-0.5])
    late, early = 2, 20
    assert float(SCHEDULE.alpha[late]) > 0.3 > float(SCHEDULE.alpha[early])
    assert torch.equal(tweedie(z, score, late, SCHEDULE, 0.3), tweedie(z, score, late, SCHEDULE))
    variance = float(SCHEDULE.sigma[early]) ** 2
    assert float(tweedie(z, score, early, SCHEDULE, 0.3)) == pytest.approx((1 - 0.5 * variance) / 0.3)


@pytest.mark.parametrize("tau", [2, 9, 20])
def test_posterior_step_is_bayes_rule(tau):
    """N(z'; α' x0, σ'²) · N(z; √a z', b) as a product of two Gaussians in z', by precisions."""
    a, b = float(SCHEDULE.a[tau]), float(SCHEDULE.b[tau])
    alpha, variance = float(SCHEDULE.alpha[tau - 1]), float(SCHEDULE.sigma[tau - 1]) ** 2
    z, clean, noise = 0.7, -1.3, 0.4
    precision = 1 / variance + a / b
    mean = (alpha * clean / variance + math.sqrt(a) * z / b) / precision
    got = posterior_step(*(torch.tensor([v]) for v in (z, clean)), tau, SCHEDULE, torch.tensor([noise]))
    assert float(got) == pytest.approx(mean + noise / math.sqrt(precision), rel=1e-4)


def test_last_posterior_step_is_the_clean_estimate_without_noise():
    clean = torch.tensor([3.0])
    got = posterior_step(torch.tensor([1.0]), clean, 1, SCHEDULE, torch.tensor([9.0]))
    assert torch.equal(got, clean) and got is not clean


@pytest.mark.parametrize("tau", [1, 9, 20])
def test_ancestral_step_is_the_papers_with_the_score_rebuilt(tau):
    a, b = float(SCHEDULE.a[tau]), float(SCHEDULE.b[tau])
    z, score, noise = torch.tensor([0.8]), torch.tensor([-0.35]), torch.tensor([0.2])
    got = ancestral_step(z, tweedie(z, score, tau, SCHEDULE), tau, SCHEDULE, noise)
    expected = (0.8 + b * -0.35) / math.sqrt(a) + math.sqrt(b) * 0.2
    assert float(got) == pytest.approx(expected, rel=1e-4, abs=1e-5)
