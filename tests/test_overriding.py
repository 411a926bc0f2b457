"""A subclass that overrides `objective` or `constraints` is followed by everything that uses them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pdi_gym import Problem, TimeSharingPolicy, zoo
from pdi_gym.agents import make_agent
from pdi_gym.envs import ErgodicEnv
from pdi_gym.envs.vector import ErgodicVectorEnv
from pdi_gym.evaluation import averages, evaluate
from pdi_gym.problem import keeps
from pdi_gym.problems import MixtureOfGaussians, Portfolio, WirelessPower
from pdi_gym.time_sharing.reference import certified_bound
from pdi_gym.time_sharing.reweighting import pool_values
from tests.cases import PROBLEMS, gaussian

FORMS = ("values", "slot", "slot_batch", "lagrangian_grad")


def cost(x: Tensor) -> Tensor:
    """What the subclass adds to twice the objective."""
    return x.square().sum(-1)


def factor(x: Tensor) -> Tensor:
    """By how much the subclass multiplies every constraint."""
    return 2 + x[..., :1].square()


class Change:
    """A problem, its subclass that overrides the named functions, and what these must give."""

    def __init__(self, name: str, what: tuple[str, ...]):
        self.before = PROBLEMS[name]()
        base, members = type(self.before), {}
        if "objective" in what:
            members["objective"] = lambda self, x, xi=None: 2 * base.objective(self, x, xi) + cost(x)
        if "constraints" in what:
            members["constraints"] = lambda self, x, xi=None: factor(x) * base.constraints(self, x, xi)
        self.what, cls = what, type(f"Own{base.__name__}", (base,), members)
        self.after: Problem = object.__new__(cls)
        vars(self.after).update(vars(self.before))
        generator = torch.Generator().manual_seed(1)
        self.xi = self.before.draw(3, generator)
        self.z = self.before.project(0.4 * torch.randn((3, self.before.latent_dim), generator=generator))
        self.x = self.before.decode(self.z)

    def expected(self, x: Tensor, f0: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
        """The subclass's values of decisions x that had f0 and f before."""
        if "objective" in self.what:
            f0 = 2 * f0 + cost(x).to(f0.dtype)
        return f0, factor(x).to(f.dtype) * f if "constraints" in self.what else f

    def of(self, x: Tensor, xi: Tensor | None) -> tuple[Tensor, Tensor]:
        return self.expected(x, self.before.objective(x, xi), self.before.constraints(x, xi))


@pytest.fixture(params=PROBLEMS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[("objective",), ("constraints",), ("objective", "constraints")], ids="+".join)
def change(request: pytest.FixtureRequest, name: str) -> Change:
    return Change(name, request.param)


def close(got: tuple[Any, Any], expected: tuple[Any, Any]) -> None:
    for a, b in zip(got, expected, strict=True):
        b = torch.as_tensor(b)
        scale = float(b.abs().max())
        torch.testing.assert_close(torch.as_tensor(a, dtype=b.dtype), b, rtol=1e-4, atol=1e-5 * scale)


def test_values_follow(change: Change) -> None:
    close(change.after.values(change.x, change.xi), change.of(change.x, change.xi))


@pytest.mark.parametrize("weight", [1.0, 0.0])
def test_the_gradient_follows(change: Change, weight: float) -> None:
    lam = torch.rand(change.before.n_constraints, generator=torch.Generator().manual_seed(2))
    z = change.z.clone().requires_grad_()
    f0, f = change.of(change.before.decode(z), change.xi)
    value = weight * f0 + f @ lam
    (grad,) = torch.autograd.grad(value.sum(), z)
    close(change.after.lagrangian_grad(change.z, lam, change.xi, weight), (value.detach(), grad))


def test_slots_follow_in_any_company(change: Change) -> None:
    before, after = change.before, change.after
    rows = [None if change.xi is None else change.xi[b : b + 1] for b in range(3)]
    changed = [change.of(change.x[b], rows[b]) for b in range(3)]
    plain = [
        (before.objective(change.x[b], rows[b]), before.constraints(change.x[b], rows[b])) for b in range(3)
    ]
    close(after.slot(change.x, change.xi), tuple(map(torch.stack, zip(*changed, strict=True))))
    xi = None if change.xi is None else change.xi.split(1)
    for problems in ([before, after, before], [after, before, after]):
        expected = [changed[b] if problems[b] is after else plain[b] for b in range(3)]
        got = type(problems[0]).slot_batch(problems, change.x, xi)
        close(got, tuple(map(torch.stack, zip(*expected, strict=True))))


def test_environments_follow(change: Change) -> None:
    action = np.linspace(-0.5, 0.5, change.before.latent_dim, dtype=np.float32)
    x = change.before.to_decision(torch.from_numpy(action))
    slots = []
    for problem in (change.before, change.after):
        env = ErgodicEnv(problem, horizon=3)
        env.reset(seed=5)
        _, reward, _, _, info = env.step(action)
        slots.append((torch.tensor(-reward), torch.from_numpy(info["residuals"])))
    close(slots[1], change.expected(x, *slots[0]))
    env = ErgodicVectorEnv(2, problem=change.after, horizon=3)
    env.reset(seed=[5, 6])
    _, rewards, _, _, info = env.step(np.stack([action, action]))
    close((-rewards[0], info["residuals"][0]), slots[1])


