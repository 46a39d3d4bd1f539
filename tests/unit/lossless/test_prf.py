from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from hashlib import sha256
from itertools import islice
from typing import Any

import pytest

from stream_dp.errors import ParameterError
from stream_dp.lossless.levels import noise_parameter, threshold_for
from stream_dp.lossless.sealed import joint_key
from tests.support.laplace_laws import variance
from tests.support.threshold_process import clocks, words


def noise(key: bytes, window: bytes, digest: bytes, item: bytes, ladder: list[int]) -> list[int]:
    plus, minus = (clocks(words(key, window, digest, item, side), ladder) for side in (b"+", b"-"))
    return [up - down for up, down in zip(plus, minus, strict=True)]


def test_vector_x01_words_clocks_and_noise(vector: Callable[[str], Any]) -> None:
    inputs = vector("X01")["inputs"]
    key, window = bytes.fromhex(inputs["K_hex"]), inputs["window"].encode()
    digest = bytes.fromhex(inputs["snapshot_digest_hex"])
    ladder = [threshold_for(Fraction(epsilon)) for epsilon in inputs["eps_levels"]]
    assert ladder == list(map(int, inputs["A"]))

    for row in vector("X01")["expected"]["rows"]:
        item = bytes.fromhex(row["key_hex"])
        first = list(islice(words(key, window, digest, item, b"+"), 4))
        assert first == list(map(int, row["first_words_plus"]))
        assert list(clocks(words(key, window, digest, item, b"+"), ladder)) == row["clock_plus"]
        assert list(clocks(words(key, window, digest, item, b"-"), ladder)) == row["clock_minus"]
        assert noise(key, window, digest, item, ladder) == row["noise"]


def test_vector_x02_another_snapshot_digest_gives_unrelated_noise(vector: Callable[[str], Any]) -> None:
    inputs, x02 = vector("X01")["inputs"], vector("X02")
    ladder = list(map(int, inputs["A"]))
    arguments = bytes.fromhex(inputs["K_hex"]), inputs["window"].encode()
    digest, item = bytes.fromhex(x02["inputs"]["snapshot_digest_hex"]), x02["inputs"]["key"].encode()

    assert noise(*arguments, digest, item, ladder) == x02["expected"]["noise"]


def test_vector_x03_sum_of_squares_over_four_thousand_keys(vector: Callable[[str], Any]) -> None:
    inputs, x03 = vector("X01")["inputs"], vector("X03")
    ladder = list(map(int, inputs["A"]))
    arguments = (
        bytes.fromhex(inputs["K_hex"]),
        inputs["window"].encode(),
        sha256(b"snapshot-1").digest(),
    )
    totals = [0] * len(ladder)
    for i in range(x03["inputs"]["n"]):
        for level, value in enumerate(noise(*arguments, b"k%d" % i, ladder)):
            totals[level] += value * value

    assert totals == x03["expected"]["sum_of_squares"]
    variances = [float(variance(noise_parameter(level))) for level in ladder]
    assert variances == pytest.approx(x03["expected"]["expected_variance"], rel=1e-14)


@pytest.mark.parametrize(
    "fields",
    [(b"ab", b"c"), (b"a", b"bc"), (b"abc",), (b"abc", b""), (b"", b"abc"), ()],
)
def test_streams_of_different_fields_are_unrelated_even_where_they_concatenate_alike(
    fields: tuple[bytes, ...],
) -> None:
    others = {(b"ab", b"c"), (b"a", b"bc"), (b"abc",), (b"abc", b""), (b"", b"abc"), ()} - {fields}
    first = set(islice(words(bytes(32), *fields), 40))

    assert all(first.isdisjoint(islice(words(bytes(32), *other), 40)) for other in others)


def test_a_stream_repeats_for_the_same_key_only() -> None:
    first = list(islice(words(bytes(32), b"field"), 9))

    assert list(islice(words(bytes(32), b"field"), 9)) == first
    assert list(islice(words(b"\x01" * 32, b"field"), 9)) != first


# -- keys of two secrets ----------------------------------------------------------------------------------------------

LASTING, PASSING, NAME = bytes(range(32)), bytes(range(32, 64)), b"view and window"


def term(secret: bytes, number: int, name: bytes = NAME) -> bytes:
    """HMAC-SHA256 as RFC 2104 has it, written anew."""
    pads = [bytes(byte ^ pad for byte in secret.ljust(64, b"\0")) for pad in (0x36, 0x5C)]
    message = b"stream-dp joint key" + len(name).to_bytes(8, "big") + name + bytes([number])
    return sha256(pads[1] + sha256(pads[0] + message).digest()).digest()


def test_a_joint_key_is_the_sum_of_what_each_secret_gives_alone() -> None:
    key = joint_key(LASTING, PASSING, NAME)
    assert key == bytes(a ^ b for a, b in zip(term(LASTING, 0), term(PASSING, 1), strict=True))
    assert joint_key(LASTING, LASTING, NAME) != bytes(32), "the terms of one secret are different ones"


def test_without_one_of_the_secrets_every_joint_key_is_as_likely_as_any_other() -> None:
    """Whatever is known of one term, the other is a one-time pad on it: another secret moves every other key alike."""
    others = [bytes([number]) * 32 for number in range(50)]
    for secret in others:
        moved = int.from_bytes(joint_key(LASTING, secret, NAME)) ^ int.from_bytes(term(secret, 1))
        assert moved.to_bytes(32) == term(LASTING, 0)
    assert len({joint_key(LASTING, secret, NAME) for secret in others}) == len(others)
    assert len({joint_key(secret, PASSING, NAME) for secret in others}) == len(others)
    assert len({joint_key(LASTING, PASSING, b"%d" % number) for number in range(50)}) == len(others)


@pytest.mark.parametrize(("lasting", "passing"), [(b"short", PASSING), (LASTING, b""), (LASTING, bytes(33))])
def test_a_secret_of_another_length_is_refused(lasting: bytes, passing: bytes) -> None:
    with pytest.raises(ParameterError, match="32 bytes"):
        joint_key(lasting, passing, NAME)
