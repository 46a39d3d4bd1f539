from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.errors import ParameterError, StateError
from stream_dp.exact.bits import KeyedBits
from stream_dp.lossless.bulk import bulk_noise
from stream_dp.lossless.levels import WORD, threshold_for
from stream_dp.lossless.sealed import WindowNoise, read_gaussian, seal, snapshot_digest
from tests.support.readings import pruned, read_rows, read_rows_lmr1
from tests.support.tapes import RecordedBits

LADDER = [threshold_for(Fraction(epsilon)) for epsilon in ("1/10", "1/4", "1/2", "1", "2")]
FINEST = LADDER[-1]
KEY, WINDOW, DIGEST = bytes(range(32)), b"view\x00 window", bytes(reversed(range(32)))

LEVELS = st.lists(st.integers(min_value=FINEST, max_value=LADDER[0]) | st.sampled_from(LADDER), max_size=5)
Construction = Callable[..., dict[bytes, tuple[int, ...]]]
LMR3, LMR1 = read_rows, read_rows_lmr1
BOTH = st.sampled_from([LMR1, LMR3])
both = pytest.mark.parametrize("construction", [LMR1, LMR3], ids=["LMR1", "LMR3"])
TABLES = st.dictionaries(st.binary(max_size=20), st.integers(min_value=-50, max_value=50), max_size=4)


def read(
    fine: Mapping[bytes, int],
    thresholds: Sequence[int],
    *,
    key: bytes = KEY,
    window: bytes = WINDOW,
    digest: bytes = DIGEST,
    finest: int = FINEST,
    construction: Construction = LMR3,
) -> dict[bytes, tuple[int, ...]]:
    return construction(
        fine,
        prf_key=key,
        window=window,
        digest=digest,
        thresholds=thresholds,
        finest=finest,
    )


# ------------------------------------------------------------------------------------------------------------- seal
def test_sealing_adds_the_noise_that_its_bits_give_to_the_sorted_keys() -> None:
    tape = bytes(range(32))
    noise = bulk_noise(FINEST, 3, RecordedBits(tape)).tolist()

    sealed = seal({b"c": 7, b"a": 20, b"b": 0}, FINEST, RecordedBits(tape))

    assert list(sealed.items()) == [(b"a", 20 + noise[0]), (b"b", noise[1]), (b"c", 7 + noise[2])]
    assert any(noise)


def test_sealing_an_empty_table_gives_an_empty_one() -> None:
    assert seal({}, FINEST, KeyedBits(KEY, b"draw")) == {}


def test_sealing_without_enough_bits_for_a_key_is_refused() -> None:
    with pytest.raises(StateError, match="tape has 248 bits left"):
        seal({b"a": 1}, WORD // 2, RecordedBits(bytes(31)))


def test_sealing_forgets_in_which_order_the_keys_arrived() -> None:
    counts = {b"%d" % i: i for i in range(50)}
    backwards = dict(reversed(counts.items()))

    first = seal(counts, FINEST, KeyedBits(KEY, b"draw"))

    assert list(seal(backwards, FINEST, KeyedBits(KEY, b"draw")).items()) == list(first.items())
    assert list(first) == sorted(counts)


@pytest.mark.parametrize("finest", [0, WORD])
def test_sealing_without_noise_or_with_endless_noise_is_refused(finest: int) -> None:
    with pytest.raises(ParameterError, match="a level must be"):
        seal({b"a": 1}, finest, RecordedBits(bytes(32)))


# ------------------------------------------------------------------------------------------------------- read_levels
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
        construction=LMR1,
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
        construction=LMR1,
    )

    assert {item.hex(): list(values) for item, values in table.items()} == {
        row["key_hex"]: row["excess_over_finest"] for row in rows
    }


@given(fine=TABLES, asked=LEVELS, construction=BOTH)
@settings(derandomize=True, max_examples=100, deadline=None)
def test_a_level_reads_the_same_whatever_is_asked_with_it_and_again(
    fine: dict[bytes, int], asked: list[int], construction: Construction
) -> None:
    together = read(fine, asked, construction=construction)

    assert read(fine, asked, construction=construction) == together
    for index, level in enumerate(asked):
        alone = read(fine, [level], construction=construction)
        assert alone == {key: (values[index],) for key, values in together.items()}
    backwards = read(fine, asked[::-1], construction=construction)
    assert backwards == {key: values[::-1] for key, values in together.items()}


@given(fine=TABLES, construction=BOTH)
@settings(derandomize=True, max_examples=100, deadline=None)
def test_a_key_reads_the_same_whatever_other_keys_are_stored(
    fine: dict[bytes, int], construction: Construction
) -> None:
    together = read(fine, LADDER, construction=construction)

    for key, value in fine.items():
        assert read({key: value}, LADDER, construction=construction) == {key: together[key]}


@given(fine=TABLES, construction=BOTH)
@settings(derandomize=True, max_examples=100, deadline=None)
def test_the_finest_level_is_the_sealed_value_and_the_data_only_shift_the_coarser_ones(
    fine: dict[bytes, int], construction: Construction
) -> None:
    table, zero = (read(counts, LADDER, construction=construction) for counts in (fine, dict.fromkeys(fine, 0)))

    for key, value in fine.items():
        assert table[key][-1] == value
        assert [reading - value for reading in table[key]] == list(zero[key])


