"""Writes the parts of docs/ that the code itself says: run it after changing a docstring or an option.

    python docs/generate.py

Pages under environments/, api.md, weights.md and reproduction.md (from committed results) are written whole.
Pages under agents/ keep their words; what stands between `<!-- generated -->` and `<!-- end -->` is replaced.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import math
import re
import textwrap
from dataclasses import MISSING, asdict, fields, is_dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym

import pdi_gym  # noqa: F401  (registers the environments)
from pdi_gym import zoo
from pdi_gym.agents import AGENTS, make_agent
from pdi_gym.envs import ErgodicEnv, load_instances
from pdi_gym.experiments import registry

DOCS = Path(__file__).parent

ENVIRONMENTS: dict[str, tuple[tuple[str, ...], str]] = {
    "wireless-power": (("WirelessPower-v0",), "n_users=8, "),
    "portfolio": (("Portfolio-v0",), "n_assets=20, "),
    "mixture-of-gaussians": (("MixtureOfGaussians-v0", "MixtureOfGaussians2D-v0"), ""),
}
"""Page → its ids and arguments that make the example small."""

FAMILIES: dict[str, tuple[str, ...]] = {
    "pdi": ("pdi-mc", "unconstrained", "frozen-last", "frozen-mean", "frozen-tail"),
    "variants": ("pdi-adaptive", "pdi-anneal", "pdi-mirror", "pdi-cg"),
    "learned": ("pdi-net", "pdi-net-warm", "st", "dt", "dt-plus"),
    "proximal": ("pdi-prox",),
    "langevin": ("pdl",),
    "projection-and-guidance": ("pdm", "dps"),
    "expert": ("expert",),
    "ppo": ("ppo",),
    "yardsticks": ("full-power", "equal-weight", "random", "markowitz", "risk-budget"),
}
"""Page → the agents it describes; names that are not in the registry are left out, and so is a page
without any."""

GRAPH = {
    "mlp": (),
    "gnn": ("messages", "hops"),
    "ugnn": ("messages", "hops", "levels"),
    "features": ("hidden",),
}
"""Sizes that matter for each body of a network."""

API: dict[str, tuple[str, ...]] = {
    "pdi_gym": ("Problem", "TimeSharingPolicy"),
    "pdi_gym.agents": ("make_agent", "list_agents", "Agent"),
    "pdi_gym.envs": ("ErgodicEnv", "ErgodicVectorEnv", "LagrangianReward", "RecordConstraintStatistics"),
    "pdi_gym.evaluation": ("evaluate", "compare", "load_policy"),
    "pdi_gym.problems": ("WirelessPower", "Portfolio", "MixtureOfGaussians"),
    "pdi_gym.samplers": ("pdi", "langevin"),
    "pdi_gym.schedules": ("make_schedule",),
    "pdi_gym.scores": ("MonteCarloScore", "ExactScore"),
    "pdi_gym.diffusion": ("tweedie",),
    "pdi_gym.report.statistics": ("bootstrap", "paired", "pareto"),
    "pdi_gym.report.outputs": ("write_outputs",),
    "pdi_gym.report.page": ("write_report",),
    "pdi_gym.report.animation": ("play", "save"),
    "pdi_gym.sb3": (
        "make_sb3_vec",
        "SB3VecEnv",
        "LagrangianVecReward",
        "GraphObservation",
        "GraphExtractor",
        "GraphPolicy",
        "AgentAlgorithm",
    ),
}
"""Module → the names that its overview lists."""

NOTE = "<!-- written by docs/generate.py: edit the docstring instead -->\n"


def first_line(thing: Any) -> str:
    return (inspect.getdoc(thing) or "").split("\n\n")[0].replace("\n", " ")


def option_notes(cls: type[Any]) -> dict[str, str]:
    """The sentence below each field, of the class and its bases."""
    notes: dict[str, str] = {}
    for base in reversed(cls.__mro__[:-1]):
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        assert isinstance(body, ast.ClassDef)
        for node, below in zip(body.body, body.body[1:], strict=False):
            match node, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(note))):
                    notes[name] = " ".join(note.split())
    return notes


def options_table(cls: type[Any]) -> str:
    """Options that are the class's own; those of a base that some page describes are named by a link."""
    base = cls.__mro__[1]
    inherited = {f.name: f.default for f in fields(base)} if is_dataclass(base) else {}
    own = [f for f in fields(cls) if f.name not in inherited or inherited[f.name] != f.default]
    notes = option_notes(cls)
    lines = ["| option | default | meaning |", "|---|---|---|"]
    for f in own:
        default = "" if f.default is MISSING else f"`{f.default!r}`"
        lines.append(f"| `{f.name}` | {default} | {notes.get(f.name, '')} |")
    table = "\n".join(lines) if own else "None."
    for page, names in FAMILIES.items():
        owners = [n for n in names if n in AGENTS and AGENTS[n].options_type is base]
        if inherited and owners:
            return f"Those of [`{owners[0]}`]({page}.md), and:\n\n{table}"
    return table


