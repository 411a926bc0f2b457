import math

import numpy as np
import pytest
import torch
from scipy.integrate import trapezoid
from scipy.linalg import sqrtm
from scipy.stats import norm

from pdi_gym.duals import Ascent
from pdi_gym.experiments.theory import (
    dual_gap,
    dual_gradient,
    dual_sensitivities,
    dual_value,
    kernel_defects,
    optimal_dual,
    reverse_laws,
    stability_factors,
    stability_products,
    theorem_2_bound,
    w2_gaussian,
    w2_of_samples,
)
from pdi_gym.problems.mixture import MixtureOfGaussians
from pdi_gym.samplers import Reverse, pdi
from pdi_gym.schedules import make_schedule
from pdi_gym.scores import ExactScore
from tests.oracles import active_dual, one_constraint, two_constraints, two_modes


def line(b: float = 0.7) -> MixtureOfGaussians:
    """One dimension, so that every integral is a sum over a grid."""
    return MixtureOfGaussians([[0.3]], [[0.8]], [1.0], [[1.5]], [b], bound=math.inf)


@pytest.mark.parametrize("beta", [1.0, 0.2, 3.0])
@pytest.mark.parametrize("lam", [0.0, 0.9])
def test_dual_value_is_minus_beta_log_of_the_partition_function(beta, lam):
    p = line()
    x = np.linspace(-40, 40, 200_001)
    energy = 0.5 * (x - 0.3) ** 2 / 0.8 + 0.5 * math.log(2 * math.pi * 0.8) + lam * (0.7 - 1.5 * x)
    low = (energy / beta).min()
    log_z = math.log(trapezoid(np.exp(-(energy / beta - low)), x)) - low
    assert dual_value(p, torch.tensor([lam]), beta) == pytest.approx(-beta * log_z, abs=1e-5)


def test_dual_value_of_a_mixture_by_quadrature():
    p = MixtureOfGaussians([[-1.0], [2.0]], [[0.3], [0.9]], [0.7, 0.3], [[1.0]], [0.5], bound=math.inf)
    x = np.linspace(-20, 20, 100_001)
    density = sum(
        w * np.exp(-0.5 * (x - m) ** 2 / v) / math.sqrt(2 * math.pi * v)
        for w, m, v in ((0.7, -1.0, 0.3), (0.3, 2.0, 0.9))
    )
    z = trapezoid(density * np.exp(-0.6 * (0.5 - x)), x)
    assert dual_value(p, torch.tensor([0.6]), 1.0) == pytest.approx(-math.log(z), abs=1e-5)


@pytest.mark.parametrize("problem", [two_constraints(), two_modes()], ids=["gaussian", "two modes"])
def test_dual_gradient_is_the_slope_of_the_value(problem):
    m = problem.n_constraints
    lam = torch.tensor([0.4, 1.1], dtype=torch.float64)[:m]
    for j, h in enumerate(1e-5 * torch.eye(m, dtype=torch.float64)):
        numeric = (dual_value(problem, lam + h, 1.0) - dual_value(problem, lam - h, 1.0)) / 2e-5
        assert float(dual_gradient(problem, lam, 1.0)[j]) == pytest.approx(numeric, abs=1e-5)


@pytest.mark.parametrize("beta", [1.0, 0.1])
def test_optimal_dual_of_active_constraints_solves_the_linear_system(beta):
    problem = two_constraints()
    assert torch.allclose(optimal_dual(problem, beta), active_dual(problem), atol=1e-5)


def test_optimal_dual_of_two_modes_by_scanning():
    problem = two_modes()
    grid = np.linspace(0, 1.5, 1501)
    values = [dual_value(problem, torch.tensor([lam]), 1.0) for lam in grid]
    lam = optimal_dual(problem, 1.0)
    assert float(lam) == pytest.approx(grid[int(np.argmax(values))], abs=2e-3)
    assert float(lam) == pytest.approx(0.468, abs=1e-3)
    assert problem.tilted(lam, 1.0).weights.tolist() == pytest.approx([0.490, 0.510], abs=1e-3)


def test_optimal_dual_meets_the_kkt_conditions_with_some_constraints_inactive():
    problem = MixtureOfGaussians.instance()
    lam = optimal_dual(problem, 1.0)
    residual = dual_gradient(problem, lam, 1.0)
    assert (lam >= 0).all() and float(residual.max()) < 1e-5 and float((lam * residual).abs().max()) < 1e-4
    assert 0 < int((lam > 0).sum()) < 10
    assert float(optimal_dual(one_constraint(-1.0), 1.0)) == 0


def test_infeasible_constraints_are_refused():
    problem = MixtureOfGaussians([[0.0]], [[1.0]], [1.0], [[1.0], [-1.0]], [1.0, 1.0], bound=math.inf)
    with pytest.raises(ValueError, match="A, b must leave a strictly feasible mean"):
        optimal_dual(problem, 1.0)


