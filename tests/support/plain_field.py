"""The fields of specs/finite 2.10 bit by bit, and Lagrange's formula; shares no code with the package."""

from __future__ import annotations

from collections.abc import Sequence


class PlainField:
    """The field with 2^(2 * 3^l) elements."""

    def __init__(self, exponent: int) -> None:
        self.degree = 2 * int(3**exponent)
        self.modulus = 1 << self.degree | 1 << self.degree // 2 | 1

    def reduced(self, a: int) -> int:
        while a.bit_length() > self.degree:
            a ^= self.modulus << a.bit_length() - 1 - self.degree
        return a

    def product(self, a: int, b: int) -> int:
        total = 0
        while b:
            total ^= a if b & 1 else 0
            a, b = a << 1, b >> 1
        return self.reduced(total)

    def power(self, a: int, exponent: int) -> int:
        total = 1
        while exponent:
            total = self.product(total, a) if exponent & 1 else total
            a, exponent = self.product(a, a), exponent >> 1
        return total

    def inverse(self, a: int) -> int:
        return self.power(a, (1 << self.degree) - 2)

    def value(self, coefficients: Sequence[int], x: int) -> int:
        total = 0
        for coefficient in reversed(coefficients):
            total = self.product(total, x) ^ coefficient
        return total

    def interpolated(self, points: Sequence[tuple[int, int]]) -> list[int]:
        found = [0] * len(points)
        for x, y in points:
            top, bottom = [1], 1
            for other, _ in points:
                if other == x:
                    continue
                bottom = self.product(bottom, x ^ other)
                top = [self.product(lower, other) ^ upper for lower, upper in zip([*top, 0], [0, *top], strict=True)]
            weight = self.product(y, self.inverse(bottom))
            found = [one ^ self.product(weight, coefficient) for one, coefficient in zip(found, top, strict=True)]
        return found


def is_irreducible(field: PlainField) -> bool:
    """Rabin's test; the prime divisors of 2 * 3^l are 2 and 3."""

    def frobenius(times: int) -> int:
        a = 2
        for _ in range(times):
            a = field.product(a, a)
        return a

    def gcd(a: int, b: int) -> int:
        while b:
            while a.bit_length() >= b.bit_length():
                a ^= b << a.bit_length() - b.bit_length()
            a, b = b, a
        return a

    x = field.reduced(2)
    primes = (2,) if field.degree == 2 else (2, 3)
    return frobenius(field.degree) == x and all(
        gcd(field.modulus, frobenius(field.degree // prime) ^ x) == 1 for prime in primes
    )
