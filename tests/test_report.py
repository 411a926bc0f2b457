from __future__ import annotations

import copy
import csv
import math
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pdi_gym.agents import make_agent
from pdi_gym.cli.main import main
from pdi_gym.envs import make_env
from pdi_gym.evaluation import averages, compare
from pdi_gym.report.page import _difference, write_report
from pdi_gym.report.tables import running_averages
from pdi_gym.store import Store
from tests.browser import EXECUTABLE, Browser

TINY = {"n_users": 12}
HORIZON = 30
ODD = 'pdi <fast> & "small"'
VOID = {"meta", "br", "link", "img", "path", "use", "rect"}


def settings(env_id: str, instances: int) -> dict[str, Any]:
    return {
        "env": env_id,
        "instances": instances,
        "horizon": HORIZON,
        "trials": 2,
        "n": None,
        "seed": 0,
    }


@pytest.fixture(scope="module")
def wireless(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]], Any]:
    out = tmp_path_factory.mktemp("wireless")
    agents = {ODD: make_agent("pdi-mc", T=12), "full-power": "full-power", "random": "random"}
    rows = compare(agents, "WirelessPower-v0", 3, HORIZON, 2, out=out, n=20, env_kwargs=TINY)
    problem = make_env("WirelessPower-v0", TINY).make_problem(0)
    write_report(out, rows, settings("WirelessPower-v0", 3), problem, "random")
    return out, rows, problem


