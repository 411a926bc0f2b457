"""The report page: one HTML file that needs no network, no script and no other file."""

from __future__ import annotations

import csv
import io
import time
from pathlib import Path
from typing import Any

import numpy as np

from pdi_gym.files import write_text
from pdi_gym.labels import in_cell, in_html
from pdi_gym.metrics import columns, metric, value
from pdi_gym.problem import Problem
from pdi_gym.problems.wireless import WirelessPower
from pdi_gym.report import figures
from pdi_gym.report.statistics import best, bootstrap, paired, pareto
from pdi_gym.report.style import security_policy, styles_apart
from pdi_gym.report.tables import (
    by_agent,
    cell,
    command,
    mean_std,
    points_of,
    running_averages,
    versions,
)
from pdi_gym.store import Row, Store
from pdi_gym.time_sharing import violations
from pdi_gym.validation import check_choice

PAGE = "report.html"
ENOUGH = 6
"""Instances from which a verdict is given: fewer agree in sign by luck more often than one time in twenty."""

Groups = dict[str, list[Row]]
_VIOLATION = ("total_violation", "carried_by", "met_by_an_agent")
"""Columns of the CSV that say what a row's averages violate above the tolerance, 0 and "" if nothing."""


def write_report(
    folder: Path,
    rows: list[Row],
    settings: dict[str, Any],
    problem: Problem,
    baseline: str | None = None,
    store: Store | None = None,
) -> Path:
    """Write report.html and results.csv into a folder, and return the page's path.

    The rows' policies are in `store`: `compare`'s folder, which is this one when left out.

    settings are the comparison's own (`env`, `horizon`, `trials`, `seed`, …), problem its first
    instance, baseline the agent that the others are compared with (the first when left out).
    """
    groups = by_agent(rows)
    baseline = check_choice("baseline", baseline or next(iter(groups)), groups)
    write_text(folder / "results.csv", csv_text(rows))
    path = folder / PAGE
    write_text(path, page(store or Store(folder), groups, settings, problem, baseline))
    return path


def csv_text(rows: list[Row]) -> str:
    """One line per agent and instance, every metric in full precision, and what the averages violate."""
    names = columns(rows)[:-1]
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["agent", "instance", *map(in_cell, names), "seconds", *_VIOLATION])
    unmet = violations.unmet(rows)
    for row in rows:
        values = [row["metrics"].get(name, "") for name in names]
        found = row["violation"] or {"total": 0.0, "carried_by": {}}
        carried = "; ".join(f"{name}: {residual!r}" for name, residual in found["carried_by"].items())
        told = [found["total"], in_cell(carried), "no" if row["instance"] in unmet else "yes"]
        writer.writerow([in_cell(row["agent"]), row["instance"], *values, row["seconds"], *told])
    return buffer.getvalue()


def page(store: Store, groups: Groups, settings: dict[str, Any], problem: Problem, baseline: str) -> str:
    """The whole page."""
    instances = len(next(iter(groups.values())))
    title = f"{settings['env']}: {len(groups)} agents on {instances} instance{'s' * (instances > 1)}"
    sections = [
        ("results", "Results", _results(groups)),
        ("figures", "Figures", _figures(store, groups, settings, problem)),
        ("intervals", "Confidence intervals", _intervals(groups)),
        ("differences", f"Differences to {baseline}", _differences(groups, baseline)),
        ("run", "What was run", _run(store, groups, settings)),
    ]
    links = "".join(f'<li><a href="#{key}">{in_html(name)}</a></li>' for key, name, _ in sections)
    body = "".join(
        f'<section id="{key}" aria-labelledby="{key}-title">'
        f'<h2 id="{key}-title">{in_html(name)}</h2>{content}</section>'
        for key, name, content in sections
    )
    body, style = styles_apart(body)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{security_policy(style)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{in_html(title)}</title><style>{style}</style></head><body>"
        '<a class="skip" href="#results">Skip to the results</a>'
        f"<header><h1>{in_html(title)}</h1><p>{_summary(groups)}</p>"
        f'<nav aria-label="Sections"><ul>{links}</ul></nav></header><main>{body}</main></body></html>\n'
    )


def _summary(groups: Groups) -> str:
    points = points_of(groups)[0]
    shares = {agent: mean_std(own, "feasible")[0] for agent, own in groups.items()}
    cheapest = min(best(shares, 1), key=lambda a: points[a][1])
    return (
        f"No agent beats <b>{in_html(', '.join(pareto(points)))}</b> in both objective and violation. The "
        f"largest share of constraints met on average is {max(shares.values()):.4g}; of the agents that "
        f"reach it, <b>{in_html(cheapest)}</b> has the best objective."
    )


