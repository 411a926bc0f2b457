"""Labels that attack what they are shown in: one comparison under the nastiest, in every form."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import re
from html import unescape
from pathlib import Path
from string import punctuation
from typing import Any

import pytest
from PIL import Image
from rich.console import Console

from pdi_gym.cli import printing
from pdi_gym.evaluation import compare
from pdi_gym.labels import LONGEST, code_span, in_cell, in_figure, in_markdown, printable
from pdi_gym.problems import MixtureOfGaussians
from pdi_gym.report import figures, tables
from pdi_gym.report.outputs import write_outputs
from pdi_gym.report.style import styles_apart
from pdi_gym.store import slug
from tests.test_report import Page, settings
from tests.test_tracking import events

NASTY = {
    "mathematics": "$\\frac{x$",
    "two dollars": "$1 and $2",
    "formula": "=HYPERLINK(1)",
    "plus": "+1",
    "minus": "-1",
    "at": "@SUM(1)",
    "pipe": "a|b\nc | d",
    "return": "a\rb\tc",
    "up": "../../up",
    "slashes": "/a\\b",
    "long": "x" * 300,
    "as long": "x" * 299 + "y",
    "surrogate": "a\ud800b",
    "null": "a\0b",
    "markup of a terminal": "[bold]a[/nothing]",
    "markup": "</title><script>alert(1)</script><img src=x onerror=alert(1)>",
    "attributes": '" style="color:red" id="results" href="#a" url(#b) #0f0e0d \'',
    "left out": "_nolegend_",
    "links": "[a](javascript:alert(1)) `b` *c*",
    "turned": "a\u202eb",
    "entity": "&lt;&#36;",
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    out = tmp_path_factory.mktemp("nasty") / "out"
    problem = MixtureOfGaussians.toy()
    rows = compare(dict.fromkeys(NASTY.values(), "random"), problem, horizon=4, trials=1, n=3, out=out)
    write_outputs(out, rows, settings("MixtureOfGaussians", 1), problem)
    return out, rows


def test_they_stay_apart_and_inside_their_folder(written: Any) -> None:
    out, rows = written
    assert [row["agent"] for row in rows] == list(NASTY.values())
    for kind, suffix in (("rows", "json"), ("policies", "npz")):
        names = {path.name for path in (out / kind).iterdir()}
        assert len(names) == len(NASTY) and all(name.endswith(suffix) for name in names)
    assert {p.name for p in out.parent.iterdir()} == {out.name}
    again = compare(dict.fromkeys(NASTY.values(), "random"), MixtureOfGaussians.toy(), 1, 4, 1, out=out, n=3)
    assert again == rows


def test_json_holds_them_as_they_are(written: Any) -> None:
    found = json.loads((written[0] / "results.json").read_text(encoding="utf-8"))
    assert [row["agent"] for row in found["rows"]] == list(NASTY.values())


def test_no_cell_is_a_formula(written: Any) -> None:
    with (written[0] / "results.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == len(NASTY)
    for line, row in zip(lines, written[1], strict=True):
        assert line["agent"][0] not in "=+-@\t\r"
        assert line["agent"].removeprefix("'") == printable(row["agent"])
        assert float(line["objective"]) == row["metrics"]["objective"]


def test_a_row_of_markdown_has_its_cells(written: Any) -> None:
    text = (written[0] / "results.md").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == 2 + len(NASTY)
    cells = [re.split(r"(?<!\\)(?:\\\\)*\|", line)[1:-1] for line in lines]
    assert {len(line) for line in cells} == {len(cells[0])}
    for line, label in zip(cells[2:], NASTY.values(), strict=True):
        assert re.sub(rf"\\([{re.escape(punctuation)}])", r"\1", line[0].strip()) == printable(label)
        assert not re.search(r"(?<!\\)[<$`*\[]", line[0].replace(r"\\", ""))


def test_the_table_shows_them_as_text(written: Any) -> None:
    console = Console(file=io.StringIO(), width=4000, record=True)
    console.print(printing.comparison_table(written[1], "[/a]\ud800", 4000))
    shown = console.export_text()
    shown.encode()
    assert all(printable(label) in shown for label in NASTY.values())


def test_progress_is_one_line_each(written: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for row in written[1]:
        tables.print_row(row)
    assert len(capsys.readouterr().out.splitlines()) == len(NASTY)


def test_the_page_shows_them_as_text_and_allows_nothing_else(written: Any) -> None:
    text = (written[0] / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    assert page.open == [] and "\0" not in text
    assert [line[0].split(" ◆")[0] for line in page.tables[0][1:]] == [printable(v) for v in NASTY.values()]
    tags = [tag for tag, _ in page.elements]
    assert not {"script", "img", "iframe", "object", "base", "form"} & set(tags)
    assert tags.count("title") == 1 and tags.count("style") == 1
    names = [name for _, values in page.elements for name in values]
    assert "style" not in names and not [n for n in names if n.startswith("on")]
    ids = [values["id"] for _, values in page.elements if "id" in values]
    assert len(set(ids)) == len(ids)
    (policy,) = [v["content"] or "" for t, v in page.elements if t == "meta" and "http-equiv" in v]
    style = text.partition("<style>")[2].partition("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}';") and "unsafe" not in policy
    assert text.index("Content-Security-Policy") < text.index("<title>") < text.index("<style>")


def test_pictures_show_them_as_text(written: Any) -> None:
    out, _ = written
    text = (out / "report.html").read_text(encoding="utf-8")
    figure = text[text.index("<svg") : text.index("</svg>")]
    written_there = unescape(re.sub(r"<[^>]*>", "\n", figure))
    for label in NASTY.values():
        shown = printable(label)
        assert (shown if len(shown) <= LONGEST else shown[: LONGEST - 8]) in written_there
    assert 'href="#tradeoff-' in figure and "currentColor" in text
    for name in ("tradeoff", "residuals"):
        with Image.open(out / f"{name}.png") as picture:
            picture.verify()


def test_tensorboard_has_a_run_for_each(written: Any) -> None:
    out, _ = written
    runs = {path.name for path in (out / "tensorboard").iterdir() if path.is_dir()}
    assert runs == {"comparison", *map(slug, NASTY.values())}
    for label in NASTY.values():
        assert events(out, slug(label)).Scalars("metrics/objective")


def test_labels_of_figures_are_short_and_distinct() -> None:
    shown = [in_figure(label) for label in NASTY.values()]
    assert len(set(shown)) == len(shown) and all(len(s.replace("\\$", "$")) <= LONGEST for s in shown)
    points = {label: (float(i), float(i)) for i, label in enumerate(NASTY.values())}
    fig = figures.tradeoff(points, dict.fromkeys(points, (0.0, 0.0))).figure
    assert len(fig.legends[0].get_texts()) == len(NASTY)


@pytest.mark.parametrize(
    ("function", "text", "expected"),
    [
        (printable, "a\nb\x1b\u2028\U000e0001", "a\\nb\\u001b\\u2028\\U000e0001"),
        (printable, "Größe λ 数 🙂", "Größe λ 数 🙂"),
        (in_cell, "-mc", "'-mc"),
        (in_cell, "pdi-mc", "pdi-mc"),
        (in_markdown, "n_eff a_ _b", "n_eff a\\_ \\_b"),
        (code_span, "a", "`a`"),
        (code_span, "`a``b", "``` `a``b ```"),
        (in_figure, "$5", r"\$5"),
    ],
)
def test_what_each_form_makes_of_words(function: Any, text: str, expected: str) -> None:
    assert function(text) == expected


def test_styles_become_rules_of_the_sheet() -> None:
    body, sheet = styles_apart(
        '<p style="a: 1">style="a: 1"</p><b style="a: 1"/><i style="b: &quot;c&quot;"/>'
    )
    assert body == '<p class="s0">style="a: 1"</p><b class="s0"/><i class="s1"/>'
    assert sheet.endswith('.s0{a: 1}\n.s1{b: "c"}\n')