def test_dual_gap_of_a_gaussian_is_a_parabola():
    """D* − g(λ) = ½ (λ − λ*)ᵀ A C Aᵀ (λ − λ*) at every temperature."""
    problem = two_constraints()
    A, C = problem.A.double(), problem.covariances[0].double()
    for lam in (torch.zeros(2), torch.tensor([6.0, 1.0])):
        off = lam.double() - active_dual(problem)
        assert dual_gap(problem, lam, 1.0) == pytest.approx(float(0.5 * off @ A @ C @ A.mT @ off), rel=1e-4)
        assert dual_gap(problem, lam, 0.3) == pytest.approx(float(0.5 * off @ A @ C @ A.mT @ off), rel=1e-4)


def test_w2_of_gaussians():
    g = np.random.RandomState(0)
    m1, m2 = g.randn(3), g.randn(3)
    a, b = g.randn(3, 3), g.randn(3, 3)
    c1, c2 = a @ a.T + np.eye(3), b @ b.T + 0.5 * np.eye(3)
    root = sqrtm(sqrtm(c1) @ c2 @ sqrtm(c1)).real
    expected = math.sqrt(((m1 - m2) ** 2).sum() + np.trace(c1 + c2 - 2 * root))
    assert w2_gaussian(*(torch.from_numpy(v) for v in (m1, c1, m2, c2))) == pytest.approx(expected, rel=1e-6)
    one = [torch.tensor(v, dtype=torch.float64) for v in ([1.0], [[4.0]], [3.0], [[0.25]])]
    assert w2_gaussian(*one) == pytest.approx(math.hypot(2.0, 2.0 - 0.5))


def test_w2_of_samples_against_sorted_quantiles():
    """In one dimension W2 is the distance of the quantile functions."""
    n = 50_000
    x = 0.4 + 1.3 * torch.randn(n, 1, generator=torch.Generator().manual_seed(0))
    quantiles = norm.ppf((np.arange(n) + 0.5) / n, 1.0, 0.7)
    exact = math.sqrt(((np.sort(x[:, 0].numpy()) - quantiles) ** 2).mean())
    got = w2_of_samples(x, torch.tensor([1.0]), torch.tensor([[0.49]]))
    assert got == pytest.approx(exact, rel=5e-3)


def test_stability_factor_of_a_gaussian_is_the_largest_contraction():
    problem, s = two_constraints(), make_schedule("linear", 30)
    rho = stability_factors(problem.tilted(active_dual(problem), 1.0), s)
    for t in (0, 11, 29):
        a, b, alpha, sigma = (float(v[30 - t]) for v in (s.a, s.b, s.alpha, s.sigma))
        expected = max(abs(1 - b / (alpha**2 * c + sigma**2)) for c in (0.5, 1.0, 2.0)) / math.sqrt(a)
        assert float(rho[t]) == pytest.approx(expected, rel=1e-6)


def test_stability_factor_of_a_mixture_bounds_its_sampled_pairs():
    """Between near points two coupled steps part by at most ρ; midway between modes by more than 1."""
    problem, s = two_modes(), make_schedule("cosine", 40)
    law = problem.tilted(torch.tensor([0.468], dtype=torch.float64), 1.0)
    middle = torch.stack([torch.linspace(-1.5, 1.5, 61), torch.linspace(0, 1, 61)], 1).double()
    rho = stability_factors(law, s, middle)
    assert float(rho.max()) > 1.01
    with pytest.raises(ValueError, match="z must be clean samples"):
        stability_factors(law, s)
    tau, noise = 20, torch.randn(middle.shape, generator=torch.Generator().manual_seed(0)).double()
    a, b, alpha, sigma = (float(v[tau]) for v in (s.a, s.b, s.alpha, s.sigma))
    points = alpha * middle + sigma * noise
    q, largest = law.noised(alpha, sigma), 0.0
    for angle in np.linspace(0, math.pi, 37):
        h = 1e-4 * torch.tensor([math.cos(angle), math.sin(angle)], dtype=torch.float64)
        moved = (2 * h + b * (q.score(points + h) - q.score(points - h))) / math.sqrt(a)
        largest = max(largest, float(moved.norm(dim=1).max()) / 2e-4)
    # The noise of the sampled points is drawn inside, so only the size of the supremum is compared.
    assert float(rho[40 - tau]) == pytest.approx(largest, rel=0.05)