def test_evaluation_follows(change: Change) -> None:
    policy = TimeSharingPolicy(change.x[:1].numpy())
    before, after = (averages(policy, p, 20, 2) for p in (change.before, change.after))
    expected = change.expected(change.x[0], before.objective.mean(), before.residuals)
    close((after.objective.mean(), after.residuals), expected)
    assert evaluate(policy, change.after, 20, 2)["objective"] == pytest.approx(float(expected[0]), rel=1e-4)
    pool = pool_values(change.after, policy.actions, 10, torch.Generator().manual_seed(3))
    old = pool_values(change.before, policy.actions, 10, torch.Generator().manual_seed(3))
    close(pool, change.expected(change.x[:1], *map(torch.as_tensor, old)))


@pytest.mark.parametrize("agent", ["pdi-mc", "pdi-cg", "pdl", "expert"])
def test_samplers_follow(agent: str) -> None:
    """Under |x − c|² with the constraint met at c, every sampler settles near c instead of the mode."""
    centre = torch.tensor([2.0, -2.0, 2.0])

    class Pulled(MixtureOfGaussians):
        def objective(self, x: Tensor, xi: Tensor | None = None) -> Tensor:
            return 20 * (x - centre).square().sum(-1)

    problem = gaussian(5.0)
    pulled = Pulled(problem.means, problem.covariances, problem.weights, problem.A, problem.b, 5.0)
    policy = make_agent(agent).sample(pulled, n=32)
    np.testing.assert_allclose(policy.weights @ policy.actions, centre, atol=0.25)


def test_closed_forms_are_left_to_the_problems_they_hold_for(monkeypatch: pytest.MonkeyPatch) -> None:
    after = Change("plane", ("objective",)).after
    with pytest.raises(ValueError, match="score='exact' needs a closed form, OwnMixtureOfGaussians has none"):
        make_agent("pdi-mc", score="exact").sample(after, n=4)
    lam = torch.ones(2)
    assert certified_bound(PROBLEMS["plane"](), lam) is not None and certified_bound(after, lam) is None

    def never(*arguments: Any) -> Tensor:
        raise AssertionError("the special projection was used")

    for special, case in (("cimmino", "plane"), ("cap_risk", "portfolio")):
        monkeypatch.setattr(f"pdi_gym.agents.pdm.{special}", never)
        policy = make_agent("pdm", T=3).sample(Change(case, ("constraints",)).after, n=2)
        assert np.isfinite(policy.actions).all()
        with pytest.raises(AssertionError, match="special projection"):
            make_agent("pdm", T=3).sample(PROBLEMS[case](), n=2)


def test_shipped_weights_are_left_to_the_problems_they_were_trained_for() -> None:
    change = Change("wireless", ("constraints",))
    assert zoo.shipped("pdi-net", change.before) and not zoo.shipped("pdi-net", change.after)
    with pytest.raises(RuntimeError, match="no weights of pdi-net are shipped for OwnWirelessPower"):
        make_agent("pdi-net").sample(change.after, n=2)


class Halved(WirelessPower):
    """Every rate is halved: what objective and constraints are made of, not they themselves."""

    def rates(self, x: Tensor, xi: Tensor | None = None) -> Tensor:
        return super().rates(x, xi) / 2


def test_what_the_functions_are_made_of_counts_too() -> None:
    plain = WirelessPower.instance(0, "validation", n_users=4)
    halved = Halved(plain.gains, plain.r_min, plain.noise, plain.p_max)
    generator = torch.Generator().manual_seed(0)
    xi, x = plain.draw(2, generator), plain.p_max * torch.rand((2, 4), generator=generator)
    expected = plain.slot(x, xi)[0] / 2
    torch.testing.assert_close(halved.slot(x, xi)[0], expected)
    torch.testing.assert_close(Halved.slot_batch([halved, halved], x, xi.split(1))[0], expected)
    value, grad = halved.lagrangian_grad(plain.encode(x), torch.zeros(4), xi)
    old_value, old_grad = plain.lagrangian_grad(plain.encode(x), torch.zeros(4), xi)
    torch.testing.assert_close((value, grad), (old_value / 2, old_grad / 2), rtol=1e-4, atol=1e-5)
    assert keeps(halved, WirelessPower, "objective") and not keeps(halved, WirelessPower, "rates")


def test_rates_are_not_read_off_other_constraints() -> None:
    change = Change("wireless", ("constraints",))
    policy = TimeSharingPolicy(change.x.numpy())
    assert "mean_rate" in evaluate(policy, change.before, 5, 1)
    assert "mean_rate" not in evaluate(policy, change.after, 5, 1)


@pytest.mark.parametrize("base", [WirelessPower, Portfolio, MixtureOfGaussians])
def test_forms_are_dropped_only_where_they_must_be(base: type[Problem]) -> None:
    class Plain(base):  # type: ignore[misc,valid-type]
        extra = 1

    class Fused(base):  # type: ignore[misc,valid-type]
        def objective(self, x, xi=None):  # type: ignore[no-untyped-def]
            return x.sum(-1)

        def lagrangian_grad(self, z, lam, xi=None, objective_weight=1.0):  # type: ignore[no-untyped-def]
            return z.sum(-1), torch.ones_like(z)

    class Beneath(Fused):
        def constraints(self, x, xi=None):  # type: ignore[no-untyped-def]
            return x

    class Mixin:
        def objective(self, x, xi=None):  # type: ignore[no-untyped-def]
            return x.sum(-1)

    class Mixed(Mixin, base):  # type: ignore[misc,valid-type]
        pass

    for form in FORMS:
        own, generic = vars(base).get(form), vars(Problem)[form]
        assert form not in vars(Plain)  # inherited as it is: nothing is slower
        if own is not None:
            assert vars(Mixed)[form] is generic
    assert vars(Fused)["lagrangian_grad"].__qualname__.endswith("Fused.lagrangian_grad")
    assert vars(Beneath)["lagrangian_grad"] is vars(Problem)["lagrangian_grad"]
