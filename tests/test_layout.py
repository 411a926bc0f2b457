"""Promises about the repository itself."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted(
    p for d in ("pdi_gym", "agents", "envs", "runs", "tests") for p in (ROOT / d).glob("**/*.py")
)
FORBIDDEN = {"pickle", "cloudpickle", "dill", "shelve", "marshal"}


def imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return names


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_bare_imports_and_no_pickles(path: Path) -> None:
    tops = {name.split(".")[0] for name in imports(path)}
    assert not tops & {"agents", "envs"}, "import pdi_gym.agents or pdi_gym.envs instead"
    assert not tops & FORBIDDEN
    assert "torch.load(" not in path.read_text() or path == Path(__file__)


def test_matplotlib_is_imported_lazily() -> None:
    code = "import sys, pdi_gym, pdi_gym.agents, pdi_gym.evaluation; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_torch_geometric_is_imported_when_a_graph_network_is_built() -> None:
    code = "import sys, pdi_gym, pdi_gym.agents, pdi_gym.cli.main; sys.exit('torch_geometric' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_committed_results_name_no_place_on_a_machine() -> None:
    for path in (ROOT / "runs/results").glob("**/*.json"):
        assert str(ROOT) not in path.read_text(), path
        assert '"/' not in path.read_text(), path
