"""Words of the user's own, made safe for where they are shown: pages, tables, figures, cells, the terminal.

Labels of agents, names of metrics and of problems may hold anything; file names are `pdi_gym.store.slug`.
"""

from __future__ import annotations

import hashlib
import html
import re
from typing import Any

LONGEST = 40
"""Characters of a label in a figure."""

_ESCAPES = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
_MARKDOWN = re.compile(r"([\\`*\[\]<>|&$~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")


def printable(text: str) -> str:
    """One line that UTF-8 can hold: control characters and lone surrogates become escapes such as \\n."""
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def brief(value: Any, most: int = 200) -> str:
    """What a damaged file said, as part of an error of one line."""
    shown = printable(str(value))
    return shown if len(shown) <= most else f"{shown[:most]}…"


def _escaped(character: str) -> str:
    code = ord(character)
    return _ESCAPES.get(character) or (f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")


def in_html(text: str) -> str:
    return html.escape(printable(text))


def in_markdown(text: str) -> str:
    """Text of a table's cell that no renderer takes for markup, mathematics or another cell."""
    return _MARKDOWN.sub(r"\\\1", printable(text))


def code_span(text: str) -> str:
    """Text as code in Markdown, between more backticks than it holds in a row."""
    shown = printable(text)
    fence = "`" * (1 + max(map(len, re.findall("`+", shown)), default=0))
    room = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{room}{shown}{room}{fence}"


def in_cell(text: str) -> str:
    """Text of a CSV cell that no spreadsheet takes for a formula: those begin with an apostrophe."""
    shown = printable(text)
    return f"'{shown}" if shown.startswith(("=", "+", "-", "@")) else shown


def in_figure(text: str) -> str:
    """Text of a Matplotlib legend or title: no mathematics, not left out, at most 40 characters."""
    shown = printable(text)
    if len(shown) > LONGEST:
        mark = hashlib.sha256(shown.encode()).hexdigest()[:6]
        shown = f"{shown[: LONGEST - 8]}… {mark}"
    shown = shown.replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown  # Matplotlib leaves out labels such as _nolegend_
