from __future__ import annotations

import errno
import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pdi_gym import store
from pdi_gym.agents import AGENTS, make_agent
from pdi_gym.agents.learned import LearnedAgent
from pdi_gym.cli import main as cli
from pdi_gym.cli.main import main
from pdi_gym.envs import make_env
from pdi_gym.experiments.bench import Result

TOY = ["compare", "MixtureOfGaussians2D-v0"]
TRAIN = ["train", "pdi-net", "MixtureOfGaussians2D-v0"]
COMPARE = [*TOY, "--agents", "pdi-mc", "random", "--instances", "1", "--n", "16"]


def code_of(arguments: list[str]) -> int:
    """The exit code of a command, 0 where it just returns."""
    try:
        main(arguments)
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().err.split())


def metrics(path: Path) -> list[dict[str, Any]]:
    return [row["metrics"] for row in json.loads(path.read_text())]


def test_list(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    main(["list", "--json", str(tmp_path / "list.json")])
    printed = capsys.readouterr().out
    assert "MixtureOfGaussians-v0" in printed and "pdi-mc" in printed
    content = json.loads((tmp_path / "list.json").read_text())
    assert {e["id"] for e in content["environments"]} >= {"WirelessPower-v0", "Portfolio-v0"}
    agents = {a["agent"]: a for a in content["agents"]}
    assert set(agents) == set(AGENTS) and agents["full-power"]["applies_to"] == ["WirelessPower-v0"]
    assert not agents["pdi-mc"]["needs_training"] and agents["pdi-mc"]["weights_shipped_for"] == []
    main(["list", "--quiet"])
    assert capsys.readouterr().out == ""


def test_an_agent_that_must_learn_first_is_not_compared_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make_env("MixtureOfGaussians2D-v0", {}).problem
    agent = AGENTS["random"]
    assert agent.ready(problem)
    monkeypatch.setattr(agent, "needs_training", True)
    assert not agent.ready(problem)
    monkeypatch.setattr(agent, "shipped", classmethod(lambda cls, problem: True))
    assert agent.ready(problem)
    monkeypatch.setattr(agent, "missing", classmethod(lambda cls: "pip install something"))
    assert not agent.ready(problem)


def test_compare_leaves_everything_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    main([*COMPARE, "--json", "rows.json"])
    assert "tensorboard --logdir" in capsys.readouterr().out
    rows = json.loads(Path("rows.json").read_text())
    assert [row["agent"] for row in rows] == ["pdi-mc", "random"]
    assert set(rows[0]) == {"agent", "instance", "metrics", "violation", "seconds", "key"}
    out = Path("runs/logs/MixtureOfGaussians2D-v0-seed0")
    results = json.loads((out / "results.json").read_text())
    assert results["rows"] == rows and "torch" in results["versions"]
    assert "| pdi-mc |" in (out / "results.md").read_text()
    for name in ("tradeoff", "residuals", "denoising"):
        assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "report.html").exists() and (out / "results.csv").exists()
    runs = {p.name for p in (out / "tensorboard").iterdir() if p.is_dir()}
    assert runs == {"comparison", "pdi-mc", "random"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare", "Mixture-v0"], "unknown environment 'Mixture-v0'"),
        ([*TOY, "--agents", "pdi"], "unknown agent 'pdi'"),
        ([*TOY, "--agents", "pdi-mc@quick"], "preset must be one of fast, paper; got 'quick'"),
        ([*TOY, "--agents", "full-power"], "full-power does not apply"),
        ([*TOY, "--agents", "random", "random"], "agents must differ by name"),
        ([*TOY, "--instances", "0"], "instances must be a whole number"),
        ([*TOY, "--instances", "2"], "instances must be ≤ 1"),
        ([*TOY, "--horizon", "0"], "horizon must be a whole number"),
        ([*TOY, "--trials", "0"], "trials must be a whole number"),
        ([*TOY, "--n", "0"], "n must be a whole number"),
        ([*TOY, "--workers", "0"], "workers must be a whole number"),
        ([*TOY, "--seed", "-1"], "seed must be a whole number"),
        ([*TOY, "--out", "/dev/null/x"], "out must be somewhere"),
        ([*TOY, "--json", "/dev/null/x.json"], "json must be somewhere"),
        ([*TOY, "--json", "/tmp"], "json must be a file"),
        ([*TOY, "--instnces", "1"], "--instnces"),
        ([*TOY, "--instances", "two"], "--instances"),
        (["compare"], "required"),
        (["compete"], "compete"),
        (["bench", "--names", "mixtur-gradient"], "did you mean mixture-gradient"),
        (["list", "--json", "/dev/null/x.json"], "json must be somewhere"),
        ([*TRAIN, "--set", "seed=3"], "set must not hold seed: it is an argument, --seed"),
        ([*TRAIN, "--set", "size=paper"], "set must not hold size: it is an argument, --size"),
        ([*TRAIN, "--set", "steps"], "set must be name=value, got 'steps'"),
        ([*TRAIN, "--option", "steps"], "option must be name=value, got 'steps'"),
        ([*TRAIN, "--option", "dual_ini=1"], "pdi-net has no option 'dual_ini' — did you mean dual_init"),
        ([*TRAIN, "--start", "x"], "start must be left out for pdi-net"),
        ([*TRAIN, "--set", "inner=0"], "inner must be a whole number"),
        (["train", "ppo", "WirelessPower-v0", "--start", "x"], "start must be left out for ppo, got 'x'"),
        (["train", "ppo", "WirelessPower-v0", "--size", "cpu"], "size must be left out for ppo, got 'cpu'"),
        (["train", "pdi-net", "CartPole-v1"], "CartPole-v1 is not an environment of this package"),
        (["train", "pdi-mc", "WirelessPower-v0"], "agent must be one that learns, got 'pdi-mc'"),
    ],
)
def test_bad_usage_exits_with_2_and_writes_nothing(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert code_of(arguments) == 2
    assert message in said(capsys)
    assert not list(tmp_path.rglob("*.json"))


def test_train_takes_options_of_the_sampler_and_saves_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = []
    save = LearnedAgent.save
    monkeypatch.setattr(LearnedAgent, "save", lambda *given: (saved.append(given), save(*given)))
    monkeypatch.setattr("sys.argv", ["pdi-gym", *TRAIN, "--option", "T=5"])
    small = "steps=2 seed_rollouts=1 chains=4 keep=8 problems=1 pairs=4 width=8 depth=1 validation_n=8"
    main(
        [
            *TRAIN,
            "--option",
            "T=5",
            "dual_step=0.5",
            "--set",
            *small.split(),
            "--quiet",
            "--out",
            str(tmp_path),
        ]
    )
    agent = make_agent("pdi-net").load(tmp_path)
    assert agent.overrides == {"T": 5, "dual_step": 0.5} and agent.card["sampler"]["T"] == 5
    assert agent.card["command"] == "pdi-gym train pdi-net MixtureOfGaussians2D-v0 --option T=5"
    assert len(saved) == 1


def test_out_that_is_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("mine")
    for out in ("file", "file/below"):
        assert code_of([*COMPARE, "--out", str(tmp_path / out)]) == 2
        assert "out must be somewhere that can be written" in said(capsys)
    assert (tmp_path / "file").read_text() == "mine"


def test_an_agent_that_fails_is_named_and_exits_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def diverge(self: Any, *_: Any) -> None:
        raise FloatingPointError("not finite at step 3")

    monkeypatch.setattr(AGENTS["pdi-mc"], "_sample", diverge)
    arguments = [*TOY, "--agents", "random", "pdi-mc", "--n", "8", "--out", str(tmp_path)]
    assert code_of(arguments) == 1
    message = said(capsys)
    assert "pdi-mc on instance 0 of MixtureOfGaussians2D-v0" in message and "step 3" in message
    assert "the same command goes on from there" in message
    (stored,) = (tmp_path / "rows").iterdir()
    assert stored.name.startswith("random-0-")


def test_interruption_says_how_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "compare", interrupted)
    assert code_of([*COMPARE, "--out", str(tmp_path)]) == 1
    assert f"Finished rows are in {tmp_path}" in said(capsys)


