from __future__ import annotations

import json
from pathlib import Path

import pytest

from pdi_gym.cli import main

COMPARE = [
    "compare",
    "MixtureOfGaussians2D-v0",
    "--agents",
    "pdi-mc",
    "random",
    "--instances",
    "1",
    "--n",
    "16",
]


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    main(["list"])
    printed = capsys.readouterr().out
    assert "MixtureOfGaussians-v0" in printed and "pdi-mc" in printed


def test_compare_leaves_everything_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    main([*COMPARE, "--json", "rows.json"])
    assert "tensorboard --logdir" in capsys.readouterr().out
    rows = json.loads(Path("rows.json").read_text())
    assert [row["agent"] for row in rows] == ["pdi-mc", "random"]
    assert set(rows[0]) == {"agent", "instance", "metrics", "seconds"}
    out = Path("runs/logs/MixtureOfGaussians2D-v0-seed0")
    results = json.loads((out / "results.json").read_text())
    assert results["rows"] == rows and "torch" in results["versions"]
    assert "| pdi-mc |" in (out / "results.md").read_text()
    for name in ("tradeoff", "residuals", "denoising"):
        assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "report.html").exists() and (out / "results.csv").exists()
    assert {p.name for p in (out / "tensorboard").iterdir()} == {"comparison", "pdi-mc", "random"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare", "Mixture-v0"], "unknown environment 'Mixture-v0'"),
        (["compare", "MixtureOfGaussians2D-v0", "--agents", "pdi"], "unknown agent 'pdi'"),
        (["compare", "MixtureOfGaussians2D-v0", "--instances", "0"], "instances must be a whole number"),
        (["compare", "MixtureOfGaussians2D-v0", "--horizon", "0"], "horizon must be a whole number"),
        (
            ["compare", "MixtureOfGaussians2D-v0", "--out", "/dev/null/x"],
            "out must be somewhere that can be written",
        ),
        (["bench", "--names", "mixtur-gradient"], "did you mean mixture-gradient"),
    ],
)
def test_bad_usage_exits_with_2(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.rglob("*.json"))


def test_unknown_option_exits_with_2() -> None:
    with pytest.raises(SystemExit) as stop:
        main(["compare", "MixtureOfGaussians2D-v0", "--instnces", "1"])
    assert stop.value.code == 2
