"""Writes description.txt, what a package index shows: run it after changing the README.

    python docs/description.py

An index shows the page alone, so the picture is left out, and a link to a file of the project becomes the
file's name; the source distribution has all of them.
"""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parent
PICTURE = re.compile(r"^!\[[^\]]*\]\((?!https?://)[^)]*\)\n\n?", re.MULTILINE)
LINK = re.compile(r"\[([^\]]*)\]\((?!https?://|#)([^)]*)\)")


def described(readme: str) -> str:
    """The README without what needs its neighbours."""

    def named(link: re.Match[str]) -> str:
        text, target = link.groups()
        return f"`{target}`" if text in (target, f"`{target}`") else f"{text} (`{target}`)"

    title, rest = PICTURE.sub("", readme).split("\n", 1)
    return f"{title}\n\nFiles named on this page are in the source distribution.\n{LINK.sub(named, rest)}"


if __name__ == "__main__":
    text = described((DOCS.parent / "README.md").read_text(encoding="utf-8"))
    (DOCS / "description.txt").write_text(text, encoding="utf-8")