def family(page: str) -> str:
    """Every agent of a page with its docstring, then one table for each kind of options."""
    present = [AGENTS[name] for name in FAMILIES[page] if name in AGENTS]
    parts = []
    for cls in present:
        parts.append(f"### `{cls.name}`: {cls.summary}\n\n{inspect.getdoc(cls)}\n")
    by_options: dict[type[Any], list[str]] = {}
    for cls in present:
        by_options.setdefault(cls.options_type, []).append(cls.name)
    for options, names in by_options.items():
        who = ", ".join(f"`{n}`" for n in names)
        parts.append(f"### Options of {who}\n\n{options_table(options)}\n")
    return "\n".join(parts)


def agents_index() -> str:
    lines = ["| agent | what it does | page |", "|---|---|---|"]
    for page, names in FAMILIES.items():
        for name in names:
            if name in AGENTS:
                lines.append(f"| `{name}` | {AGENTS[name].summary} | [{page}]({page}.md) |")
    return "\n".join(lines) + "\n"


def filled(path: Path, content: str) -> str:
    """The page with what stands between its marks replaced; a page yet unwritten has only that."""
    empty = f"# {path.stem}\n\n<!-- generated -->\n<!-- end -->\n"
    text = path.read_text(encoding="utf-8") if path.exists() else empty
    marked = re.compile(r"(<!-- generated -->\n).*?(<!-- end -->)", re.DOTALL)
    if len(marked.findall(text)) != 1:
        raise ValueError(f"{path} must have one pair of <!-- generated --> and <!-- end -->")
    return marked.sub(lambda m: m[1] + content + m[2], text)


def environment(page: str) -> str:
    ids, small = ENVIRONMENTS[page]
    made: dict[str, Any] = {env_id: gym.make(env_id, disable_env_checker=True).unwrapped for env_id in ids}
    env: Any = made[ids[0]]
    lines = [
        NOTE,
        f"# {' and '.join(f'`{i}`' for i in ids)}\n",
        inspect.getdoc(type(env)) or "",
        "\n## Sizes\n",
        "| id | actions | flat observations | constraints | instances |\n|---|---|---|---|---|",
    ]
    for env_id, e in made.items():
        m, k = e.problem.n_constraints, e.n_instances
        lines.append(f"| `{env_id}` | {e.action_space.shape} | {e.observation_space.shape} | {m} | {k} |")
    lines.append(
        f"""
## Example

```python
import gymnasium as gym
import pdi_gym

env = gym.make("{ids[0]}", {small}horizon=20)
observation, info = env.reset(seed=0, options={{"instance": 0}})
truncated = False
while not truncated:
    observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
print(reward, info["ergodic_residuals"].max())  # ≤ 0 would be feasible
```"""
    )
    return "\n".join(lines) + "\n"


def base_environment() -> str:
    example = "Any problem of your own: [Bring your own problem](../your-problem.md)."
    return f"{NOTE}\n# `ErgodicEnv`\n\n{inspect.getdoc(ErgodicEnv)}\n\n## Example\n{example}\n"


def signature(thing: Any) -> str:
    """Arguments without the quotes that postponed annotations carry."""
    target = thing.__init__ if inspect.isclass(thing) else thing
    text = str(inspect.signature(target)).replace("(self, ", "(").replace("(self)", "()")
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)
    text = re.sub(r"<(\w+\.\w+): [^>]*>", r"\1", text).replace("<factory>", "{}")
    return re.sub(r" -> None$", "", text)


def api() -> str:
    lines = [NOTE, "# API overview\n", "Full descriptions are in the docstrings: `help(pdi_gym.Problem)`.\n"]
    for module, names in API.items():
        lines.append(f"## `{module}`\n")
        for name in names:
            thing = getattr(importlib.import_module(module), name)
            plain = inspect.isclass(thing) and getattr(thing, "_is_protocol", False) and name == "Problem"
            lines.append(f"**`{name}{'' if plain else signature(thing)}`**\n\n{first_line(thing)}\n")
            if inspect.isclass(thing) and name in ("Problem", "Agent", "WirelessPower", "Portfolio"):
                lines.append(methods(thing))
    return "\n".join(lines)


def methods(cls: type[Any]) -> str:
    """The public methods that a class itself defines."""
    lines = []
    for name, member in vars(cls).items():
        thing = getattr(cls, name)
        if not name.startswith("_") and callable(thing) and not inspect.isclass(thing):
            shown = signature(thing)
            lines.append(f"* `{name}{shown}`: {first_line(member)}")
    return "\n".join(lines) + "\n"


