"""Problems that are none of the shipped ones, with optima known from outside, in any units.

Every problem takes `units`: the objective is multiplied by `objective`, constraint j by `constraints`
(a number, or one for each) and decisions by `decisions`. None of them changes what is optimal but its unit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import brentq, linprog, minimize
from scipy.special import exp1
from torch import Tensor

from pdi_gym import Problem, TimeSharingPolicy


@dataclass(frozen=True)
class Units:
    """What one unit of the objective, the constraints and the decisions is called."""

    objective: float = 1.0
    constraints: float | tuple[float, ...] = 1.0
    decisions: float = 1.0


class Own(Problem):
    """A problem in given units; subclasses write `cost` and `excess` of decisions in units of one."""

    reach = 1.0
    """Half-width of the box in units of one."""
    optimum: float
    """The least average cost, in units of one."""
    natural: float
    """What one per cent of the cost is a hundredth of: the optimum's size, or the range if it is near 0."""
    sizes: float | tuple[float, ...]
    """What one per cent of a constraint is a hundredth of: its limit's size, in units of one."""

    def __init__(self, units: Units | None = None):
        self.units = Units() if units is None else units
        factors = torch.tensor(self.units.constraints).expand(self.n_constraints)
        self.constraint_units = factors.clone()
        self.bound = self.reach * self.units.decisions

    def cost(self, x: Tensor, xi: Tensor | None) -> Tensor:
        raise NotImplementedError

    def excess(self, x: Tensor, xi: Tensor | None) -> Tensor:
        raise NotImplementedError

    def expected(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """True averages of cost and excess for decisions in units of one."""
        return self.cost(x, None), self.excess(x, None)

    def objective(self, x: Tensor, xi: Tensor | None = None) -> Tensor:
        return self.units.objective * self.cost(x / self.units.decisions, xi)

    def constraints(self, x: Tensor, xi: Tensor | None = None) -> Tensor:
        return self.constraint_units * self.excess(x / self.units.decisions, xi)


class Signal(Own):
    """Three sensors spend |x|² so that their faded signals sum to one: x = 1/3 each, at a cost of 1/3."""

    latent_dim, n_constraints, exact = 3, 1, False
    reach, optimum, natural, sizes = 2.0, 1 / 3, 1 / 3, 1.0

    def draw(self, n: int, generator: torch.Generator) -> Tensor:
        return -torch.log1p(-torch.rand((n, 3), generator=generator))

    def cost(self, x: Tensor, xi: Tensor | None) -> Tensor:
        return x.square().sum(-1)

    def excess(self, x: Tensor, xi: Tensor | None) -> Tensor:
        return 1 - (x if xi is None else x * xi.mean(0)).sum(-1, keepdim=True)


class Blend(Own):
    """A linear programme over a box: four ingredients, two average requirements (HiGHS)."""

    latent_dim, n_constraints = 4, 2
    price = torch.tensor([1.0, 2.2, 4.0, 3.1])
    need = torch.tensor([[1.0, 0.5, 2.0, 0.0], [0.0, 1.0, 1.5, 2.0]])
    level = torch.tensor([1.0, 1.5])
    sizes = (1.0, 1.5)

    def __init__(self, units: Units | None = None):
        super().__init__(units)
        self.optimum = linprog(self.price, -self.need, -self.level, bounds=(-1, 1)).fun
        self.natural = abs(self.optimum)

    def cost(self, x: Tensor, xi: Tensor | None) -> Tensor:
        return x @ self.price

    def excess(self, x: Tensor, xi: Tensor | None) -> Tensor:
        return self.level - x @ self.need.T


class Wells(Own):
    """Two wells at x₀ = ±1 of height ±½, E x₀ ≥ ⅕: six tenths of the time in the higher one, cost ½·⅕.

    The convex hull of (x² − 1)² is 0 between the wells, so the tilt alone is paid.
    """

    latent_dim, n_constraints = 2, 1
    reach, optimum, natural, sizes = 2.0, 0.1, 1.0, 1.0

    def cost(self, x: Tensor, xi: Tensor | None) -> Tensor:
        return (x[..., 0].square() - 1).square() + 0.5 * x[..., 0] + x[..., 1].square()

    def excess(self, x: Tensor, xi: Tensor | None) -> Tensor:
        return 0.2 - x[..., :1]


class Pull(Own):
    """No box: ½ xᵀQx with aᵀx ≥ b costs b²/(2 aᵀQ⁻¹a)."""

    latent_dim, n_constraints = 3, 1
    reach, sizes = math.inf, 2.0
    Q = torch.tensor([[2.0, 0.5, 0.0], [0.5, 1.0, 0.3], [0.0, 0.3, 0.5]])
    a, b = torch.tensor([1.0, -1.0, 0.5]), 2.0
    optimum = natural = b**2 / 2 / float(a @ torch.linalg.solve(Q, a))

    def cost(self, x: Tensor, xi: Tensor | None) -> Tensor:
        return 0.5 * (x * (x @ self.Q)).sum(-1)

    def excess(self, x: Tensor, xi: Tensor | None) -> Tensor:
        return self.b - (x * self.a).sum(-1, keepdim=True)


class Cover(Own):
    """The least |x − c|² in five dimensions under ten half-spaces (SciPy's SLSQP on a convex programme)."""

    latent_dim, n_constraints = 5, 10
    reach, sizes = 3.0, 1.0
    _rng = np.random.default_rng(4)
    A = torch.tensor(_rng.normal(size=(10, 5)) / 5**0.5, dtype=torch.float32)
    b = A @ torch.tensor([0.3, 0.2, -0.5, 0.8, -0.2]) - torch.tensor(_rng.uniform(0, 0.3, 10)).float()
    c = torch.tensor([1.0, -1.0, 0.5, 0.0, 1.0])

    def __init__(self, units: Units | None = None):
        super().__init__(units)
        A, b, c = (t.double().numpy() for t in (self.A, self.b, self.c))
        found = minimize(
            lambda x: ((x - c) ** 2).sum(), np.zeros(5), bounds=[(-3, 3)] * 5, method="SLSQP",
            constraints=[{"type": "ineq", "fun": lambda x: A @ x - b}], options={"ftol": 1e-12},
        )  # fmt: skip
        assert found.success
        self.optimum = self.natural = found.fun

    def cost(self, x: Tensor, xi: Tensor | None) -> Tensor:
        return (x - self.c).square().sum(-1)

    def excess(self, x: Tensor, xi: Tensor | None) -> Tensor:
        return self.b - x @ self.A.T


class Slack(Own):
    """|x − (1, 1)|² with E(x₀ + x₁) ≤ 1 and an idle E x₀ ≤ ¾: x = (½, ½), cost ½."""

    latent_dim, n_constraints = 2, 2
    reach, optimum, natural, sizes = 2.0, 0.5, 0.5, (1.0, 0.75)

    def cost(self, x: Tensor, xi: Tensor | None) -> Tensor:
        return (x - 1).square().sum(-1)

    def excess(self, x: Tensor, xi: Tensor | None) -> Tensor:
        return torch.stack([x.sum(-1) - 1, x[..., 0] - 0.75], dim=-1)


class Rates(Own):
    """Least power for two faded links: E log(1 + ξ p) = e^{1/p} E₁(1/p) ≥ ½ each, p in [0, 4]."""

    latent_dim, n_constraints, exact = 2, 2, False
    reach, sizes = 2.0, 0.5
    optimum = natural = 2 * brentq(lambda p: np.exp(1 / p) * exp1(1 / p) - 0.5, 0.1, 4)

    def draw(self, n: int, generator: torch.Generator) -> Tensor:
        return -torch.log1p(-torch.rand((n, 2), generator=generator))

    def decode(self, z: Tensor) -> Tensor:
        return z + self.bound

    def encode(self, x: Tensor) -> Tensor:
        return x - self.bound

    def cost(self, x: Tensor, xi: Tensor | None) -> Tensor:
        return x.sum(-1)

    def excess(self, x: Tensor, xi: Tensor | None) -> Tensor:
        assert xi is not None
        faded = x.unsqueeze(-2) * xi  # (..., n, 2)
        return 0.5 - torch.log1p(faded.clamp(min=-0.999)).mean(-2)

    def expected(self, x: Tensor) -> tuple[Tensor, Tensor]:
        inverse = 1 / x.double().clamp(min=1e-2).numpy()
        return self.cost(x, None), 0.5 - torch.as_tensor(np.exp(inverse) * exp1(inverse))


class Switch(Own):
    """One number in [−1, 1] with concave cost x − x² and E x ≥ 0.3: on for .65 of the time, cost −0.7."""

    latent_dim, n_constraints = 1, 1
    optimum, natural, sizes = -0.7, 0.7, 1.0

    def cost(self, x: Tensor, xi: Tensor | None) -> Tensor:
        return x[..., 0] - x[..., 0].square()

    def excess(self, x: Tensor, xi: Tensor | None) -> Tensor:
        return 0.3 - x


class Shares(Own):
    """Parts of a whole, x = softmax(z): the best returns first, each up to its average cap (a knapsack)."""

    latent_dim, n_constraints = 4, 4
    reach = 6.0
    gain = torch.tensor([4.0, 3.0, 2.0, 1.0])
    cap = torch.tensor([0.3, 0.4, 0.5, 0.6])
    optimum, natural, sizes = -(4 * 0.3 + 3 * 0.4 + 2 * 0.3), 3.0, (0.3, 0.4, 0.5, 0.6)

    def __init__(self, units: Units | None = None):
        super().__init__(units)
        self.bound = self.reach  # latents are logits, whatever the unit of decisions

    def decode(self, z: Tensor) -> Tensor:
        return self.units.decisions * torch.softmax(z, -1)

    def encode(self, x: Tensor) -> Tensor:
        logits = (x / self.units.decisions).clamp(min=1e-12).log()
        return self.project(logits - logits.amax(-1, keepdim=True) + self.reach)

    def cost(self, x: Tensor, xi: Tensor | None) -> Tensor:
        return -(x @ self.gain)

    def excess(self, x: Tensor, xi: Tensor | None) -> Tensor:
        return x - self.cap


class Charging(Own):
    """Charge a car in six hours at random prices: enough energy on average, no hour above its cap (HiGHS)."""

    latent_dim, n_constraints, exact = 6, 7, False
    price = torch.tensor([5.0, 3.0, 2.0, 2.5, 4.0, 6.0])
    cap = torch.tensor([0.9, 0.8, 0.6, 0.7, 0.9, 0.9])
    energy = 3.0
    sizes = (energy, *cap.tolist())

    def __init__(self, units: Units | None = None):
        super().__init__(units)
        rows = np.vstack([-np.ones((1, 6)), np.eye(6)])
        right = np.concatenate([[-self.energy], self.cap.numpy()])
        self.optimum = linprog(self.price.numpy(), rows, right, bounds=(0, 1)).fun
        self.natural = self.optimum
        self.bound = 0.5 * self.units.decisions

    def draw(self, n: int, generator: torch.Generator) -> Tensor:
        return 0.5 + torch.rand((n, 6), generator=generator)

    def decode(self, z: Tensor) -> Tensor:
        return z + 0.5 * self.units.decisions

    def encode(self, x: Tensor) -> Tensor:
        return x - 0.5 * self.units.decisions

    def cost(self, x: Tensor, xi: Tensor | None) -> Tensor:
        price = self.price if xi is None else self.price * xi.mean(0)
        return x @ price

    def excess(self, x: Tensor, xi: Tensor | None) -> Tensor:
        return torch.cat([self.energy - x.sum(-1, keepdim=True), x - self.cap], -1)


class Patrol(Own):
    """A drone that rests at the centre watches each of four corners a fifth of the time, in noisy air.

    The oracle is a linear programme over a grid of 40,401 places (HiGHS), 0.1 % from the continuum's.
    """

    latent_dim, n_constraints, exact = 2, 4, False
    sizes = 0.2
    sites = torch.tensor([[0.8, 0.8], [-0.8, 0.8], [-0.8, -0.8], [0.8, -0.8]])

    def __init__(self, units: Units | None = None):
        super().__init__(units)
        # One corner by symmetry: a share of a quarter each must watch every corner enough on average.
        axis = torch.linspace(-1, 1, 201)
        places = torch.cartesian_prod(axis, axis)
        cost, excess = self.cost(places, None).numpy(), self.excess(places, None).mean(-1).numpy()
        self.optimum = linprog(cost, excess[None], [0.0], np.ones((1, len(cost))), [1.0]).fun
        self.natural = self.optimum

    def draw(self, n: int, generator: torch.Generator) -> Tensor:
        return 0.5 + torch.rand((n, 4), generator=generator)

    def cost(self, x: Tensor, xi: Tensor | None) -> Tensor:
        return x.norm(dim=-1)

    def excess(self, x: Tensor, xi: Tensor | None) -> Tensor:
        near = torch.exp(-4 * (x.unsqueeze(-2) - self.sites).square().sum(-1))
        return 0.2 - (near if xi is None else near * xi.mean(0))


OWN: dict[str, Callable[..., Own]] = {
    "signal": Signal, "blend": Blend, "wells": Wells, "pull": Pull, "cover": Cover, "slack": Slack,
    "rates": Rates, "switch": Switch, "shares": Shares, "charging": Charging,
    "patrol": Patrol,
}  # fmt: skip


def shortfall(problem: Own, policy: TimeSharingPolicy) -> tuple[float, float]:
    """How far a policy is above the optimum and, worst, above a constraint, as fractions of their sizes."""
    weights = torch.as_tensor(policy.weights)
    x = torch.as_tensor(policy.actions) / problem.units.decisions
    cost, excess = problem.expected(x)
    residuals = weights @ excess.double() / torch.tensor(problem.sizes, dtype=torch.float64)
    gap = (float(weights @ cost.double()) - problem.optimum) / problem.natural
    return gap, float(residuals.max())
