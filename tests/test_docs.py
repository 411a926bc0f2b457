"""Documentation that cannot go stale: its code runs, its links lead somewhere, its references are current."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from pdi_gym.agents import AGENTS
from pdi_gym.envs import ENV_IDS

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
NAMES = [str(p.relative_to(ROOT)) for p in PAGES]


@pytest.mark.parametrize("name", [n for n in NAMES if BLOCK.search((ROOT / n).read_text(encoding="utf-8"))])
def test_python_blocks_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In order and in one namespace, as a reader would type them."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / name).read_text(encoding="utf-8")
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in BLOCK.finditer(text):
        line = text[: block.start(1)].count("\n")
        exec(compile("\n" * line + block[1], str(ROOT / name), "exec"), namespace)


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name: str) -> None:
    text = re.sub(
        r"^```.*?^```", "", (ROOT / name).read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if not target.startswith(("http://", "https://")):
            assert ((ROOT / name).parent / target).exists(), f"{name} links to {target}"


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_pages_are_current(generate: ModuleType) -> None:
    stale = [
        str(path.relative_to(ROOT))
        for path, text in generate.pages().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    assert not stale, f"run python docs/generate.py: {', '.join(stale)}"


def test_every_agent_and_environment_has_a_page(generate: ModuleType) -> None:
    described = [name for names in generate.FAMILIES.values() for name in names]
    assert len(described) == len(set(described))
    assert set(AGENTS) <= set(described), "name the new agent in FAMILIES of docs/generate.py"
    assert sorted(ENV_IDS) == sorted(i for ids, _ in generate.ENVIRONMENTS.values() for i in ids)


def test_every_option_has_its_sentence(generate: ModuleType) -> None:
    for agent in AGENTS.values():
        notes = generate.option_notes(agent.options_type)
        for option in agent.options_type.__dataclass_fields__:
            assert notes.get(option, "").endswith("."), f"{agent.name}: {option} has no sentence below it"


def test_every_page_can_be_reached_from_the_index() -> None:
    seen: set[Path] = set()
    todo = [ROOT / "docs" / "index.md"]
    while todo:
        page = todo.pop()
        if page in seen:
            continue
        seen.add(page)
        links = re.findall(r"\]\(([^)#\s]+\.md)[^)]*\)", page.read_text(encoding="utf-8"))
        todo += [(page.parent / link).resolve() for link in links if not link.startswith("http")]
    assert set((ROOT / "docs").rglob("*.md")) <= seen
