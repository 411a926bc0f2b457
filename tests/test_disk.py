"""Full disks, vanished folders, files in the way: one line names the file, and the rest is kept."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from pdi_gym import files
from pdi_gym.agents import make_agent
from pdi_gym.checkpoints import load_tensors
from pdi_gym.cli.main import main
from pdi_gym.drawing import figure
from pdi_gym.event_files import event_writer
from pdi_gym.experiments.run import Common, Run
from pdi_gym.files import UnwritableError
from pdi_gym.report.outputs import write_outputs
from tests.test_cli import code_of, small_disk

ENV = "MixtureOfGaussians2D-v0"
COMPARE = ["compare", ENV, "--agents", "random", "pdi-mc", "--n", "4", "--horizon", "5", "--quiet"]
NETWORK = "steps=4 validate_every=2 seed_rollouts=1 chains=2 keep=4 problems=1 pairs=2 width=4 depth=1"
TRAIN = ["train", "pdi-net", ENV, "--option", "T=3", "--quiet", "--set", *NETWORK.split(), "validation_n=2"]
ROUNDS = "n_envs=2 n_steps=2 batch_size=4 n_epochs=1 channels=2 horizon=4 steps=64"
PPO = ["train", "ppo", ENV, "--quiet", "--set", *ROUNDS.split()]


def full(path: Path) -> None:
    """Let the next write of this process to a file find no space: its temporary name leads to /dev/full."""
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    path.parent.mkdir(parents=True, exist_ok=True)
    files._temporary(path).symlink_to("/dev/full")


def check_told(capsys: pytest.CaptureFixture[str], path: Path, reason: str) -> None:
    """The error's first line names the file, and only advice follows."""
    first, *others = capsys.readouterr().err.strip().splitlines()
    assert first.startswith("pdi-gym: ") and str(path) in first and reason in first
    assert all(line.startswith("Finished rows are in") for line in others)


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison that nothing disturbed."""
    out = tmp_path_factory.mktemp("compared")
    main([*COMPARE, "--out", str(out)])
    return out


def kept(out: Path) -> dict[str, bytes]:
    """The finished rows and their policies; a policy that was written without its row is none."""
    done = {path.stem for path in out.glob("rows/*")}
    found = [p for kind in ("rows", "policies") for p in out.glob(f"{kind}/*") if p.stem in done]
    return {path.name: path.read_bytes() for path in found}


@pytest.mark.parametrize(
    "name",
    [
        *("rows/random", "policies/random", "rows/pdi-mc", "policies/pdi-mc"),
        *("results.json", "results.md", "results.csv", "report.html", "tradeoff.png", "residuals.png"),
    ],
)
def test_a_comparison_without_space_keeps_what_it_has(
    name: str, compared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (expected,) = compared.glob(name if "." in name else f"{name}*")
    path = tmp_path / expected.relative_to(compared)
    full(path)
    assert code_of([*COMPARE, "--out", str(tmp_path)]) == 1
    check_told(capsys, path, "No space left on device")
    assert not path.exists() and not list(tmp_path.rglob(".pdi-gym-*"))
    assert len(list(tmp_path.glob("rows/*"))) == {"random": 0, "pdi-mc": 1}.get(name.partition("/")[2], 2)
    before = kept(tmp_path)
    assert code_of([*COMPARE, "--out", str(tmp_path)]) == 0
    assert path.exists() and before.items() <= kept(tmp_path).items()
    assert {p.name for p in tmp_path.iterdir()} == {p.name for p in compared.iterdir()}


@pytest.mark.parametrize("command", [COMPARE, TRAIN, PPO], ids=lambda v: v[1])
def test_no_name_is_no_folder(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert code_of([*command, "--out", ""]) == 2
    check_told(capsys, Path("out"), "must name a folder, got ''")
    assert not list(tmp_path.iterdir())


def test_a_report_of_others_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("mine")
    assert code_of([*COMPARE, "--out", str(tmp_path)]) == 0
    assert (tmp_path / "report.html").read_text() == "mine" and not (tmp_path / "results.json").exists()
    assert (tmp_path / "comparison-2" / "report.html").exists()


@pytest.mark.parametrize("name", ["rows", "policies"])
def test_a_file_in_the_place_of_a_folder_is_named(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text("mine")
    assert code_of([*COMPARE, "--out", str(tmp_path)]) == 1
    check_told(capsys, tmp_path / name / "random-0", "could not be written")
    assert (tmp_path / name).read_text() == "mine" and not (tmp_path / "report.html").exists()


def test_a_folder_that_vanishes_costs_no_more_than_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def vanish(folder: Path, *arguments: Any) -> Path:
        shutil.rmtree(folder)
        return write_outputs(folder, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr("pdi_gym.report.outputs.write_outputs", vanish)
        assert code_of([*COMPARE, "--out", str(tmp_path / "out")]) == 1
    check_told(capsys, tmp_path / "out", "No such file")
    assert code_of([*COMPARE, "--out", str(tmp_path / "out")]) == 0
    assert len(list(tmp_path.glob("out/rows/*"))) == 2


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (TRAIN, n)
        for n in ("state.safetensors", "history.json", "weights.safetensors", "card.json", "agent.json")
    ]
    + [(TRAIN, f"checkpoints/step-000002/{n}") for n in ("weights.safetensors", "card.json")]
    + [(PPO, "ppo.safetensors"), (PPO, "agent.json")],
    ids=lambda v: v if isinstance(v, str) else v[1],
)
def test_a_training_without_space_goes_on_later(
    command: list[str], name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code_of([*command, "--out", str(tmp_path / "whole")]) == 0
    out = tmp_path / "out"
    full(out / name)
    assert code_of([*command, "--out", str(out)]) == 1
    check_told(capsys, out / name, "No space left on device")
    assert not (out / name).exists() and not list(out.rglob(".pdi-gym-*"))
    resumed = any((out / state).exists() for state in ("state.safetensors", "ppo.safetensors"))
    assert code_of([*command, "--out", str(out), *["--resume"] * resumed]) == 0
    weights = "ppo.safetensors" if command is PPO else "weights.safetensors"
    (ours, _), (theirs, _) = (load_tensors(folder / weights) for folder in (out, tmp_path / "whole"))
    assert all(bool((ours[key] == theirs[key]).all()) for key in theirs)


@pytest.mark.parametrize("command", [TRAIN, PPO], ids=lambda v: v[1])
def test_events_of_a_training_that_cannot_be_written_are_named(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tensorboard").write_text("mine")
    assert code_of([*command, "--out", str(tmp_path)]) == 1
    check_told(capsys, tmp_path / "tensorboard", "could not be written")
    assert (tmp_path / "tensorboard").read_text() == "mine"


def test_events_without_space_are_named_and_nothing_else_is_printed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The writer's thread meets the error: it is raised at the end at the latest, not printed and dropped."""
    before = threading.excepthook
    with (
        small_disk(5000),
        pytest.raises(UnwritableError, match=r"run could not be written \(File too large\)"),
        event_writer(tmp_path / "run") as writer,
    ):
        for step in range(500):
            writer.add_scalar("a", 1.0, step)
    assert capfd.readouterr().err == "" and threading.excepthook is before


