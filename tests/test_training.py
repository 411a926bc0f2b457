"""The training loop: resumption, signals, what is refused, validation and records."""

from __future__ import annotations

import json
import math
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from pdi_gym.agents import learned
from pdi_gym.checkpoints import load_tensors, save_tensors
from pdi_gym.networks import NetworkConfig
from pdi_gym.problems import MixtureOfGaussians, WirelessPower
from pdi_gym.training.criterion import judge
from pdi_gym.training.loop import Stopped, Training
from pdi_gym.training.sources import Duals, Experts, Replay
from pdi_gym.training.state import STATE
from tests.training_cases import LEARNED, USERS, interrupt, learn, task, weights

ENV = "MixtureOfGaussians2D-v0"


# Resumption.


@pytest.fixture(scope="module")
def starts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Short trainings that others start from."""
    out = tmp_path_factory.mktemp("starts")
    for name in ("st", "dt"):
        learn(name, out / name)
    return {"pdi-net-warm": out / "st", "dt-plus": out / "dt"}


@pytest.mark.parametrize(
    ("name", "call", "message"),
    [
        *((name, ("_gradient_step", 4), "after step 4") for name in LEARNED),
        ("pdi-net", ("visit", 1, Replay), "after step 0"),
        ("pdi-net-warm", ("visit", 2, Replay), "after step 0"),
        ("dt", ("visit", 3, Duals), "after step 4"),
        ("st", ("visit", 1, Experts), "after step 0"),
    ],
)
def test_a_stopped_training_resumes_to_the_same_bits(
    tmp_path: Path, name: str, call: Any, message: str, starts: dict[str, Path], monkeypatch: Any
) -> None:
    """Stopped between gradient steps, or between the rollouts and solutions that come before them."""
    learn(name, tmp_path / "whole", start=starts.get(name))
    interrupt(monkeypatch, *call)
    with pytest.raises(Stopped, match=f"the state {message} is in"):
        learn(name, tmp_path / "parts", start=starts.get(name))
    assert not (tmp_path / "parts" / "weights.safetensors").exists()
    start = None if name == "dt-plus" else starts.get(name)  # all of DT's is in the state
    learn(name, tmp_path / "parts", start=start, resume=True)
    assert weights(tmp_path / "parts") == weights(tmp_path / "whole")
    histories = [json.loads((tmp_path / d / "history.json").read_text()) for d in ("whole", "parts")]
    for row in histories[0] + histories[1]:
        row.pop("seconds")
    assert histories[0] == histories[1]


def test_resuming_asks_for_the_same_settings(tmp_path: Path) -> None:
    learn("pdi-net", tmp_path)
    with pytest.raises(
        ValueError, match="holds a training state: go on with resume, or choose another folder"
    ):
        learn("pdi-net", tmp_path)
    with pytest.raises(ValueError, match="was trained with rate = 0.002, not 0.1"):
        learn("pdi-net", tmp_path, resume=True, rate=0.1)
    with pytest.raises(ValueError, match="was trained with seed = 0, not 3"):
        learn("pdi-net", tmp_path, resume=True, seed=3)
    with pytest.raises(
        ValueError, match="was trained with problems = '4 with digest .*', not '4 with digest"
    ):
        learn("pdi-net", tmp_path, resume=True, on=[*USERS[:3], USERS[0]])
    with pytest.raises(
        ValueError, match="was trained with problems = '4 with digest .*', not '3 with digest"
    ):
        learn("pdi-net", tmp_path, resume=True, on=USERS[:3])
    with pytest.raises(FileNotFoundError, match=STATE):
        learn("pdi-net", tmp_path / "elsewhere", resume=True)


def test_a_second_interrupt_ends_at_once(tmp_path: Path, monkeypatch: Any) -> None:
    def twice(self: Training) -> float:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("went on")

    monkeypatch.setattr(Training, "_gradient_step", twice)
    with pytest.raises(KeyboardInterrupt) as stop:
        learn("pdi-net", tmp_path)
    assert not isinstance(stop.value, Stopped) and not (tmp_path / STATE).exists()


def test_the_state_is_saved_before_the_events_are_written(tmp_path: Path, monkeypatch: Any) -> None:
    def full(*_: Any) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(Training, "_write_events", full)
    with pytest.raises(OSError, match="No space left"):
        learn("pdi-net", tmp_path)
    assert load_tensors(tmp_path / STATE)[1]["step"] == 3


def test_training_leaves_the_users_random_numbers_alone(tmp_path: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    learn("pdi-net", tmp_path)
    assert torch.equal(torch.rand(3), expected)


# What is refused before any work.


@pytest.mark.parametrize(
    ("error", "message", "arguments"),
    [
        (TypeError, "on must be a sequence of problems, got one WirelessPower", {"on": USERS[0]}),
        (ValueError, "on must hold at least one problem", {"on": []}),
        (ValueError, "int.latent_dim must be an int", {"on": [3]}),
        (
            ValueError,
            "first is a WirelessPower of 8 coordinates and 8 constraints, number 2 is a WirelessPower of 9",
            {"on": [*USERS[:2], WirelessPower.instance(0, "train", n_users=9)]},
        ),
        (ValueError, "number 1 is a MixtureOfGaussians", {"on": [USERS[0], MixtureOfGaussians.toy()]}),
        (ValueError, "number 0 is a MixtureOfGaussians", {"validation": [MixtureOfGaussians.toy()]}),
        (
            ValueError,
            "validation must be left out with an environment id",
            {"on": ENV, "validation": USERS},
        ),
        (ValueError, "start must be left out for pdi-net, got 'x'", {"start": "x"}),
        (ValueError, "seed must be a whole number", {"seed": -1}),
        (ValueError, "inner must be a whole number", {"inner": 0}),
        *(
            (TypeError, f"training of .* has no option '{name}'(?!.* {name},)", {name: 1})
            for name in ("inputs", "n_duals", "dual", "alpha_min")
        ),
    ],
)
def test_what_cannot_be_trained_is_refused_first(
    tmp_path: Path, error: type[Exception], message: str, arguments: dict[str, Any]
) -> None:
    with pytest.raises(error, match=message):
        learn("pdi-net", tmp_path / "out", **arguments)
    assert not (tmp_path / "out").exists()


def test_validation_may_be_on_graphs_of_another_size(tmp_path: Path) -> None:
    agent = learn("pdi-net", tmp_path, validation=[WirelessPower.instance(0, "validation", n_users=5)])
    assert np.isfinite(agent.card["validation"]["criterion"])


def test_training_runs_outside_the_main_thread(tmp_path: Path) -> None:
    """Where no signal handlers can be set, as in a server's worker."""
    thread = threading.Thread(target=learn, args=("pdi-net", tmp_path))
    thread.start()
    thread.join()
    assert (tmp_path / "weights.safetensors").exists()


