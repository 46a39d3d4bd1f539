from __future__ import annotations

import os

import pytest

from stream_dp.errors import StateError
from stream_dp.exact.bits import BitSource, KeyedBits, SystemBits, system_entropy
from tests.support.tapes import RecordedBits


def test_recorded_bits_are_read_most_significant_first_across_bytes() -> None:
    source = RecordedBits(bytes([0b1011_0001, 0b0111_1110]))

    assert [source.bits(n) for n in (1, 2, 0, 7, 6)] == [0b1, 0b01, 0, 0b1000101, 0b111110]


def test_recorded_bits_refuse_to_run_past_the_end_and_use_nothing() -> None:
    source = RecordedBits(b"\xa5")
    source.bits(3)

    with pytest.raises(StateError, match="5 bits left, 6 were asked"):
        source.bits(6)
    assert source.bits(5) == 0b00101


def test_keyed_bits_do_not_depend_on_the_sizes_they_are_read_in() -> None:
    whole = KeyedBits(b"key", b"draw 1").bits(1200)
    pieces = KeyedBits(b"key", b"draw 1")

    value = 0
    for n in (0, 1, 255, 3, 700, 241):
        value = value << n | pieces.bits(n)
    assert value == whole


def test_keyed_bits_repeat_for_the_same_context_and_differ_for_another() -> None:
    first = KeyedBits(b"key", b"draw 1").bits(256)

    assert KeyedBits(b"key", b"draw 1").bits(256) == first
    assert KeyedBits(b"key", b"draw 2").bits(256) != first
    assert KeyedBits(b"other", b"draw 1").bits(256) != first


def counting_urandom(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Make os.urandom return successive 2-byte counters; gives the list of the sizes it was asked for."""
    sizes: list[int] = []
    handed_out = 0

    def urandom(size: int) -> bytes:
        nonlocal handed_out
        sizes.append(size)
        assert size % 2 == 0
        numbers = range(handed_out, handed_out + size // 2)
        handed_out += size // 2
        return b"".join(number.to_bytes(2, "big") for number in numbers)

    monkeypatch.setattr(os, "urandom", urandom)
    return sizes


def test_system_bits_hand_out_every_byte_of_a_block_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = counting_urandom(monkeypatch)
    source = SystemBits()

    assert [source.bits(16) for _ in range(3000)] == list(range(3000))
    assert sizes == [4096, 4096]


def test_system_bits_serve_requests_larger_than_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = counting_urandom(monkeypatch)

    value = SystemBits().bits(8 * 5000)

    assert value == int.from_bytes(b"".join(number.to_bytes(2, "big") for number in range(2500)), "big")
    assert sizes == [5000]


def test_system_bits_drop_the_surplus_of_a_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "urandom", lambda size: b"\xff" * size)
    source = SystemBits()

    assert [source.bits(n) for n in (0, 1, 3, 11)] == [0, 1, 7, 2**11 - 1]


def test_system_bits_wipe_what_was_used() -> None:
    source = SystemBits()
    source.bits(512)

    assert source._block[:64] == bytes(64)
    assert source._block[64:] != bytes(4096 - 64)


def test_a_forked_child_does_not_repeat_the_bits_of_its_parent() -> None:
    source = SystemBits()
    source.bits(8)  # both processes now hold the same block
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover - runs in the child
        os.write(write_end, source.bits(256).to_bytes(32, "big"))
        os._exit(0)
    os.waitpid(child, 0)

    assert int.from_bytes(os.read(read_end, 32), "big") != source.bits(256)
    os.close(read_end)
    os.close(write_end)


def test_production_entropy_is_fresh_even_for_the_same_context() -> None:
    first: BitSource = system_entropy(b"draw 1")

    assert first.bits(256) != system_entropy(b"draw 1").bits(256)
