"""Rows and policies on disk: each valid for exactly what made it, or counted as absent.

A row lies in rows/ as JSON and its policy in policies/ as npz, under the same name, which holds the
first digits of the row's key. The policy's file carries the digest of the row's content, and the row's
file the digest of the policy's bytes: neither is used without the other, nor after a change to either.
"""

from __future__ import annotations

import hashlib
import json
import math
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from pdi_gym.files import read_object, regular_file, whole_file, write_text
from pdi_gym.labels import brief
from pdi_gym.policy import TimeSharingPolicy

Row = dict[str, Any]
"""{"agent", "instance", "metrics", "seconds", "key"}; seconds are the sampler's CPU seconds, and the key
is None for a row that cannot be reused."""
_LARGEST = 2**31
"""Bytes of the largest policy that is read."""
_ALWAYS = {"objective", "mean_violation", "feasible"}


class Store:
    """The rows and policies in a folder, those of several settings side by side."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)

    def path(self, row: Row, kind: str = "policies") -> Path:
        """Where the policy of a row is, or with `kind="rows"` the row itself."""
        name = f"{slug(row['agent'])}-{row['instance']}-{(row['key'] or 'once')[:12]}"
        return self.folder / kind / f"{name}.{'json' if kind == 'rows' else 'npz'}"

    def load(self, label: str, instance: int, key: str | None) -> Row | None:
        """The row of that key if it and its policy are whole; anything malformed counts as absent."""
        if key is None:
            return None
        row: Row = {"agent": label, "instance": instance, "key": key}
        try:
            stored = read_object(self.path(row, "rows"))
            content = {name: stored[name] for name in ("row", "settings")}
            policy = self.path(row)
            if _digest(regular_file(policy, _LARGEST).read_bytes()) != stored["policy"]:
                return None
            arrays = read_arrays(policy)
            if str(arrays["row"]) != _digest(_canonical(content)) or not _valid(stored["row"], row):
                return None
            _policy_of(arrays)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        found: Row = stored["row"]
        return found

    def save(
        self, row: Row, settings: dict[str, Any], policy: TimeSharingPolicy, residuals: np.ndarray
    ) -> None:
        """Keep a row, the settings that decided it, its policy and the policy's average residuals (m,)."""
        content = json.loads(json.dumps({"row": row, "settings": settings}))
        arrays = {"actions": policy.actions, "weights": policy.weights, "residuals": residuals}
        for name in ("duals", "mean_duals"):
            if getattr(policy, name) is not None:
                arrays[name] = getattr(policy, name)
        arrays |= {f"trace.{k}": v for k, v in policy.info.get("trace", {}).items()}
        arrays["row"] = np.array(_digest(_canonical(content)))
        with whole_file(self.path(row)) as temporary:
            with temporary.open("wb") as file:
                np.savez(file, **arrays)  # type: ignore[arg-type]
            bytes_digest = _digest(temporary.read_bytes())
        text = json.dumps(content | {"policy": bytes_digest}, indent=1)
        write_text(self.path(row, "rows"), text)

    def policy(self, row: Row) -> tuple[TimeSharingPolicy, np.ndarray]:
        """The policy of a row and its average residuals (m,)."""
        return load_policy(self.path(row))

    def settings(self, row: Row) -> dict[str, Any]:
        """All that decided a row: version, problem, agent, preset, options, evaluation."""
        settings: dict[str, Any] = read_object(self.path(row, "rows"))["settings"]
        return settings


def load_policy(path: str | Path) -> tuple[TimeSharingPolicy, np.ndarray]:
    """A policy that `compare` stored and its average residuals (m,); a ValueError if it is not whole."""
    arrays = read_arrays(Path(path))
    try:
        arrays.pop("row")  # the last one written: a damaged directory of the archive ends before it
        return _policy_of(arrays), arrays["residuals"]
    except KeyError as missing:
        raise ValueError(f"{path} is no policy that compare stored: it lacks {missing}") from None
    except ValueError as error:
        raise ValueError(f"{path} holds no policy: {brief(error)}") from None


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an npz file, never unpickled; a ValueError that names the file if it is not whole."""
    regular_file(path, _LARGEST)
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if size > _LARGEST:
            raise ValueError(f"it unpacks to {size} bytes")
        with _no_huge_headers(), np.load(path, allow_pickle=False) as data:
            return dict(data)
    except (ValueError, KeyError, EOFError, SyntaxError, TypeError) as error:
        raise ValueError(f"{path} is not a whole file of arrays ({brief(error)}): compute it anew") from None
    except (zipfile.BadZipFile, zlib.error, OSError, RuntimeError, MemoryError) as error:
        raise ValueError(f"{path} is not a whole npz file ({brief(error)}): compute it anew") from None


@contextmanager
def _no_huge_headers() -> Iterator[None]:
    """Overflowing sizes in a damaged header are an error of the file, not a warning."""
    with np.errstate(over="raise"):
        yield


def _policy_of(arrays: dict[str, np.ndarray]) -> TimeSharingPolicy:
    trace = {k.removeprefix("trace."): v for k, v in arrays.items() if k.startswith("trace.")}
    info = {"trace": trace} if trace else {}
    duals, mean_duals = arrays.get("duals"), arrays.get("mean_duals")
    return TimeSharingPolicy(arrays["actions"], arrays["weights"], duals, mean_duals, info)


def _valid(row: Any, wanted: Row) -> bool:
    """Whether a stored row is of that agent, instance and key, with finite numbers of known names."""
    if not isinstance(row, dict) or any(row.get(name) != value for name, value in wanted.items()):
        return False
    metrics = row.get("metrics")
    if not isinstance(metrics, dict) or not metrics.keys() >= _ALWAYS or not _valid_violation(row):
        return False
    return all(_finite(value) for value in (row.get("seconds"), *metrics.values()))


def _valid_violation(row: dict[str, Any]) -> bool:
    """Whether a row says what its averages violate: None, or the total, the count and who carries it."""
    if "violation" not in row:
        return False
    own = row["violation"]
    if own is None:
        return True
    if not isinstance(own, dict) or own.keys() != {"total", "constraints", "carried_by"}:
        return False
    carried = own["carried_by"]
    return isinstance(carried, dict) and all(
        map(_finite, (own["total"], own["constraints"], *carried.values()))
    )


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _canonical(content: Any) -> bytes:
    return json.dumps(content, sort_keys=True).encode("utf-8", "surrogatepass")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def slug(label: str) -> str:
    """The label as a file name: safe, at most 60 characters, and different for different labels."""
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "-_.@+") else "_" for c in label)
    if safe == label and len(label) <= 50 and not label.startswith("."):
        return label
    return f"{safe.lstrip('.')[:50]}~{_digest(label.encode('utf-8', 'surrogatepass'))[:8]}"