@contextmanager
def small_disk(limit: int) -> Iterator[None]:
    """Writes beyond so many bytes of a file fail with an OSError, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(("n", "kept"), [(4096, 0), (8, 1)], ids=["policy", "report"])
def test_a_full_disk_fails_cleanly_and_can_be_resumed(
    n: int, kept: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Either the policy does not fit, or it does and the page written later does not."""
    arguments = [*TOY, "--agents", "random", "--n", str(n), "--horizon", "20", "--quiet"]
    with small_disk(12_000):
        assert code_of([*arguments, "--out", str(tmp_path / "a")]) == 1
    message = said(capsys)
    assert "File too large" in message and "the same command goes on from there" in message
    assert len(list((tmp_path / "a").rglob("rows/*.json"))) == kept
    assert len(list((tmp_path / "a").rglob("policies/*"))) == kept
    assert not list(tmp_path.rglob("*.tmp*")) and not (tmp_path / "a" / "report.html").exists()
    for out in ("a", "b"):
        rows = ["--json", str(tmp_path / f"{out}.json"), "--out", str(tmp_path / out)]
        assert code_of([*arguments, *rows]) == 0
    assert metrics(tmp_path / "a.json") == metrics(tmp_path / "b.json")
    assert (tmp_path / "a" / "report.html").exists()


def test_no_space_left_while_a_row_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(store, "write_text", full)
    assert code_of([*TOY, "--agents", "random", "--n", "8", "--out", str(tmp_path)]) == 1
    assert "No space left on device" in said(capsys)
    assert not list(tmp_path.rglob("*.json"))


def test_render_and_bench_can_be_quiet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "still.png"
    main(
        [
            "render",
            "MixtureOfGaussians2D-v0",
            "--agent",
            "random",
            "--slots",
            "2",
            "--quiet",
            "--out",
            str(out),
        ]
    )
    assert out.exists()
    monkeypatch.setattr(cli.bench, "run", lambda names: [Result("a", "this", 1.0, "that", 3.0, "> 1")])
    main(["bench", "--quiet", "--json", str(tmp_path / "bench.json")])
    assert capsys.readouterr().out == ""
    [result] = json.loads((tmp_path / "bench.json").read_text())
    assert result["name"] == "a" and result["ratio"] == 3


def test_policies_kept_by_compare_are_those_of_the_agent(tmp_path: Path) -> None:
    main([*TOY, "--agents", "random", "--n", "8", "--seed", "5", "--quiet", "--out", str(tmp_path)])
    policy, _ = store.load_policy(next((tmp_path / "policies").iterdir()))
    problem = make_env("MixtureOfGaussians2D-v0", {}).make_problem(0)
    assert np.array_equal(policy.actions, make_agent("random").sample(problem, 8, 5).actions)
