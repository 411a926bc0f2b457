from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from pdi_gym import Problem, TimeSharingPolicy, evaluation, seeding
from pdi_gym.agents import make_agent
from pdi_gym.envs import ErgodicEnv
from pdi_gym.evaluation import compare, evaluate
from pdi_gym.problems import MixtureOfGaussians, Portfolio
from pdi_gym.store import Store
from pdi_gym.time_sharing.reference import reference_solution
from tests.cases import PROBLEMS, Sensors, Unbounded


def test_exact_metrics_by_hand() -> None:
    """One standard Gaussian in the plane, x_0 ≥ 1 on average, two weighted atoms."""
    problem = MixtureOfGaussians([[0.0, 0.0]], [[1.0, 1.0]], [1.0], [[1.0, 0.0]], [1.0])
    policy = TimeSharingPolicy(np.array([[3.0, 0.0], [0.0, 2.0]]), np.array([0.25, 0.75]))
    metrics = evaluate(policy, problem)
    expected = np.log(2 * np.pi) + 0.25 * 4.5 + 0.75 * 2.0
    assert metrics["objective"] == pytest.approx(expected, rel=1e-6)
    assert metrics["mean_violation"] == pytest.approx(0.25) and metrics["feasible"] == 0
    assert metrics["modes"] == 1 and metrics["mode_entropy"] == 0


def test_slots_equal_stepping_the_environment() -> None:
    problem, horizon = Sensors(), 40
    policy = make_agent("random").sample(problem, n=5, seed=2)
    metrics = evaluate(policy, problem, horizon=horizon, trials=5, paths=2, seed=9)
    env = ErgodicEnv(problem, horizon=horizon)
    objective, residuals = [], []
    for trial in range(5):
        env.reset(seed=seeding.path_seed(9, trial % 2))
        for atom in policy.schedule(horizon, seeding.rng(9, seeding.TRIALS, trial)):
            _, reward, _, _, info = env.step(env.to_action(policy.actions[atom]))
            objective.append(-reward)
        residuals.append(info["ergodic_residuals"])
    assert metrics["objective"] == pytest.approx(np.mean(objective), rel=1e-5)
    average = np.mean(residuals, 0)
    assert metrics["mean_violation"] == pytest.approx(np.maximum(average, 0).mean(), rel=1e-4, abs=1e-6)
    assert metrics["feasible_single"] == pytest.approx(np.mean(np.array(residuals) <= 0))


def test_slot_averages_converge_to_the_expectation() -> None:
    policy = TimeSharingPolicy(np.array([[0.5, 0.5, 0.5], [0.1, 0.0, 0.2]]), np.array([0.6, 0.4]))
    played = evaluation.averages(policy, Sensors(), horizon=2000, trials=20, paths=4, seed=1)
    expected = 1 - (0.6 * 1.5 + 0.4 * 0.3)
    spread = np.sqrt((0.6 * 0.75 + 0.4 * 0.05) / 2000 / 4)  # trials over one path hardly help
    assert abs(played.residuals.mean().item() - expected) < 5 * spread


def test_standard_errors_tell_the_spread_of_independent_paths() -> None:
    """Var(ξ·x) of one atom is |x|², so a mean over h slots and p paths has error |x|/√(h p)."""
    policy, horizon, paths = TimeSharingPolicy(np.array([[0.6, 0.0, 0.8]])), 50, 40
    metrics = evaluate(policy, Sensors(), horizon=horizon, trials=2 * paths, paths=paths, seed=3)
    exact = 1 / np.sqrt(horizon * paths)
    # The sample standard deviation of 40 values has a relative error of 1/√78.
    assert metrics["worst_residual_se"] == pytest.approx(exact, rel=4 / np.sqrt(78))
    assert abs(metrics["worst_residual"] - (1 - 1.4)) < 5 * exact
    assert metrics["objective_se"] == pytest.approx(0, abs=1e-6)  # energy does not depend on ξ
    one = evaluate(policy, Sensors(), horizon=horizon, trials=4, paths=1)
    assert "worst_residual_se" not in one


def test_more_trials_over_more_paths_say_more() -> None:
    """A hundred trials over one path all see the same noise; over as many paths it averages out."""
    policy = TimeSharingPolicy(np.array([[0.6, 0.0, 0.8]]))
    errors = {}
    for paths in (1, 100):
        found = [
            evaluate(policy, Sensors(), horizon=10, trials=100, paths=paths, seed=s)["worst_residual"]
            for s in range(20)
        ]
        errors[paths] = float(np.std(np.array(found) + 0.4))
    assert errors[1] / errors[100] == pytest.approx(10, rel=0.6)


