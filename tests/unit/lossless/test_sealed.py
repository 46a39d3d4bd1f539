"""Sealed tables: what is drawn, what is stored of it, and that a level always reads the same."""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.errors import ParameterError, StateError
from stream_dp.exact.bits import KeyedBits
from stream_dp.kinds.sealing import Pruning
from stream_dp.lossless.bulk import bulk_noise, bulk_step
from stream_dp.lossless.gaussian import bulk_gaussian
from stream_dp.lossless.levels import WORD, threshold_for
from stream_dp.lossless.sealed import (
    WindowNoise,
    gaussian_excess,
    laplace_excess,
    lock,
    read_levels,
    seal,
    snapshot_digest,
)
from tests.support.readings import DIGEST, NOISE, read_rows_lmr1, rows_of
from tests.support.tapes import RecordedBits

FOLDER = Path(__file__).parents[2] / "vectors"
VECTORS: dict[str, Any] = json.loads((FOLDER / "lmr4.json").read_text())
LADDER = [threshold_for(Fraction(epsilon)) for epsilon in ("1/10", "1/4", "1/2", "1", "2")]
FINEST = LADDER[-1]
KEY = NOISE.prf_key


def read(
    fine: Mapping[bytes, int], thresholds: Sequence[int], *, key: bytes, window: bytes, digest: bytes, finest: int
) -> dict[bytes, tuple[int, ...]]:
    return read_rows_lmr1(fine, prf_key=key, window=window, digest=digest, thresholds=thresholds, finest=finest)


# ------------------------------------------------------------------------------------------------------------- seal
def test_sealing_adds_the_noise_that_its_bits_give_to_the_counts_in_their_order() -> None:
    tape = bytes(range(32))
    noise = bulk_noise(FINEST, 3, RecordedBits(tape)).tolist()

    sealed = seal(np.array([20, 0, 7]), FINEST, RecordedBits(tape))

    assert sealed.tolist() == [20 + noise[0], noise[1], 7 + noise[2]]
    assert any(noise)


def test_sealing_an_empty_table_gives_an_empty_one() -> None:
    assert not len(seal(np.array([], np.int64), FINEST, KeyedBits(KEY, b"draw")))


