"""The channel simulator against closed forms and the statistics of the paper's networks."""

import gc
import math

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats

from pdi_gym.problems.wireless import channels


@pytest.fixture(scope="module")
def networks():
    return [channels.deploy(200, 42 + 192 + i) for i in range(16)]


def test_noise_is_minus_97_98_dbm():
    assert 10 * math.log10(channels.noise_power(40e6) * 1e3) == pytest.approx(-97.98, abs=0.005)


def test_path_loss_has_two_slopes_and_no_jump():
    loss = channels.path_loss_db(np.array([1.0, 10.0, 100.0, 100.0 + 1e-9, 1000.0]))
    np.testing.assert_allclose(loss, [39, 59, 79, 79, 119], atol=1e-6)


def test_shadowing_deviation(networks):
    residual = []
    for network in networks:
        loss = channels.path_loss_db(channels._distances(network.transmitters, network.receivers))
        residual.append(-10 * np.log10(network.gains) - loss)
    samples = np.concatenate([r.ravel() for r in residual])
    assert abs(samples.mean()) < 5 * 7 / math.sqrt(samples.size)
    assert samples.std() == pytest.approx(7, abs=5 * 7 / math.sqrt(2 * samples.size))


def test_deployment_statistics(networks):
    distance = [np.linalg.norm(d.transmitters - d.receivers, axis=1) for d in networks]
    own = [(d.gains.argmax(0) == np.arange(200)).mean() for d in networks]
    assert 62 < np.mean(distance) < 67
    assert 0.77 < np.mean(own) < 0.83
    assert all(d.min() >= 20 - 1e-9 and d.max() <= 100 + 1e-9 for d in distance)
    for d in networks:
        assert d.transmitters.min() >= 0 and d.transmitters.max() <= 4100
        assert d.receivers.min() >= 0 and d.receivers.max() <= 4100
        assert channels._distances(d.transmitters, d.receivers).min() >= 20 - 1e-9


def test_a_seed_is_a_network():
    again = channels.deploy.__wrapped__(30, 7)
    np.testing.assert_array_equal(again.gains, channels.deploy(30, 7).gains)
    assert not np.array_equal(again.gains, channels.deploy(30, 8).gains)


@pytest.mark.parametrize("n", [1, 2, 8, 13, 14, 50])
def test_other_sizes_keep_the_density(n):
    network = channels.deploy(n, 0)
    side = 4100 * math.sqrt(n / 200)
    assert network.gains.shape == (n, n)
    assert network.transmitters.max() <= side and (network.gains > 0).all()


def test_an_impossible_square_says_what_failed():
    with pytest.raises(ValueError, match=r"deployment_range is too small.*transmitters ≥ 50 m apart"):
        channels.deploy(8, 0, side=60.0)
    with pytest.raises(ValueError, match="n_users must be a whole number ≥ 1, got 0"):
        channels.deploy(0, 0)


def fading(n_links, horizon, step, seed=0):
    return torch.cat(
        list(channels.rayleigh_path(torch.ones(n_links), horizon, step, torch.Generator().manual_seed(seed)))
    )


def test_fading_power_is_exponential():
    power = fading(10_000, 1, 1.0)[0].numpy()
    assert stats.kstest(power, "expon").pvalue > 1e-3
    assert power.mean() == pytest.approx(1, abs=5 / math.sqrt(power.size))


def test_fading_covariance_is_the_squared_bessel_function():
    links, step = 40_000, 0.25
    power = fading(links, 25, step).double()
    centred = power - 1
    covariance = (centred[0] * centred).mean(1)
    expected = special.j0(step * np.arange(25)) ** 2
    # Five standard errors, and the finite number of arrival angles.
    np.testing.assert_allclose(covariance.numpy(), expected, atol=5 * 3 / math.sqrt(links) + 0.03)
    assert covariance[0] > 0.9 and covariance.min() < 0.1