def test_dual_sensitivity_is_the_change_of_the_score():
    problem, s, beta = two_constraints(), make_schedule("cosine", 20), 0.4
    lam = torch.tensor([0.7, 0.2], dtype=torch.float64)
    gamma = dual_sensitivities(problem, problem.tilted(lam, beta), s, beta)
    z = torch.tensor([[0.3, -0.4, 1.0]], dtype=torch.float64)
    for t in (1, 10, 19):
        alpha, sigma = float(s.alpha[20 - t]), float(s.sigma[20 - t])
        columns = [
            problem.tilted(lam + h, beta).noised(alpha, sigma).score(z)
            - problem.tilted(lam - h, beta).noised(alpha, sigma).score(z)
            for h in 1e-3 * torch.eye(2, dtype=torch.float64)
        ]
        jacobian = torch.cat(columns).mT / 2e-3
        assert float(gamma[t]) == pytest.approx(float(torch.linalg.matrix_norm(jacobian, ord=2)), rel=1e-4)


def test_stability_products_leave_out_their_own_step():
    rho = torch.tensor([0.5, 2.0, 3.0, 0.1], dtype=torch.float64)
    assert stability_products(rho).tolist() == pytest.approx([0.6, 0.3, 0.1, 1.0])


@pytest.mark.parametrize("kernel", ["posterior", "ancestral"])
def test_reverse_laws_are_those_of_the_samples(kernel):
    problem, s, n = two_constraints(), make_schedule("cosine", 60), 20_000
    seen = []
    r = pdi(
        problem,
        ExactScore(problem, s, 1.0),
        s,
        n=n,
        generator=torch.Generator().manual_seed(0),
        duals=Ascent(0.2),
        reverse=Reverse(kernel),
        callback=lambda step: seen.append(step.z[0].double()),
    )
    laws = reverse_laws(problem, s, r.dual_path[:, 0], 1.0, kernel)
    for t in (10, 40, 60):
        spread = laws.covariances[t].diagonal()
        assert ((seen[t - 1].mean(0) - laws.means[t]).abs() < 4.5 * (spread / n).sqrt()).all()
        assert torch.allclose(torch.cov(seen[t - 1].mT), laws.covariances[t], atol=0.1)


def test_theorem_2_holds_with_the_kernels_defect_and_not_always_without():
    """Frozen at λ* the printed bound is 0, but the discrete kernel is not the exact reversal."""
    problem, T = two_constraints(), 60
    s = make_schedule("cosine", T)
    target = active_dual(problem)
    law = problem.tilted(target, 1.0)
    rho, gamma = stability_factors(law, s), dual_sensitivities(problem, law, s, 1.0)
    defect = kernel_defects(problem, s, 1.0)

    def measured(path):
        end = reverse_laws(problem, s, path, 1.0, "ancestral")
        return w2_gaussian(end.means[-1], end.covariances[-1], law.means[0], law.covariances[0])

    frozen = target.expand(T, 2)
    assert theorem_2_bound(s, rho, gamma, torch.zeros(T)) == 0 < 1e-3 < measured(frozen)
    assert measured(frozen) < theorem_2_bound(s, rho, gamma, torch.zeros(T), defect)
    late = frozen + torch.linspace(3, 0.2, T, dtype=torch.float64)[:, None]
    distance = (late - target).norm(dim=1)
    assert 0.05 < measured(late) < theorem_2_bound(s, rho, gamma, distance, defect)


def test_kernel_defect_is_second_order_in_the_step():
    """A variance v becomes wrong by b²(1 − v)/(a v) in one step; unit variance is kept exactly."""
    problem, s = line(), make_schedule("linear", 50)
    defect = kernel_defects(problem, s, 1.0)
    for t in (5, 30, 49):
        a, b, alpha, sigma = (float(v[50 - t]) for v in (s.a, s.b, s.alpha, s.sigma))
        v = alpha**2 * 0.8 + sigma**2
        after = (v - b) / a
        expected = abs(math.sqrt(after + b**2 * (1 - v) / (a * v)) - math.sqrt(after))
        assert float(defect[t]) == pytest.approx(expected, rel=2e-2, abs=1e-7)


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="beta must be a finite number > 0, got 0"):
        dual_value(two_constraints(), torch.zeros(2), 0.0)
    with pytest.raises(ValueError, match=r"lam must have shape \(2,\), got \(3,\)"):
        dual_value(two_constraints(), torch.zeros(3), 1.0)
    with pytest.raises(ValueError, match="beta must be 1 for a closed form"):
        dual_value(two_modes(), torch.zeros(1), 0.5)
    with pytest.raises(ValueError, match="problem must have one mode"):
        reverse_laws(two_modes(), make_schedule("cosine", 3), torch.zeros(3, 1), 1.0)
    with pytest.raises(ValueError, match="kernel must be one of posterior, ancestral"):
        reverse_laws(line(), make_schedule("cosine", 3), torch.zeros(3, 1), 1.0, "euler")