def test_a_loss_that_is_not_finite_stops(tmp_path: Path) -> None:
    class Bad(Replay):
        def pieces(self, step: int) -> Any:
            for piece in super().pieces(step):
                yield piece._replace(clean=piece.clean * float("nan"))

    work = task()
    net = NetworkConfig(inputs=3, width=8, depth=1, messages=4).build()
    settings = {"agent": "pdi-net", "problem": "wireless"}
    run = Training(net, Bad(work), work.training, lambda _: {"criterion": 0.0}, tmp_path, settings=settings)
    message = "pdi-net on wireless: the loss is not finite at step 0: lower rate"
    with pytest.raises(FloatingPointError, match=message):
        run.run(quiet=True)


# Validation and records.


def test_the_best_checkpoint_is_kept(tmp_path: Path) -> None:
    work = task(steps=4, validate_every=1)
    net = NetworkConfig(inputs=3, width=8, depth=1, messages=4).build()
    given, seen = iter([3.0, 1.0, 2.0, 1.5]), []

    def validate(network: Any) -> dict[str, float]:
        seen.append(network.state_dict()["body.first.weight"].clone())
        return {"criterion": next(given), "objective": 0.0, "feasible": 1.0}

    settings = {"agent": "pdi-net", "problem": "wireless"}
    best = Training(net, Replay(work), work.training, validate, tmp_path, settings=settings).run(quiet=True)
    assert torch.equal(best.state_dict()["body.first.weight"], seen[1])
    assert not torch.equal(seen[1], seen[3])
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == [
        f"step-{i:06d}" for i in (1, 2, 3, 4)
    ]


def test_the_criterion_is_an_exact_penalty() -> None:
    problem = USERS[0]
    z, lam = torch.full((3, 8), -0.4), torch.arange(8.0)
    figures = judge(problem, z, lam)
    xi = problem.draw(500, torch.Generator().manual_seed(2))
    x = problem.decode(z)
    excess = problem.constraints(x, xi).double().mean(0).clamp(min=0)
    expected = float(problem.objective(x, xi).double().mean()) + 2 * float((lam.double() * excess).sum())
    assert figures["criterion"] == pytest.approx(expected)
    assert figures["mean_violation"] == pytest.approx(float(excess.mean()))


