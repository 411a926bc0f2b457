"""Imports point one way: every file of the package, lazy imports included, held to the table of layers."""

from __future__ import annotations

import ast
import os
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "pdi_gym"
LAYERS = ("core", "training", "envs", "rl", "agents", "evaluation", "sb3", "report", "experiments", "cli")
"""From the lowest to the highest: a file may import its own layer and those below it."""
CORE = {"networks", "options", "problems", "time_sharing", "zoo"}
"""The folders of the core; all modules at the top belong to it too."""


def _modules() -> dict[str, Path]:
    """Every module of the package by its dotted name, those behind the two symlinks included."""
    found = {}
    for folder, _, names in os.walk(PACKAGE, followlinks=True):
        for name in names:
            if name.endswith(".py"):
                path = Path(folder, name)
                parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
                found[".".join(parts).removesuffix(".__init__")] = path
    return found


MODULES = _modules()


def layer(module: str) -> str:
    """The layer of a module. The package's own file registers the environments and belongs to theirs."""
    parts = module.split(".")[1:]
    if not parts:
        return "envs"
    if parts[0] in LAYERS:
        return parts[0]
    assert parts[0] in CORE or len(parts) == 1, f"{module} belongs to no layer: add its folder to the table"
    return "core"


def imported(path: Path) -> set[str]:
    """The package's modules that a file imports anywhere; `from a import b` means a.b where that is one."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level and node.module, f"{path} has a relative import"
            below = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= {name if name in MODULES else node.module for name in below}
    return names & set(MODULES)


GRAPH = {module: imported(path) for module, path in MODULES.items()}


def test_the_graph_sees_lazy_imports_and_symlinked_folders() -> None:
    assert "pdi_gym.drawing" in GRAPH["pdi_gym.envs.base"]  # within a function, in a symlinked folder
    assert "pdi_gym.envs" in GRAPH["pdi_gym"]


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_down(module: str) -> None:
    own = LAYERS.index(layer(module))
    above = {name for name in GRAPH[module] if LAYERS.index(layer(name)) > own}
    assert not above, f"{module} ({LAYERS[own]}) imports {', '.join(sorted(above))}"


def test_no_module_imports_itself_in_a_circle() -> None:
    try:
        TopologicalSorter(GRAPH).prepare()
    except CycleError as error:
        pytest.fail(" → ".join(error.args[1]))
