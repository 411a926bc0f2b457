"""A stored row is used for exactly what made it; whatever is malformed counts as absent."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor

from pdi_gym import Problem
from pdi_gym.agents import make_agent
from pdi_gym.cli.main import main
from pdi_gym.envs import ErgodicEnv
from pdi_gym.evaluation import compare
from pdi_gym.problems import WirelessPower
from pdi_gym.store import Store, load_policy, slug
from tests.cases import Sensors

LIMIT = torch.tensor([0.5])


class Charging(Problem):
    """Charge as much as a shared line allows on average; its limit is a global of this module."""

    latent_dim, n_constraints, bound = 2, 1, 1.0

    def objective(self, x: Tensor, xi: Tensor | None = None) -> Tensor:
        return -x.sum(-1)

    def constraints(self, x: Tensor, xi: Tensor | None = None) -> Tensor:
        return x.sum(-1, keepdim=True) - LIMIT


def gains(factor: float = 1.0) -> WirelessPower:
    """Forty users: more numbers than a printed array shows."""
    rng = np.random.default_rng(0)
    powers = factor * (rng.exponential(1e-10, (40, 40)) + 1e-8 * np.eye(40))
    return WirelessPower.from_gains(powers, r_min=0.5, noise=1e-13, p_max=0.01)


SMALL: dict[str, Any] = {"horizon": 10, "trials": 2, "n": 4}


def test_other_data_give_other_rows(tmp_path: Path) -> None:
    for factor in (1.0, 0.01):
        (stored,) = compare(["random"], gains(factor), out=tmp_path, **SMALL)
        (fresh,) = compare(["random"], gains(factor), **SMALL)
        assert stored["metrics"] == fresh["metrics"]
    assert len(list(tmp_path.glob("rows/*"))) == 2


def test_a_limit_in_the_users_module_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (first,) = compare(["random"], Charging(), out=tmp_path, **SMALL)
    monkeypatch.setitem(globals(), "LIMIT", torch.tensor([-9.0]))
    (second,) = compare(["random"], Charging(), out=tmp_path, **SMALL)
    assert second["metrics"]["worst_residual"] - first["metrics"]["worst_residual"] == pytest.approx(9.5)


def test_evaluation_and_agent_settings_count(tmp_path: Path) -> None:
    settings = [SMALL, SMALL | {"horizon": 11}, SMALL | {"trials": 3}, SMALL | {"paths": 1}, SMALL | {"n": 5}]
    for s in [*settings, *settings]:
        compare({"a": make_agent("pdl", steps=3)}, Sensors(), out=tmp_path, **s)
    compare({"a": make_agent("pdl", steps=4)}, Sensors(), out=tmp_path, **SMALL)
    assert len(list(tmp_path.glob("rows/*"))) == len(settings) + 1


def edit(change: Callable[[dict[str, Any]], None]) -> Callable[[Path, Path], None]:
    def apply(row: Path, policy: Path) -> None:
        content = json.loads(row.read_text())
        change(content)
        row.write_text(json.dumps(content))

    return apply


def replace(text: str) -> Callable[[Path, Path], None]:
    return lambda row, policy: (row.write_text(text), None)[1]


def pipe(row: Path, policy: Path) -> None:
    row.unlink()
    os.mkfifo(row)


def folder(row: Path, policy: Path) -> None:
    policy.unlink()
    policy.mkdir()


def other_policy(row: Path, policy: Path) -> None:
    other = next(p for p in policy.parent.iterdir() if p != policy)
    shutil.copy(other, policy)


def wider_policy(row: Path, policy: Path) -> None:
    arrays = dict(np.load(policy))
    arrays["actions"] = np.zeros((4, 9))
    np.savez(policy, **arrays)


DAMAGES: dict[str, Callable[[Path, Path], None]] = {
    "not a number": edit(lambda c: c["row"]["metrics"].update(objective=float("nan"))),
    "another number": edit(lambda c: c["row"]["metrics"].update(objective=-1e9)),
    "a word": edit(lambda c: c["row"]["metrics"].update(objective="low")),
    "a metric less": edit(lambda c: c["row"]["metrics"].pop("feasible")),
    "another agent": edit(lambda c: c["row"].update(agent="pdi-mc")),
    "no policy digest": edit(lambda c: c.pop("policy")),
    "a list": replace("[]"),
    "an empty object": replace("{}"),
    "deep nesting": replace("[" * 100_000),
    "no text": replace(""),
    "a pipe": pipe,
    "a folder": folder,
    "another policy": other_policy,
    "another width": wider_policy,
    "half a policy": lambda row, policy: (policy.write_bytes(policy.read_bytes()[:99]), None)[1],
    "no policy": lambda row, policy: policy.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_malformed_entry_counts_as_absent(
    damage: Callable[[Path, Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments: dict[str, Any] = {"env_id": Sensors(), "out": tmp_path, **SMALL}
    (first, _) = compare({"a": "random", "b": make_agent("pdl", steps=2)}, **arguments)
    damage(Store(tmp_path).path(first, "rows"), Store(tmp_path).path(first))
    assert Store(tmp_path).load("a", 0, first["key"]) is None
    if damage in (pipe, folder):
        return  # computed anew, but there is no place to write it
    (again,) = compare({"a": "random"}, **arguments)
    assert again["metrics"] == first["metrics"]
    assert Store(tmp_path).load("a", 0, first["key"]) == again


def test_a_damaged_policy_is_refused_by_the_name_of_its_file(tmp_path: Path) -> None:
    (row,) = compare(["random"], Sensors(), out=tmp_path, **SMALL)
    path = Store(tmp_path).path(row)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(100):
        damaged = bytearray(whole)
        damaged[rng.integers(len(whole))] ^= 1 << rng.integers(8)
        path.write_bytes(damaged)
        try:
            load_policy(path)
        except ValueError as error:
            assert str(path) in str(error)


def test_what_has_no_digest_is_computed_every_time_and_says_so(tmp_path: Path) -> None:
    problem = Sensors()
    with (tmp_path / "log").open("w") as file:
        problem.log = file  # type: ignore[attr-defined]
        for _ in range(2):
            with pytest.warns(UserWarning, match="rows of random on Sensors cannot be reused"):
                (row,) = compare(["random"], problem, out=tmp_path / "out", **SMALL)
    assert row["key"] is None and len(list((tmp_path / "out" / "rows").iterdir())) == 1


@pytest.mark.parametrize("workers", [1, 2])
def test_own_problems_are_compared_in_every_form(workers: int, tmp_path: Path) -> None:
    """A problem, a list of them, a registered ErgodicEnv, and an environment with instances of its own."""

    class Limited(Charging):
        def __init__(self, most: float):
            self.most = most

        def constraints(self, x: Tensor, xi: Tensor | None = None) -> Tensor:
            return x.sum(-1, keepdim=True) - self.most

    class Family(ErgodicEnv):
        n_instances = 2

        def make_problem(self, index: int) -> Problem:
            return Limited(float(index))

    gym.register("Single-v0", entry_point=lambda **kw: ErgodicEnv(**kw), kwargs={"problem": Limited(0.0)})
    gym.register("Family-v0", entry_point=Family)
    try:
        listed = compare(["random"], [Limited(0.0), Limited(1.0)], workers=workers, **SMALL)
        forms = [
            compare(["random"], Limited(0.0), workers=workers, **SMALL),
            compare(["random"], "Single-v0", workers=workers, **SMALL),
            compare(["random"], "Family-v0", workers=workers, out=tmp_path, **SMALL),
        ]
    finally:
        del gym.registry["Single-v0"], gym.registry["Family-v0"]
    metrics = [row["metrics"] for row in listed]
    assert [[row["metrics"] for row in rows] for rows in forms] == [metrics[:1], metrics[:1], metrics]
    assert metrics[0]["worst_residual"] - metrics[1]["worst_residual"] == pytest.approx(1)


LABELS = [["a/b", "a_b", "a b"], ["..", "."], ["x" * 300, "x" * 301], ["=", "\ud800", "$x$"]]


@pytest.mark.parametrize("labels", LABELS, ids=["signs", "dots", "long", "odd"])
def test_labels_become_distinct_file_names(labels: list[str], tmp_path: Path) -> None:
    names = [slug(label) for label in labels]
    assert len(set(names)) == len(names)
    for name in names:
        assert name.isascii() and len(name) <= 60 and not name.startswith(".") and "/" not in name
    rows = compare(dict.fromkeys(labels, "random"), Sensors(), out=tmp_path, **SMALL)
    assert [Store(tmp_path).load(r["agent"], 0, r["key"]) for r in rows] == rows


def test_a_report_is_never_replaced_by_another_comparisons(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["compare", "MixtureOfGaussians2D-v0", "--n", "8", "--horizon", "5", "--out", str(tmp_path)]
    main([*common, "--agents", "random"])
    first = (tmp_path / "report.html").read_text()
    for _ in range(2):  # the second time it finds its own report
        main([*common, "--agents", "random", "pdl"])
        said = " ".join(capsys.readouterr().out.split())
        assert f"this one goes to {tmp_path / 'comparison-2'}" in said
    assert (tmp_path / "report.html").read_text() == first
    agents = {r["agent"] for r in json.loads((tmp_path / "comparison-2/results.json").read_text())["rows"]}
    assert agents == {"random", "pdl"} and len(list(tmp_path.glob("rows/*"))) == 2
    assert not (tmp_path / "comparison-3").exists()


def test_nothing_of_the_users_is_deleted(tmp_path: Path) -> None:
    common = ["compare", "MixtureOfGaussians2D-v0", "--n", "8", "--horizon", "5", "--quiet"]
    for name in ("notes.tmp", "rows.123.tmp"):
        (tmp_path / name).write_text("mine")
    (tmp_path / "old.tmp").mkdir()
    main([*common, "--agents", "random", "--out", str(tmp_path)])
    assert (tmp_path / "notes.tmp").read_text() == "mine" and (tmp_path / "old.tmp").is_dir()
    foreign = tmp_path / "foreign"
    (foreign / "tensorboard").mkdir(parents=True)
    (foreign / "tensorboard" / "run").write_text("mine")
    with pytest.raises(SystemExit) as stop:
        main([*common, "--agents", "random", "--out", str(foreign)])
    assert stop.value.code == 2 and (foreign / "tensorboard" / "run").read_text() == "mine"
    assert not (foreign / "rows").exists()
    with pytest.raises(SystemExit) as stop:
        main([*common, "--agents", "random", "--out", ""])
    assert stop.value.code == 2


def test_a_policy_whose_archive_lost_its_end_is_refused(tmp_path: Path) -> None:
    """A flipped bit in the length of a comment in the directory hides the members that follow."""
    (row,) = compare(["random"], Sensors(), out=tmp_path, **SMALL)
    path = Store(tmp_path).path(row)
    whole = path.read_bytes()
    entry = whole.index(b"PK\x01\x02", whole.index(b"PK\x01\x02") + 1)
    path.write_bytes(whole[: entry + 33] + b"\x04" + whole[entry + 34 :])
    with pytest.raises(ValueError, match="lacks 'r"):
        load_policy(path)
