"""A comparison that is killed and started again ends like one that was left alone."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pdi_gym import TimeSharingPolicy, store
from pdi_gym.agents import Agent, make_agent
from pdi_gym.envs import make_env
from pdi_gym.evaluation import compare
from pdi_gym.store import Store, load_policy

ENV = "MixtureOfGaussians2D-v0"
AGENTS = ("random", "pdi-mc", "unconstrained", "pdl", "frozen-mean")
ARGUMENTS = ["compare", ENV, "--agents", *AGENTS, "--n", "64", "--horizon", "50", "--workers", "2", "--quiet"]


def start(out: Path, **kwargs: Any) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-c",
        "from pdi_gym.cli.main import main; main()",
        *ARGUMENTS,
        "--out",
        str(out),
    ]
    return subprocess.Popen(command, start_new_session=True, **kwargs)


def table(out: Path) -> list[tuple[str, int, dict[str, float]]]:
    rows = json.loads((out / "results.json").read_text())["rows"]
    return [(r["agent"], r["instance"], r["metrics"]) for r in rows]


def check_whole(out: Path) -> None:
    """Every row and policy that is there can be read."""
    for path in out.glob("rows/*.json"):
        json.loads(path.read_text())
    for path in out.glob("policies/*.npz"):
        load_policy(path)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The table of one process that nobody stops."""
    out = tmp_path_factory.mktemp("undisturbed")
    rows = compare(AGENTS, ENV, 1, 50, out=out, n=64)
    return [(r["agent"], r["instance"], r["metrics"]) for r in rows]


def test_killed_again_and_again(tmp_path: Path, undisturbed: Any) -> None:
    """SIGKILL to the parent alone, then SIGINT to all, at some moment after a first and a later row."""
    rng = random.Random(0)
    for count, stop in ((1, signal.SIGKILL), (4, signal.SIGINT)):
        with (tmp_path / "errors.txt").open("wb") as errors:  # a pipe would wait for orphaned workers too
            process = start(tmp_path, stderr=errors)
        while process.poll() is None and len(list(tmp_path.glob("*/*.*"))) < 2 * count - 1:
            time.sleep(0.05)
        time.sleep(0.05 * rng.random())
        if stop == signal.SIGKILL:
            process.kill()
        else:
            os.killpg(process.pid, stop)
        code, said = process.wait(), (tmp_path / "errors.txt").read_text()
        assert code in (1, -stop, 0), said
        assert code != 1 or "goes on from there" in said
        check_whole(tmp_path)
    process = start(tmp_path)
    assert process.wait() == 0
    assert table(tmp_path) == undisturbed
    assert (tmp_path / "report.html").exists() and not list(tmp_path.rglob(".pdi*"))


def test_leftovers_of_a_killed_run_are_ignored(tmp_path: Path, undisturbed: Any) -> None:
    """Truncated rows and policies, a policy of other settings, temporary files."""
    compare(AGENTS, ENV, 1, 50, out=tmp_path, n=64)
    (row,), (policy,) = tmp_path.glob("rows/pdi-mc-0-*"), tmp_path.glob("policies/pdl-0-*")
    row.write_text(row.read_text()[:40])
    policy.write_bytes(policy.read_bytes()[:100])
    next(tmp_path.glob("policies/random-0-*")).unlink()
    next(tmp_path.glob("rows/unconstrained-0-*")).write_text("")
    rows = compare(AGENTS, ENV, 1, 50, out=tmp_path, n=64)
    assert [(r["agent"], r["instance"], r["metrics"]) for r in rows] == undisturbed
    assert not list(tmp_path.rglob(".pdi*"))
    check_whole(tmp_path)


def test_other_settings_in_the_same_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of several settings lie side by side, and one that dies between policy and row is absent."""
    settings: dict[str, Any] = {"env_id": ENV, "instances": 1, "n": 8, "out": tmp_path}
    (first,) = compare(["random"], seed=1, **settings)

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store, "write_text", killed)
        with pytest.raises(KeyboardInterrupt):
            compare(["random"], seed=2, **settings)
    assert compare(["random"], seed=1, **settings) == [first]
    (second,) = compare(["random"], seed=2, **settings)
    problem = make_env(ENV, {}).make_problem(0)
    for seed, row in ((1, first), (2, second)):
        policy, _ = Store(tmp_path).policy(row)
        assert np.array_equal(policy.actions, make_agent("random").sample(problem, 8, seed).actions)


class Threads(Agent):
    """Answers with the number of threads that it may use, by torch and by the libraries below it."""

    name = "threads"
    summary = "counts threads"

    def _sample(self, problem: Any, options: Any, n: int, generator: Any, callback: Any) -> TimeSharingPolicy:
        told = [int(os.environ.get(f"{lib}_NUM_THREADS", 0)) for lib in ("OMP", "OPENBLAS", "MKL")]
        return TimeSharingPolicy(np.array([[torch.get_num_threads(), t] for t in told], dtype=float))


def test_workers_have_one_thread_each(tmp_path: Path) -> None:
    agents = {name: Threads() for name in "abcd"}
    for row in compare(agents, ENV, 1, 5, 1, workers=2, out=tmp_path):
        assert (Store(tmp_path).policy(row)[0].actions == 1).all()
    before = torch.get_num_threads()
    rows = compare(agents, ENV, 1, 5, 1, out=tmp_path / "alone")
    policy, _ = Store(tmp_path / "alone").policy(rows[0])
    assert (policy.actions[:, 0] == 1).all() and torch.get_num_threads() == before


OFFLINE = """
import socket, sys
def refuse(*arguments):
    raise AssertionError("a connection was tried")
socket.socket.connect = socket.socket.connect_ex = socket.create_connection = socket.getaddrinfo = refuse
from pdi_gym.cli.main import main
main(sys.argv[1:])
"""


def test_no_connection_is_tried(tmp_path: Path) -> None:
    arguments = [
        "compare",
        ENV,
        "--agents",
        "random",
        "pdi-mc",
        "--n",
        "8",
        "--quiet",
        "--out",
        str(tmp_path),
    ]
    subprocess.run([sys.executable, "-c", OFFLINE, *arguments], check=True)
    assert (tmp_path / "report.html").exists()
