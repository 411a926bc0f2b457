"""Wireless channels: where pairs stand, how signals weaken, and how they fade from slot to slot."""

from __future__ import annotations

import functools
import math
import weakref
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pdi_gym.validation import check_int, check_number

LIGHT_SPEED = 299_792_458.0
SHADOWING_DB = 7.0
NOISE_DBM_PER_HZ = -174.0
PAIR_RANGE = (20.0, 100.0)
TRANSMITTER_GAP = 50.0
DENSITY = 200 / 4100.0**2
"""Pairs per square metre of the paper's networks."""
PAIRS_PER_CELL = 13
_BATCH, _ROUNDS = 64, 500
_QUARTER = 25
"""Arrival angles in a quarter turn, of 100 in a whole one."""
_CHUNK, _SLOTS, _BLOCK = 2**18, 36, 2048
"""Numbers in a chunk of slots, slots made at once of a large network, links in a matrix product."""
_FEW = 4
"""While no more paths than this are alive, they keep what they would else compute again and again."""


def noise_power(bandwidth: float) -> float:
    """Thermal noise in watts over a bandwidth in hertz: −97.98 dBm at 40 MHz."""
    return float(10 ** ((NOISE_DBM_PER_HZ - 30) / 10) * bandwidth)


def path_loss_db(distance: np.ndarray) -> np.ndarray:
    """Dual slope, distance in metres: 20 dB per decade up to 100 m and 40 beyond, continuous there."""
    d = np.log10(distance / 100)
    return np.where(d <= 0, 79 + 20 * d, 79 + 40 * d)