class Page(HTMLParser):
    """Elements in order, text by element, and whether every tag is closed by its own."""

    def __init__(self, text: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.tables: list[list[list[str]]] = []
        self.classes: list[list[list[str]]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.elements.append((tag, values))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([]), self.classes.append([])
        elif tag == "tr":
            self.tables[-1].append([]), self.classes[-1].append([])
        elif tag in ("th", "td"):
            self.tables[-1][-1].append(""), self.classes[-1][-1].append(values.get("class") or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if "td" in self.open or "th" in self.open:
            self.tables[-1][-1][-1] += data


@pytest.fixture(scope="module")
def page(wireless: Any) -> Page:
    return Page((wireless[0] / "report.html").read_text(encoding="utf-8"))


def test_the_page_is_one_well_formed_file(page: Page) -> None:
    assert page.open == []
    ids = [v["id"] for _, v in page.elements if "id" in v]
    assert len(ids) == len(set(ids))
    local = {"results.csv", "results.md", "results.json"}
    for tag, values in page.elements:
        assert tag not in ("script", "link", "iframe", "img")
        for name in ("src", "href"):
            target = values.get(name)
            assert target is None or target in local or (target[0] == "#" and target[1:] in ids)


def test_nothing_is_fetched_by_the_style(wireless: Any) -> None:
    text = (wireless[0] / "report.html").read_text(encoding="utf-8")
    assert "@import" not in text
    assert text.count("url(") == text.count("url(#")
    assert "http:" not in text and "https:" not in text


def test_pictures_and_tables_can_be_read_without_eyes_or_mouse(page: Page) -> None:
    pictures = [v for tag, v in page.elements if tag == "svg"]
    assert len(pictures) == 4 + 3  # trade-off, rates, slots, multipliers; a map for each agent
    for values in pictures:
        assert values["role"] == "img" and len(values["aria-label"] or "") > 20
    regions = [v for _, v in page.elements if v.get("role") == "region"]
    assert len(regions) == len(page.tables) == 4
    assert all(v["tabindex"] == "0" and v["aria-label"] for v in regions)
    assert all(v.get("scope") in ("col", "row") for tag, v in page.elements if tag == "th")


def test_the_table_shows_the_rows_and_marks_the_best(page: Page, wireless: Any) -> None:
    _, rows, _ = wireless
    head, *body = page.tables[0]
    assert [line[0].split(" ◆")[0] for line in body] == [ODD, "full-power", "random"]
    names = [h.split(" ")[0] for h in head]
    assert names.index("feasible_single") == names.index("feasible") + 1
    for name, better in {"mean_rate": max, "mean_violation": min, "feasible": max, "objective": min}.items():
        k = names.index(name)
        means = [np.mean([r["metrics"][name] for r in rows[3 * a : 3 * a + 3]]) for a in range(3)]
        for a, line in enumerate(body):
            assert float(line[k].split(" ")[0]) == pytest.approx(means[a], rel=1e-3)
            marked = page.classes[0][1 + a][k] == "best"
            assert marked == (f"{means[a]:.4g}" == f"{better(means):.4g}")


def test_differences_are_taken_to_the_baseline(page: Page, wireless: Any) -> None:
    _, rows, _ = wireless
    assert "Differences to random" in page.text
    head, *body = page.tables[2]
    assert [line[0] for line in body] == [ODD, "full-power"]
    rate = [[r["metrics"]["mean_rate"] for r in rows[3 * a : 3 * a + 3]] for a in range(3)]
    difference = np.mean(rate[1]) - np.mean(rate[2])
    shown = body[1][[h.split(" ")[0] for h in head].index("mean_rate")]
    assert shown.startswith(f"{difference:+.3g}")


def test_a_metric_that_is_not_finite_does_not_cost_the_page(wireless: Any, tmp_path: Path) -> None:
    out, rows, problem = wireless
    rows = copy.deepcopy(rows)
    rows[0]["metrics"]["objective"] = math.inf
    shutil.copytree(out, tmp_path / "copy")
    path = write_report(tmp_path / "copy", rows, settings("WirelessPower-v0", 3), problem)
    page = Page(path.read_text(encoding="utf-8"))
    assert "inf" in page.tables[0][1][1] and "not finite" in page.tables[1][1][1]
    assert page.tables[2][1][1] == "not finite"
    assert "◆" not in page.tables[0][1][0]


def test_a_verdict_needs_six_instances() -> None:
    own, other = {i: 2.0 + 0.01 * i for i in range(6)}, dict.fromkeys(range(6), 1.0)
    assert '<span class="better">' in _difference(own, other, 1)
    assert '<span class="worse">' in _difference(own, other, -1)
    del own[5]
    assert "span" not in _difference(own, other, 1)
    mixed = {i: 1.0 + (-1) ** i for i in range(6)}
    assert "span" not in _difference(mixed, other, 1)


def test_csv_keeps_every_digit(wireless: Any) -> None:
    out, rows, _ = wireless
    with (out / "results.csv").open(encoding="utf-8") as file:
        read = list(csv.DictReader(file))
    assert len(read) == 9
    for line, row in zip(read, rows, strict=True):
        assert line["agent"] == row["agent"] and int(line["instance"]) == row["instance"]
        assert float(line["p5_rate"]) == row["metrics"]["p5_rate"]
        assert float(line["seconds"]) == row["seconds"]


def test_the_curve_over_slots_ends_where_the_evaluator_does(wireless: Any) -> None:
    out, rows, problem = wireless
    policies = {r["agent"]: Store(out).policy(r)[0] for r in rows if r["instance"] == 0}
    running = running_averages(policies, problem, HORIZON, 0)
    for agent, policy in policies.items():
        played = averages(policy, problem, HORIZON, 1)
        objective, residuals = float(played.objective[0]), played.residuals
        end = running[agent]
        assert end.violation.shape == end.objective.shape == end.feasible.shape == (HORIZON,)
        assert end.violation[-1] == pytest.approx(float(residuals.clamp(min=0).mean()), abs=1e-6)
        assert end.objective[-1] == pytest.approx(objective, rel=1e-5)
        assert end.feasible[-1] == (residuals <= problem.tolerance).double().mean()


def test_one_instance_gives_no_interval_and_a_mixture_no_map(tmp_path: Path) -> None:
    rows = compare(["random"], "MixtureOfGaussians2D-v0", 1, HORIZON, 2, out=tmp_path, n=8)
    problem = make_env("MixtureOfGaussians2D-v0", {}).problem
    page = Page(write_report(tmp_path, rows, settings("MixtureOfGaussians2D-v0", 1), problem).read_text())
    assert "One instance gives no interval" in page.text and "is the only agent" in page.text
    assert len([1 for tag, _ in page.elements if tag == "svg"]) == 3
    with pytest.raises(ValueError, match="baseline must be one of random; got 'pdl'"):
        write_report(tmp_path, rows, settings("MixtureOfGaussians2D-v0", 1), problem, "pdl")


def test_compare_writes_the_page_and_checks_the_baseline_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "compare",
        "MixtureOfGaussians2D-v0",
        "--agents",
        "random",
        "--n",
        "4",
        "--out",
        str(tmp_path / "out"),
    ]
    with pytest.raises(SystemExit) as stop:
        main([*words, "--baseline", "pdl"])
    assert stop.value.code == 2 and "baseline must be one of random" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    main(words)
    assert "report.html" in capsys.readouterr().out.replace("\n", "")
    assert (tmp_path / "out" / "report.html").exists() and (tmp_path / "out" / "results.csv").exists()


@pytest.mark.skipif(EXECUTABLE is None, reason="Chromium is not installed (Debian: apt-get install chromium)")
def test_in_a_browser_without_a_network(wireless: Any) -> None:
    path = wireless[0] / "report.html"
    with Browser() as browser:
        browser.open(path, width=390)
        assert browser.evaluate("document.querySelector('h1').textContent").startswith(
            "WirelessPower-v0: 3 agents"
        )
        assert browser.evaluate("document.documentElement.scrollWidth") <= 390
        size = "getComputedStyle(document.querySelector('h1')).fontSize"
        assert browser.evaluate(size) == "24px"  # the policy admits the style sheet
        stroke = "getComputedStyle(document.querySelector('svg path[clip-path]')).stroke"
        assert browser.evaluate(stroke) != "none"
        sizes = browser.evaluate("[...document.querySelectorAll('figure svg')].map(e => e.clientHeight)")
        assert len(sizes) == 7 and min(sizes) > 100
        light = browser.screenshot()
        browser.open(path, width=390, scheme="dark")
        assert browser.screenshot() != light
        shown = "k => getComputedStyle(document.body)[k].match(/[0-9]+/g).map(Number)"
        ink, ground = browser.evaluate(f"['color', 'backgroundColor'].map({shown})")
        assert min(ink) > 200 and max(ground) < 60
        _check_keyboard(browser)
        assert set(browser.requests) == {path.resolve().as_uri()}


def _check_keyboard(browser: Browser) -> None:
    """Tab reaches the skip link, the sections and the first table, which the arrows then scroll."""
    reached = []
    for _ in range(7):
        browser.press("Tab")
        reached.append(browser.evaluate("document.activeElement.className || document.activeElement.hash"))
    assert reached == ["skip", "#results", "#figures", "#intervals", "#differences", "#run", "scroll"]
    for _ in range(5):
        browser.press("ArrowRight")
    assert any(browser.evaluate("document.activeElement.scrollLeft") > 0 for _ in range(10_000))  # it glides
