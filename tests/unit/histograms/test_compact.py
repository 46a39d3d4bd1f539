"""The compact histogram: its draw replayed by hand, its lookups, its bytes, and what is public about it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from hashlib import sha256
from typing import Any

import pytest

from stream_dp.errors import ParameterError, StateError
from stream_dp.exact.bits import BitSource, KeyedBits
from stream_dp.histograms.compact import Compact, CompactHistogram
from stream_dp.histograms.counting_queries import Base, ExactGeometric, GeometricTable, RawBits, ceil_log2
from stream_dp.histograms.galois_fields import Field, Polynomial
from tests.support.plain_field import PlainField
from tests.support.tapes import RecordedBits

QUERY = GeometricTable(3, Base.dyadic(1), 2)
COMPACT = Compact(QUERY, rows=5, key_bytes=1, items_per_user=1)
BOUND = QUERY.bound
SHIFT = COMPACT.field.degree - QUERY.bits
READ_AS: dict[int, list[int]] = {}
"""By noisy count, the random integers less one that an absent key would need for it."""
for _u in range(QUERY.draws):
    READ_AS.setdefault(QUERY.sample(0, _u + 1), []).append(_u)


class CountedBits:
    """A stream that counts."""

    def __init__(self, name: bytes) -> None:
        self._bits, self.taken = KeyedBits(b"compact", name), 0

    def bits(self, n: int) -> int:
        self.taken += n
        return self._bits.bits(n)


# The vectors, for queries whose number of draws does not divide the size of the field.


def test_level_sets_are_those_of_the_vectors(vectors: dict[str, Any]) -> None:
    for entry in vectors["empty_bin_sampler"]:
        query = ExactGeometric(entry["n"], Base.dyadic(ceil_log2(2 * entry["inv_eps"])))
        absent = RawBits(query, entry["d0"].bit_length() - 1)
        levels = range(entry["n"] + 1)

        assert (query.draws, absent.draws) == (entry["d"], entry["d0"])
        assert [[absent.cdf(0, v - 1) + 1, absent.cdf(0, v)] for v in levels] == entry["S_v_intervals"]
        assert all(absent.cdf(0, v) * query.draws >= query.cdf(0, v) * absent.draws for v in levels)
        if entry["d0"] == 64:
            inverse = dict.fromkeys(range(1, query.draws + 1), 0)
            for u0 in range(1, 65):  # f of Algorithm 8.5
                q, r = entry["q"], entry["r"]
                inverse[-(-u0 // (q + 1)) if u0 <= r * (q + 1) else -(-(u0 - r) // q)] += 1
                assert absent.sample(0, u0) == next(
                    v for v, (first, last) in enumerate(entry["S_v_intervals"]) if first <= u0 <= last
                )
            assert set(inverse.values()) == {entry["q"], entry["q"] + 1}


def test_traces_of_the_vectors_are_reproduced(vectors: dict[str, Any]) -> None:
    for trace in vectors["trace_compact_histogram"]:
        query = ExactGeometric(trace["n"], Base.dyadic(ceil_log2(2 * trace["inv_eps"])))
        absent, field = RawBits(query, trace["log2_d0"]), Field.with_bits(trace["log2_d0"])
        tape, counts = iter(trace["tape"]), Counter(trace["D"])

        noisy = [[x, query.sample(counts[x], next(tape))] for x in sorted(counts)]
        points = [(x - 1, absent.cdf(0, v - 1) + next(tape) - 1) for x, v in noisy]
        others = [x - 1 for x in range(1, trace["X"] + 1) if x not in counts]
        points += [(x, next(tape) - 1) for x in others[: trace["n"] + 1 - len(points)]]
        coefficients = field.interpolated(points)
        polynomial = Polynomial(field, coefficients)
        lookups = [absent.sample(0, polynomial.value(x) + 1) for x in range(trace["X"])]

        assert noisy == trace["noisy_A"]
        assert [list(point) for point in points] == trace["points_field"]
        assert coefficients == trace["coeffs_low_to_high"]
        assert len(coefficients) == trace["n"] + 1
        assert lookups == trace["counts_1..X"]
        assert all(lookups[x - 1] == v for x, v in noisy)


# The draw, replayed by hand.


def by_hand(compact: Compact, counts: dict[bytes, int], source: BitSource) -> tuple[list[int], dict[bytes, int]]:
    """The coefficients, and the noisy counts of the kept keys; for keys of at most one byte."""
    query, degree = compact.query, compact.field.degree
    salt = source.bits(128).to_bytes(16, "big")
    noise = [source.bits(query.bits) for _ in range(compact.rows)]
    places = [source.bits(compact.place_bits) for _ in range(compact.rows)]
    free = [source.bits(degree) for _ in range(compact.rows + 2)]
    numbers = {key: 1 + (1 + key[0] if key else 0) for key in counts}
    rows = [key for key, count in counts.items() for _ in range(min(count, query.bound))]
    rows.sort(key=lambda key: sha256(salt + b"%x" % numbers[key]).digest())
    kept = Counter(rows[: compact.rows])
    noisy, points = {}, {}
    for at, key in enumerate(sorted(kept, key=numbers.__getitem__)):
        noisy[key] = next(z for z in range(query.bound + 1) if query.cdf(kept[key], z) > noise[at])
        size = len(READ_AS[noisy[key]]) << SHIFT
        points[numbers[key] - 1] = (READ_AS[noisy[key]][0] << SHIFT) + size * places[at] // 2**compact.place_bits
    others = [element for element in range(100) if element not in points]
    for element, value in zip(others[: compact.rows + 2 - len(points)], free, strict=False):
        points[element] = value
    return PlainField(compact.field.exponent).interpolated(list(points.items())), noisy


TABLES: list[dict[bytes, int]] = [
    {},
    {b"": 1},
    {b"a": 4},
    {b"z": 1, b"a": 1, b"": 1, b"\0": 1, b"\xff": 1},
    {b"b": 3, b"a": 0, b"\1": 9},
    {bytes([byte]): 1 + byte % 3 for byte in range(40)},
]


@pytest.mark.parametrize("number", range(len(TABLES)))
def test_a_draw_is_the_one_replayed_by_hand_and_kept_keys_read_as_their_noisy_counts(number: int) -> None:
    for run in range(3):
        name = b"%d %d" % (number, run)

        drawn = COMPACT.draw(TABLES[number], KeyedBits(b"compact", name))

        coefficients, noisy = by_hand(COMPACT, TABLES[number], KeyedBits(b"compact", name))
        assert list(drawn.coefficients) == coefficients
        assert {key: drawn.lookup(key) for key in noisy} == noisy


def test_a_count_beyond_the_largest_takes_the_rows_of_the_largest_only() -> None:
    """Wherever it comes in the order of the keys, which the salt decides."""
    compact, table = replace(COMPACT, rows=BOUND + 2), {b"a": 100, b"b": 1, b"c": 1}
    for run in range(8):
        drawn = compact.draw(table, KeyedBits(b"compact", b"%d" % run))

        coefficients, noisy = by_hand(compact, table, KeyedBits(b"compact", b"%d" % run))
        assert noisy.keys() == table.keys()
        assert list(drawn.coefficients) == coefficients


def test_bits_coefficients_and_bytes_are_as_many_whatever_the_table_is() -> None:
    sizes = set()
    for number, table in enumerate(TABLES):
        source = CountedBits(b"%d" % number)
        drawn = COMPACT.draw(table, source)
        sizes.add((source.taken, len(drawn.coefficients), len(drawn.to_bytes())))

    assert sizes == {(COMPACT.bits, 7, 26 + 7 * 3)}
    assert COMPACT.bits == 128 + 5 * (QUERY.bits + COMPACT.place_bits) + 7 * 18


def test_the_cap_holds_for_more_keys_than_rows_and_for_one_count_above_it() -> None:
    """A polynomial through every key would have as many coefficients as there are keys: that shows the table."""
    crowded = {bytes([byte]): 1 for byte in range(256)}

    assert len(COMPACT.draw(crowded, KeyedBits(b"compact", b"crowded")).coefficients) == 7
    assert len(COMPACT.draw({b"a": 10**9}, KeyedBits(b"compact", b"tall")).coefficients) == 7


def test_keys_that_are_too_long_are_counted_together_and_no_others_with_them() -> None:
    bits = COMPACT.bits + -COMPACT.bits % 8
    tape = KeyedBits(b"compact", b"long").bits(bits).to_bytes(bits // 8, "big")

    drawn = COMPACT.draw({"ab": 1, "cd": 1, "ä": 1}, RecordedBits(tape))

    assert drawn == COMPACT.draw({b"\xff": 3}, RecordedBits(tape))
    assert drawn != COMPACT.draw({b"a": 1, b"c": 1, b"\xff": 1}, RecordedBits(tape))
    assert drawn.lookup("ab") == drawn.lookup("anything") == drawn.lookup(b"\xff")


def test_a_negative_count_is_refused_before_anything_is_drawn() -> None:
    source = CountedBits(b"negative")

    with pytest.raises(StateError, match="-1"):
        COMPACT.draw({"a": 2, "b": -1}, source)

    assert source.taken == 0


# Reading.


def constant(element: int) -> CompactHistogram:
    return CompactHistogram(QUERY.h, QUERY.g, QUERY.base, 1, (element, *[0] * 6))


def test_a_level_set_begins_and_ends_where_the_law_of_an_absent_key_says() -> None:
    """Pitfall 21: an offset by one in the bijection or in a level set is seen at the ends."""
    whole = 1 << COMPACT.field.degree
    for v in range(BOUND + 1):
        first, end = QUERY.cdf(0, v - 1) << SHIFT, QUERY.cdf(0, v) << SHIFT
        read = [constant(element).lookup(b"k") for element in (first, end - 1)]
        assert read == [v, v]
        assert [COMPACT.element(v, place) for place in (0, (1 << COMPACT.place_bits) - 1)] == [first, end - 1]
        assert Fraction(end - first, whole) == Fraction(QUERY.cdf(0, v) - QUERY.cdf(0, v - 1), QUERY.draws)
        if v:
            without_offset = RawBits(QUERY, COMPACT.field.degree).sample(0, first)
            assert without_offset == v - 1


@pytest.mark.parametrize("absent", [(1, 2), (1, 3), (2, 3)])
def test_two_absent_keys_are_independent_of_each_other_and_of_every_kept_key(absent: tuple[int, int]) -> None:
    """GF(4): the two free elements map onto the values at two absent keys, one to one, whatever the kept key got."""
    field, free = Field(0), range(4)

    for kept in range(4):
        polynomials = [
            Polynomial(field, field.interpolated([(0, kept), (1, one), (2, other)])) for one in free for other in free
        ]
        assert len({tuple(polynomial.value(x) for x in absent) for polynomial in polynomials}) == 16


def test_the_mean_of_an_absent_key_is_exact(vectors: dict[str, Any]) -> None:
    law = [Fraction(QUERY.cdf(0, v) - QUERY.cdf(0, v - 1), QUERY.draws) for v in range(BOUND + 1)]
    assert constant(0).absent_mean == sum(v * chance for v, chance in enumerate(law))

    for entry in vectors["clamp_bias_at_zero"][:2]:
        wide = CompactHistogram(10, 40, Base.dyadic(entry["k"]), 1, (0, 0))
        assert abs(wide.absent_mean - Fraction(entry["mean_output_for_c0_n_infinite"])) < Fraction(1, 10**6)


# Bytes.


def test_a_release_survives_its_bytes() -> None:
    drawn = COMPACT.draw({"a": 4}, KeyedBits(b"compact", b"bytes"))

    read = CompactHistogram.from_bytes(drawn.to_bytes())

    assert read == drawn
    assert read.to_bytes() == drawn.to_bytes()
    assert [read.lookup(bytes([byte])) for byte in range(256)] == [drawn.lookup(bytes([byte])) for byte in range(256)]


def test_leading_zeros_are_released_too() -> None:
    """Pitfall 21: without them the length of the release would vary, and it would not read back."""
    release = constant(5)

    assert len(release.to_bytes()) == 26 + 7 * 3
    assert CompactHistogram.from_bytes(release.to_bytes()) == release


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data + b"\0",
        lambda data: b"\2" + data[1:],
        lambda data: data[:21] + b"\3" + data[22:],
        lambda data: data[:26] + b"\4" + data[27:],
        lambda data: data[:22] + bytes(4),
        lambda data: data[:22] + b"\0\0\0\6" + data[26:],
    ],
    ids=["empty", "cut", "longer", "version", "field", "element", "none", "number"],
)
def test_damaged_bytes_are_refused(spoil: Any) -> None:
    with pytest.raises(StateError, match="compact histogram"):
        CompactHistogram.from_bytes(spoil(constant(5).to_bytes()))


def test_bytes_with_an_impossible_noise_are_refused() -> None:
    data = bytearray(constant(5).to_bytes())
    data[4:12] = bytes(8)

    with pytest.raises(ParameterError, match="u"):
        CompactHistogram.from_bytes(bytes(data))


# Parameters.


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"rows": 0}, "rows"),
        ({"rows": 2**14 + 1}, "rows"),
        ({"key_bytes": 0}, "key_bytes"),
        ({"key_bytes": 256}, "key_bytes"),
        ({"items_per_user": 0}, "items_per_user"),
        ({"query": GeometricTable(2, Base(2**70, 2**71), 1)}, "base"),
    ],
)
def test_a_parameter_out_of_range_is_named(changes: dict[str, Any], name: str) -> None:
    good: dict[str, Any] = {"query": QUERY, "rows": 5, "key_bytes": 1, "items_per_user": 1}

    with pytest.raises(ParameterError) as raised:
        Compact(**(good | changes))

    assert [fault.path for fault in raised.value.faults] == [name]


def test_the_field_has_room_for_every_key_and_for_every_random_integer() -> None:
    assert Compact(GeometricTable(16, Base.dyadic(1), 40), 100, 20, 1).field.degree == 162
    assert Compact(GeometricTable(16, Base.dyadic(1), 40), 100, 21, 1).field.degree == 486
    assert Compact(GeometricTable(24, Base.dyadic(1), 60), 100, 4, 1).field.degree == 486


@pytest.mark.parametrize(
    ("offset", "data"),
    [
        (1, b"\xff"),  # counts of 255 bits
        (2, b"\xff\xff"),  # a table of tails that is as long as its bits
        (4, b"\x7f" + b"\xff" * 7 + b"\x80" + b"\x00" * 7),  # a ratio so fine that the table would not end
    ],
)
def test_noise_that_would_fill_the_memory_of_a_reader_is_refused_before_it_is_made(offset: int, data: bytes) -> None:
    spoilt = bytearray(constant(5).to_bytes())
    spoilt[offset : offset + len(data)] = data

    with pytest.raises(StateError, match="noise that no release has"):
        CompactHistogram.from_bytes(bytes(spoilt))


def test_noise_that_readers_would_refuse_is_not_drawn() -> None:
    with pytest.raises(ParameterError, match="base: must have a ratio of at least 1 \\+ 1/1024"):
        Compact(GeometricTable(3, Base(8192, 8193), 8), rows=5, key_bytes=1, items_per_user=1)
