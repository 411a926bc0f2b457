import math

import pytest
import torch

from pdi_gym.schedules import SCHEDULES, make_schedule


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("T", [1, 2, 50, 500])
def test_variance_is_preserved_and_noise_only_grows(name, T):
    s = make_schedule(name, T)
    assert s.T == T and all(v.shape == (T + 1,) for v in (s.a, s.b, s.alpha, s.sigma))
    assert torch.allclose(s.alpha**2 + s.sigma**2, torch.ones(T + 1), atol=1e-6)
    assert torch.allclose(s.a + s.b, torch.ones(T + 1), atol=1e-6)
    assert torch.allclose(s.alpha**2, torch.cumprod(s.a.double(), 0).float(), rtol=1e-4)
    assert s.alpha[0] == 1 and s.sigma[0] == 0 and (s.alpha.diff() < 0).all()
    assert (s.a[1:] >= 1 - 0.999 - 1e-6).all()


@pytest.mark.parametrize("name", SCHEDULES)
def test_sigma_is_the_sum_of_the_paper(name):
    """σ_τ² = Σ_j b_j Π_{s>j} a_s, written out."""
    s = make_schedule(name, 40)
    a, b = s.a.double(), s.b.double()
    for tau in (1, 7, 40):
        total = sum(float(b[j]) * math.prod(float(v) for v in a[j + 1 : tau + 1]) for j in range(1, tau + 1))
        assert float(s.sigma[tau]) ** 2 == pytest.approx(total, rel=1e-3)


def test_cosine_is_the_published_formula():
    s = make_schedule("cosine", 500)
    f = [math.cos((t / 500 + 0.008) / 1.008 * math.pi / 2) ** 2 for t in range(501)]
    for tau in (1, 100, 250, 499):
        assert float(s.alpha[tau]) ** 2 == pytest.approx(f[tau] / f[0], rel=1e-5)
    assert float(s.alpha[500]) == pytest.approx(1e-4, rel=0.5)


def test_linear_is_ddpm_at_500_steps_and_keeps_its_noise_at_others():
    s = make_schedule("linear", 500)
    assert float(s.b[1]) == pytest.approx(1e-4, rel=1e-2) and float(s.b[500]) == pytest.approx(0.02, rel=1e-4)
    final = [math.log(float(make_schedule("linear", T).alpha[T])) for T in (250, 500, 2000)]
    assert max(final) - min(final) < 0.1 * abs(final[1])


@pytest.mark.parametrize(("name", "power"), [("linear-snr", 1), ("polynomial-snr", 2)])
def test_snr_is_a_power_of_reverse_time(name, power):
    s = make_schedule(name, 201)
    snr = s.snr[1:].flip(0).double()
    assert float(snr[0]) == pytest.approx(1e-3, rel=1e-2) and float(snr[-1]) == pytest.approx(1e3, rel=1e-2)
    middle = 1e-3 + (1e3 - 1e-3) * 0.5**power
    assert float(snr[100]) == pytest.approx(middle, rel=1e-3)


@pytest.mark.parametrize("T", [0, -3, 2.5, True, "ten", None])
def test_bad_length_is_refused(T):
    with pytest.raises(ValueError, match="T must be a whole number ≥ 1"):
        make_schedule("cosine", T)


def test_unknown_name_lists_the_close_ones():
    with pytest.raises(ValueError, match=r"schedule must be one of cosine, .*did you mean cosine"):
        make_schedule("cosin", 10)