def test_sealing_without_enough_bits_for_a_key_is_refused() -> None:
    with pytest.raises(StateError, match="tape has 248 bits left"):
        seal(np.array([1]), WORD // 2, RecordedBits(bytes(31)))


@pytest.mark.parametrize("finest", [0, WORD])
def test_sealing_without_noise_or_with_endless_noise_is_refused(finest: int) -> None:
    with pytest.raises(ParameterError, match="a level must be"):
        seal(np.array([1]), finest, RecordedBits(bytes(32)))


# ------------------------------------------------------------------------------------- vectors of specs/lossless: LMR1
def test_vector_x04_releases_of_a_sealed_value(vector: Callable[[str], Any]) -> None:
    inputs, x04 = vector("X01")["inputs"], vector("X04")
    ladder = list(map(int, inputs["A"]))

    table = read(
        {x04["inputs"]["key"].encode(): x04["inputs"]["Y_fine"]},
        ladder,
        key=bytes.fromhex(inputs["K_hex"]),
        window=inputs["window"].encode(),
        digest=bytes.fromhex(inputs["snapshot_digest_hex"]),
        finest=ladder[-1],
    )

    assert table == {b"alpha": tuple(x04["expected"]["releases"])}


def test_vector_x01_excess_over_the_finest_level(vector: Callable[[str], Any]) -> None:
    inputs, rows = vector("X01")["inputs"], vector("X01")["expected"]["rows"]
    ladder = list(map(int, inputs["A"]))

    table = read(
        {bytes.fromhex(row["key_hex"]): 0 for row in rows},
        ladder,
        key=bytes.fromhex(inputs["K_hex"]),
        window=inputs["window"].encode(),
        digest=bytes.fromhex(inputs["snapshot_digest_hex"]),
        finest=ladder[-1],
    )

    assert {item.hex(): list(values) for item, values in table.items()} == {
        row["key_hex"]: row["excess_over_finest"] for row in rows
    }


# ----------------------------------------------------------------------------------- what coarser levels have beyond
def test_the_excess_of_a_level_is_the_sum_of_the_steps_from_the_finest_to_it() -> None:
    tape = bytes(range(256))
    bits = RecordedBits(tape)
    steps = [bulk_step(fine, coarse, 50, bits) for fine, coarse in zip(LADDER[:0:-1], LADDER[-2::-1], strict=True)]

    excess = laplace_excess(LADDER, 50, RecordedBits(tape))

    assert excess.shape == (50, 4)
    for level in range(4):
        assert excess[:, level].tolist() == np.sum(steps[: 4 - level], axis=0).tolist()
    assert all(step.any() for step in steps)


def test_the_gaussian_excess_of_a_level_is_the_sum_of_the_steps_from_the_finest_to_it() -> None:
    variances = [Fraction(2), Fraction(30)]
    bits = RecordedBits(bytes(range(64)))
    first, second = (bulk_gaussian(variance, 50, bits) for variance in variances)

    excess = gaussian_excess(variances, 50, RecordedBits(bytes(range(64))))

    assert excess[:, 1].tolist() == first.tolist()
    assert excess[:, 0].tolist() == (first + second).tolist()


def test_one_level_has_nothing_beyond_it_and_nothing_is_stored_for_it() -> None:
    excess = laplace_excess([FINEST], 3, RecordedBits(b""))

    assert excess.shape == (3, 0)
    assert lock(excess, NOISE, DIGEST) == b""
    assert read_levels([1, 2, 3], b"", NOISE, DIGEST, levels=[0, 0], finest=0) == [[1, 2, 3]] * 2


def test_levels_from_fine_to_coarse_are_refused() -> None:
    with pytest.raises(ParameterError, match="is not finer than"):
        laplace_excess(LADDER[::-1], 3, KeyedBits(KEY, b"draw"))


# --------------------------------------------------------------------------------------------------- lock and read
def test_the_vectors_are_what_their_script_makes(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(FOLDER / "make_lmr4.py"), run_name="__main__")

    assert json.loads(capsys.readouterr().out) == VECTORS


def test_the_ladder_of_the_vectors_belongs_to_its_epsilons() -> None:
    assert [threshold_for(Fraction(epsilon)) for epsilon in VECTORS["epsilons"]] == VECTORS["ladder"]


def test_the_excess_of_the_vectors_is_locked_and_read() -> None:
    noise = WindowNoise(bytes.fromhex(VECTORS["window_hex"]), bytes.fromhex(VECTORS["key_hex"]))
    digest = bytes.fromhex(VECTORS["digest_hex"])
    for row in VECTORS["locked"]:
        excess, locked = np.array(row["excess"], np.int64), bytes.fromhex(row["hex"])
        assert lock(excess, noise, digest) == locked
        zeros, finest = [0] * len(excess), excess.shape[1]
        columns = read_levels(zeros, locked, noise, digest, levels=range(finest), finest=finest)
        assert columns == excess.T.tolist()


NUMBERS = st.integers(-130, 130) | st.integers(-(2**62), 2**62)


@st.composite
def stored(draw: st.DrawFn) -> tuple[list[int], list[list[int]], int]:
    """The values of some keys, for each what some coarser levels have beyond, and how many these are."""
    keys, coarser = draw(st.integers(0, 20)), draw(st.integers(1, 4))
    row = st.lists(NUMBERS, min_size=coarser, max_size=coarser)
    values = draw(st.lists(st.integers(-(2**60), 2**60), min_size=keys, max_size=keys))
    return values, draw(st.lists(row, min_size=keys, max_size=keys)), coarser


@given(table=stored(), asked=st.lists(st.integers(0, 4), max_size=6))
@settings(derandomize=True, max_examples=200, deadline=None)
def test_every_level_reads_as_it_was_drawn_whatever_is_asked_with_it_and_again(
    table: tuple[list[int], list[list[int]], int], asked: list[int]
) -> None:
    values, rows, finest = table
    locked = lock(np.array(rows, np.int64).reshape(len(values), finest), NOISE, DIGEST)
    levels = [level % (finest + 1) for level in asked]
    drawn = [[value + row[at] for value, row in zip(values, rows, strict=True)] for at in range(finest)] + [values]

    for _ in range(2):
        assert read_levels(values, locked, NOISE, DIGEST, levels=levels, finest=finest) == [drawn[at] for at in levels]


def test_each_number_takes_as_many_bytes_as_the_largest() -> None:
    for largest, width in ((0, 1), (127, 1), (128, 2), (32_767, 2), (32_768, 4), (1 << 31, 8)):
        for number in (largest, -largest):
            excess = np.array([[0, 0], [number, 0], [0, 0]])
            locked = lock(excess, NOISE, DIGEST)
            assert len(locked) == 6 * width
            assert read_levels([0] * 3, locked, NOISE, DIGEST, levels=[0], finest=2) == [[0, number, 0]]


FINE = {b"%d" % i: i % 30 - 10 for i in range(3000)}


def drawn(**asked: Any) -> dict[bytes, tuple[int, ...]]:
    return rows_of(FINE, LADDER, KeyedBits(KEY, b"excess"), **asked)


def test_the_finest_level_is_the_sealed_value_and_the_data_only_shift_the_coarser_ones() -> None:
    whole = drawn()
    zeros = rows_of(dict.fromkeys(FINE, 0), LADDER, KeyedBits(KEY, b"excess"))

    assert {key: row[-1] for key, row in whole.items()} == FINE
    for key, row in whole.items():
        assert [reading - FINE[key] for reading in row] == list(zeros[key])


OTHERS = [
    pytest.param(WindowNoise(NOISE.name, bytes(32)), DIGEST, id="key"),
    pytest.param(WindowNoise(NOISE.name + b"2", NOISE.prf_key), DIGEST, id="window"),
    pytest.param(NOISE, bytes(32), id="digest"),
    pytest.param(WindowNoise(NOISE.name + DIGEST[:1], NOISE.prf_key), DIGEST[1:] + DIGEST[:1], id="moved"),
]


@pytest.mark.parametrize(("noise", "digest"), OTHERS)
def test_another_key_window_or_digest_has_a_mask_of_its_own(noise: WindowNoise, digest: bytes) -> None:
    """What is locked with one and read with the other is moved by both masks, whose bits are half ones."""
    excess = np.zeros((4000, 2), np.int64)
    masks = [int.from_bytes(lock(excess, *those)) for those in ((NOISE, DIGEST), (noise, digest))]

    for mask in (*masks, masks[0] ^ masks[1]):
        assert abs(mask.bit_count() - 32_000) < 6 * 126.5, "six standard deviations"


@pytest.mark.parametrize("locked", [b"", bytes(5), bytes(7), bytes(18), bytes(60)])
def test_bytes_that_are_not_of_so_many_keys_and_levels_are_refused(locked: bytes) -> None:
    """Above all where nothing is stored: the finest level would be read in place of a coarser one."""
    with pytest.raises(StateError, match=f"{len(locked)} bytes are not 6 numbers"):
        read_levels([1, 2, 3], locked, NOISE, DIGEST, levels=[0], finest=2)


@pytest.mark.parametrize(
    ("key", "digest", "error"),
    [
        (bytes(16), bytes(32), (ParameterError, "must have 32 bytes, not 16")),
        (bytes(32), bytes(31), (StateError, "has 32 bytes, not 31")),
    ],
)
def test_a_key_or_digest_of_another_length_is_refused(
    key: bytes, digest: bytes, error: tuple[type[Exception], str]
) -> None:
    noise = WindowNoise(name=b"release", prf_key=key)
    with pytest.raises(error[0], match=error[1]):
        lock(np.zeros((1, 1), np.int64), noise, digest)
    with pytest.raises(error[0], match=error[1]):
        read_levels([1], b"1", noise, digest, levels=[0], finest=1)


# ------------------------------------------------------------------------------------------------------------- prune
LEAST = [30, 22, 19, 18, 18]


def test_pruning_keeps_exactly_the_keys_that_some_level_shows() -> None:
    whole = drawn()

    kept = drawn(least=LEAST)

    shown = [{key for key, row in whole.items() if row[level] >= least} for level, least in enumerate(LEAST)]
    assert list(kept) == [key for key in FINE if any(key in level for level in shown)]
    for keys in shown:  # every level of the ladder contributes keys, so none of them can have been left out
        assert keys - set().union(*(other for other in shown if other is not keys))


def test_a_key_that_is_kept_reads_as_it_would_with_all_others_at_every_level_and_set_of_levels() -> None:
    whole = drawn()

    for asked in ([0], [3, 1], [4], [0, 1, 2, 3, 4], [2, 2]):
        for least in (LEAST, [40] * 5, [-(10**6)] * 5):
            kept = drawn(least=least, asked=asked)
            assert kept == {key: tuple(whole[key][level] for level in asked) for key in kept}
            assert len(kept) > 50


def test_pruning_shows_a_key_that_just_reaches_its_minimum_and_what_is_known() -> None:
    excess = np.array([[-3, 1], [5, 0], [-5, -5], [0, 0]])
    values = np.array([4, 4, 4, 9])

    assert Pruning([9, 9, 9]).kept(values, excess).tolist() == [1, 3]
    assert Pruning([10, 5, 10]).kept(values, excess).tolist() == [0, 3]
    assert Pruning([10, 10, 10]).kept(values, excess).tolist() == []
    assert Pruning([10, 10, 10], known=2).kept(values, excess).tolist() == [0, 1]


# --------------------------------------------------------------------------------------------------- snapshot_digest
def digest_of(counts: dict[bytes, int], salt: bytes) -> bytes:
    return snapshot_digest([*counts], [*counts.values()], salt)


def test_the_digest_is_that_of_lengths_keys_and_counts_behind_the_salt_however_many_there_are() -> None:
    counts = {b"%06d" % number: number % 7 for number in range(40_000)}
    rows = b"".join((6).to_bytes(8) + key + count.to_bytes(8) for key, count in counts.items())

    assert digest_of(counts, bytes(32)) == sha256(b"stream-dp snapshot" + bytes(32) + rows).digest()


@pytest.mark.parametrize(
    "other",
    [{b"a": 1}, {b"a": 1, b"b": 3}, {b"a": 2, b"b": 2}, {b"a": 1, b"c": 2}, {b"a": 1, b"b": 2, b"": 0}, {}],
)
def test_another_table_has_another_digest(other: dict[bytes, int]) -> None:
    assert digest_of(other, bytes(32)) != digest_of({b"a": 1, b"b": 2}, bytes(32))


def test_keys_and_counts_cannot_be_shifted_into_one_another() -> None:
    one = {b"a": 1, b"b": 5}
    glued = {b"a" + (1).to_bytes(8) + b"b": 5}  # the same bytes but for the length prefixes

    assert digest_of(one, bytes(32)) != digest_of(glued, bytes(32))


def test_without_the_salt_a_guess_of_the_counts_cannot_be_confirmed() -> None:
    counts = {b"a": 1}

    assert digest_of(counts, bytes(32)) != digest_of(counts, b"\x01" * 32)


@pytest.mark.parametrize("salt", [b"", bytes(31), bytes(33)])
def test_a_salt_of_the_wrong_length_is_refused(salt: bytes) -> None:
    with pytest.raises(ParameterError, match="must have 32 bytes"):
        digest_of({b"a": 1}, salt)