def _table(label: str, head: list[str], body: list[list[str]], kind: str = "numbers") -> str:
    """A table that scrolls sideways by itself, by finger or keyboard; cells are HTML."""
    top = "".join(f'<th scope="col">{h}</th>' for h in head)
    lines = "".join(f'<tr><th scope="row">{row[0]}</th>{"".join(row[1:])}</tr>' for row in body)
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{in_html(label)}"><table class="{kind}">'
        f"<caption>{in_html(label)}</caption><thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table></div>"
    )


def _heading(name: str, mark: str = "") -> str:
    arrow = {1: ("↑", "larger is better"), -1: ("↓", "smaller is better")}.get(metric(name).direction)
    text = in_html(name) + mark
    return text if arrow is None else f'{text} <abbr title="{arrow[1]}">{arrow[0]}</abbr>'


def _results(groups: Groups) -> str:
    rows = [row for own in groups.values() for row in own]
    names = columns(rows)
    stats = {agent: {c: mean_std(own, c) for c in names} for agent, own in groups.items()}
    winners = {c: best({a: s[c][0] for a, s in stats.items()}, metric(c).direction) for c in names}
    front = pareto(points_of(groups)[0])
    body = []
    for agent, values in stats.items():
        mark = ' <span class="front" title="on the Pareto front">◆</span>' if agent in front else ""
        line = [in_html(agent) + mark]
        for c in names:
            open_tag, note = "<td>", ""
            if agent in winners[c]:
                open_tag, note = '<td class="best">', '<span class="hidden"> (best)</span>'
            line.append(f"{open_tag}{cell(*values[c])}{note}</td>")
        body.append(line)
    notes = "".join(f"<dt>{in_html(c)}</dt><dd>{in_html(metric(c).meaning)}</dd>" for c in names)
    unmet = violations.notes(rows)
    head = [_heading(c, f" {violations.MARK}" if unmet and c == "feasible" else "") for c in names]
    return (
        _table("Mean ± standard deviation over instances", ["agent", *head], body)
        + "".join(f'<p class="worse">{in_html(note)}</p>' for note in unmet)
        + "<p>Highlighted and starred: best in its column, with ties to four digits. "
        '<span class="front">◆</span>: on the Pareto front of objective and violation. Columns without an '
        "arrow describe and have no better end.</p>"
        f"<details><summary>What the columns mean</summary><dl>{notes}</dl></details>"
    )


def _values(own: list[Row], column: str) -> dict[int, float]:
    return {row["instance"]: value(row, column) for row in own}


def _judged(groups: Groups) -> list[str]:
    """Columns with a direction."""
    return [c for c in columns([row for own in groups.values() for row in own]) if metric(c).direction]


def _intervals(groups: Groups) -> str:
    if any(len(own) < 2 for own in groups.values()):
        return "<p>One instance gives no interval: run with more <code>--instances</code>.</p>"
    names = _judged(groups)
    body = []
    for agent, own in groups.items():
        line = [in_html(agent)]
        for c in names:
            values = np.array([*_values(own, c).values()])
            interval = bootstrap(values) if np.isfinite(values).all() else None
            ends = f"{interval.low:.4g} to {interval.high:.4g}" if interval else "not finite"
            line.append(f"<td>{values.mean():.4g}<br><small>{ends}</small></td>")
        body.append(line)
    few = min(len(own) for own in groups.values())
    warning = f" With {few} instances it is too narrow: take it as a lower bound." if few < 10 else ""
    return (
        _table("Mean and 95 % bootstrap interval over instances", ["agent", *map(_heading, names)], body)
        + f"<p>Percentile bootstrap, instances resampled whole.{warning}</p>"
    )


def _differences(groups: Groups, baseline: str) -> str:
    names = _judged(groups)
    others = {agent: own for agent, own in groups.items() if agent != baseline}
    if not others:
        return f"<p>{in_html(baseline)} is the only agent: there is nothing to compare it with.</p>"
    body = []
    for agent, own in others.items():
        line = [in_html(agent)]
        for c in names:
            line.append(_difference(_values(own, c), _values(groups[baseline], c), metric(c).direction))
        body.append(line)
    return (
        _table(f"Agent minus {baseline}, instance by instance", ["agent", *map(_heading, names)], body)
        + "<p>Mean difference, its 95 % bootstrap interval, and on how many instances the agent is strictly "
        f"better or worse. With {ENOUGH} instances or more, a word stands where the interval excludes zero; "
        "no correction is made for the number of comparisons.</p>"
    )