def shadowing_db(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Independent log-normal shadowing of every link."""
    return rng.normal(0.0, SHADOWING_DB, shape)


@dataclass(frozen=True)
class Deployment:
    """Transmitters and receivers (N, 2) in metres, and mean power gains (N, N) [transmitter, receiver]."""

    transmitters: np.ndarray
    receivers: np.ndarray
    gains: np.ndarray


@functools.lru_cache(maxsize=256)
def deploy(n_users: int, seed: int, side: float | None = None) -> Deployment:
    """A random network of transmitter-receiver pairs in a square.

    Cells of at most 13 pairs are drawn until each transmitter is the strongest at some receiver
    under a trial shadowing; the pairs are then matched anew over the whole network, and the
    shadowing that counts is drawn last. Without a side the paper's density is kept.
    """
    check_int("n_users", n_users, 1), check_int("seed", seed, 0)
    if side is None:
        side = math.sqrt(n_users / DENSITY)
    check_number("deployment_range", side, 0, above=True)
    rng = np.random.default_rng(seed)
    per_side = math.ceil(math.sqrt(n_users / PAIRS_PER_CELL))
    cell_side, n_cells = side / per_side, per_side**2
    sizes = [n_users // n_cells + (c < n_users % n_cells) for c in range(n_cells)]
    transmitters, receivers = [], []
    for c, size in enumerate(sizes):
        if size == 0:
            continue
        corner = cell_side * np.array(divmod(c, per_side))
        tx, rx = _draw_cell(size, cell_side, rng)
        transmitters.append(tx + corner)
        receivers.append(rx + corner)
    tx, rx = np.concatenate(transmitters), np.concatenate(receivers)
    rx = _match(tx, rx, side, rng)
    loss = path_loss_db(_distances(tx, rx)) + shadowing_db((n_users, n_users), rng)
    gains = 10 ** (-loss / 10)
    for array in (tx, rx, gains):
        array.setflags(write=False)  # the cache hands the same arrays to every caller
    return Deployment(tx, rx, gains)


def _distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(..., n, 2) and (..., m, 2) → (..., n, m)."""
    return np.asarray(np.linalg.norm(a[..., :, None, :] - b[..., None, :, :], axis=-1))


def _annulus(centres: np.ndarray, side: float, rng: np.random.Generator) -> np.ndarray:
    """A point around each centre (..., 2), uniform by area in the pair range, clipped to the square."""
    low, high = PAIR_RANGE
    radius = np.sqrt(rng.uniform(low**2, high**2, centres.shape[:-1]))
    angle = rng.uniform(0, 2 * math.pi, centres.shape[:-1])
    offset = radius[..., None] * np.stack([np.cos(angle), np.sin(angle)], -1)
    return np.asarray(np.clip(centres + offset, 0, side))


def _draw_cell(size: int, side: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Transmitters and receivers (size, 2) of one cell, drawn in batches until a whole cell fits."""
    apart = spaced = 0
    for _ in range(_ROUNDS):
        tx = rng.uniform(0, side, (_BATCH, size, 2))
        rx = _annulus(tx, side, rng)
        gaps = _distances(tx, tx) + 2 * TRANSMITTER_GAP * np.eye(size)
        distances = _distances(tx, rx)
        loss = path_loss_db(np.maximum(distances, 1.0)) + shadowing_db(distances.shape, rng)
        strongest = loss.argmin(1)
        heard = (strongest[:, :, None] == np.arange(size)).any(1).all(1)
        wide = (gaps >= TRANSMITTER_GAP).all((1, 2))
        clear = wide & (distances >= PAIR_RANGE[0]).all((1, 2))
        apart, spaced = apart + wide.sum(), spaced + clear.sum()
        (fits,) = np.nonzero(clear & heard)
        if len(fits):
            return tx[fits[0]], rx[fits[0]]
    raise ValueError(
        f"deployment_range is too small: no cell of {side:.0f} m could hold {size} pairs. Of "
        f"{_BATCH * _ROUNDS} tries {apart} had transmitters ≥ {TRANSMITTER_GAP:g} m apart, {spaced} of these "
        f"all distances ≥ {PAIR_RANGE[0]:g} m, none of these every transmitter strongest at some receiver; "
        "raise it or lower n_users"
    )


def _match(tx: np.ndarray, rx: np.ndarray, side: float, rng: np.random.Generator) -> np.ndarray:
    """Receivers (N, 2) reordered so that row i serves transmitter i, re-placed where that is too far.

    Transmitters that are strongest at fewest receivers choose first, the nearest free receiver at
    which they are; one that has none takes the nearest free one, which then moves close to it.
    """
    n = len(tx)
    distances = _distances(tx, rx)
    loss = path_loss_db(distances) + shadowing_db((n, n), rng)
    dominated = loss.argmin(0) == np.arange(n)[:, None]
    chosen = np.full(n, -1)
    free = np.ones(n, dtype=bool)
    moved = np.zeros(n, dtype=bool)
    for i in np.argsort(dominated.sum(1), kind="stable"):
        options = dominated[i] & free
        moved[i] = not options.any()
        pool = np.flatnonzero(free if moved[i] else options)
        chosen[i] = pool[distances[i, pool].argmin()]
        free[chosen[i]] = False
    matched: np.ndarray = rx[chosen]
    moved |= distances[np.arange(n), chosen] > PAIR_RANGE[1]
    for i in np.flatnonzero(moved):
        matched[i] = _replace(tx, int(i), side, rng)
    return matched


def _replace(tx: np.ndarray, i: int, side: float, rng: np.random.Generator) -> np.ndarray:
    """A new place for receiver i in the annulus of its transmitter, ≥ 20 m from every transmitter."""
    points = _annulus(np.broadcast_to(tx[i], (_BATCH * 4, 2)), side, rng)
    (fits,) = np.nonzero((_distances(points, tx) >= PAIR_RANGE[0]).all(1))
    if not len(fits):
        raise ValueError(
            f"deployment_range is too small: {len(points)} tries found no place for receiver {i} that is "
            f"≥ {PAIR_RANGE[0]:g} m from every transmitter; raise it or lower n_users"
        )
    return np.asarray(points[fits[0]])


def rayleigh_path(
    mean: Tensor, horizon: int, phase_step: float, generator: torch.Generator
) -> Iterator[Tensor]:
    """Fading powers with means (n_links,) over consecutive slots, in chunks (slots, n_links).

    Sum of sinusoids with Doppler: I = N0^-½ Σ_n cos(w t cos α_n + θ_n), Q = N0^-½ Σ_n sin(w t sin α_n + θ'_n)
    with N0 = 25 angles and phases independent per link. Splitting the angle sums leaves a time
    basis shared by all links, so a block of links is two matrix products. `phase_step` is w times the
    slot. Paths that run side by side take turns to compute: each starts with fewer slots at once.
    """
    n_links = len(mean)
    waves = _Waves(mean, generator)
    chunk = max(1, _CHUNK // n_links)
    chunks = max(4, -(-_SLOTS // chunk))
    start, stop = 0, horizon
    if chunk * chunks < horizon:
        stop = chunk * int(torch.randint(1, chunks + 1, (), generator=generator))
    while start < horizon:
        made = _powers(waves, _time_bases(start, stop, phase_step), chunk)
        while made:
            yield made.pop(0)  # not kept here: a slot that was played is free memory
        start, stop = stop, min(stop + chunk * chunks, horizon)


def _powers(waves: _Waves, bases: tuple[Tensor, Tensor], chunk: int) -> list[Tensor]:
    """I² + Q² of consecutive slots, in chunks (slots, n_links)."""
    n_links, slots = waves.n_links, len(bases[0])
    made = [torch.empty(min(chunk, slots - at), n_links) for at in range(0, slots, chunk)]
    for first in range(0, n_links, _BLOCK):
        in_phase, quadrature = (basis @ w for basis, w in zip(bases, waves.block(first), strict=True))
        parts = torch.split(in_phase.square_(), chunk), torch.split(quadrature, chunk)
        for out, power, other in zip(made, *parts, strict=True):
            torch.addcmul(power, other, other, out=out[:, first : first + _BLOCK])
    return made


class _Waves:
    """Cosines and sines of a path's phases, uniform in [0, 2π), times the amplitudes of its links.

    They fill 400 bytes a link: beside many other paths, they are made anew from the phases, which are
    held in three bytes each, all the bits that torch draws.
    """

    def __init__(self, mean: Tensor, generator: torch.Generator):
        self.n_links = len(mean)
        drawn = torch.rand((2, _QUARTER, len(mean)), generator=generator).mul_(2**24).int()
        self._low = (drawn & 0xFF).to(torch.uint8)
        self._high = drawn.bitwise_right_shift_(8).sub_(2**15).short()
        self._amplitude = (mean / _QUARTER).sqrt()
        self._kept: dict[int, tuple[Tensor, Tensor]] = {}
        _ALIVE.add(self)

    def block(self, first: int) -> tuple[Tensor, Tensor]:
        """What the time bases of I and Q multiply, (50, links) each, for the links from `first`."""
        if len(_ALIVE) > _FEW:
            self._kept.clear()
        elif first in self._kept:
            return self._kept[first]
        links = slice(first, first + _BLOCK)
        phases = self._high[..., links].float().add_(2**15).mul_(2**8).add_(self._low[..., links])
        phases.mul_(2**-24).mul_(2 * math.pi)
        cosine, sine = phases.cos().mul_(self._amplitude[links]), phases.sin_().mul_(self._amplitude[links])
        waves = torch.cat([cosine[0], sine[0]]), torch.cat([sine[1], cosine[1]])
        if len(_ALIVE) <= _FEW:
            self._kept[first] = waves
        return waves


_ALIVE: weakref.WeakSet[_Waves] = weakref.WeakSet()


def _time_bases(start: int, stop: int, phase_step: float) -> tuple[Tensor, Tensor]:
    """What cosines and sines of the phases are multiplied with in each slot, (slots, 50) for I and Q."""
    angle = math.pi / 200 + 2 * math.pi / 100 * torch.arange(_QUARTER, dtype=torch.float64)
    slots = torch.arange(start, stop, dtype=torch.float64)
    along, across = (phase_step * slots[:, None] * f(angle) for f in (torch.cos, torch.sin))
    in_phase = torch.cat([along.cos(), -along.sin()], 1).float()
    return in_phase, torch.cat([across.cos(), across.sin()], 1).float()


def ergodic_rate(own: Tensor, interference: Tensor, step: float = 0.5) -> Tensor:
    """E log2(1 + X/(1 + Σ_i Y_i)) for independent exponentials with means S (..., N) and I (..., N, N).

    The expectation is ∫₀^∞ e^{−z} S/(1 + zS) Π_i 1/(1 + z I_i) dz; with z = e^u the integrand is
    analytic in a strip and decays at both ends, so the trapezoid rule converges geometrically.
    `interference` has the interferers on its second-last axis.
    """
    largest = max(1.0, float(own.detach().max()), float(interference.detach().max()))
    low, high = math.log(1e-7 / largest), math.log(40.0)
    total = torch.zeros_like(own)
    for u in np.arange(low, high + step, step):
        z = math.exp(u)
        log_product = torch.log1p(z * interference).sum(-2)
        total = total + torch.exp(u - z - log_product) * own / (1 + z * own)
    return total * (step / math.log(2))