def test_other_failures_of_threads_are_still_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    told: list[Any] = []
    before, threading.excepthook = threading.excepthook, told.append
    try:
        with event_writer(tmp_path / "run"):
            thread = threading.Thread(target=lambda: 1 / 0)
            thread.start(), thread.join()
    finally:
        threading.excepthook = before
    assert [failure.exc_type for failure in told] == [ZeroDivisionError]


@pytest.mark.parametrize("name", ["results.json", "results.md", "picture.png"])
def test_results_of_the_paper_without_space_stay_as_they_were(name: str, tmp_path: Path) -> None:
    run = Run("mixture-toy", Common(out=tmp_path, logs=tmp_path / "logs"))
    (tmp_path / name).write_text("before")
    full(tmp_path / name)
    with pytest.raises(UnwritableError, match=rf"{name} could not be written \(No space left on device\)"):
        run.figure("picture", figure()[0], "A picture.")
        run.write([], [], "", sample="One.", reduced="None.")
    assert (tmp_path / name).read_text() == "before" and not list(tmp_path.rglob(".pdi-gym-*"))


def test_a_policy_and_an_agent_without_space_leave_nothing(tmp_path: Path) -> None:
    full(tmp_path / "agent.json")
    with pytest.raises(UnwritableError, match="agent.json could not be written"):
        make_agent("pdi-mc").save(tmp_path)
    assert not list(tmp_path.iterdir())
