"""Print `name==bound` for every lower bound in setup.cfg: the constraints of the lowest promised versions.

`make test-lowest` installs them in an environment of their own and runs the tests there. It leaves out the
extra `data`, which no test needs and whose package asks for newer ones than the others do.
"""

from __future__ import annotations

import configparser
from pathlib import Path


def bounds(path: Path) -> dict[str, str]:
    """Package → its lower bound, of the requirements and of all extras."""
    config = configparser.ConfigParser()
    config.read(path, encoding="utf-8")
    lists = [config["options"]["install_requires"], *config["options.extras_require"].values()]
    found: dict[str, str] = {}
    for line in "\n".join(lists).split():
        name, separator, version = line.partition(">=")
        if not separator or not version.replace(".", "").isdigit():
            raise ValueError(f"a requirement must read name>=version, got {line!r} in {path}")
        if found.setdefault(name, version) != version:
            raise ValueError(f"{name} must have one bound in {path}, got {found[name]} and {version}")
    return found


if __name__ == "__main__":
    for name, version in bounds(Path(__file__).parents[1] / "setup.cfg").items():
        print(f"{name}=={version}")