@both
def test_another_key_window_or_digest_reads_other_noise(construction: Construction) -> None:
    fine = {b"%d" % i: 0 for i in range(20)}
    first = read(fine, LADDER[:1], construction=construction)

    assert read(fine, LADDER[:1], construction=construction, key=bytes(32)) != first
    assert read(fine, LADDER[:1], construction=construction, window=WINDOW + b"2") != first
    assert read(fine, LADDER[:1], construction=construction, digest=bytes(32)) != first


@both
def test_nothing_asked_gives_every_key_nothing(construction: Construction) -> None:
    assert read({b"a": 1, b"b": 2}, [], construction=construction) == {b"a": (), b"b": ()}
    assert read({}, LADDER, construction=construction) == {}


def test_the_two_constructions_read_other_noise() -> None:
    fine = {b"%d" % i: 0 for i in range(20)}

    assert read(fine, LADDER[:1], construction=LMR1) != read(fine, LADDER[:1], construction=LMR3)


def test_a_level_finer_than_the_sealed_one_is_refused() -> None:
    with pytest.raises(StateError, match="is finer than"):
        read({b"a": 1}, [LADDER[0], FINEST - 1])


def test_a_level_that_never_stops_is_refused() -> None:
    with pytest.raises(ParameterError, match="a level must be"):
        read({b"a": 1}, [WORD])


def test_a_noise_key_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(ParameterError, match="must have 32 bytes, not 16"):
        read({b"a": 1}, LADDER, key=bytes(16))


def test_a_digest_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(StateError, match="has 32 bytes, not 31"):
        read({b"a": 1}, LADDER, digest=bytes(31))


@pytest.mark.parametrize(
    ("key", "digest", "error"),
    [
        (bytes(16), bytes(32), (ParameterError, "must have 32 bytes, not 16")),
        (bytes(32), bytes(31), (StateError, "has 32 bytes, not 31")),
    ],
)
def test_a_gaussian_table_is_read_with_a_key_and_a_digest_of_their_length(
    key: bytes, digest: bytes, error: tuple[type[Exception], str]
) -> None:
    noise = WindowNoise(name=b"release", prf_key=key)
    with pytest.raises(error[0], match=error[1]):
        read_gaussian({b"a": 1}, noise, digest, steps=[Fraction(2)], levels=[0, 1])


# ------------------------------------------------------------------------------------------------------------- prune
def test_pruning_keeps_exactly_the_keys_that_some_level_shows() -> None:
    fine = {b"%d" % i: i % 30 - 10 for i in range(3000)}
    minimum = [30, 22, 19, 18, 18]

    kept = pruned(fine, WindowNoise(WINDOW, KEY), DIGEST, list(zip(LADDER, minimum, strict=True)))

    shown = []
    for level, least in zip(LADDER, minimum, strict=True):
        shown.append({key for key, (value,) in read(fine, [level]).items() if value >= least})
    assert kept == {key: fine[key] for key in fine if any(key in level for level in shown)}
    assert list(kept) == [key for key in fine if key in kept]
    for keys in shown:  # every level of the ladder contributes keys, so none of them can have been left out
        assert keys - set().union(*(other for other in shown if other is not keys))


def test_pruning_shows_a_key_that_just_reaches_its_minimum() -> None:
    noise = WindowNoise(WINDOW, KEY)

    assert pruned({b"a": 9}, noise, DIGEST, [(FINEST, 9)]) == {b"a": 9}
    assert pruned({b"a": 8}, noise, DIGEST, [(FINEST, 9)]) == {}


# --------------------------------------------------------------------------------------------------- snapshot_digest
def test_the_digest_names_the_table_and_not_the_order_it_was_built_in() -> None:
    salt = bytes(32)
    digest = snapshot_digest({b"a": 1, b"b": 2}, salt)

    assert len(digest) == 32
    assert snapshot_digest({b"b": 2, b"a": 1}, salt) == digest


@pytest.mark.parametrize(
    "other",
    [{b"a": 1}, {b"a": 1, b"b": 3}, {b"a": 2, b"b": 2}, {b"a": 1, b"c": 2}, {b"a": 1, b"b": 2, b"": 0}, {}],
)
def test_another_table_has_another_digest(other: dict[bytes, int]) -> None:
    assert snapshot_digest(other, bytes(32)) != snapshot_digest({b"a": 1, b"b": 2}, bytes(32))


def test_keys_and_counts_cannot_be_shifted_into_one_another() -> None:
    one = {b"a": 1, b"b": 5}
    glued = {b"a" + (1).to_bytes(8) + b"b": 5}  # the same bytes but for the length prefixes

    assert snapshot_digest(one, bytes(32)) != snapshot_digest(glued, bytes(32))


def test_without_the_salt_a_guess_of_the_counts_cannot_be_confirmed() -> None:
    counts = {b"a": 1}

    assert snapshot_digest(counts, bytes(32)) != snapshot_digest(counts, b"\x01" * 32)


@pytest.mark.parametrize("salt", [b"", bytes(31), bytes(33)])
def test_a_salt_of_the_wrong_length_is_refused(salt: bytes) -> None:
    with pytest.raises(ParameterError, match="must have 32 bytes"):
        snapshot_digest({b"a": 1}, salt)
