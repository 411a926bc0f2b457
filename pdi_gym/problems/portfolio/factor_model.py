"""Synthetic markets: log-returns from a factor model with sectors, two of ten of them high-risk."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pdi_gym.validation import check_choice, check_int

SPLITS = {"train": range(0, 200), "validation": range(1000, 1010), "test": range(3000, 3020)}
"""Seeds of the instances in each split."""

FACTORS_PER_SECTOR = 5
Range = tuple[float, float]


class Market(NamedTuple):
    """Simple returns (S, N) of S scenarios, each asset's sector (N,), and which sectors are high-risk."""

    returns: np.ndarray
    sectors: np.ndarray
    high_risk: np.ndarray


def instance_seed(index: int, split: str) -> int:
    """The generator seed of instance `index` within a split."""
    check_choice("split", split, SPLITS)
    check_int("index", index, 0)
    if index >= len(SPLITS[split]):
        raise ValueError(f"index must be below {len(SPLITS[split])} in split {split!r}, got {index}")
    return SPLITS[split][index]


def sector_market(seed: int, n_assets: int = 500, n_sectors: int = 10, n_scenarios: int = 1000) -> Market:
    """One market of the paper's family; asset j belongs to sector j mod n_sectors.

    Every sector has five factors and all share a global one. A high-risk sector (the last fifth of
    them, at least one) loads more on its own factors, which vary more, and has the higher base return.
    Log-returns are Gaussian, ℓ = μ + B f + e; the returns are exp(ℓ) − 1.
    """
    check_int("n_assets", n_assets, 2), check_int("n_sectors", n_sectors, 1)
    check_int("n_scenarios", n_scenarios, 2), check_int("seed", seed, 0)
    if n_assets < n_sectors:
        raise ValueError(f"n_assets must be at least n_sectors = {n_sectors}, got {n_assets}")
    rng = np.random.default_rng(seed)
    sectors = np.arange(n_assets) % n_sectors
    risky_sector = np.arange(n_sectors) >= n_sectors - max(1, n_sectors // 5)
    risky = risky_sector[sectors]

    def by_risk(risky_range: Range, other_range: Range, mask: np.ndarray) -> np.ndarray:
        """Uniform draws, one per entry of the mask, from the range of its kind."""
        low, high = np.where(mask[:, None], risky_range, other_range).T
        return np.asarray(rng.uniform(low, high))

    multiplier = by_risk((4, 6), (0.5, 2), risky_sector)
    base = by_risk((0.15, 0.35), (0.02, 0.15), risky_sector)
    mean = np.clip(base[sectors] + rng.uniform(-0.06, 0.06, n_assets), 0.005, 0.40)
    common = np.abs(rng.standard_normal(n_assets)) * np.where(risky, 0.05, 0.15)
    own = np.abs(rng.standard_normal((n_assets, FACTORS_PER_SECTOR))) * np.where(risky, 0.5, 0.3)[:, None]
    global_variance = rng.uniform(0.02, 0.08)
    sector_variance = rng.uniform(0.01, 0.1, (n_sectors, FACTORS_PER_SECTOR)) * multiplier[:, None]
    idiosyncratic = by_risk((0.02, 0.15), (0.005, 0.05), risky)

    factors = rng.standard_normal((n_scenarios, n_sectors, FACTORS_PER_SECTOR)) * np.sqrt(sector_variance)
    market = rng.standard_normal((n_scenarios, 1)) * np.sqrt(global_variance)
    noise = rng.standard_normal((n_scenarios, n_assets)) * np.sqrt(idiosyncratic)
    log_returns = mean + market * common + np.einsum("snf,nf->sn", factors[:, sectors], own) + noise
    return Market(np.expm1(log_returns), sectors, np.flatnonzero(risky_sector))
