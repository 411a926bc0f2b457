"""What is built from this folder: complete, self-contained, and usable from an unrelated folder."""

from __future__ import annotations

import email
import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.lowest import bounds

ROOT = Path(__file__).parents[1]
FOLDERS = (".ci", "agents", "docs", "envs", "pdi_gym", "runs", "tests")
FILES = (".gitignore", "CHANGELOG.md", "CITATION.cff", "LICENSE", "MANIFEST.in", "Makefile", "README.md")
FILES += ("constraints.txt", "pyproject.toml", "ruff.toml", "setup.cfg")
LEFT_OUT = shutil.ignore_patterns(".git", ".venv*", "__pycache__", ".*_cache", "*.egg-info", "build", "logs")
VERBATIM = re.compile(r"^```.*?^```|^\|[^\n]*", re.DOTALL | re.MULTILINE)
"""Blocks of code and lines of tables."""

BUILD = """
import sys
from setuptools import build_meta
getattr(build_meta, sys.argv[1])(sys.argv[2])
"""
USE = """
import sys
from pathlib import Path
import gymnasium as gym
import pdi_gym
from pdi_gym.agents import list_agents, make_agent
assert Path(pdi_gym.__file__).is_relative_to(sys.argv[1]), pdi_gym.__file__
assert {"pdi-mc", "pdi-net", "pdi-cg"} <= set(list_agents())
for agent, name in (("pdi-mc", "MixtureOfGaussians2D-v0"), ("pdi-net", "MixtureOfGaussians-v0")):
    problem = gym.make(name).unwrapped.problem
    policy = make_agent(agent, T=5).sample(problem, n=4, seed=0)
    assert policy.actions.shape == (4, problem.latent_dim)
"""


def run(*command: object, cwd: Path, **environment: str) -> str:
    """What the command prints; its errors become the test's message."""
    names = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | environment
    line = [sys.executable, *map(str, command)]
    done = subprocess.run(line, cwd=cwd, env=names, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def files(folder: Path) -> set[str]:
    """Names relative to the folder, links to folders followed."""
    found = (Path(path, name) for path, _, names in os.walk(folder, followlinks=True) for name in names)
    return {str(path.relative_to(folder)) for path in found if path.suffix != ".pyc"}


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution of a copy of this folder, unpacked; the copy lies beside it as `tree`."""
    if find_spec("setuptools") is None or int(version("setuptools").split(".")[0]) < 77:
        pytest.skip("builds with setuptools 77 or newer: pip install 'setuptools>=77'")
    place = tmp_path_factory.mktemp("sdist")
    shutil.copytree(ROOT, place / "tree", symlinks=True, ignore=LEFT_OUT)
    run("-c", BUILD, "build_sdist", place, cwd=place / "tree")
    (archive,) = place.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(place, filter="data")
    return place / archive.name.removesuffix(".tar.gz")


@pytest.fixture(scope="module")
def wheel(unpacked: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that the source distribution gives."""
    place = tmp_path_factory.mktemp("wheel")
    shutil.copytree(unpacked, place / "tree")
    run("-c", BUILD, "build_wheel", place, cwd=place / "tree")
    (found,) = place.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        return email.message_from_string(archive.read(name).decode())


def test_the_source_distribution_has_every_file(unpacked: Path) -> None:
    tree = unpacked.parent / "tree"
    for folder in FOLDERS:
        missing = files(tree / folder) - files(unpacked / folder)
        assert not missing, f"MANIFEST.in leaves out {sorted(missing)[:5]} of {folder}"
    for name in FILES:
        assert (unpacked / name).is_file(), f"MANIFEST.in leaves out {name}"


def test_its_tests_find_what_they_read(unpacked: Path) -> None:
    """All test modules are imported there; those that read pages and committed results are run."""
    chosen = "links_lead or committed or rl_zoo"
    output = run("-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", chosen, cwd=unpacked)
    assert "[100%]" in output


def test_the_wheel_has_every_module(wheel: Path, unpacked: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {n for n in archive.namelist() if ".dist-info/" not in n}
    assert names == {f"pdi_gym/{name}" for name in files(unpacked / "pdi_gym")}


def test_the_wheel_works_from_an_unrelated_folder(wheel: Path, tmp_path: Path) -> None:
    if find_spec("pip") is None:
        pytest.skip("installs with pip, which this environment does not have")
    place = tmp_path / "installed"
    run("-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", place, wheel, cwd=tmp_path)
    run("-c", USE, place, cwd=tmp_path, PYTHONPATH=str(place))
    assert "pdi-mc" in run(place / "bin" / "pdi-gym", "list", cwd=tmp_path, PYTHONPATH=str(place))


def test_the_metadata_is_complete(metadata: Message) -> None:
    assert metadata["Author"] == metadata["Name"] == "pdi-gym"
    assert metadata["License-Expression"] == "MIT" and metadata["License-File"] == "LICENSE"
    newest = metadata["Requires-Python"].removeprefix(">=")
    assert f"Programming Language :: Python :: {newest}" in metadata.get_all("Classifier", [])
    assert f"Python ≥ {newest}" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_description_needs_no_neighbours(metadata: Message) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    described = runpy.run_path(str(ROOT / "docs" / "description.py"))["described"](readme)
    text = str(metadata.get_payload())
    assert text.strip() == described.strip(), "run python docs/description.py"
    assert not re.findall(r"!\[|\]\((?!https?://)|<img|<a ", text)
    assert VERBATIM.findall(text) == VERBATIM.findall(readme) != []


def test_every_requirement_has_a_true_bound_below_its_pin() -> None:
    """A bound is what `make test-lowest` installs, a pin what `make test` does."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    for name, bound in bounds(ROOT / "setup.cfg").items():
        low, high = ([int(part) for part in v.split(".")] for v in (bound, pins[name]))
        assert low <= high, f"{name} is pinned to {pins[name]}, below its bound {bound}"
