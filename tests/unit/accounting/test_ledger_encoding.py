from __future__ import annotations

from fractions import Fraction

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from stream_dp.accounting import Cost, Dearest, Ledger, decode, encode, encode_cost
from stream_dp.errors import StateError
from tests.support.chosen import examples

AMOUNTS = st.fractions(min_value=0, max_value=10, max_denominator=10**12)
COSTS = st.builds(Cost, AMOUNTS, st.fractions(min_value=0, max_value=1, max_denominator=10**30), AMOUNTS)
NAMED = st.dictionaries(st.text(max_size=8), COSTS, max_size=4)
HALVES = [Cost(Fraction(1, 8 // n), Fraction(0), Fraction(1, 7)) for n in (1, 2)]
LEDGER = Ledger(
    Cost(Fraction(3), Fraction("1e-6"), Fraction(7)),
    spent=Cost(Fraction("0.25"), Fraction("1e-9"), Fraction(1, 7)),
    reserved=Map(b=Cost(Fraction(1, 3), Fraction(0)), a=Cost.ZERO),
    readers={"staff": Cost(Fraction("0.25"), Fraction(0))},
    views={"pages": Cost(Fraction("0.25"), Fraction("1e-9"), Fraction(1, 7))},
    dearest={"pages 0": Dearest(2).raised(Cost.ZERO, HALVES[0]).raised(Cost.ZERO, HALVES[1])},
    last="c",
)


def reservations(ledger: Ledger) -> list[tuple[str, bytes]]:
    return [(call, encode_cost(cost)) for call, cost in ledger.reserved.items()]


@examples(8, 40, given(NAMED, NAMED, NAMED), derandomize=True)
def test_decoding_returns_what_was_encoded(
    views: dict[str, Cost], reserved: dict[str, Cost], readers: dict[str, Cost]
) -> None:
    spent = sum(views.values(), Cost.ZERO)
    budget = sum(reserved.values(), start=spent)
    ledger = Ledger(budget, spent, Map(reserved), readers, views, last="finished before")
    assert decode(encode(ledger), reservations(ledger)) == ledger
    shuffled = Ledger(
        budget, spent, Map(), dict(reversed(readers.items())), dict(reversed(views.items())), last="finished before"
    )
    assert encode(shuffled) == encode(ledger)


def test_the_stored_form_is_fixed() -> None:
    assert msgspec.msgpack.decode(encode(LEDGER)) == [
        1,
        ["3", "1/1000000", "7"],
        ["1/4", "1/1000000000", "1/7"],
        {"staff": ["1/4", "0", "0"]},
        {"pages": ["1/4", "1/1000000000", "1/7"]},
        {"pages 0": [2, [{"1/4": 1, "1/8": 1}, {}, {"1/7": 2}]]},
        "c",
    ]
    assert msgspec.msgpack.decode(encode_cost(LEDGER.spent)) == ["1/4", "1/1000000000", "1/7"]


def test_a_reservation_that_outlived_its_charge_is_not_charged_again() -> None:
    """The charge is a row before the row that ends the reservation; a crash may come between."""
    rows = [*reservations(LEDGER), ("c", encode_cost(Cost(Fraction(1), Fraction(0))))]
    assert decode(encode(LEDGER), rows) == LEDGER


def test_another_version_stops_the_reader_whatever_its_layout() -> None:
    for stored in ([2], [2, "other", {"layout": 1}], [0, *msgspec.msgpack.decode(encode(LEDGER))[1:]]):
        with pytest.raises(StateError, match="reads version 1"):
            decode(msgspec.msgpack.encode(stored))


def test_a_ledger_cut_anywhere_is_never_read_as_a_ledger() -> None:
    data = encode(LEDGER)
    for end in range(len(data)):
        with pytest.raises(StateError, match="cannot be read"):
            decode(data[:end])


@pytest.mark.parametrize("number", ["1/0", "0.5", "-1", "1e99999999", "01", "1\n", " 1", "1/2/3", 1, None])
def test_numbers_that_encode_never_writes_are_refused(number: object) -> None:
    stored = msgspec.msgpack.decode(encode(LEDGER))
    stored[1] = [number, "1", "5", "7"]
    with pytest.raises(StateError, match="cannot be read"):
        decode(msgspec.msgpack.encode(stored))
    with pytest.raises(StateError, match="cannot be read"):
        decode(encode(LEDGER), [("d", msgspec.msgpack.encode([number, "0", "0", "0"]))])


@pytest.mark.parametrize("entry", range(3))
def test_stored_state_that_is_overdrawn_is_refused(entry: int) -> None:
    stored = msgspec.msgpack.decode(encode(LEDGER))
    stored[2][entry] = "8"
    with pytest.raises(StateError, match="its budget is"):
        decode(msgspec.msgpack.encode(stored))
    with pytest.raises(StateError, match="its budget is"):
        decode(encode(LEDGER), [("d", encode_cost(Cost(*(Fraction(8 if at == entry else 0) for at in range(3)))))])
