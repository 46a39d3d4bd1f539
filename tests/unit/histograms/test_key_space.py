"""Keys and their numbers: shortlex order, and keys that are too long."""

from __future__ import annotations

import pytest

from stream_dp.errors import ParameterError
from stream_dp.histograms.key_space import KeySpace


@pytest.mark.parametrize("max_bytes", [1, 2])
def test_the_numbers_of_all_keys_are_1_to_m_in_shortlex_order(max_bytes: int) -> None:
    space = KeySpace(max_bytes)

    keys = [space.key(index) for index in range(1, space.size + 1)]

    assert space.size == sum(256**length for length in range(max_bytes + 1))
    assert [space.index(key) for key in keys] == list(range(1, space.size + 1))
    assert keys == sorted(keys, key=lambda key: (len(key), key))
    assert keys[0] == b""
    assert keys[-1] == space.too_long == b"\xff" * max_bytes


def test_the_first_and_the_last_key_of_every_length_survive_the_way_there_and_back() -> None:
    space = KeySpace(32)

    for length in range(33):
        for key in (b"\0" * length, b"\xff" * length, bytes(range(length))):
            assert space.key(space.index(key)) == key
        assert space.index(b"\0" * (length + 1)) == min(space.index(b"\xff" * length) + 1, space.size)
    assert space.size.bit_length() == 257


def test_a_leading_zero_byte_makes_another_key() -> None:
    space = KeySpace(4)

    assert len({space.index(b"a"), space.index(b"\0a"), space.index(b"a\0"), space.index(b"\0\0a")}) == 4


def test_a_key_that_is_too_long_counts_as_the_one_key_for_them_and_not_as_its_beginning() -> None:
    space = KeySpace(3)

    assert space.index(b"abcd") == space.index("ä" * 2) == space.index("x" * 1000) == space.size
    assert space.index(b"abc") != space.index(b"abcd")
    assert space.key(space.size) == space.too_long


def test_no_text_that_fits_is_the_key_for_long_ones() -> None:
    space = KeySpace(3)
    characters = (chr(code) for code in range(0x10000))

    assert all(space.index(one) < space.size for one in characters)  # lone surrogates are among them


def test_a_text_is_its_utf_8() -> None:
    space = KeySpace(8)

    assert space.index("Zürich") == space.index("Zürich".encode())
    assert space.index("\ud800") not in {space.index("\ud801"), space.index("?"), space.size}


@pytest.mark.parametrize("max_bytes", [0, -1, True, "3"])
def test_a_universe_without_a_length_is_refused(max_bytes: int) -> None:
    with pytest.raises(ParameterError, match="max_bytes"):
        KeySpace(max_bytes)