def test_inference_and_evaluation_never_share_randomness() -> None:
    for seed in range(20):
        streams = [seeding.generator(seed, s) for s in (seeding.POLICY, seeding.SLOTS, seeding.TRIALS)]
        draws = [torch.rand(1000, generator=g) for g in streams]
        for i in range(3):
            for j in range(i):
                assert abs(np.corrcoef(draws[i], draws[j])[0, 1]) < 0.15


def test_compare_is_the_same_for_any_number_of_workers(tmp_path: Path) -> None:
    agents = {"a": make_agent("pdi-mc", T=8), "b": "random"}
    tables = [
        compare(agents, "MixtureOfGaussians2D-v0", instances=1, n=16, workers=w, out=tmp_path / str(w))
        for w in (1, 2)
    ]
    assert [(r["agent"], r["instance"], r["metrics"]) for r in tables[0]] == [
        (r["agent"], r["instance"], r["metrics"]) for r in tables[1]
    ]
    one, two = (Store(tmp_path / w).policy(t[0])[0] for w, t in zip("12", tables, strict=True))
    assert np.array_equal(one.actions, two.actions)


def test_compare_resumes_and_notices_changed_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    original = type(make_agent("random")).sample

    def counted(self, *args):  # type: ignore[no-untyped-def]
        calls.append(self.name)
        return original(self, *args)

    monkeypatch.setattr(type(make_agent("random")), "sample", counted)
    arguments = {"env_id": "MixtureOfGaussians2D-v0", "instances": 1, "n": 8, "out": tmp_path}
    first = compare(["random"], **arguments)  # type: ignore[arg-type]
    again = compare(["random"], **arguments)  # type: ignore[arg-type]
    assert again == first and calls == ["random"]
    compare(["random"], seed=1, **arguments)  # type: ignore[arg-type]
    assert len(calls) == 2
    assert compare(["random"], **arguments) == first and len(calls) == 2  # type: ignore[arg-type]
    stored = [json.loads(path.read_text()) for path in tmp_path.glob("rows/*")]
    assert sorted(s["settings"]["seed"] for s in stored) == [0, 1] and not list(tmp_path.rglob(".pdi*"))


def test_rows_finished_before_a_failure_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self, *args):  # type: ignore[no-untyped-def]
        raise KeyboardInterrupt

    agents = {"first": "random", "second": make_agent("pdi-mc", T=3)}
    arguments = {"env_id": "MixtureOfGaussians2D-v0", "instances": 1, "n": 8, "out": tmp_path}
    with monkeypatch.context() as patch:
        patch.setattr(type(agents["second"]), "_sample", interrupted)
        with pytest.raises(KeyboardInterrupt):
            compare(agents, **arguments)  # type: ignore[arg-type]
    (stored,) = (tmp_path / "rows").iterdir()
    assert stored.name.startswith("first-0-")
    assert len(compare(agents, **arguments)) == 2  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"env_id": "MixtureOfGausians-v0"},
            "unknown environment 'MixtureOfGausians-v0' — did you mean",
        ),
        ({"agents": ["pdi-cm"]}, "unknown agent 'pdi-cm' — did you mean pdi-mc"),
        ({"agents": []}, "agents must name at least one agent"),
        ({"agents": ["random", "random"]}, "agents must differ by name"),
        ({"agents": "random"}, "agents must be a list of names"),
        ({"instances": 0}, "instances must be a whole number ≥ 1, got 0"),
        ({"instances": 2}, "instances must be ≤ 1 for MixtureOfGaussians2D-v0, got 2"),
        ({"horizon": 0}, "horizon must be a whole number ≥ 1, got 0"),
        ({"out": "/dev/null/x"}, "out must be somewhere that can be written"),
    ],
)
def test_bad_input(arguments: dict[str, object], message: str) -> None:
    defaults = {"agents": ["random"], "env_id": "MixtureOfGaussians2D-v0", "instances": 1}
    with pytest.raises(ValueError, match=message):
        compare(**{**defaults, **arguments})  # type: ignore[arg-type]


def test_policy_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="policy.actions must have 3 columns, got 2"):
        evaluate(TimeSharingPolicy(np.zeros((1, 2))), Sensors())


WATTS = PROBLEMS["wireless"]
SHARES = PROBLEMS["portfolio"]


