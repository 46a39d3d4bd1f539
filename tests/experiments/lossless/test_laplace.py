from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from experiments.lossless.kernels import FloatArray
from experiments.lossless.laplace import (
    Laplace,
    bridge_atom,
    convolution_density,
    sharpened,
    sharpened_density,
    stay_probability,
)
from stream_dp.errors import ParameterError

Vectors = Callable[[str], Any]
FAMILY = Laplace()


def single(x: float) -> FloatArray:
    return np.array([x])


def integral(f: Callable[[FloatArray], FloatArray], *corners: float) -> float:
    """Over the line, by Gauss-Legendre panels that end at the corners of the integrand."""
    points, weights = np.polynomial.legendre.leggauss(40)
    edges = [-400.0, *np.linspace(-40, 40, 41), 400.0, *corners]
    total = 0.0
    for start, end in zip(sorted(edges), sorted(edges)[1:], strict=False):
        half = (end - start) / 2
        total += half * float(f(start + half * (points + 1)) @ weights)
    return total


def test_vector_l01_bridge(analysis_vector: Vectors) -> None:
    l01 = analysis_vector("L01")
    fine, coarse = Fraction(l01["inputs"]["b_fine"]), Fraction(l01["inputs"]["b_coarse"])

    assert bridge_atom(fine, coarse) == Fraction(l01["expected"]["atom_at_zero"])
    assert l01["expected"]["otherwise"] == f"Lap(0, {coarse})"


@pytest.mark.parametrize("x", [0.0, 0.7, -3.0])
def test_fine_noise_and_its_bridge_add_up_to_coarse_noise(x: float) -> None:
    fine, coarse = 1.0, 4.0
    atom = bridge_atom(fine, coarse)
    added = atom * FAMILY.density(fine, single(x)) + (1 - atom) * convolution_density(fine, coarse, single(x))

    assert added == pytest.approx(FAMILY.density(coarse, single(x)), rel=1e-14, abs=0)


def test_a_bridge_of_the_fine_scale_would_be_wrong() -> None:
    """The mutant of specs/lossless 5, no. 11."""
    atom = bridge_atom(1.0, 4.0)
    added = atom * FAMILY.density(1.0, single(0)) + (1 - atom) * convolution_density(1.0, 1.0, single(0))

    assert added != pytest.approx(FAMILY.density(4.0, single(0)), rel=0.1, abs=0)


def test_vector_l02_density_of_a_sum(analysis_vector: Vectors) -> None:
    l02 = analysis_vector("L02")
    one, other = l02["inputs"]["b_a"], l02["inputs"]["b_b"]
    x = np.array(l02["inputs"]["t"], dtype=np.float64)

    assert convolution_density(one, other, x) == pytest.approx(l02["expected"]["density"], rel=1e-14, abs=0)
    assert convolution_density(other, one, x) == pytest.approx(l02["expected"]["density"], rel=1e-14, abs=0)


def test_the_density_of_a_sum_keeps_its_accuracy_for_close_scales() -> None:
    """Where the scales meet it is (1 + t) e^-t / 4; the printed quotient is 0 / 0 there and noise nearby."""
    x = np.array([0.0, 1.0, -5.0])
    equal = (1 + np.abs(x)) * np.exp(-np.abs(x)) / 4

    assert convolution_density(1.0, 1.0, x) == pytest.approx(equal, rel=1e-15, abs=0)
    assert convolution_density(1.0, 1.0 + 1e-12, x) == pytest.approx(equal, rel=1e-11, abs=0)
    assert integral(lambda t: convolution_density(1.0, 2.5, t), 0.0) == pytest.approx(1, rel=1e-12, abs=0)


def test_vector_l03_sharpening(analysis_vector: Vectors) -> None:
    l03 = analysis_vector("L03")
    coarse, scale, z = l03["inputs"]["b_old"], l03["inputs"]["b_new"], l03["inputs"]["z_old"]
    masses = l03["expected"]["else_piece_masses"]
    for noise in (z, -z):
        law = sharpened(single(noise), coarse, scale)
        assert law.keep == pytest.approx(l03["expected"]["prob_keep"], rel=1e-14, abs=0)
        assert law.below == pytest.approx(masses["w_below_0"], rel=1e-14, abs=0)
        assert law.middle == pytest.approx(masses["w_0_to_z"], rel=1e-14, abs=0)
        assert law.above == pytest.approx(masses["w_above_z"], rel=1e-14, abs=0)


@pytest.mark.parametrize("z", [3.0, -0.5, 0.0])
def test_the_pieces_are_the_areas_of_the_density(z: float) -> None:
    coarse, scale = 4.0, 2.0
    law = sharpened(single(z), coarse, scale)
    beyond_zero = -1 if z >= 0 else 1

    def area(where: Callable[[FloatArray], FloatArray | NDArray[np.bool_]]) -> float:
        return integral(lambda w: where(w) * sharpened_density(w, single(z), coarse, scale), 0.0, z)

    rest = 1 - float(law.keep[0])
    assert area(np.ones_like) == pytest.approx(rest, rel=1e-12, abs=0)
    assert area(lambda w: beyond_zero * w > 0) == pytest.approx(rest * float(law.below[0]), rel=1e-12, abs=0)
    assert area(lambda w: beyond_zero * (z - w) > 0) == pytest.approx(rest * float(law.above[0]), rel=1e-12, abs=0)