def reproduction() -> str:
    """The paper's experiments with their verdicts, then the other scripts under runs/."""
    note = NOTE.replace("edit the docstring instead", "run the experiments instead")
    lines = [note, "# Reproduction\n", registry.page(), "## Other scripts\n"]
    named = {registry.script(name) for name in registry.EXPERIMENTS}
    for path in sorted(p for p in (DOCS.parent / "runs").glob("*.py") if p not in named):
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        commands = [line for line in text.splitlines() if line.startswith("python ")]
        if commands:
            words = "\n".join(line for line in text.splitlines() if line not in commands)
            words = re.sub(r"\n{3,}", "\n\n", words).strip()
            shown = "\n".join(commands)
            lines.append(f"### `runs/{path.name}`\n\n{words}\n\n```sh\n{shown}\n```\n")
    return "\n".join(lines)


def rollouts_of(card: dict[str, Any]) -> str:
    """How the sampler of a training's rollouts differs from the preset with which the agent samples."""
    if not card["budget"]["rollout_network_calls"]:
        return ""
    env_id = card["command"].split()[3]
    agent = make_agent(card["agent"])
    today = asdict(agent.options(load_instances(env_id, "train", 1)[0]))
    changed = {k: v for k, v in card["sampler"].items() if k in today and not _same(v, today[k])}
    if not changed:
        return "* Sampler's options in its rollouts: those of the preset\n"
    listed = " ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in changed.items())
    return (
        f"* To train it again: add `--option {listed}`, the sampler's options of that time. The preset was "
        "chosen later, on validation instances.\n"
    )


def _same(value: Any, other: Any) -> bool:
    both = isinstance(value, float) and isinstance(other, float)
    return math.isclose(value, other, rel_tol=1e-9) if both else value == other


def weights() -> str:
    """The model cards of the shipped weights, and of trainings whose curves alone are kept."""
    note = NOTE.replace("edit the docstring instead", "ship other weights instead")
    lines = [
        note,
        "# Shipped weights\n",
        "`make_agent(name)` finds these by the problem's kind; those of the mixture are for "
        "`MixtureOfGaussians.instance()` alone, since a perceptron sees nothing of the problem. The "
        "criterion that chose the checkpoint: "
        "mean over validation instances of f0 + 2 Σ_j λ_j [f_j]₊, with PDI-MC's average multipliers.\n",
    ]
    shipped = {p.parent.name for p in zoo.FOLDER.glob("*/card.json")}
    results = DOCS.parent / "runs" / "results" / "training"
    for path in sorted(results.glob("*/card.json"), key=lambda p: (p.parent.name not in shipped, str(p))):
        card = json.loads(path.read_text(encoding="utf-8"))
        name, net, budget = path.parent.name, card["network"], card["budget"]
        size = ", ".join(f"{k} {net[k]}" for k in ("width", "depth") + GRAPH[net["body"]])
        figures = ", ".join(f"{k.replace('_', ' ')} {v:.4g}" for k, v in card["validation"].items())
        lines.append(
            f"## `{name}`\n\n{'Shipped' if name in shipped else 'Not shipped'}. "
            f"{card['parameters']:,} parameters: {net['body']}, {size}.\n\n"
            f"* Command: `{card['command']}`\n"
            f"* Budget: {budget['gradient_steps']:,} gradient steps of {card['training']['problems']} × "
            f"{card['training']['pairs']} pairs on {card['instances']} training instances, "
            f"{budget['rollout_network_calls']:,} samples through scores (network or sampled) in rollouts, "
            f"{budget['seconds'] / 60:.0f} minutes without the validations, beside other work "
            f"({card['hardware']})\n"
            f"{rollouts_of(card)}"
            f"* Validation at the kept step {card['best_step']}: {figures}\n\n"
            f"![training curve](../runs/results/training/{name}/curve.png)\n"
        )
    return "\n".join(lines)


def pages() -> dict[Path, str]:
    """Every page that is written here, whole or in part."""
    result = {DOCS / "environments" / f"{page}.md": environment(page) for page in ENVIRONMENTS}
    result[DOCS / "environments" / "ergodic-env.md"] = base_environment()
    for page in (p for p, names in FAMILIES.items() if AGENTS.keys() & set(names)):
        path = DOCS / "agents" / f"{page}.md"
        result[path] = filled(path, family(page))
    index = DOCS / "agents" / "index.md"
    result[index] = filled(index, agents_index())
    result[DOCS / "api.md"] = api()
    result[DOCS / "reproduction.md"] = reproduction()
    result[DOCS / "weights.md"] = weights()
    return result


def main() -> None:
    for path, text in pages().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"written: {path.relative_to(DOCS.parent)}")


if __name__ == "__main__":
    main()
