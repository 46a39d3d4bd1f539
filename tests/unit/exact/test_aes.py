from __future__ import annotations

import numpy as np
import pytest

from stream_dp.exact.aes import Aes256

KEY = bytes(range(32))
PLAIN = bytes.fromhex("00112233445566778899aabbccddeeff")
CIPHER = bytes.fromhex("8ea2b7ca516745bfeafc49904b496089")


def test_the_example_of_fips_197() -> None:
    assert Aes256(KEY).block(PLAIN) == CIPHER


def test_many_blocks_are_each_what_the_cipher_gives_for_one() -> None:
    aes = Aes256(KEY)
    blocks = np.arange(2000, dtype=np.uint64).reshape(-1, 2) * np.uint64(0x9E3779B97F4A7C15)
    blocks[0] = np.frombuffer(PLAIN, "<u8")

    values = aes.blocks(blocks)

    assert values.dtype == np.uint64
    assert values.shape == blocks.shape
    assert values[0].tobytes() == CIPHER
    assert [value.tobytes() for value in values] == [aes.block(block.tobytes()) for block in blocks]


def test_blocks_that_do_not_lie_side_by_side_are_read_row_by_row() -> None:
    aes = Aes256(KEY)
    wide = np.arange(40, dtype=np.uint64).reshape(-1, 4)

    assert (aes.blocks(wide[:, 1:3]) == aes.blocks(wide[:, 1:3].copy())).all()


def test_no_blocks_have_no_values() -> None:
    assert Aes256(KEY).blocks(np.empty((0, 2), np.uint64)).shape == (0, 2)


@pytest.mark.parametrize("size", [0, 16, 31, 33])
def test_a_key_of_another_length_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=r"[Kk]ey"):
        Aes256(bytes(size))
