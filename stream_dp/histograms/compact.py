"""A noisy count for every key of a huge universe, heavy, rare or absent, in one small object; pure.

The release is a polynomial over a finite field. Its value at a key, an element of the field, reads as a noisy count:
the field's elements are cut into level sets S_v, as large as noise on the count 0 makes v likely, so a uniform element
reads as the noisy count of an absent key. The polynomial goes through a random element of the level set of M(c) at each
key with a count c > 0, and through uniform elements at a few others until it is fixed.

Exact law. Let f_c(y) be the probability that a key with count c gets the element y, and f_0 = 1 / d0 with d0 the size
of the field. With N coefficients and the set A of the kept keys, |A| <= N, the values at any N places and the
polynomial determine each other, and N - |A| of the values are uniform. So

    Pr[p] = product over x in A of f_c(x)(p(x)) * d0^-(N - |A|) = d0^-N * product over all x of d0 f_c(x)(p(x)),

whatever places are filled up. The ratio of two tables is a product over the keys whose counts differ. It does not
matter how many keys occur in one of the two tables or the other, as long as neither has more than N.

Price of a key. Let r = w / u be the ratio of the query, P_c(v) = Pr[M(c) = v], and let y in S_v be chosen with
probability (1 + e) / |S_v|, the same for every c > 0. Then f_c / f_(c+1) <= r for c > 0. Between 0 and 1 the error
enters: P_1(v) (1 + e) <= r P_0(v) and P_0(v) <= r (1 + e) P_1(v) are needed, since |S_v| = P_0(v) d0 exactly. The
table of tails leaves room for that. By `table_faults` a tail falls short by t < 2 units of 2^-B (t < 1 if h = 1, where
the table has one tail, rounded once). So a step of the distribution function is off by at most t, at c between 0 and
2 t, and the uniform part makes each inequality without e hold with this much to spare, in units of 2^-R, R = h + g + B:

    (r - 1) 2^B - (2^g - 1) 2^h t (r + 2) >= (r - 1) 2^B (1 - 3/2 t / (2^h + 1)) > (r - 1) 2^B / 4,

as (r + 2) < 3/2 (r + 1), and 2^B (r - 1) >= 2^(g + h) (r + 1) (2^h + 1) by the choice of B. The element of S_v is the
one at floor(|S_v| j / 2^(b + m)) for b + m uniform bits j, where 2^b = d0; so |e| < |S_v| / 2^(b + m) = P_0(v) 2^-m.
That takes at most r 2^(R - m) of the room, and there is enough if 2^m >= 4 r / (r - 1) 2^(h + g) = 4 w / (w - u)
2^(h + g). Hence r per count, exactly: neither the level sets nor the choice in them cost anything.

Price of a user. Of the clamped counts a public number of contributions is kept: the first ones, sorted by key in an
order that no data shape.
A user with L contributions pushes at most L others out, so the kept counts move by at most 2 L together (`truncated`).
Hence r^(2 L) for every order, and for an order that is drawn independently of the data.

Source: specs/finite 2.10 (Balcer and Vadhan 2018, Lemma 8.1, Algorithms 8.2 and 8.5, Theorem 8.3).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from hashlib import sha256
from itertools import islice
from typing import Self

from stream_dp.errors import Fault, StateError
from stream_dp.exact.bits import BitSource
from stream_dp.exact.checks import refuse, whole_faults
from stream_dp.histograms.counting_queries import Base, GeometricTable, RawBits, ceil_log2, mean_absolute
from stream_dp.histograms.galois_fields import Field, Polynomial
from stream_dp.histograms.key_space import KeySpace

_SPARE = 2
"""With one coefficient more than kept contributions an absent key has the law of M(0); with two any two of them are
independent of each other and of all kept keys, so that the errors of sums do not add up in step."""
_SALT_BITS = 128
_HEADER = struct.Struct(">BBHQQBBI")
"""Version, h, g, u, w, key_bytes, exponent of the field, number of coefficients."""
_VERSION = 1
_MOST = {"h": 32, "g": 128, "key_bytes": 255, "rows": 1 << 14}
_BASE_BITS = 64
_FINEST = 1024
"""A ratio of at least 1 + 1/1024 for one count: the table of tails of a finer one would fill the memory of readers."""


def truncated(counts: Mapping[int, int], rows: int, salt: bytes) -> dict[int, int]:
    """Keep the first `rows` contributions of a table of counts, key after key; the last key may keep a part.

    The order is that of SHA-256 of the salt and the key: no key is favoured by its name, and with a salt that is drawn
    after the window nobody can choose names that come first. Any other order that no data shape has the same guarantee.

    Args:
        counts: at least 0, by key.
        rows: contributions to keep.
        salt: of the order; a public constant, or drawn for each release.

    Returns:
        The keys that keep something, with what they keep; `rows` together at most.

    Guarantee: tables that differ by a user with L contributions differ by at most 2 L in the sum of |c_x - c'_x|
    afterwards, and by at most L while neither has more than `rows`. Proof. Sorted, the second table is the first with
    at most L elements inserted. Each one that comes to stand among the first `rows` pushes out at most one.
    Source: specs/finite, pitfalls 18 and 19.
    """
    left, kept = rows, {}
    for key in sorted(counts, key=lambda key: (sha256(salt + f"{key:x}".encode()).digest(), key)):
        if take := min(counts[key], left):
            kept[key] = take
            left -= take
    return kept


def _is_read(base: Base) -> bool:
    return (base.w - base.u) * _FINEST >= base.u


def _element_field(query: GeometricTable, keys: KeySpace) -> Field:
    """The field of a release: an element for every key, and for every random integer of the query."""
    return Field.with_bits(max(ceil_log2(keys.size), query.bits))


@dataclass(frozen=True)
class Compact:
    """Public parameters of a compact histogram, and its draw.

    Neighbouring tables differ by one user, who moves at most `items_per_user` counts by one each.

    Attributes:
        query: noise of one count; counts are clamped to its bound.
        rows: contributions that are kept of the clamped counts (`truncated`).
        key_bytes: length of the longest keys (`KeySpace`).
        items_per_user: bound on the counts one user moves.

    Raises:
        ParameterError: a parameter is out of range; every fault is listed with its name.

    Guarantee: no release is more likely than `ratio` times its probability on a neighbouring table; ln(`ratio`)-DP,
    pure. Source: specs/finite 2.10.
    """

    query: GeometricTable
    rows: int
    key_bytes: int
    items_per_user: int

    def __post_init__(self) -> None:
        refuse(whole_faults(rows=self.rows, key_bytes=self.key_bytes, items_per_user=self.items_per_user))
        given = {"h": self.query.h, "g": self.query.g, "key_bytes": self.key_bytes, "rows": self.rows}
        faults = [
            Fault(name, f"must be at most {_MOST[name]}, not {value}")
            for name, value in given.items()
            if value > _MOST[name]
        ]
        if not _is_read(self.query.base):
            faults.append(Fault("base", f"must have a ratio of at least 1 + 1/{_FINEST}"))
        if self.query.base.w >> _BASE_BITS:
            faults.append(Fault("base", f"must be of integers below 2^{_BASE_BITS}, not {self.query.base}"))
        refuse(faults)

    @cached_property
    def keys(self) -> KeySpace:
        """The universe."""
        return KeySpace(self.key_bytes)

    @cached_property
    def field(self) -> Field:
        """The field of the coefficients; key number x is its element x - 1."""
        return _element_field(self.query, self.keys)

    @cached_property
    def ratio(self) -> Fraction:
        """The price of a release for one user, exact."""
        return self.query.ratio ** (2 * self.items_per_user)

    @property
    def coefficients(self) -> int:
        """Coefficients of a release, whatever the data."""
        return self.rows + _SPARE

    @cached_property
    def place_bits(self) -> int:
        """Bits that choose an element of a level set: enough that the choice costs nothing."""
        base = self.query.base
        return self.field.degree + self.query.h + self.query.g + ceil_log2(-(-4 * base.w // (base.w - base.u)))

    @property
    def bits(self) -> int:
        """Random bits of a draw, whatever the data."""
        return _SALT_BITS + self.rows * (self.query.bits + self.place_bits) + self.coefficients * self.field.degree

    @property
    def table_bytes(self) -> int:
        """Bytes of a release (`CompactHistogram.to_bytes`), whatever the data."""
        return _HEADER.size + self.coefficients * -(-self.field.degree // 8)

    @cached_property
    def _absent(self) -> RawBits:
        return RawBits(self.query, self.field.degree)

    def element(self, noisy: int, place: int) -> int:
        """Return the element of a level set at a place.

        Args:
            noisy: the count that the element shall read as.
            place: in 0..2^`place_bits` - 1.
        """
        start = self._absent.cdf(0, noisy - 1)
        return start + ((self._absent.cdf(0, noisy) - start) * place >> self.place_bits)

    def draw(self, counts: Mapping[bytes, int] | Mapping[str, int], source: BitSource) -> CompactHistogram:
        """Draw a release.

        Args:
            counts: at least 0, of any keys; a key that is too long counts as `keys.too_long`.
            source: of uniform bits; takes exactly `bits`: a salt, the noise of `rows` keys, their places, and
                `coefficients` free elements. Kept keys use them from the front, in their own order.

        Raises:
            StateError: a count is negative; nothing has been drawn.

        Guarantee: `ratio`, pure. The time depends a little on the data: publish at a fixed instant.
        Time: that of `Field.interpolated` for `coefficients` points.
        """
        if min(counts.values(), default=0) < 0:
            raise StateError(f"a count must be at least 0, not {min(counts.values())}")
        table: dict[int, int] = {}
        for key, number in counts.items():
            index = self.keys.index(key)
            table[index] = table.get(index, 0) + number
        salt = source.bits(_SALT_BITS).to_bytes(_SALT_BITS // 8, "big")
        noise = [source.bits(self.query.bits) for _ in range(self.rows)]
        places = [source.bits(self.place_bits) for _ in range(self.rows)]
        free = [source.bits(self.field.degree) for _ in range(self.coefficients)]
        clamped = {index: min(number, self.query.bound) for index, number in table.items()}
        kept = sorted(truncated(clamped, self.rows, salt).items())
        padded = [number for _, number in kept] + [0] * (self.rows - len(kept))
        noisy = [self.query.sample(number, u + 1) for number, u in zip(padded, noise, strict=True)]
        elements = [self.element(count, place) for count, place in zip(noisy, places, strict=True)]
        points = [(index - 1, element) for (index, _), element in zip(kept, elements, strict=False)]
        taken = {element for element, _ in points}
        others = (element for element in range(self.rows + self.coefficients) if element not in taken)
        points += islice(zip(others, free, strict=False), self.coefficients - len(points))
        coefficients = tuple(self.field.interpolated(points))
        return CompactHistogram(self.query.h, self.query.g, self.query.base, self.key_bytes, coefficients)


@dataclass(frozen=True)
class CompactHistogram:
    """A release: a noisy count for every key.

    A key that nobody has reads as noise around 0 cut off below, whose mean is `absent_mean`: subtract it for each key
    before adding counts up. Two such keys are independent, three may not be.

    Attributes:
        h: bits of a count.
        g: a count is uniform with probability 2^-g.
        base: of the noise.
        key_bytes: length of the longest keys.
        coefficients: of the polynomial, from the constant term up.
    """

    h: int
    g: int
    base: Base
    key_bytes: int
    coefficients: tuple[int, ...]

    @cached_property
    def _query(self) -> GeometricTable:
        return GeometricTable(self.h, self.base, self.g)

    @cached_property
    def _keys(self) -> KeySpace:
        return KeySpace(self.key_bytes)

    @cached_property
    def _field(self) -> Field:
        return _element_field(self._query, self._keys)

    @cached_property
    def _polynomial(self) -> Polynomial:
        return Polynomial(self._field, self.coefficients)

    @cached_property
    def absent_mean(self) -> Fraction:
        """The mean of a lookup of a key that nobody has, exact."""
        return mean_absolute(self._query, 0)

    def lookup(self, key: bytes | str) -> int:
        """Return the noisy count of a key, in 0..2^h - 1; the same answer every time.

        Time: that of `Polynomial.value`; the first lookup prepares tables.
        """
        element = self._polynomial.value(self._keys.index(key) - 1)
        return RawBits(self._query, self._field.degree).sample(0, element + 1)

    def to_bytes(self) -> bytes:
        """Return the release as bytes: a header and the coefficients, each of the same width; big endian."""
        base, size = self.base, self._size(self._field)
        header = (_VERSION, self.h, self.g, base.u, base.w, self.key_bytes, self._field.exponent)
        coefficients = (coefficient.to_bytes(size, "big") for coefficient in self.coefficients)
        return b"".join((_HEADER.pack(*header, len(self.coefficients)), *coefficients))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the release that `to_bytes` wrote.

        Raises:
            StateError: the bytes are cut off or of another version, or contradict each other.
            ParameterError: a parameter of the noise is out of range.
        """
        if len(data) < _HEADER.size or data[0] != _VERSION:
            raise StateError(
                f"no compact histogram of version {_VERSION}: it has {len(data)} bytes, first {data[:1]!r}"
            )
        _, h, g, u, w, key_bytes, exponent, number = _HEADER.unpack_from(data)
        if any(value > _MOST[name] for name, value in (("h", h), ("g", g))) or not _is_read(Base(u, w)):
            raise StateError("a compact histogram has noise that no release has")
        read = cls(h, g, Base(u, w), key_bytes, ())
        field, size, body = read._field, cls._size(read._field), data[_HEADER.size :]
        coefficients = tuple(int.from_bytes(body[at : at + size], "big") for at in range(0, len(body), size))
        if field.exponent != exponent or len(body) != number * size or not number or max(coefficients) >> field.degree:
            raise StateError(f"a compact histogram of {number} coefficients is damaged: {len(body)} bytes follow")
        return cls(h, g, read.base, key_bytes, coefficients)

    @staticmethod
    def _size(field: Field) -> int:
        """Bytes of a coefficient."""
        return -(-field.degree // 8)