def _difference(own: dict[int, float], other: dict[int, float], direction: int) -> str:
    """The cell of one agent and metric."""
    if not np.isfinite([*own.values(), *other.values()]).all():
        return "<td><small>not finite</small></td>"
    d = paired(own, other, direction)
    word, ends = "", ""
    if d.interval is not None:
        ends = f"<br><small>{d.interval.low:+.3g} to {d.interval.high:+.3g}</small>"
        if d.interval.excludes_zero and d.n >= ENOUGH:
            verdict = "better" if d.mean * direction > 0 else "worse"
            word = f' <span class="{verdict}">{verdict}</span>'
    counts = f"<br><small>{d.better} better, {d.worse} worse of {d.n}</small>"
    return f"<td>{d.mean:+.3g}{word}{ends}{counts}</td>"


def _figures(store: Store, groups: Groups, settings: dict[str, Any], problem: Problem) -> str:
    first = min(row["instance"] for own in groups.values() for row in own)
    stored = {a: store.policy(r) for a, own in groups.items() for r in own if r["instance"] == first}
    residuals = {a: r for a, (_, r) in stored.items()}
    policies = {a: p for a, (p, _) in stored.items()}
    traces = {a: p.info["trace"] for a, p in policies.items() if "trace" in p.info}
    wireless = problem if isinstance(problem, WirelessPower) else None
    with figures.theme():
        pictures = [figures.tradeoff(*points_of(groups))]
        if wireless is not None:
            pictures.append(figures.rate_curves(residuals, wireless, first))
        else:
            pictures.append(figures.residual_curves(residuals, problem, first))
        running = running_averages(policies, problem, settings["horizon"], settings["seed"])
        curves = {agent: r.violation for agent, r in running.items()}
        pictures.append(figures.violation_over_slots(curves, first))
        if traces:
            pictures.append(figures.along_the_sampler(traces, first))
        maps = []
        if wireless is not None and wireless.positions is not None:
            maps = [figures.network_map(a, i, r, wireless) for i, (a, r) in enumerate(residuals.items())]
        drawn, drawn_maps = ("".join(map(_figure, some)) for some in (pictures, maps))
    content = f'<div class="figures">{drawn}</div>'
    if maps and wireless is not None:
        content += (
            f"<h3>Who is served in network {first}</h3><p>A line joins each transmitter to its receiver. "
            "Discs are receivers, brighter with their average rate up to "
            f"{2 * wireless.r_min:g} bit/s/Hz; orange crosses get less than {wireless.r_min:g}.</p>"
            f'<div class="figures maps">{drawn_maps}</div>'
        )
    return content


def _figure(picture: figures.Picture) -> str:
    return f"<figure>{figures.to_svg(picture)}<figcaption>{in_html(picture.caption)}</figcaption></figure>"


def _run(store: Store, groups: Groups, settings: dict[str, Any]) -> str:
    seconds = sum(row["seconds"] for own in groups.values() for row in own)
    facts = {
        "settings": ", ".join(f"{k} {v}" for k, v in settings.items() if v is not None),
        "versions": ", ".join(f"{k} {v}" for k, v in versions().items()),
        "sampling": f"{seconds:.1f} s of one thread in all",
        "written": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    }
    items = "".join(f"<dt>{k}</dt><dd>{in_html(v)}</dd>" for k, v in facts.items())
    body = [[in_html(a), f"<td>{in_html(_options(store, own[0]))}</td>"] for a, own in groups.items()]
    return (
        f'<pre tabindex="0" aria-label="Command"><code>{in_html(command())}</code></pre><dl>{items}</dl>'
        '<p>The same numbers are in <a href="results.csv">results.csv</a> (per agent and instance), '
        '<a href="results.md">results.md</a> and <a href="results.json">results.json</a> beside it.</p>'
        "<details><summary>Options of every agent</summary>"
        + _table("Options on the first instance", ["agent", "options"], body, "text")
        + "</details>"
    )


def _options(store: Store, row: Row) -> str:
    options = store.settings(row)["options"]
    return ", ".join(f"{k}={v}" for k, v in options.items()) or "none"
