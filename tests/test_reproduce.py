"""Verdicts by rule, experiments by name, results that can be continued."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch

from pdi_gym.cli.main import main
from pdi_gym.experiments import registry
from pdi_gym.experiments.claims import (
    FAILS,
    HOLDS,
    UNKNOWN,
    WEAKER,
    beats,
    equals,
    judge,
    judge_equal,
    overall,
)
from pdi_gym.experiments.registry import EXPERIMENTS, load
from pdi_gym.experiments.run import Common, settings_of
from pdi_gym.report.statistics import Interval

NAMES = [
    "intro-map",
    "mixture-bars",
    "mixture-toy",
    "mixture-transition",
    "wireless-table",
    "wireless-dt-plus",
    "wireless-fixed-dual",
    "wireless-schedules",
    "wireless-dt-duals",
    "wireless-dt-checkpoints",
    "wireless-ood",
    "wireless-temperature",
    "wireless-annealing",
    "wireless-rates",
    "portfolio-table",
    "portfolio-fixed-dual",
    "portfolio-tail",
    "portfolio-temperature",
    "portfolio-schedules",
    "theory-dual",
    "theory-primal",
]


# Verdicts.


@pytest.mark.parametrize(
    ("interval", "needed", "verdict"),
    [
        (Interval(1.0, 0.5, 1.5), 0.0, HOLDS),
        (Interval(1.0, 0.5, 1.5), 1.0, HOLDS),
        (Interval(1.0, 0.5, 1.5), 1.1, WEAKER),
        (Interval(-1.0, -1.5, -0.5), 0.0, FAILS),
        (Interval(0.1, -0.5, 0.7), 0.0, UNKNOWN),
        (Interval(0.1, -0.5, 0.7), 0.6, UNKNOWN),
        (Interval(0.1, -0.5, 0.7), 0.8, FAILS),
        (Interval(0.0, 0.0, 0.0), 0.0, FAILS),
        (None, 0.0, UNKNOWN),
    ],
)
def test_the_interval_decides(interval, needed, verdict):
    assert judge(interval, needed) == verdict


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(-0.9, 0.9, HOLDS), (-0.5, 1.9, WEAKER), (1.1, 3.0, FAILS), (-3.0, -1.1, FAILS), (-0.5, 3.0, UNKNOWN)],
)
def test_equality_has_a_margin(low, high, verdict):
    assert judge_equal(Interval((low + high) / 2, low, high), 1.0) == verdict


def test_several_claims_make_one_verdict():
    assert overall([HOLDS, HOLDS, UNKNOWN]) == HOLDS
    assert overall([FAILS, FAILS]) == FAILS
    assert overall([HOLDS, FAILS]) == overall([HOLDS, WEAKER]) == WEAKER
    assert overall([UNKNOWN]) == overall([]) == UNKNOWN


def rows(**values):
    return [
        {"agent": agent, "instance": i, "metrics": {"mean_violation": v, "mean_rate": -v}, "seconds": 0.0}
        for agent, own in values.items()
        for i, v in enumerate(own)
    ]


def test_beats_pairs_instances_and_knows_which_way_is_better():
    noise = np.random.default_rng(0).normal(size=40)
    data = rows(a=10 + noise, b=11 + noise)  # the spread over instances is as large as the difference
    lower = beats(data, "a", "b", "mean_violation", "a violates less")
    assert lower.verdict == HOLDS and "-1 [-1, -1], n = 40" in lower.ours
    assert beats(data, "b", "a", "mean_violation", "b violates less").verdict == FAILS
    assert beats(data, "a", "b", "mean_rate", "a earns more").verdict == HOLDS
    assert beats(data, "a", "b", "mean_violation", "…", paper=(1.0, 4.0)).verdict == WEAKER
    assert beats(data, "a", "c", "mean_violation", "…").verdict == UNKNOWN
    assert beats(rows(a=[1.0], b=[2.0]), "a", "b", "mean_violation", "…").verdict == UNKNOWN


def test_equals_pairs_instances():
    noise = np.random.default_rng(0).normal(size=40)
    data = rows(a=10 + noise, b=10.01 + noise)
    assert equals(data, "a", "b", "mean_rate", 0.02, "the same").verdict == HOLDS
    assert equals(data, "a", "b", "mean_rate", 0.005, "the same").verdict == WEAKER
    assert equals(data, "a", "b", "mean_rate", 0.001, "the same").verdict == FAILS


# The command.


def test_list_has_every_name_with_a_sentence(capsys):
    main(["reproduce", "--list"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == NAMES
    assert all(len(line.split()) > 4 and line.endswith(".") for line in lines)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["wireless-schedule"], "did you mean wireless-schedules"), ([], "at least one experiment")],
)
def test_bad_names_exit_with_2(arguments, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", *arguments])
    assert stop.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("name", NAMES)
def test_every_name_has_a_script_with_a_sentence_per_setting(name):
    module = load(name)
    assert issubclass(module.Args, Common) and name == module.NAME
    own = {f.name for f in fields(module.Args)}
    assert set(module.QUICK) <= own
    body = registry.script(name).read_text(encoding="utf-8").split("class Args")[1].split("\n\n\n")[0]
    settings = re.findall(r"^    (\w+): .*\n( +\"\"\")?", body, re.MULTILINE)
    assert settings and all(sentence for _, sentence in settings), settings


@pytest.mark.parametrize("name", NAMES)
def test_committed_results_have_the_settings_of_the_script(name):
    """What `pdi-gym reproduce NAME` runs is what was committed."""
    content = registry.results(name)
    assert content is not None and content["command"] == f"pdi-gym reproduce {name}"
    assert content["settings"] == json.loads(json.dumps(settings_of(load(name).Args())))


def test_quick_leaves_the_committed_results_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = {"seeds": 2, "n": 32, "T": 20, "dual_step": 2.0}
    registry.reproduce("mixture-toy", quick=True, **small)
    assert not (tmp_path / "runs/results").exists()
    out = tmp_path / "runs/logs/reproduce-quick/mixture-toy"
    content = json.loads((out / "results.json").read_text())
    assert content["settings"] == {"seed": 0, **small}
    assert len(content["rows"]) == 4 and len(content["claims"]) == 2 and content["versions"]["torch"]
    assert (out / "toy.png").read_bytes().startswith(b"\x89PNG")
    assert "| claim | paper | ours | verdict | why |" in (out / "results.md").read_text()


SMALL = {
    "intro-map": {"networks": 2, "n": 8, "trials": 2, "agents": ("unconstrained", "full-power")},
    "mixture-transition": {"seeds": 2, "n": 16},
    "portfolio-table": {"instances": 2, "n": 4, "agents": ("equal-weight", "random")},
    "wireless-dt-duals": {},
    "wireless-dt-duals without a training": {"history": Path("nowhere")},
    "wireless-dt-checkpoints without a training": {
        "folder": Path("nowhere"),
        "networks": 1,
        "n": 4,
        "trials": 2,
    },
    "wireless-table": {"rows": ("full-power", "random"), "networks": 2, "n": 4, "trials": 2},
}


@pytest.mark.parametrize("name", SMALL)
def test_small_runs_write_everything(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = load(name.split()[0])
    module.main(module.Args(out=tmp_path / "out", logs=tmp_path / "logs", **SMALL[name]))
    content = json.loads((tmp_path / "out" / "results.json").read_text())
    assert {"command", "versions", "seconds", "settings", "sample", "reduced", "rows"} <= content.keys()
    assert {c["verdict"] for c in content["claims"]} <= {HOLDS, WEAKER, FAILS, UNKNOWN}
    for figure in content["figures"]:
        assert (tmp_path / "out" / figure).read_bytes().startswith(b"\x89PNG")


def test_other_settings_leave_the_committed_results_alone(tmp_path, monkeypatch):
    """They need a folder, and keep their rows there too."""
    monkeypatch.chdir(tmp_path)
    module = load("wireless-table")
    few = {"rows": ("random",), "networks": 1, "n": 4, "trials": 2}
    with pytest.raises(SystemExit, match=r"n, networks, rows, trials differ .* --out"):
        module.main(module.Args(**few))
    module.main(module.Args(out=tmp_path / "mine", **few))
    (stored,) = (tmp_path / "mine" / "logs" / "rows").iterdir()
    assert stored.name.startswith("random-0-")
    assert not (tmp_path / "runs").exists()


def test_a_killed_run_goes_on_to_the_same_table(tmp_path, monkeypatch):
    """Two of four rows stay, one is lost and one is cut in half; neither decides the table."""
    module = load("wireless-table")
    few = {"rows": ("full-power", "random"), "networks": 2, "n": 4, "trials": 2}

    def run(folder):
        module.main(module.Args(out=tmp_path / folder, logs=tmp_path / "logs", **few))
        return json.loads((tmp_path / folder / "results.json").read_text())

    whole = run("whole")
    stored = sorted((tmp_path / "logs" / "rows").iterdir())
    kept = stored[0].stat().st_mtime_ns
    stored[1].unlink()
    stored[2].write_text(stored[2].read_text()[:40])
    again = run("again")
    assert stored[0].stat().st_mtime_ns == kept
    assert [r["metrics"] for r in again["rows"]] == [r["metrics"] for r in whole["rows"]]
    assert again["claims"] == whole["claims"]


def test_unknown_rows_of_the_table_are_refused():
    module = load("wireless-table")
    with pytest.raises(SystemExit, match="rows must be among"):
        module.main(module.Args(rows=("nobody",)))


# What the scripts measure themselves.


def test_first_draw_is_where_samplers_start():
    from pdi_gym.agents import make_agent
    from pdi_gym.problems import MixtureOfGaussians

    transition, problem = load("mixture-transition"), MixtureOfGaussians.instance(dim=5)
    # One noiseless step of almost no length leaves samples where they were put.
    policy = make_agent("pdl", steps=1, primal_step=1e-9).sample(problem, 20, 3)
    np.testing.assert_allclose(transition.first_draw("pdl", 20, 5, 3), policy.actions, atol=1e-6)
    seen = []
    make_agent("pdi-mc", T=2).sample(problem, 20, 3, lambda step: seen.append(step))
    start = transition.first_draw("pdi-mc", 20, 5, 3)
    correlation = np.corrcoef(start.flatten(), seen[0].z.flatten())[0, 1]
    assert start.shape == (20, 5) and correlation > 0.01


def test_transition_excess_is_zero_for_independence_and_the_rest_for_identity():
    excess = load("mixture-transition").excess
    assert excess(np.outer([0.2, 0.8], [0.5, 0.5])) == pytest.approx(0)
    assert excess(np.diag([0.25] * 4)) == pytest.approx(0.75)


def test_mass_on_the_diagonal_or_in_one_mode():
    share = load("mixture-transition").diagonal_or_one
    assert share(np.eye(4) / 4) == pytest.approx(1)
    assert share(np.full((4, 4), 1 / 16)) == pytest.approx(7 / 16)
    divided = np.eye(4) / 8
    divided[:, 0] += 1 / 8
    assert share(divided) == pytest.approx(1)


def test_rivals_are_disjoint_and_hurt_each_other_most():
    annealing = load("wireless-annealing")
    gains = np.eye(6) + 1e-3
    for i, j, harm in ((0, 1, 0.9), (2, 3, 0.8), (0, 2, 0.85)):
        gains[i, j] = gains[j, i] = harm
    assert annealing.rivals(gains, 2) == [(0, 1), (2, 3)]


def test_effective_corners():
    annealing = load("wireless-annealing")
    turns = np.array([[1.0, 0.0], [0.0, 1.0]] * 10)
    assert annealing.modes(annealing.corners(turns, [(0, 1)])) == pytest.approx(2)
    everywhere = np.array([[0.1, 0.2], [0.9, 0.2], [0.2, 0.7], [0.8, 0.9]])
    assert annealing.modes(annealing.corners(everywhere, [(0, 1)])) == pytest.approx(4)


def test_theory_problems_know_their_optimum():
    """λ* of the quadratic constraint makes the tilted Gaussian meet it, and its score is autograd's."""
    load("theory-dual")
    from theory_problems import PowerLimit

    problem = PowerLimit()
    law = problem.tilted(torch.tensor([problem.optimal_dual()], dtype=torch.float64), 1.0)
    assert float(law.covariances[0].trace()) == pytest.approx(problem.limit, rel=1e-6)
    z = torch.randn(4, 3, requires_grad=True)
    lam = torch.tensor([[0.7]])
    energy = problem.objective(z) + (lam * problem.constraints(z)).sum(-1)
    (expected,) = torch.autograd.grad(energy.sum(), z)
    torch.testing.assert_close(problem.lagrangian_grad(z, lam)[1], expected)


# The page.


def test_the_page_covers_every_name_and_links_to_what_exists():
    text = registry.page()
    docs = Path(registry.ROOT / "docs")
    for name in NAMES:
        assert f"\n## {name}\n" in text
    for target in re.findall(r"\]\((\.\./[^)#\s]+)\)", text):
        assert (docs / target).exists(), target


def test_the_page_says_what_fails(tmp_path):
    folder = tmp_path / "runs/results/theory-dual"
    folder.mkdir(parents=True)
    claim = {"claim": "pigs fly", "paper": "1", "ours": "0", "verdict": FAILS, "reason": "no wings"}
    content = {"sample": "", "reduced": "", "command": "", "figures": {}, "claims": [claim]}
    (folder / "results.json").write_text(json.dumps(content))
    text = registry.page(tmp_path)
    failures = text.split("## What does not hold")[1].split("\n## ")[0]
    assert "pigs fly" in failures and "no wings" in failures
    assert "| [theory-dual](#theory-dual) |" in text and EXPERIMENTS["theory-dual"] in text
