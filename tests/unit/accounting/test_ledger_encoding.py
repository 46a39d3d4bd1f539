from __future__ import annotations

from fractions import Fraction

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.accounting import Cost, Ledger, decode, encode
from stream_dp.errors import StateError

COSTS = st.builds(
    Cost,
    st.fractions(min_value=0, max_value=10, max_denominator=10**12),
    st.fractions(min_value=0, max_value=1, max_denominator=10**30),
)
NAMED = st.dictionaries(st.text(max_size=8), COSTS, max_size=4)
LEDGER = Ledger(
    Cost(Fraction(3), Fraction("1e-6")),
    spent=Cost(Fraction("0.25"), Fraction("1e-9")),
    reserved={"b": Cost(Fraction(1, 3), Fraction(0)), "a": Cost.ZERO},
    readers={"staff": Cost(Fraction("0.25"), Fraction(0))},
)


@settings(derandomize=True, max_examples=200)
@given(COSTS, NAMED, NAMED)
def test_decoding_returns_what_was_encoded(spent: Cost, reserved: dict[str, Cost], readers: dict[str, Cost]) -> None:
    budget = sum(reserved.values(), start=spent)
    ledger = Ledger(budget, spent, reserved, readers)
    assert decode(encode(ledger)) == ledger
    shuffled = Ledger(budget, spent, dict(reversed(reserved.items())), dict(reversed(readers.items())))
    assert encode(shuffled) == encode(ledger)


def test_the_stored_form_is_fixed() -> None:
    assert msgspec.msgpack.decode(encode(LEDGER)) == [
        1,
        ["3", "1/1000000"],
        ["1/4", "1/1000000000"],
        {"a": ["0", "0"], "b": ["1/3", "0"]},
        {"staff": ["1/4", "0"]},
    ]


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
    stored[1] = [number, "1"]
    with pytest.raises(StateError, match="cannot be read"):
        decode(msgspec.msgpack.encode(stored))


def test_stored_state_that_is_overdrawn_is_refused() -> None:
    stored = msgspec.msgpack.decode(encode(LEDGER))
    stored[2] = ["3", "0"]
    with pytest.raises(StateError, match="its budget is"):
        decode(msgspec.msgpack.encode(stored))
