"""Binomial noise by prefix popcount: exact laws of every kernel, one stream read at several levels, vectors."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.accounting.binomial import binomial_epsilon, poisson_epsilon
from stream_dp.errors import StateError
from stream_dp.exact.bits import KeyedBits
from stream_dp.lossless.families.popcount import PrefixPopcount, ones_among_first

F = Fraction
POPCOUNT, BITS = PrefixPopcount(), KeyedBits(b"unused", b"")


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


def test_more_ones_than_bits_are_corrupt_state() -> None:
    with pytest.raises(StateError, match="6 ones are stored for only 5 bits"):
        POPCOUNT.between(3, 2, 9, 7, 4, BITS)
    with pytest.raises(StateError, match="8 ones are stored for only 7 bits"):
        POPCOUNT.sharpen(10, 7, 2, 4, BITS)
