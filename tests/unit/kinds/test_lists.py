"""Public lists of keys, stored and worked out: what is on them, and the number-th key that was not seen."""

from __future__ import annotations

import tracemalloc
from collections.abc import Collection, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stream_dp.kinds.public_lists import LARGEST_NUMBER, KeyList, NumberRange, PublicKeys, unseen

RANGES = st.tuples(st.integers(0, 130), st.integers(0, 40)).map(lambda ends: NumberRange(ends[0], sum(ends)))
LISTS = st.sets(st.text("ab1é", max_size=3), min_size=1, max_size=30).map(KeyList.of)
STRANGE = ["", "0", "00", "01", "007", "-1", "+1", " 1", "1 ", "1.0", "1_0", "1e1", "٣", "²", "x", "9" * 30]


def brute(listed: PublicKeys, seen: Collection[str], numbers: Sequence[int]) -> list[str]:
    left = [key for key in listed if key not in seen]
    return [left[number] for number in numbers]


@given(st.one_of(RANGES, LISTS), st.data())
def test_the_number_th_key_that_was_not_seen_is_that_of_the_list_without_them(
    listed: PublicKeys, data: st.DataObject
) -> None:
    some = st.sampled_from([*listed]) | st.sampled_from(STRANGE) | st.integers(0, 200).map(str)
    seen = data.draw(st.lists(some, max_size=40))
    left = len([key for key in listed if key not in seen])
    numbers = list(range(left))
    for given_as in (seen, set(seen), dict.fromkeys(seen, 1), dict.fromkeys(seen, 1).keys()):
        assert unseen(listed, listed.places(given_as), numbers) == brute(listed, seen, numbers)
    shuffled = data.draw(st.lists(st.sampled_from(numbers), max_size=9)) if numbers else []
    assert unseen(listed, listed.places(seen), shuffled) == brute(listed, seen, shuffled)
    for beyond in (-1, left):
        with pytest.raises(IndexError, match=f"not below {left}"):
            unseen(listed, listed.places(seen), [beyond])


@example(NumberRange(0, 120))
@given(st.one_of(RANGES, LISTS))
def test_what_is_on_a_list_is_what_it_goes_through(listed: PublicKeys) -> None:
    keys = [*listed]
    assert listed.size == len(keys) == len(set(keys))
    assert [listed.key(place) for place in range(listed.size)] == keys
    assert listed.places(keys[::-1]) == list(range(listed.size))
    for key in [*STRANGE, *map(str, range(200)), *keys]:
        assert (key in listed) == (key in keys)
    assert all(other not in listed for other in (1, None, b"1"))


def test_a_range_holds_nothing_for_a_number() -> None:
    tracemalloc.start()
    listed = NumberRange(1, 10**12)
    found = unseen(listed, listed.places(["7", "1", "1000000000000"]), [0, 4, 10**12 - 4])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found == ["2", "6", "999999999999"]
    assert (listed.size, peak < 100_000) == (10**12, True)


def test_many_seen_numbers_are_passed_over() -> None:
    listed = NumberRange(1, 10**12)
    seen = {str(7 * number) for number in range(1, 100_001)}
    numbers = [0, 5, 6, 599_999, 600_000, 10**12 - 10**5 - 1]
    assert unseen(listed, listed.places(seen), numbers) == ["1", "6", "8", "699999", "700001", str(10**12)]


def test_a_range_has_a_version_over_its_ends() -> None:
    ranges = [NumberRange(1, 2), NumberRange(1, 12), NumberRange(11, 2000), NumberRange(1, 12000), NumberRange(0, 2)]
    versions = {*(one.version for one in ranges), KeyList.of(["1", "2"]).version}
    assert len(versions) == len(ranges) + 1
    assert NumberRange(1, 2).version == ranges[0].version
    assert all(len(version) == 16 for version in versions)
    assert str(LARGEST_NUMBER) in NumberRange(LARGEST_NUMBER, LARGEST_NUMBER)
