"""Poisson, Skellam, popcount and negative binomial noise: exact laws of every kernel, vectors, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.accounting.binomial import binomial_epsilon, poisson_epsilon
from stream_dp.errors import ParameterError, StateError
from stream_dp.exact import coins
from stream_dp.exact.bits import BitSource, KeyedBits
from stream_dp.exact.laws import poisson_pmf
from stream_dp.lossless.families import skellam
from stream_dp.lossless.families.negative_binomial import NegativeBinomial, agent_share
from stream_dp.lossless.families.poisson import Poisson, points_below
from stream_dp.lossless.families.popcount import PrefixPopcount, ones_among_first
from stream_dp.lossless.families.skellam import Skellam
from stream_dp.lossless.families.two_clocks import clock_between_pmf, clock_bridge_pmf, clock_pmf, clock_sharpen_pmf
from stream_dp.lossless.kernels import Sides

F = Fraction
PRECISION = 160
POISSON, SKELLAM, POPCOUNT = Poisson(), Skellam(), PrefixPopcount()
BITS = KeyedBits(b"unused", b"")


def real(enclosure: tuple[int, int]) -> tuple[Fraction, Fraction]:
    return F(enclosure[0], 1 << PRECISION), F(enclosure[1], 1 << PRECISION)


def middle(enclosure: tuple[int, int]) -> float:
    return float(F(sum(enclosure), 2 << PRECISION))


# --------------------------------------------------------------------------------------------------------- Poisson
def test_vector_p01_between_is_binomial(every_number: Callable[..., Any], vector: Callable[[str], Any]) -> None:
    p01 = vector("P01")
    coarse, new, fine = (F(p01["inputs"][f"lambda_{name}"]) for name in ("coarse", "new", "fine"))
    y_coarse, y_fine = int(F(p01["inputs"]["Y_coarse"])), int(F(p01["inputs"]["Y_fine"]))
    expected = list(map(F, p01["expected"]["pmf_W1"]))
    n = p01["expected"]["N"]

    law = every_number(lambda bits: POISSON.between(y_fine, fine, y_coarse, coarse, new, bits) - y_fine)

    assert n == y_coarse - y_fine
    assert [POISSON.between_pmf(fine, new, coarse, n, w) for w in range(n + 1)] == expected
    assert law.agrees_with(expected.__getitem__, range(n + 1))
    assert law.missing == 0


def test_vector_p02_sharpen_is_binomial(every_number: Callable[..., Any], vector: Callable[[str], Any]) -> None:
    p02 = vector("P02")
    old, new, z = F(p02["inputs"]["lambda_old"]), F(p02["inputs"]["lambda_new"]), p02["inputs"]["z_old"]
    expected = list(map(F, p02["expected"]["pmf"]))

    law = every_number(lambda bits: POISSON.sharpen(100 + z, old, 100, new, bits) - 100)

    assert [POISSON.sharpen_pmf(old, new, z, w) for w in range(z + 1)] == expected
    assert law.agrees_with(expected.__getitem__, range(z + 1))
    assert law.missing == 0


def test_vector_p03_coarsen_adds_a_poisson_number(
    monkeypatch: pytest.MonkeyPatch, vector: Callable[[str], Any]
) -> None:
    p03 = vector("P03")
    fine, new = F(p03["inputs"]["lambda_fine"]), F(p03["inputs"]["lambda_new"])
    monkeypatch.setattr(coins, "poisson", lambda rate, bits: f"Poisson({rate})")

    class Shown(int):
        def __add__(self, law: object) -> str:  # type: ignore[override]
            return f"Y_fine + {law}"

    assert POISSON.coarsen(Shown(), fine, new, BITS) == p03["expected"]["law"]


def test_fresh_and_coarser_poisson_noise_has_its_law(every_number: Callable[..., Any]) -> None:
    fine, coarse = F(1, 3), F(4, 3)
    fresh = every_number(lambda bits: POISSON.fresh(fine, bits))
    coarsened = every_number(lambda bits: POISSON.coarsen(3, fine, coarse, bits) - 3)

    assert fresh.agrees_with(lambda k: real(POISSON.pmf(fine, k, PRECISION)), range(8))
    assert coarsened.agrees_with(lambda k: real(POISSON.bridge_pmf(fine, coarse, k, PRECISION)), range(8))
    assert max(fresh.missing, coarsened.missing) < F(1, 10**5)


def test_poisson_probabilities_compose_along_a_ladder() -> None:
    fine, mid, coarse = F(1, 2), F(4, 3), F(3)
    for z, k in product(range(4), range(6)):
        w_total = sum(POISSON.between_pmf(fine, mid, coarse, k, w) for w in range(k + 1))
        assert w_total == 1
        summed = sum(
            middle(POISSON.pmf(fine, z - w, PRECISION)) * middle(POISSON.bridge_pmf(fine, mid, w, PRECISION))
            for w in range(z + 1)
        )
        assert summed == pytest.approx(middle(POISSON.pmf(mid, z, PRECISION)), rel=1e-12)
    assert poisson_pmf(F(2), -1, PRECISION) == (0, 0)
    low, high = poisson_pmf(F(40), 40, PRECISION)
    assert 0 < high - low <= 2


@pytest.mark.parametrize("thresholds", [(3 << 62, 1 << 62), (1 << 63,)])
def test_points_read_from_one_stream_have_the_joint_law_of_the_levels(
    every_number: Callable[..., Any], thresholds: tuple[int, ...]
) -> None:
    """Marks of two random bits; each level read on its own stream gives the same number again."""

    class TwoBitMarks:
        def __init__(self, source: Any) -> None:
            self.source = source

        def choose(self, weights: list[Fraction]) -> int:
            return int(self.source.choose(weights))

        def bits(self, n: int) -> int:
            return int(self.source.bits(2)) << (n - 2)

    most = F(1)

    def run(bits: Any) -> tuple[int, ...]:
        return points_below(most, thresholds, TwoBitMarks(bits))

    law = every_number(run, F(1, 10**5))

    def joint(found: tuple[int, ...]) -> tuple[Fraction, Fraction]:
        rates = [most * F(t, 1 << 64) for t in thresholds]
        low, high = real(poisson_pmf(rates[-1], found[-1], PRECISION))
        if len(rates) == 2:
            step = real(poisson_pmf(rates[0] - rates[1], found[0] - found[1], PRECISION))
            low, high = low * step[0], high * step[1]
        return low, high

    assert law.agrees_with(joint)
    assert law.missing < F(1, 50)


def test_points_of_a_stream_do_not_depend_on_what_is_asked_together() -> None:
    levels = [1 << 60, 1 << 63, (1 << 64) - 1]
    for window in range(20):
        context = b"%d" % window
        together = points_below(F(30), levels, KeyedBits(b"key", context))
        alone = tuple(points_below(F(30), [level], KeyedBits(b"key", context))[0] for level in levels)
        assert together == alone
        assert list(together) == sorted(together)


def test_the_mean_to_subtract_is_the_rate() -> None:
    assert POISSON.mean(F(7, 2)) == F(7, 2)
    assert Poisson(F(1, 2)).mean(F(7)) == F(7, 2)


# --------------------------------------------------------------------------------------------------------- Skellam
def test_vector_s01_between_is_two_independent_binomials(
    every_number: Callable[..., Any], vector: Callable[[str], Any]
) -> None:
    s01 = vector("S01")
    fine, new, coarse = (F(s01["inputs"][f"var_{name}"]) for name in ("fine", "new", "coarse"))
    plus, minus = s01["inputs"]["plus_half_difference"], s01["inputs"]["minus_half_difference"]
    expected_plus, expected_minus = (list(map(F, s01["expected"][f"pmf_{side}"])) for side in ("plus", "minus"))
    start, end = Sides(20, 5), Sides(20 + plus, 5 + minus)

    law = every_number(lambda bits: SKELLAM.between(start, fine, end, coarse, new, bits))

    assert law.agrees_with(
        lambda sides: expected_plus[sides.plus - 20] * expected_minus[sides.minus - 5],
        [Sides(20 + w, 5 + v) for w in range(plus + 1) for v in range(minus + 1)],
    )
    assert law.missing == 0
    assert (new - fine) / (coarse - fine) == F(s01["expected"]["p"])


def test_vector_s02_probabilities(vector: Callable[[str], Any]) -> None:
    s02 = vector("S02")
    for variance, expected in s02["expected"]["pmf_k0_to_4"].items():
        for k, probability in enumerate(expected):
            low, high = skellam.pmf(F(variance), k, PRECISION)
            assert 0 <= high - low <= 4
            assert middle((low, high)) == pytest.approx(probability, abs=s02["tolerance"])
            assert skellam.pmf(F(variance), -k, PRECISION) == (low, high)


def test_skellam_noise_is_closed_under_its_bridge() -> None:
    for k in range(-3, 4):
        total = sum(
            middle(skellam.pmf(F(4), j, PRECISION)) * middle(skellam.pmf(F(2), k - j, PRECISION))
            for j in range(-40, 41)
        )
        assert total == pytest.approx(middle(skellam.pmf(F(6), k, PRECISION)), rel=1e-12)


def test_skellam_halves_have_half_the_variance_as_their_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Fraction] = []

    def poisson(rate: Fraction, bits: BitSource) -> int:
        asked.append(rate)
        return 1

    monkeypatch.setattr(coins, "poisson", poisson)

    noise = SKELLAM.fresh(F(5), BITS)
    coarser = SKELLAM.coarsen(noise + 7, F(5), F(8), BITS)

    assert asked == [F(5, 2), F(5, 2), F(3, 2), F(3, 2)]
    assert (noise, coarser) == (Sides(1, 1), Sides(9, 2))
    assert int(coarser) == 7
    assert SKELLAM.variance(F(5)) == 5


def test_small_skellam_noise_has_its_law(every_number: Callable[..., Any]) -> None:
    law = every_number(lambda bits: int(SKELLAM.fresh(F(2), bits)))

    assert law.agrees_with(lambda k: real(skellam.pmf(F(2), k, PRECISION)), range(-4, 5))
    assert law.missing < F(1, 10**4)


# -------------------------------------------------------------------------------------------------------- popcount
def test_vector_b01_between_is_hypergeometric(vector: Callable[[str], Any]) -> None:
    b01 = vector("B01")
    fine, new, coarse = (b01["inputs"][f"bits_{name}"] for name in ("fine", "new", "coarse"))
    k = b01["inputs"]["ones_between_fine_and_coarse"]
    expected = list(map(F, b01["expected"]["pmf_ones_between_fine_and_new"]))

    assert [POPCOUNT.between_pmf(fine, new, coarse, k, w) for w in range(len(expected))] == expected
    assert sum(expected) == 1


def test_vector_b03_rare_coins_cost_what_poisson_noise_does(vector: Callable[[str], Any]) -> None:
    """Theorem E.1 tends to Theorem E.2, as Bin(N, p) does to Poi(N p)."""
    b03 = vector("B03")
    coins_thrown, p = b03["inputs"]["N"], F(str(b03["inputs"]["p"]))
    dimensions, delta = b03["inputs"]["d"], F(str(b03["inputs"]["delta"]))
    epsilon = binomial_epsilon(coins_thrown, p, dimensions, delta)
    limit = poisson_epsilon(coins_thrown * p, dimensions, delta)

    assert float(epsilon) == pytest.approx(b03["expected"]["eps"], rel=1e-9)
    assert float(epsilon) == pytest.approx(float(limit), rel=b03["tolerance"])


def test_every_kernel_of_popcount_noise_has_its_law_without_remainder(every_coin: Callable[..., Any]) -> None:
    fine, mid, coarse = 2, 4, 7
    fresh = every_coin(lambda bits: POPCOUNT.fresh(mid, bits))
    coarsened = every_coin(lambda bits: POPCOUNT.coarsen(10, fine, coarse, bits) - 10)

    assert fresh.missing == coarsened.missing == 0
    assert fresh.agrees_with(lambda k: POPCOUNT.pmf(mid, k), range(mid + 1))
    assert coarsened.agrees_with(lambda k: POPCOUNT.bridge_pmf(fine, coarse, k), range(coarse - fine + 1))
    for ones in range(6):
        law = every_coin(lambda bits, n=ones: POPCOUNT.between(3, fine, 3 + n, coarse, mid, bits) - 3)
        assert law.missing == 0
        assert law.agrees_with(lambda w, n=ones: POPCOUNT.between_pmf(fine, mid, coarse, n, w), range(3))
    for ones in range(8):
        law = every_coin(lambda bits, n=ones: POPCOUNT.sharpen(9 + n, coarse, 9, mid, bits) - 9)
        assert law.missing == 0
        assert law.agrees_with(lambda w, n=ones: POPCOUNT.sharpen_pmf(coarse, mid, n, w), range(5))


def test_ones_of_one_stream_have_the_joint_law_of_the_levels(every_coin: Callable[..., Any]) -> None:
    law = every_coin(lambda bits: ones_among_first((6, 2, 5), bits))

    assert law.missing == 0
    assert law.agrees_with(
        lambda n: (
            POPCOUNT.pmf(2, n[1]) * POPCOUNT.bridge_pmf(2, 5, n[2] - n[1]) * POPCOUNT.bridge_pmf(5, 6, n[0] - n[2])
        )
    )


@given(levels=st.lists(st.integers(1, 400), min_size=1, max_size=5), window=st.binary(max_size=4))
@settings(derandomize=True, max_examples=100, deadline=None)
def test_ones_of_a_stream_do_not_depend_on_what_is_asked_together(levels: list[int], window: bytes) -> None:
    together = ones_among_first(levels, KeyedBits(b"key", window))

    assert together == tuple(ones_among_first([level], KeyedBits(b"key", window))[0] for level in levels)


def test_the_mean_of_popcount_noise_is_half_its_bits() -> None:
    assert POPCOUNT.mean(7) == F(7, 2)


# ----------------------------------------------------------------------------------------------- negative binomial
FINE, MID, COARSE = F(1, 5), F(1, 3), F(1, 2)
QUARTER, WHOLE = NegativeBinomial(F(1, 4)), NegativeBinomial(F(1))


def test_vector_n01_bridge_of_a_quarter_share(vector: Callable[[str], Any]) -> None:
    n01 = vector("N01")
    fine, coarse, share = MID, COARSE, F(n01["inputs"]["r"])
    assert [float(fine), float(coarse)] == [n01["inputs"]["a_fine"], n01["inputs"]["a_coarse"]]
    family = NegativeBinomial(share)
    bridge = [real(family.bridge_pmf(fine, coarse, k, PRECISION)) for k in range(6)]

    assert [float(low) for low, _ in bridge] == pytest.approx(n01["expected"]["bridge_pmf_0_to_5"], abs=1e-14)
    # Panjer's recursion of a compound Poisson law with clusters of size j at rate share (coarse^j - fine^j) / j.
    rates = [share * (coarse**j - fine**j) / j for j in range(1, 6)]
    assert [float(rate) for rate in rates[:4]] == pytest.approx(
        n01["expected"]["compound_poisson_rates_j1_to_4"], abs=1e-14
    )
    for k in range(1, 6):
        low, high = (sum(j * rates[j - 1] * bridge[k - j][end] for j in range(1, k + 1)) / k for end in (0, 1))
        assert low <= bridge[k][1]
        assert bridge[k][0] <= high


def test_four_quarter_shares_sum_to_the_clock_and_its_bridge() -> None:
    for laws, whole in (
        ([middle(QUARTER.bridge_pmf(MID, COARSE, k, PRECISION)) for k in range(12)], clock_bridge_pmf),
        ([middle(QUARTER.pmf(COARSE, k, PRECISION)) for k in range(12)], None),
    ):
        for k in range(12):
            total = sum(
                laws[i] * laws[j] * laws[m] * laws[k - i - j - m]
                for i, j, m in product(range(k + 1), repeat=3)
                if i + j + m <= k
            )
            expected = clock_pmf(COARSE, k) if whole is None else whole(MID, COARSE, k)
            assert total == pytest.approx(float(expected), rel=1e-12)


def test_a_whole_share_is_a_geometric_clock() -> None:
    for k in range(6):
        for w in range(k + 1):
            assert WHOLE.between_pmf(FINE, MID, COARSE, k, w) == clock_between_pmf(FINE, MID, COARSE, k, w)
            assert WHOLE.sharpen_pmf(COARSE, MID, k, w) == clock_sharpen_pmf(COARSE, MID, k, w)
        assert real(WHOLE.pmf(MID, k, PRECISION))[0] <= clock_pmf(MID, k) <= real(WHOLE.pmf(MID, k, PRECISION))[1]


@pytest.mark.parametrize("share", [F(1, 4), F(2, 3), F(1)])
def test_shares_have_their_law(every_coin: Callable[..., Any], share: Fraction) -> None:
    family = NegativeBinomial(share)
    fresh = every_coin(lambda bits: family.fresh(MID, bits), F(1, 10**7))
    coarsened = every_coin(lambda bits: family.coarsen(2, FINE, MID, bits) - 2, F(1, 10**7))

    assert fresh.agrees_with(lambda k: real(family.pmf(MID, k, PRECISION)), range(10))
    assert coarsened.agrees_with(lambda k: real(family.bridge_pmf(FINE, MID, k, PRECISION)), range(10))
    assert max(fresh.missing, coarsened.missing) < F(1, 1000)
    assert family.bridge_pmf(FINE, MID, -1, PRECISION) == (0, 0)


@pytest.mark.parametrize("share", [F(1, 4), F(1)])
@pytest.mark.parametrize("k", range(5))
def test_kernels_of_shares_have_their_rational_laws(every_coin: Callable[..., Any], share: Fraction, k: int) -> None:
    family = NegativeBinomial(share)
    between = every_coin(lambda bits: family.between(1, FINE, 1 + k, COARSE, MID, bits) - 1)
    sharpen = every_coin(lambda bits: family.sharpen(5 + k, COARSE, 5, MID, bits) - 5)

    assert between.missing == sharpen.missing == 0
    assert between.agrees_with(lambda w: family.between_pmf(FINE, MID, COARSE, k, w), range(k + 1))
    assert sharpen.agrees_with(lambda w: family.sharpen_pmf(COARSE, MID, k, w), range(k + 1))
    # By definition: the joint law of the two increments, over that of their sum.
    for w in range(k + 1):
        first, second, both = (
            middle(family.bridge_pmf(a, b, n, PRECISION))
            for a, b, n in ((FINE, MID, w), (MID, COARSE, k - w), (FINE, COARSE, k))
        )
        assert first * second / both == pytest.approx(float(family.between_pmf(FINE, MID, COARSE, k, w)), rel=1e-12)


def test_an_agents_share_has_two_sides() -> None:
    family = agent_share(3)
    noise = family.fresh(COARSE, KeyedBits(b"agent", b"1"))

    assert family.side == NegativeBinomial(F(1, 3))
    assert int(noise + 5) == 5 + noise.plus - noise.minus


# -------------------------------------------------------------------------------------------------------- refusals
def test_a_coarser_reading_below_the_finer_one_is_corrupt_state() -> None:
    with pytest.raises(StateError, match="below the finer one"):
        POISSON.between(25, F(4), 20, F(10), F(6), BITS)
    with pytest.raises(StateError, match="below the finer one"):
        POISSON.sharpen(6, F(6), 7, F(4), BITS)
    with pytest.raises(StateError, match="below the finer one"):
        SKELLAM.between(Sides(3, 3), F(4), Sides(4, 2), F(10), F(6), BITS)
    with pytest.raises(StateError, match="below the finer one"):
        QUARTER.between(3, FINE, 2, COARSE, MID, BITS)
    with pytest.raises(StateError, match="below the finer one"):
        POPCOUNT.between(3, 2, 2, 7, 4, BITS)


def test_more_ones_than_bits_are_corrupt_state() -> None:
    with pytest.raises(StateError, match="6 ones are stored for only 5 bits"):
        POPCOUNT.between(3, 2, 9, 7, 4, BITS)
    with pytest.raises(StateError, match="8 ones are stored for only 7 bits"):
        POPCOUNT.sharpen(10, 7, 2, 4, BITS)


@pytest.mark.parametrize(
    ("family", "levels"),
    [
        (POISSON, (F(1), F(2), F(3))),
        (SKELLAM, (F(1), F(2), F(3))),
        (POPCOUNT, (1, 2, 3)),
        (QUARTER, (FINE, MID, COARSE)),
    ],
)
def test_levels_in_the_wrong_order_are_refused(family: Any, levels: tuple[Any, Any, Any]) -> None:
    fine, mid, coarse = levels
    zero = family.zero
    for wrong in ((mid, fine, coarse), (fine, coarse, mid), (coarse, mid, fine)):
        with pytest.raises(ParameterError, match="must be finer than"):
            family.between(zero, wrong[0], zero, wrong[2], wrong[1], BITS)
    with pytest.raises(ParameterError, match="must be finer than"):
        family.coarsen(zero, coarse, fine, BITS)
    with pytest.raises(ParameterError, match="must be finer than"):
        family.sharpen(zero, fine, 0, coarse, BITS)


def test_what_is_no_level_is_refused() -> None:
    for refused in (
        lambda: POISSON.fresh(F(0), BITS),
        lambda: SKELLAM.fresh(F(-1), BITS),
        lambda: POPCOUNT.fresh(0, BITS),
        lambda: ones_among_first([3, 0], BITS),
        lambda: points_below(F(1), [0], BITS),
        lambda: QUARTER.fresh(F(1), BITS),
        lambda: NegativeBinomial(F(0)),
        lambda: NegativeBinomial(F(5, 4)),
        lambda: agent_share(0),
    ):
        with pytest.raises(ParameterError):
            refused()
