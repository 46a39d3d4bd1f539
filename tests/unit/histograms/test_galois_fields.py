"""Fields of characteristic two: products, inverses, values and interpolation against a bit-by-bit oracle."""

from __future__ import annotations

from itertools import combinations, product
from time import process_time
from typing import Any

import pytest

from stream_dp.errors import ParameterError
from stream_dp.exact.bits import KeyedBits
from stream_dp.histograms.galois_fields import Field, Polynomial
from tests.support.plain_field import PlainField, is_irreducible


def elements(field: Field, number: int, name: str) -> list[int]:
    """Different ones, the same in every run."""
    bits, found = KeyedBits(b"fields", name.encode()), dict[int, None]()
    while len(found) < number:
        found[bits.bits(field.degree)] = None
    return list(found)


def some_points(field: Field, number: int) -> list[tuple[int, int]]:
    values = KeyedBits(b"fields", b"y")
    return [(x, values.bits(field.degree)) for x in elements(field, number, "x")]


def test_the_moduli_are_irreducible_and_of_the_degrees_of_the_vectors(vectors: dict[str, Any]) -> None:
    listed = vectors["fields"]["irreducible"]

    for exponent in range(5):
        field, entry = Field(exponent), listed[str(exponent)]
        assert field.degree == entry["degree"]
        assert entry["poly"] == f"x^{field.degree}+x^{field.degree // 2}+1"
        assert is_irreducible(PlainField(exponent)) is entry["rabin_irreducible"] is True


def test_products_inverses_and_interpolation_are_those_of_the_vectors(vectors: dict[str, Any]) -> None:
    listed = vectors["fields"]
    small, larger = Field(1), Field(2)

    assert [[a, b, small.product(a, b)] for a, b, _ in listed["gf64_mul"]] == listed["gf64_mul"]
    assert [[a, b, larger.product(a, b)] for a, b, _ in listed["gf2_18_mul"]] == listed["gf2_18_mul"]
    asked = [a for a, _ in listed["gf64_inv"]]
    assert list(map(list, zip(asked, small.inverses(asked), strict=True))) == listed["gf64_inv"]
    entry = listed["gf64_interpolate"]
    coefficients = small.interpolated([(x, y) for x, y in entry["points"]])
    assert coefficients == entry["coeffs_low_to_high"]
    assert [Polynomial(small, coefficients).value(x) for x in range(8)] == entry["eval_all_0_7"]


def test_every_product_of_the_field_with_64_elements_is_right() -> None:
    field, plain = Field(1), PlainField(1)

    assert all(field.product(a, b) == plain.product(a, b) for a, b in product(range(64), repeat=2))


@pytest.mark.parametrize("exponent", [0, 2, 3, 4, 5])
def test_products_are_those_of_the_oracle_at_the_ends_and_in_between(exponent: int) -> None:
    field, plain = Field(exponent), PlainField(exponent)
    top = (1 << field.degree) - 1
    some = [0, 1, 2, top, top - 1, 1 << field.degree - 1, *elements(field, min(12, top), "some")]

    assert all(field.product(a, b) == plain.product(a, b) for a, b in product(some, repeat=2))


@pytest.mark.parametrize("exponent", [0, 1, 4])
def test_an_element_times_its_inverse_is_one(exponent: int) -> None:
    field = Field(exponent)
    some = list(range(1, min(1 << field.degree, 64)))

    assert [field.product(a, b) for a, b in zip(some, field.inverses(some), strict=True)] == [1] * len(some)
    assert field.inverses([]) == []


@pytest.mark.parametrize("bits", [1, 2, 3, 6, 7, 162, 163, 486, 487])
def test_the_smallest_field_that_is_large_enough_is_found(bits: int) -> None:
    field = Field.with_bits(bits)

    assert field.degree >= bits
    assert field.exponent == 0 or Field(field.exponent - 1).degree < bits


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 7, 12])
def test_interpolation_is_lagranges(number: int) -> None:
    field, plain = Field(2), PlainField(2)
    points = some_points(field, number)

    assert field.interpolated(points) == plain.interpolated(points)


@pytest.mark.parametrize(("exponent", "number"), [(3, 15), (3, 16), (3, 31), (3, 33), (2, 65), (3, 150), (4, 90)])
def test_a_polynomial_goes_through_its_points_on_both_sides_of_every_threshold(exponent: int, number: int) -> None:
    field, plain = Field(exponent), PlainField(exponent)
    points = some_points(field, number)

    coefficients = field.interpolated(points)

    assert len(coefficients) == number
    assert all(plain.value(coefficients, x) == y for x, y in points[:: max(number // 12, 1)])
    polynomial = Polynomial(field, coefficients)
    assert all(polynomial.value(x) == y for x, y in points)


def test_all_the_points_of_a_small_field_can_be_interpolated() -> None:
    field, plain = Field(1), PlainField(1)
    points = some_points(field, 64)

    coefficients = field.interpolated(points)

    assert all(plain.value(coefficients, x) == y for x, y in points)


def test_leading_coefficients_of_zero_are_kept() -> None:
    field = Field(2)
    places = elements(field, 40, "x")

    assert field.interpolated([(x, 5) for x in places]) == [5] + [0] * 39
    assert field.interpolated([(x, 0) for x in places]) == [0] * 40
    assert field.interpolated([(x, x) for x in places]) == [0, 1] + [0] * 38


@pytest.mark.parametrize("width", [4, 8])
@pytest.mark.parametrize("number", [1, 2, 7, 8, 9, 16, 17, 33, 100])
def test_values_are_those_of_horners_rule(number: int, width: int) -> None:
    field, plain = Field(3), PlainField(3)
    coefficients = elements(field, number, "coefficients")
    polynomial = Polynomial(field, coefficients, width)

    for x in (0, 1, 2, (1 << field.degree) - 1, *elements(field, 3, "x")):
        assert polynomial.value(x) == plain.value(coefficients, x)


@pytest.mark.parametrize("degree", [1, 2])
def test_the_values_of_a_uniform_polynomial_are_independent_at_any_places(degree: int) -> None:
    """GF(4): each combination of values at degree + 1 places belongs to exactly one polynomial."""
    field = Field(0)
    polynomials = list(product(range(4), repeat=degree + 1))

    for places in combinations(range(4), degree + 1):
        seen = {tuple(Polynomial(field, one).value(x) for x in places): one for one in polynomials}
        assert len(seen) == len(polynomials)
        assert all(tuple(field.interpolated(list(zip(places, v, strict=True)))) == p for v, p in seen.items())


def test_a_negative_exponent_is_refused() -> None:
    with pytest.raises(ParameterError, match="exponent"):
        Field(-1)


@pytest.mark.slow
def test_two_thousand_points_take_seconds() -> None:
    field = Field(4)
    points = some_points(field, 2000)
    started = process_time()

    coefficients = field.interpolated(points)

    assert process_time() - started < 20  # 2 s where nothing else runs
    polynomial = Polynomial(field, coefficients)
    assert all(polynomial.value(x) == y for x, y in points)
