"""The conformance table of agents: every one on every problem it applies to."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from pdi_gym import Problem
from pdi_gym.agents import AGENTS, list_agents, make_agent
from pdi_gym.envs import ErgodicEnv
from pdi_gym.evaluation import evaluate
from pdi_gym.options import DenoisingOptions
from pdi_gym.problems import MixtureOfGaussians
from tests.cases import PROBLEMS, Sensors, Unbounded, gaussian


def quick(name: str) -> dict[str, Any]:
    """Options that make an agent cheap: few steps, few candidates."""
    known = set(AGENTS[name].options_type.__dataclass_fields__)
    wanted = {"T": 12, "steps": 12, "n_candidates": 2, "n_draws": 2, "projection_steps": 3, "iterations": 30}
    return {k: v for k, v in wanted.items() if k in known and k not in unread(name)}


def unread(name: str) -> dict[str, str]:
    options = AGENTS[name].options_type()
    return options.unread() if hasattr(options, "unread") else {}


CASES = [(agent, name) for name, make in PROBLEMS.items() for agent in list_agents(make())]


@pytest.mark.parametrize(("name", "case"), CASES)
def test_sample(name: str, case: str) -> None:
    problem = PROBLEMS[case]()
    agent = make_agent(name, **quick(name))
    policy = agent.sample(problem, n=6, seed=3)
    assert policy.actions.shape[1] == problem.latent_dim
    np.testing.assert_allclose(policy.weights.sum(), 1)
    x = torch.as_tensor(policy.actions)
    assert problem.contains(x.float()).all()
    again = make_agent(name, **quick(name)).sample(problem, n=6, seed=3)
    assert np.array_equal(policy.actions, again.actions) and np.array_equal(policy.weights, again.weights)
    metrics = evaluate(policy, problem, horizon=5, trials=2)
    assert {"objective", "mean_violation", "feasible"} <= metrics.keys()
    assert all(np.isfinite(v) for v in metrics.values())


@pytest.mark.parametrize("name", ["pdi-mc", "pdl"])
def test_callback_does_not_change_the_policy(name: str) -> None:
    seen: list[int] = []
    problem = Sensors()
    agent = make_agent(name, **quick(name))
    watched = agent.sample(problem, n=4, callback=lambda step: seen.append(step.t))
    assert seen == list(range(12))
    assert np.array_equal(watched.actions, agent.sample(problem, n=4).actions)


def test_other_seeds_give_other_policies() -> None:
    agent = make_agent("pdi-mc", **quick("pdi-mc"))
    assert not np.array_equal(
        agent.sample(Sensors(), 4, seed=0).actions, agent.sample(Sensors(), 4, seed=1).actions
    )


def test_pdi_solves_a_users_own_problem() -> None:
    """min |x|² subject to Σ x = 1: x = 1/3 each; λ* = 2/3. The margin adds a few per cent."""
    policy = make_agent("pdi-mc").sample(Sensors(), n=400)
    np.testing.assert_allclose(policy.actions.mean(0), 1 / 3, atol=0.06)
    assert abs(policy.actions.sum(1).mean() - 1) < 0.12


def test_pdi_on_an_unbounded_problem() -> None:
    policy = make_agent("pdi-mc").sample(Unbounded(), n=400)
    np.testing.assert_allclose(policy.actions.mean(0), [1, 0], atol=0.1)


def test_groups_adapt_unless_they_are_explicit() -> None:
    problem = gaussian(10.0)
    for n in (1, 7, 12):
        assert len(make_agent("pdi-mc", T=3).sample(problem, n=n)) == n
    policy = make_agent("pdi-mc", T=3, groups=4).sample(problem, n=12)
    assert policy.duals is not None and policy.duals.shape == (4, 1)
    with pytest.raises(ValueError, match="groups must divide n = 10, got 4"):
        make_agent("pdi-mc", T=3, groups=4).sample(problem, n=10)


def test_frozen_agents_freeze() -> None:
    for name in ("frozen-last", "frozen-mean", "frozen-tail"):
        path: list[torch.Tensor] = []
        policy = make_agent(name, T=12, n_candidates=4).sample(
            gaussian(10.0), n=8, callback=lambda s, path=path: path.append(s.lam)
        )
        assert len(path) == 12
        assert all(torch.equal(lam, path[0]) for lam in path)
        np.testing.assert_allclose(policy.mean_duals, policy.duals, rtol=1e-5)
    pdi = make_agent("pdi-mc", T=12, n_candidates=4).sample(gaussian(10.0), n=8)
    for name, expected in (("frozen-last", pdi.duals), ("frozen-mean", pdi.mean_duals)):
        frozen = make_agent(name, T=12, n_candidates=4).sample(gaussian(10.0), n=8)
        np.testing.assert_allclose(frozen.duals, expected, rtol=1e-5)


def test_exact_score_option() -> None:
    assert len(make_agent("pdi-mc", score="exact", beta=1.0, T=5).sample(gaussian(), n=4)) == 4
    with pytest.raises(ValueError, match="needs a closed form, Sensors has none"):
        make_agent("pdi-mc", score="exact").sample(Sensors(), n=4)
    with pytest.raises(ValueError, match="beta must be 1 for a closed form with 3 modes"):
        make_agent("pdi-mc", score="exact").sample(MixtureOfGaussians.toy(), n=4)


def test_pdm_ends_feasible_sample_by_sample() -> None:
    problem = MixtureOfGaussians.toy()
    policy = make_agent("pdm", T=30, n_candidates=8).sample(problem, n=50)
    assert problem.constraints(torch.as_tensor(policy.actions)).max() < 1e-3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "pdi-m"}, "unknown agent 'pdi-m' — did you mean pdi-mc"),
        (
            {"name": "pdi-mc", "preset": "papr"},
            "preset must be one of fast, paper; got 'papr' — did you mean paper",
        ),
        ({"name": "pdi-mc", "T": 0}, "T must be a whole number ≥ 1, got 0"),
        ({"name": "pdi-mc", "T": 2.5}, "T must be a whole number ≥ 1, got 2.5"),
        ({"name": "pdi-mc", "n_candidates": 0}, "n_candidates must be a whole number ≥ 1, got 0"),
        ({"name": "pdi-mc", "beta": 0}, "beta must be a finite number > 0, got 0"),
        ({"name": "pdi-mc", "beta": float("nan")}, "beta must be a finite number > 0, got nan"),
        ({"name": "pdi-mc", "dual_step": -1}, "dual_step must be a finite number ≥ 0, got -1"),
        ({"name": "pdi-mc", "schedule": "cosin"}, "schedule must be one of .*did you mean cosine"),
        ({"name": "pdi-mc", "kernel": "ddpm"}, "kernel must be one of posterior, ancestral, ddim"),
        ({"name": "pdl", "primal_step": 0}, "primal_step must be a finite number > 0, got 0"),
    ],
)
def test_bad_values_are_refused_before_any_work(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_agent(**arguments)


def test_unknown_options_are_refused() -> None:
    with pytest.raises(TypeError, match="pdi-mc has no option 'dual_stp' — did you mean dual_step"):
        make_agent("pdi-mc", dual_stp=1)
    with pytest.raises(ValueError, match="n must be a whole number ≥ 1, got 0"):
        make_agent("random").sample(Sensors(), n=0)
    with pytest.raises(ValueError, match="seed must be a whole number ≥ 0, got -1"):
        make_agent("random").sample(Sensors(), seed=-1)


@pytest.mark.parametrize("name", ["unconstrained", "pdm", "dps", "st", "dt-plus"])
@pytest.mark.parametrize(
    "option", ["dual_step", "dual_init", "dual_max", "dual_decay", "dual_ramp", "groups", "tweedie"]
)
def test_agents_without_multipliers_refuse_their_options(name: str, option: str) -> None:
    with pytest.raises(TypeError, match=f"{name} has no option '{option}'"):
        make_agent(name, **{option: "next" if option == "tweedie" else 1})


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("pdi-mc", {"score": "net", "n_candidates": 4}, "pdi-mc ignores 'n_candidates' with score='net'"),
        ("pdi-mc", {"score": "net", "beta": 1.0}, "ignores 'beta' with score='net'"),
        ("dps", {"score": "exact", "candidates": "lemma"}, "dps ignores 'candidates' with score='exact'"),
        ("st", {"n_candidates": 4}, "st ignores 'n_candidates' with score='net': leave one of them out"),
        ("pdi-cg", {"first": "pdi", "dual_step": 1.0}, "pdi-cg ignores 'dual_step' with first='pdi'"),
        ("pdi-cg", {"fresh": 0, "fresh_from": "diffusion"}, "ignores 'fresh_from' with fresh=0"),
        ("pdi-cg", {"price_steps": 0, "price_rate": 0.1}, "ignores 'price_rate' with price_steps=0"),
        ("dt", {"groups": 2}, "dt has no option 'groups'"),
    ],
)
def test_options_that_others_switch_off_are_refused(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        make_agent(name, **options)


NUMBERS = [
    (name, option)
    for name, cls in AGENTS.items()
    if not cls.needs_training and issubclass(cls.options_type, DenoisingOptions)
    for option in cls.options_type.__dataclass_fields__
    if option not in ("score", "projection_rate", "penalty")
]
OTHER: dict[str, Any] = {
    "schedule": "linear", "kernel": "ancestral", "candidates": "unscaled", "tweedie": "next",
    "dual_max": 0.01,
    "groups": 3, "momentum": 0.4, "projection_steps": 1, "alpha_min": 0.9, "dual_decay": 0.5,
}  # fmt: skip


@pytest.mark.parametrize(("name", "option"), NUMBERS)
def test_every_option_that_a_diffusion_agent_takes_changes_its_policy(name: str, option: str) -> None:
    """Sensors is random, bounded and infeasible at first, so that no option is idle."""
    base = {"T": 20, "n_candidates": 3, "n_draws": 2, "beta": 1.0, "alpha_min": 0.6}
    default = getattr(make_agent(name).options(Sensors()), option)
    changed = OTHER[option] if option in OTHER else 2 * (base.get(option) or default) or 1
    policies = [
        make_agent(name, **(base | more)).sample(Sensors(), n=6).actions for more in ({}, {option: changed})
    ]
    assert not np.array_equal(*policies)


def test_trainings_refuse_what_they_ignore(tmp_path: Any) -> None:
    for name, option in (
        ("st", "exploit"), ("st", "inner"), ("st", "dual_step"), ("dt", "prior_low"),
        ("pdi-net", "expert_margin"), ("pdi-net", "messages"),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=f"training of {name} has no option '{option}'"):
            make_agent(name).learn([gaussian(10.0)], out=tmp_path / name, **{option: 1})
    assert not list(tmp_path.iterdir())


def test_list_agents_lists_what_can_answer() -> None:
    """Networks without weights for a problem, and PPO, which ships none, would have to be trained first."""
    own = list_agents(Sensors())
    assert {"pdi-mc", "pdi-cg", "expert", "random"} <= set(own)
    assert not {"pdi-net", "st", "dt", "ppo", "full-power", "markowitz"} & set(own)
    assert {"pdi-net", "st", "full-power"} <= set(list_agents(PROBLEMS["wireless"]()))
    assert set(own) < set(list_agents()) == set(AGENTS)


def test_divergence_is_reported_not_hidden() -> None:
    class Broken(Unbounded):
        def constraints(self, x: torch.Tensor, xi: Any = None) -> torch.Tensor:
            return super().constraints(x) + torch.where(x.abs().amax(-1, keepdim=True) > 0.0, torch.nan, 0.0)

    with pytest.raises(FloatingPointError, match="pdi on Broken: .* not finite after step 0"):
        make_agent("pdi-mc", T=5).sample(Broken(), n=4)


def play(agent: Any, env: Any, slots: int, deterministic: bool = False) -> np.ndarray:
    observation, _ = env.reset(seed=0)
    actions = []
    for _ in range(slots):
        action, _ = agent.predict(observation, deterministic=deterministic)
        actions.append(action)
        observation, *_ = env.step(action)
    return np.array(actions)


def test_predict_needs_bind_and_shares_time() -> None:
    agent = make_agent("pdi-mc", T=50)
    with pytest.raises(RuntimeError, match="call agent.bind"):
        agent.predict(np.zeros(1))
    env = ErgodicEnv(Sensors(), horizon=600)
    actions = play(agent.bind(env), env, 600)
    assert actions.dtype == np.float32 and len(np.unique(actions, axis=0)) > 100


def test_deterministic_predict_is_a_fixed_round_over_all_atoms() -> None:
    env = ErgodicEnv(Sensors(), horizon=500)
    rounds = [play(make_agent("pdi-mc", T=50).bind(env), env, 500, deterministic=True) for _ in range(2)]
    assert np.array_equal(*rounds)
    atoms, counts = np.unique(rounds[0], axis=0, return_counts=True)
    assert len(atoms) == 200 and set(counts) <= {2, 3}


@pytest.mark.parametrize("mode", ["sync", "vector_entry_point"])
def test_predict_in_a_vector_environment(mode: str) -> None:
    env = gym.make_vec("MixtureOfGaussians2D-v0", num_envs=3, vectorization_mode=mode, horizon=20)
    agent = make_agent("random").bind(env)
    observation, _ = env.reset(seed=0)
    action, _ = agent.predict(observation)
    assert action.shape == (3, 2) and env.action_space.contains(action)
    env.step(action)
    env.close()


def test_agents_in_stable_baselines3() -> None:
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import DummyVecEnv

    env = DummyVecEnv([lambda: Monitor(gym.make("MixtureOfGaussians2D-v0", horizon=20)) for _ in range(2)])
    agent = make_agent("random").bind(env)
    mean, std = evaluate_policy(agent, env, n_eval_episodes=4)  # type: ignore[arg-type]
    assert np.isfinite(mean) and std > 0


def test_save_and_load(tmp_path: Any) -> None:
    agent = make_agent("pdi-mc", preset="paper", T=7, n_candidates=2)
    agent.save(tmp_path)
    loaded = make_agent("pdi-mc").load(tmp_path)
    problem: Problem = Sensors()
    assert np.array_equal(agent.sample(problem, 4).actions, loaded.sample(problem, 4).actions)
    with pytest.raises(ValueError, match="holds 'pdi-mc', not 'pdl'"):
        make_agent("pdl").load(tmp_path)
    with pytest.raises(FileNotFoundError, match="give the folder that agent.save wrote"):
        make_agent("pdl").load(tmp_path / "nowhere")