def test_events_tell_losses_by_noise_multipliers_and_validation(tmp_path: Path) -> None:
    learn("pdi-net", tmp_path)
    events = EventAccumulator(str(tmp_path / "tensorboard"), {"histograms": 0, "scalars": 0, "images": 0})
    events.Reload()
    tags = events.Tags()
    assert {"loss/all", "validation/criterion", "validation/mean_rate", "loss by noise/0.75 to 1.00"} <= set(
        tags["scalars"]
    )
    assert tags["histograms"] == ["multipliers"] and tags["images"] == ["validation"]
    assert [e.step for e in events.Scalars("loss/all")] == [3, 6]


def test_dual_training_shows_its_multipliers(tmp_path: Path) -> None:
    learn("dt", tmp_path)
    events = EventAccumulator(str(tmp_path / "tensorboard"), {"histograms": 0}).Reload()
    assert events.Tags()["histograms"] == ["multipliers"]
    assert events.Histograms("multipliers")[-1].histogram_value.num == 4 * 8


def test_seconds_count_the_whole_training(tmp_path: Path, monkeypatch: Any) -> None:
    def busy(*_: Any) -> dict[str, float]:
        end = time.process_time() + 0.3
        while time.process_time() < end:
            pass
        return {"criterion": 0.0, "objective": 0.0, "feasible": 1.0}

    monkeypatch.setattr(learned.LearnedAgent, "_validate", busy)
    reference = learned.monte_carlo
    monkeypatch.setattr(learned, "monte_carlo", lambda *a: (busy(), reference(*a))[1])
    begin = time.process_time()
    agent = learn("pdi-net", tmp_path)
    spent = time.process_time() - begin
    assert 0.9 < agent.card["budget"]["seconds"] <= spent + 0.1  # a reference and two validations


def test_dual_training_records_the_distance_to_pdis_multipliers(tmp_path: Path) -> None:
    agent = learn("dt", tmp_path)
    rows = agent.card["curve"]
    assert all(-1 <= row["dual_cosine"] <= 1 and row["dual_distance"] >= 0 for row in rows)
    assert agent.card["budget"]["gradient_steps"] == 6
    # A round before step 0, 2 and 4, one rollout of 6 chains in each, over the sampler's 50 steps.
    assert agent.card["budget"]["rollout_network_calls"] == 3 * 6 * 50
    assert np.isfinite(rows[-1]["validation"]["criterion"])


def _spoilt(tensors: dict[str, Any], metadata: dict[str, Any], name: str, value: Any) -> None:
    place = metadata if name in metadata else tensors
    if value is None:
        del place[name]
    else:
        place[name] = place[name] + 9 if value == "beyond" else value


@pytest.mark.parametrize(
    "name, value",
    [
        *((name, None) for name in ("step", "seconds", "history", "losses", "options", "settings")),
        *(("step", value) for value in (True, "3", 3.0, -1)),
        ("seconds", "1"),
        ("history", [{"step": 3}]),
        ("losses", [[1.0, [1.0]]]),
        ("settings", {"agent": "pdi-net"}),
        ("options", {}),
        ("generator", None),
        ("source.calls", None),
        ("source.buffer.z", None),
        ("best.body.first.weight", torch.zeros(2, 2)),
        ("average.body.first.bias", torch.zeros(8, dtype=torch.long)),
        ("network.body.first.bias", torch.full((8,), math.nan)),
        ("optimiser.0.exp_avg", None),
        ("source.buffer.index", "beyond"),
        ("surprise", torch.zeros(1)),
    ],
)
def test_an_incomplete_state_is_refused_by_file_and_field(
    stopped: Path, tmp_path: Path, name: str, value: Any
) -> None:
    shutil.copytree(stopped, tmp_path, dirs_exist_ok=True)
    tensors, metadata = load_tensors(tmp_path / STATE)
    _spoilt(tensors, metadata, name, value)
    save_tensors(tmp_path / STATE, tensors, metadata)
    field = "buffer" if name.startswith("source.buffer.z") else name.replace(".body", ".*")
    with pytest.raises(ValueError, match=f"{STATE} .*{field}"):
        learn("pdi-net", tmp_path, T=5, resume=True)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a training that was stopped between two rollouts."""
    out = tmp_path_factory.mktemp("stopped")
    with pytest.MonkeyPatch.context() as patch:
        interrupt(patch, "_gradient_step", 4)
        with pytest.raises(Stopped):
            learn("pdi-net", out, T=5)
    return out


def test_a_folder_that_cannot_be_written_is_refused_first(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="out must be somewhere that can be written, got '.*file/out'"):
        learn("pdi-net", tmp_path / "file" / "out", T=5)
