from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageSequence

from pdi_gym.agents import make_agent
from pdi_gym.cli.main import main
from pdi_gym.report.animation import play, render

SMALL = {"n_users": 8}


def test_an_animation_shows_the_horizon_and_ends_like_the_still(tmp_path: Path) -> None:
    agent = make_agent("random")
    pictures = play("WirelessPower-v0", agent, slots=9, frames=3, env_kwargs=SMALL)
    assert len(pictures) == 3
    assert all(p.shape == pictures[0].shape and p.dtype == np.uint8 for p in pictures)
    assert not np.array_equal(pictures[0], pictures[-1])
    render("WirelessPower-v0", agent, 9, tmp_path / "a.png", **SMALL)
    assert np.array_equal(np.asarray(Image.open(tmp_path / "a.png")), pictures[-1])


def test_gif_frames_and_pauses(tmp_path: Path) -> None:
    render("MixtureOfGaussians2D-v0", make_agent("random"), 4, tmp_path / "sub" / "a.gif")
    with Image.open(tmp_path / "sub" / "a.gif") as image:
        pauses = [frame.info["duration"] for frame in ImageSequence.Iterator(image)]
    assert pauses == [150, 150, 150, 2000]
    assert [p.name for p in (tmp_path / "sub").iterdir()] == ["a.gif"]


def test_the_command_writes_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "horizon.png"
    main(["render", "MixtureOfGaussians2D-v0", "--agent", "random", "--slots", "3", "--out", str(out)])
    assert out.read_bytes().startswith(b"\x89PNG")
    assert "horizon.png" in capsys.readouterr().out.replace("\n", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["MixtureOfGaussians2D-v0", "--out", "a.mp4"], "out must end in .png or .gif"),
        (
            ["MixtureOfGaussians2D-v0", "--slots", "0", "--agent", "random"],
            "slots must be a whole number ≥ 1",
        ),
        (
            ["MixtureOfGaussians2D-v0", "--instance", "5", "--agent", "random"],
            "options['instance'] must be < 1",
        ),
        (["Mixture2D-v0"], "did you mean MixtureOfGaussians2D-v0"),
        (["MixtureOfGaussians2D-v0", "--agent", "randm"], "did you mean random"),
        (
            ["MixtureOfGaussians2D-v0", "--out", "/dev/null/a.png"],
            "out must be somewhere that can be written",
        ),
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
    with pytest.raises(SystemExit) as stop:
        main(["render", *arguments])
    assert stop.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.iterdir())
