"""Equal content has equal digests in every process; any change of data or code has another."""

from __future__ import annotations

import copy
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pdi_gym import Problem
from pdi_gym.digests import UndigestibleError, content_digest, problem_digest
from pdi_gym.problems import WirelessPower
from pdi_gym.processes import in_processes
from tests.cases import PROBLEMS

LIMIT = torch.tensor([3.0])


class Own(Problem):
    """A problem whose limit is a global of its module."""

    latent_dim, n_constraints = 1, 1

    def objective(self, x: Tensor, xi: Tensor | None = None) -> Tensor:
        return x.square().sum(-1)

    def constraints(self, x: Tensor, xi: Tensor | None = None) -> Tensor:
        return LIMIT - x


def closed_over(limit: float) -> Problem:
    class Closed(Own):
        def constraints(self, x: Tensor, xi: Tensor | None = None) -> Tensor:
            return limit - x

    return Closed()


@pytest.mark.parametrize("make", PROBLEMS.values(), ids=PROBLEMS)
def test_a_copy_and_a_used_problem_have_the_same_digest(make: Callable[[], Problem]) -> None:
    problem = make()
    digest = problem_digest(problem)
    assert digest is not None and digest == problem_digest(make())
    _ = problem.graph, getattr(problem, "snr", None)  # cached properties are no content
    sent = next(iter(in_processes(2, [(problem_digest, (problem,))])))
    assert sent == problem_digest(copy.deepcopy(problem)) == problem_digest(problem) == digest


def test_the_built_in_problems_differ() -> None:
    assert len({problem_digest(make()) for make in PROBLEMS.values()}) == len(PROBLEMS)


def test_one_bit_of_an_array_counts() -> None:
    """A thousand entries are more than a printed array shows."""
    gains = np.full((40, 40), 1e-9)
    first = WirelessPower.from_gains(gains, r_min=0.5, noise=1e-13, p_max=0.01)
    gains = gains.astype(np.float32)
    gains[20, 21] = np.nextafter(gains[20, 21], 1, dtype=np.float32)
    second = WirelessPower.from_gains(gains, r_min=0.5, noise=1e-13, p_max=0.01)
    assert problem_digest(first) != problem_digest(second)


def test_globals_closures_and_attributes_count(monkeypatch: pytest.MonkeyPatch) -> None:
    digest = problem_digest(Own())
    monkeypatch.setitem(globals(), "LIMIT", torch.tensor([9.0]))
    assert problem_digest(Own()) != digest
    assert problem_digest(closed_over(1.0)) == problem_digest(closed_over(1.0))
    assert problem_digest(closed_over(1.0)) != problem_digest(closed_over(2.0))
    own = Own()
    own.factor = 1.0  # type: ignore[attr-defined]
    assert problem_digest(own) != problem_digest(Own())


def test_what_code_reaches_through_its_own_modules_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = tmp_path / "own_helper.py"
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def digest(source: str) -> str:
        helper.write_text(source)
        monkeypatch.delitem(sys.modules, "own_helper", raising=False)
        importlib.invalidate_caches()
        module = importlib.import_module("own_helper")

        class Reaching(Own):
            def objective(self, x: Tensor, xi: Tensor | None = None) -> Tensor:
                cost: Tensor = module.cost(x)
                return cost

        return problem_digest(Reaching())

    three = "W = 1.0\ndef cost(x):\n    return 3 * W * x.square().sum(-1)\n"
    sources = [three, three.replace("3", "4 "), three.replace("1.0", "2.0")]
    assert len({digest(source) for source in sources}) == 3
    assert digest(three) == digest(three)


def test_the_code_of_a_class_counts() -> None:
    sources = ["return x.square().sum(-1)", "return x.abs().sum(-1)", "return 2 * x.square().sum(-1)"]
    digests = set()
    for line in [*sources, f"{sources[0]}  # a comment"]:
        space: dict[str, Any] = {"Own": Own, "__name__": "their_module"}
        exec(f"class Mine(Own):\n def objective(self, x, xi=None):\n  {line}", space)
        digests.add(problem_digest(space["Mine"]()))
    assert len(digests) == len(sources)


VALUES: list[Any] = [
    None,
    True,
    1,
    1.0,
    "1",
    b"1",
    (1,),
    [1],
    {1},
    {1: 1},
    np.float32(1),
    np.ones(1),
    np.ones((1, 1)),
    np.ones(1, dtype=np.float32),
    torch.ones(1),
    torch.ones(1, dtype=torch.float64),
    torch.zeros(0),
    1j,
    np.random.default_rng(1),
    torch.Generator().manual_seed(1),
    Path("1"),
    lambda: 1,
    lambda: 2,
]


def test_values_of_other_types_and_shapes_differ() -> None:
    assert len({content_digest(v) for v in VALUES}) == len(VALUES)
    assert content_digest({"a": 1, "b": 2}) == content_digest({"b": 2, "a": 1})
    assert content_digest(["ab", "c"]) != content_digest(["a", "bc"])


def test_cycles_end() -> None:
    ring: list[Any] = [1]
    ring.append(ring)
    other: list[Any] = [1]
    other.append([1, other])
    assert content_digest(ring) != content_digest(other)


def test_what_cannot_be_read_has_no_digest(tmp_path: Path) -> None:
    own = Own()
    with (tmp_path / "file").open("w") as file:
        own.log = file  # type: ignore[attr-defined]
        assert problem_digest(own) is None
        with pytest.raises(UndigestibleError, match="TextIOWrapper has no content to tell"):
            content_digest(own)
