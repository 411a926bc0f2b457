"""The one dual update: every form of it against hand-computed paths."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pdi_gym.duals import FROZEN_AT_ZERO, Ascent, ascend

RESIDUALS = (0.5, 0.5, -2.0, 3.0)


def path(rule: Ascent, residuals: tuple[float, ...] = RESIDUALS) -> list[float]:
    duals = rule.start(1, 1)
    values = [float(duals.lam)]
    for t, residual in enumerate(residuals):
        duals = rule(duals, torch.full((1, 1, 1), residual), t)
        values.append(float(duals.lam))
    return values


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (FROZEN_AT_ZERO, [0, 0, 0, 0, 0]),
        (Ascent(init=2.0), [2, 2, 2, 2, 2]),  # frozen where it starts
        (Ascent(1.0), [0, 0.5, 1.0, 0, 3.0]),  # projected at zero
        (Ascent(1.0, init=1.0, most=2.0), [1, 1.5, 2.0, 0, 2.0]),  # clamped
        (Ascent(1.0, decay=0.5), [0, 0.5, 0.75, 0, 3.0]),  # half of what was is forgotten
        (Ascent(1.0, margin=0.25), [0, 0.75, 1.5, 0, 3.25]),
        (Ascent(lambda t: 2.0**-t), [0, 0.5, 0.75, 0.25, 0.625]),  # a ramp
        (Ascent(1.0, momentum=0.5), [0, 0.5, 1.25, 0, 2.1875]),  # velocities .5, .75, −1.625, 2.1875
    ],
)
def test_paths_by_hand(rule: Ascent, expected: list[float]) -> None:
    assert path(rule) == pytest.approx(expected)


def test_multipliers_start_per_group_or_per_constraint() -> None:
    assert Ascent(init=3.0).start(2, 4).lam.shape == (2, 1, 4)
    each = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert torch.equal(Ascent(init=each).start(2, 2).lam.squeeze(1), each)


def test_arrays_and_tensors_ascend_alike() -> None:
    lam, push = np.array([[1.0, 0.2, 5.0]]), np.array([[0.5, -3.0, 9.0]])
    tensor = ascend(torch.from_numpy(lam), torch.from_numpy(push), 0.5, decay=0.1, most=6.0)
    np.testing.assert_allclose(ascend(lam, push, 0.5, decay=0.1, most=6.0), tensor.numpy())
    np.testing.assert_allclose(tensor.numpy(), [[1.15, 0.0, 6.0]])