def test_sharpening_turns_coarse_noise_into_fine_noise() -> None:
    coarse, scale = 4.0, 2.0

    def moved_to(w: float) -> float:
        return integral(lambda z: FAMILY.density(coarse, z) * sharpened_density(single(w), z, coarse, scale), 0.0, w)

    for w in (0.0, 1.5, -3.0):
        kept = sharpened(single(w), coarse, scale).keep * FAMILY.density(coarse, single(w))
        assert kept + moved_to(w) == pytest.approx(FAMILY.density(scale, single(w)), rel=1e-12, abs=0)


def test_sharpening_far_tails_does_not_underflow() -> None:
    law = sharpened(single(1e5), 4.0, 2.0)

    assert law.keep == 0
    assert float(law.below[0] + law.middle[0] + law.above[0]) == pytest.approx(1, abs=1e-15)
    assert np.isfinite(FAMILY.sharpen(single(1e5), 4.0, single(0), 2.0, np.random.default_rng(1))).all()


def between(fine: float, scale: float, coarse: float, k: float) -> tuple[float, float, float]:
    """Lemma F.5 from the bridges: the new release equals the fine one, the coarse one, neither."""
    p_fine, p_coarse = bridge_atom(fine, scale), bridge_atom(scale, coarse)
    at_fine = p_fine * (1 - p_coarse) * FAMILY.density(coarse, single(k))
    at_coarse = (1 - p_fine) * p_coarse * FAMILY.density(scale, single(k))
    neither = (1 - p_fine) * (1 - p_coarse) * convolution_density(scale, coarse, single(k))
    total = at_fine + at_coarse + neither
    return float((at_fine / total)[0]), float((at_coarse / total)[0]), float((neither / total)[0])


def test_vector_l04_in_between_is_staying_or_sharpening_the_difference(analysis_vector: Vectors) -> None:
    l04 = analysis_vector("L04")
    fine, scale, coarse, k = (l04["inputs"][name] for name in ("b_fine", "b_new", "b_coarse", "k"))
    wanted = [l04["expected"][f"prob_{name}"] for name in ("equal_fine", "equal_coarse", "strict_mixture")]
    stay = stay_probability(fine, scale, coarse)
    keep = float(sharpened(single(k), coarse, scale).keep[0])

    assert between(fine, scale, coarse, k) == pytest.approx(wanted, rel=1e-14, abs=0)
    assert [stay, (1 - stay) * keep, (1 - stay) * (1 - keep)] == pytest.approx(wanted, rel=1e-14, abs=0)
    assert stay_probability(Fraction(fine), Fraction(scale), Fraction(coarse)) == Fraction(
        l04["expected"]["prob_equal_fine_closed"]
    )


def test_equal_neighbours_leave_nothing_between() -> None:
    value = np.full(1000, 0.1)
    inserted = FAMILY.between(value, 1.0, value, 4.0, 2.0, np.random.default_rng(1))

    assert (inserted == value).all()


def printed_between(fine: float, scale: float, coarse: float, k: FloatArray) -> list[FloatArray]:
    """Lemma F.5 as printed: the continuous parts attached to the wrong scales."""
    p_coarse, p_fine = bridge_atom(scale, coarse), bridge_atom(fine, scale)
    parts = [
        p_coarse * (1 - p_fine) * FAMILY.density(fine, k),
        (1 - p_coarse) * p_fine * FAMILY.density(scale, k),
        (1 - p_coarse) * (1 - p_fine) * convolution_density(scale, fine, k),
    ]
    return [part / sum(parts) for part in parts]


def test_vector_l05_the_printed_lemma_f5_gives_the_wrong_atom(analysis_vector: Vectors) -> None:
    l05 = analysis_vector("L05")
    fine, scale, coarse, k = (float(l05["inputs"][name]) for name in ("b_fine", "b_new", "b_coarse", "k"))
    both = bridge_atom(fine, coarse)

    def overall(at_fine: Callable[[FloatArray], FloatArray]) -> float:
        return both + (1 - both) * integral(lambda t: at_fine(t) * FAMILY.density(coarse, t), 0.0)

    printed = overall(lambda t: printed_between(fine, scale, coarse, t)[0])
    corrected = overall(lambda t: np.full_like(t, stay_probability(fine, scale, coarse)))
    assert [float(part[0]) for part in printed_between(fine, scale, coarse, single(k))] == pytest.approx(
        l05["expected"]["printed_probs"], rel=1e-9
    )
    assert printed == pytest.approx(l05["expected"]["printed_overall_P_W1_zero"], rel=1e-9, abs=0)  # 3/16
    assert corrected == pytest.approx(
        float(Fraction(l05["expected"]["required_overall_P_W1_zero"])), rel=1e-9, abs=0
    )  # 1/4
    assert corrected == pytest.approx(bridge_atom(fine, scale), rel=1e-9, abs=0)


@pytest.mark.parametrize(
    "call",
    [
        lambda rng: FAMILY.sharpen(single(1), 2.0, single(0), 2.0, rng),
        lambda rng: FAMILY.coarsen(single(1), 2.0, 1.0, rng),
        lambda rng: FAMILY.between(single(1), 2.0, single(1), 4.0, 1.0, rng),
        lambda rng: FAMILY.between(single(1), 1.0, single(1), 4.0, 5.0, rng),
    ],
)
def test_scales_in_the_wrong_order_are_refused(call: Callable[[np.random.Generator], FloatArray]) -> None:
    with pytest.raises(ParameterError, match="sharpens to a smaller scale"):
        call(np.random.default_rng(1))
