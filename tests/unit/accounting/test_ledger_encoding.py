from __future__ import annotations

from fractions import Fraction
from functools import reduce
from operator import getitem

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rpds import HashTrieMap

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
    reserved=HashTrieMap({"b": Cost(Fraction(1, 3), Fraction(0)), "a": Cost.ZERO}),
    readers={"staff": Cost(Fraction("0.25"), Fraction(0))},
    views={"pages": Cost(Fraction("0.25"), Fraction("1e-9"), Fraction(1, 7))},
    dearest={"pages 0": Dearest(2).raised(Cost.ZERO, HALVES[0]).raised(Cost.ZERO, HALVES[1])},
)


@examples(8, 40, given(NAMED, NAMED, NAMED), derandomize=True)
def test_decoding_returns_what_was_encoded(
    views: dict[str, Cost], reserved: dict[str, Cost], readers: dict[str, Cost]
) -> None:
    spent = sum(views.values(), Cost.ZERO)
    budget = sum(reserved.values(), start=spent)
    ledger = Ledger(budget, spent, HashTrieMap(reserved), readers, views)
    assert decode(encode(ledger)) == ledger
    shuffled = [dict(reversed(one.items())) for one in (reserved, readers, views)]
    assert encode(Ledger(budget, spent, HashTrieMap(shuffled[0]), shuffled[1], shuffled[2])) == encode(ledger)


def test_the_stored_form_is_fixed() -> None:
    assert msgspec.msgpack.decode(encode(LEDGER)) == [
        1,
        ["3", "1/1000000", "7"],
        ["1/4", "1/1000000000", "1/7"],
        {"staff": ["1/4", "0", "0"]},
        {"pages": ["1/4", "1/1000000000", "1/7"]},
        {"pages 0": [2, [{"1/4": 1, "1/8": 1}, {}, {"1/7": 2}]]},
        {"a": ["0", "0", "0"], "b": ["1/3", "0", "0"]},
    ]
    assert msgspec.msgpack.decode(encode_cost(LEDGER.spent)) == ["1/4", "1/1000000000", "1/7"]


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
    for at, damaged in ((1, [number, "1", "5"]), (6, {"d": [number, "0", "0"]})):
        with pytest.raises(StateError, match="cannot be read"):
            decode(msgspec.msgpack.encode([*stored[:at], damaged, *stored[at + 1 :]]))


@pytest.mark.parametrize("entry", range(3))
def test_stored_state_that_is_overdrawn_is_refused(entry: int) -> None:
    for costs in ([2], [6, "a"]):
        stored = msgspec.msgpack.decode(encode(LEDGER))
        reduce(getitem, costs, stored)[entry] = "8"
        with pytest.raises(StateError, match="its budget is"):
            decode(msgspec.msgpack.encode(stored))
