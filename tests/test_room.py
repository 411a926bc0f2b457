"""The tool that lists the room of tolerances sees every kind of comparison, with rooms known by hand."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np
import pytest
import torch

from tests.room import Instrument, Recorder, moved, rows, table

CASES = {
    "assert 0.25 < 1.0": 0.75,
    "assert 4.0 > 1.0": 0.75,
    "assert not 4.0 < 1.0": 0.75,
    "assert -1 < 0.5 < 1": 0.5,
    "assert all(x < 1.0 for x in (0.1, 0.6))": 0.4,
    "assert (np.array([0.1, 0.6]) < 1).all()": 0.4,
    "assert float((torch.tensor([-1.0, 1.0]) <= 0).float().mean()) < 1": 0.5,
    "assert 1.02 == pytest.approx(1, abs=0.1)": 0.8,
    "assert [1.0, 2.02] == pytest.approx([1, 2], rel=0.1)": 0.9,
    "assert {'a': 1.02} == pytest.approx({'a': 1}, abs=0.1)": 0.8,
    "assert np.allclose([1.0], [1.02], rtol=0, atol=0.1)": 0.8,
    "assert not np.allclose([1.0], [2.0], rtol=0, atol=0.1)": 0.9,
    "assert torch.allclose(torch.ones(2), torch.tensor([1, 1.025]), 0, 0.1)": 0.75,
    "np.testing.assert_allclose(1.02, 1, rtol=0.1)": 0.8,
    "torch.testing.assert_close(torch.tensor(1.025), torch.tensor(1.0), rtol=0, atol=0.1)": 0.75,
}


def run(source: str) -> list[float]:
    recorder = Recorder()
    recorder.test = "test_x"
    names: dict[str, Any] = {"__room__": recorder, "np": np, "torch": torch, "pytest": pytest}
    exec(compile(Instrument("m").visit(ast.parse(source)), "m", "exec"), names)
    return [room for found in recorder.rooms.values() for room in found]


@pytest.mark.parametrize("source", CASES)
def test_the_room_of_one_comparison(source: str) -> None:
    found = run(source)
    assert min(found) == pytest.approx(CASES[source], abs=1e-6)


@pytest.mark.parametrize("source", ["assert 2 < 3", "x = 0.1 < 1.0", "assert 'a' < 'b'", "assert 0.1 == 0.1"])
def test_what_has_no_tolerance_is_left_out(source: str) -> None:
    assert run(source) == []


def test_a_failing_comparison_still_fails_and_has_negative_room() -> None:
    recorder = Recorder()
    recorder.test = "test_x"
    assert not recorder.compare("m:1", False, ("Lt",), 2.0, 1.0)
    assert recorder.rooms == {"m:1\ntest_x": [-0.5]}


def test_drift_and_the_tightest_case_of_a_line() -> None:
    assert moved([[0.5, 0.2], [0.5, 0.1]]) == pytest.approx(1)
    steady, moving = "m:1\nf::test[a]", "m:1\nf::test[b]"
    (row,) = rows({"default": {steady: [0.1], moving: [0.8]}, "avx2": {steady: [0.1], moving: [0.4]}})
    assert row.test == "test[a]" and row.rooms == {"default": 0.1, "avx2": 0.1}
    assert row.drift == pytest.approx(1) and row.marked
    assert row.moving == "test[b]" and row.moving_rooms == {"default": 0.8, "avx2": 0.4}
    text = table([row], ["default", "avx2"], 1)
    assert "m:1 test[a]" in text and "0.800      0.400" in text and "drifts in test[b]" in text