def test_path_is_the_textbook_sum_of_sinusoids():
    """A trigonometric call per path, as the model is written, from the same phases."""
    n_links, horizon, step = 3, 7, 2.5
    theta = torch.rand((2, 25, n_links), generator=torch.Generator().manual_seed(0)).double() * 2 * math.pi
    angle = math.pi / 200 + 2 * math.pi * torch.arange(25, dtype=torch.float64) / 100
    time = step * torch.arange(horizon, dtype=torch.float64)
    i = torch.cos(time[:, None, None] * angle.cos()[:, None] + theta[0]).sum(1) / 5
    q = torch.sin(time[:, None, None] * angle.sin()[:, None] + theta[1]).sum(1) / 5
    torch.testing.assert_close(fading(n_links, horizon, step).double(), i**2 + q**2, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("few", [0, 4])
def test_chunks_do_not_change_the_path(monkeypatch, few):
    """However few slots and links are made at once, and whether waves are kept or made anew."""
    whole = fading(10, 30, 1.0)
    monkeypatch.setattr(channels, "_CHUNK", 20)
    monkeypatch.setattr(channels, "_SLOTS", 8)
    monkeypatch.setattr(channels, "_BLOCK", 3)
    monkeypatch.setattr(channels, "_FEW", few)
    pieces = list(channels.rayleigh_path(torch.ones(10), 30, 1.0, torch.Generator().manual_seed(0)))
    assert {len(piece) for piece in pieces} == {2}
    torch.testing.assert_close(torch.cat(pieces), whole)


def test_paths_beside_each_other_hold_few_bytes_a_link():
    """150 bytes of phases and at most 36 slots to come, where cosines and sines alone would be 400."""
    n_links, before = 40_000, tensor_bytes()
    paths = [
        channels.rayleigh_path(torch.ones(n_links), 500, 1.0, torch.Generator().manual_seed(i))
        for i in range(channels._FEW + 2)
    ]
    for _ in range(12):  # past the first span of all, which they made while they were few
        for path in paths:
            next(path)
    assert (tensor_bytes() - before) / len(paths) / n_links < 150 + 4 * 36 + 4 + 1


def tensor_bytes():
    """Bytes of all dense tensors alive: the sparse ones of a graph may be there, but have no storage."""
    gc.collect()
    storages = {
        t.untyped_storage().data_ptr(): t.untyped_storage().nbytes()
        for t in gc.get_objects()
        if issubclass(type(t), torch.Tensor) and t.layout is torch.strided
    }
    return sum(storages.values())


def test_links_fade_independently():
    power = fading(4000, 2, 100.0).double()[1].view(2, -1) - 1
    correlation = (power[0] * power[1]).mean()
    assert abs(correlation) < 5 / math.sqrt(2000)


@pytest.mark.parametrize(
    ("own", "interferers"), [(2.0, []), (1e4, [3.0]), (0.01, [50.0, 50.0]), (1e6, [1e-3, 4.0, 1e5])]
)
def test_ergodic_rate_against_adaptive_quadrature(own, interferers):
    """Another integral: ∫ P(X > (2^r − 1)(1 + Y)) dr, adaptively."""

    def tail(r):
        s = (2.0**r - 1) / own
        return math.exp(-s) * math.prod(1 / (1 + s * i) for i in interferers)

    expected, _ = integrate.quad(tail, 0, 40, epsabs=1e-13, epsrel=1e-10, limit=400)
    column = torch.tensor([interferers or [0.0]], dtype=torch.float64).T
    value = channels.ergodic_rate(torch.tensor([own], dtype=torch.float64), column)
    assert float(value) == pytest.approx(expected, rel=1e-6)


def test_ergodic_rate_of_a_lone_user_is_the_exponential_integral():
    snr = 5.0
    expected = math.exp(1 / snr) * special.exp1(1 / snr) / math.log(2)
    value = channels.ergodic_rate(torch.tensor([snr], dtype=torch.float64), torch.zeros(1, 1).double())
    assert float(value) == pytest.approx(expected, rel=1e-6)