@pytest.mark.parametrize(
    ("make", "decision", "told"),
    [
        (
            WATTS,
            [-0.2] + [0.0] * 7,
            "WirelessPower, but row 1 .* has -0.2 at coordinate 0, the nearest .* 0$",
        ),
        (WATTS, [0.0] * 7 + [0.0101], "has 0.0101 at coordinate 7, the nearest decision 0.01$"),
        (WATTS, [0.0] * 6 + [1e300, 1.0], "has 1e\\+300 at coordinate 6, too large for float32"),
        (
            SHARES,
            [5.0] * 12,
            "Portfolio, but row 1 .* has 5 at coordinate 0, the nearest decision 0.0833333$",
        ),
        (SHARES, [1.5, -0.5] + [0.0] * 10, "has 1.5 at coordinate 0, the nearest decision 1$"),
        (SHARES, [0.0] * 12, "Portfolio, but row 1 "),
        (Sensors, [0.0, 0.0, -2.01], "Sensors, but row 1 .* has -2.01 at coordinate 2, the nearest .* -2$"),
        (Unbounded, [0.0, 1e300], "Unbounded, but row 1 .* has 1e\\+300 at coordinate 1"),
    ],
)
def test_decisions_outside_the_set_are_refused(
    make: Callable[[], Problem], decision: list[float], told: str
) -> None:
    problem = make()
    good = problem.decode(problem.project(torch.zeros(problem.latent_dim))).tolist()
    policy = TimeSharingPolicy(np.array([good, decision]))
    with pytest.raises(ValueError, match=told):
        evaluate(policy, problem, horizon=2, trials=1)
    with pytest.raises(ValueError, match=told):
        policy.reweight(problem, draws=2)


@pytest.mark.parametrize("make", PROBLEMS.values(), ids=PROBLEMS)
def test_the_set_holds_its_edges_and_what_rounding_makes_of_them(make: Callable[[], Problem]) -> None:
    """Latents far outside are projected to the edge; a change in the seventh digit is rounding."""
    problem = make()
    z = 100 * torch.randn((200, problem.latent_dim), generator=torch.Generator().manual_seed(0))
    x = problem.decode(problem.project(torch.cat([z, z / 100, z / 10_000])))
    assert problem.contains(x).all()
    assert problem.contains(x * (1 + 1e-6)).all() and problem.contains(x * (1 - 1e-6)).all()
    for bad in (math.nan, math.inf, -math.inf):
        outside = x.clone()
        outside[:, 0] = bad
        assert not problem.contains(outside).any()


def test_a_set_of_the_users_own() -> None:
    """Whole numbers of a box: the round trip alone would let 0.5 pass."""

    class Whole(Sensors):
        def contains(self, x: torch.Tensor) -> torch.Tensor:
            return super().contains(x) & (x == x.round()).all(-1)

    assert evaluate(TimeSharingPolicy(np.array([[2.0, 0, -1]])), Whole(), 2, 1)["objective"] == 5
    with pytest.raises(ValueError, match="Whole, but row 0 is outside its set"):
        evaluate(TimeSharingPolicy(np.array([[0.5, 0, 0]])), Whole(), 2, 1)


def test_values_that_are_no_numbers_stop_the_evaluation() -> None:
    class Undefined(Unbounded):
        def objective(self, x: torch.Tensor, xi: torch.Tensor | None = None) -> torch.Tensor:
            return x.sum(-1).log()

    with pytest.raises(FloatingPointError, match="Undefined gives values that are not a number"):
        evaluate(TimeSharingPolicy(-np.ones((1, 2))), Undefined())


class Counting(Sensors):
    """Notes on how many threads it is evaluated."""

    def __init__(self, exact: bool) -> None:
        self.exact, self.seen = exact, set[int]()

    def objective(self, x: torch.Tensor, xi: torch.Tensor | None = None) -> torch.Tensor:
        self.seen.add(torch.get_num_threads())
        return super().objective(x, xi)

    def metrics(self, x: torch.Tensor, weights: torch.Tensor, residuals: torch.Tensor) -> dict[str, float]:
        self.seen.add(torch.get_num_threads())
        return {}


@pytest.mark.parametrize("exact", [True, False])
def test_everything_that_answers_runs_on_one_thread(exact: bool) -> None:
    policy = TimeSharingPolicy(np.full((4, 3), 0.5))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        for call in (
            lambda p: evaluate(policy, p, 3, 2),
            lambda p: evaluation.averages(policy, p, 3, 2),
            lambda p: policy.reweight(p, draws=3),
            lambda p: make_agent("pdi-mc", T=3).sample(p, n=4),
            lambda p: reference_solution(p, effort=1),
        ):
            problem = Counting(exact)
            call(problem)
            assert problem.seen == {1}, problem.seen
            assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_a_policy_does_not_depend_on_the_number_of_threads() -> None:
    problem = Portfolio.instance(0, n_assets=60, n_sectors=5, split="validation")
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(make_agent("pdi-mc", T=30).sample(problem, n=256).actions)
    finally:
        torch.set_num_threads(before)
    assert np.array_equal(found[0], found[1]) and np.array_equal(found[0], found[2])
