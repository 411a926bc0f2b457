"""Tables for the terminal."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from pdi_gym.agents import AGENTS
from pdi_gym.envs import ENV_IDS, make_env
from pdi_gym.labels import printable
from pdi_gym.metrics import columns
from pdi_gym.report import tables
from pdi_gym.store import Row
from pdi_gym.time_sharing import violations


def catalogue() -> dict[str, list[dict[str, Any]]]:
    """Environments with their sizes; agents with what they apply to, need and come with."""
    envs = {env_id: make_env(env_id, {}) for env_id in ENV_IDS}
    sizes = [
        {
            "id": env_id,
            "decisions": env.problem.latent_dim,
            "constraints": env.problem.n_constraints,
            "instances": env.n_instances,
        }
        for env_id, env in envs.items()
    ]
    agents = [
        {
            "agent": name,
            "summary": agent.summary,
            "applies_to": [i for i, env in envs.items() if agent.applies(env.problem)],
            "needs_training": agent.needs_training,
            "weights_shipped_for": [i for i, env in envs.items() if agent.shipped(env.problem)],
            "install": agent.missing(),
        }
        for name, agent in AGENTS.items()
    ]
    return {"environments": sizes, "agents": agents}


def catalogue_tables(content: dict[str, list[dict[str, Any]]]) -> tuple[Table, Table]:
    """`catalogue` as one table of environments and one of agents."""
    environments = Table("id", "decisions", "constraints", "instances", title="Environments")
    for env in content["environments"]:
        environments.add_row(*map(str, env.values()))
    agents = Table("agent", "what it is", "applies to", "training", title="Agents")
    for agent in content["agents"]:
        summary = agent["summary"]
        if agent["install"]:
            summary += f" (first: {agent['install']})"
        agents.add_row(agent["agent"], summary, _ids(agent["applies_to"]), _training(agent))
    return environments, agents


def _training(agent: dict[str, Any]) -> str:
    if not agent["needs_training"]:
        return "none"
    shipped = agent["weights_shipped_for"]
    return f"weights shipped for\n{_ids(shipped)}" if shipped else "first: pdi-gym train"


def _ids(ids: list[str]) -> str:
    return "all" if len(ids) == len(ENV_IDS) else "\n".join(ids)


def comparison_table(rows: list[Row], title: str, width: int) -> Table:
    """One line per agent: mean ± standard deviation over instances, or means alone in a narrow window."""
    names = columns(rows)
    narrow = width < 20 + 16 * len(names)
    unmet = violations.notes(rows)
    said = f"mean {'' if narrow else '± standard deviation '}over instances"
    table = Table(
        title=Text(printable(title)),
        caption=Text("\n".join([said, *map(printable, unmet)])),
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("agent")
    for name in names:
        mark = f" {violations.MARK}" if unmet and name == "feasible" else ""
        head = Text(printable(name).replace("_", "\n") + mark)
        table.add_column(head, justify="right", vertical="bottom")
    for agent, own in tables.by_agent(rows).items():
        figures = [tables.mean_std(own, c) for c in names]
        cells = [f"{mean:.3g}" if narrow else tables.cell(mean, std) for mean, std in figures]
        table.add_row(Text(printable(agent)), *cells)
    return table
