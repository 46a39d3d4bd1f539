"""The construction LMR3: against vectors made without this package, and in bulk against its reference."""

from __future__ import annotations

import json
import runpy
from collections.abc import Sequence
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.lossless import bulk as addressed_words
from stream_dp.lossless.bulk import AddressedWords, bulk_clocks
from stream_dp.lossless.levels import threshold_for
from stream_dp.lossless.sealed import WindowNoise, read_levels
from tests.support.threshold_process import clocks

FOLDER = Path(__file__).parents[2] / "vectors"
VECTORS: dict[str, Any] = json.loads((FOLDER / "lmr3.json").read_text())
KEY = bytes.fromhex(VECTORS["key_hex"])
TABLE = bytes.fromhex(VECTORS["window_hex"]), bytes.fromhex(VECTORS["digest_hex"])
STEP = bytes.fromhex(VECTORS["step_hex"])
LADDER: list[int] = VECTORS["ladder"]
FIELDS = {"rows": TABLE, "step_rows": (*TABLE, STEP)}

ITEMS = st.lists(st.binary(max_size=40), max_size=40)


def address_bytes(addresses: np.ndarray[Any, Any]) -> list[bytes]:
    return [address.tobytes() for address in addresses.astype("<u8")]


def one_by_one(streams: AddressedWords, items: Sequence[bytes], level: int) -> list[list[int]]:
    return [[clocks(streams.words(item, side), (level,))[0] for side in (0, 1)] for item in items]


def test_the_vectors_are_what_their_script_makes(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(FOLDER / "make_lmr3.py"), run_name="__main__")

    assert json.loads(capsys.readouterr().out) == VECTORS


def test_the_ladder_of_the_vectors_belongs_to_its_epsilons() -> None:
    assert [threshold_for(Fraction(epsilon)) for epsilon in VECTORS["epsilons"]] == LADDER


@pytest.mark.parametrize("rows", ["rows", "step_rows"])
def test_words_and_clocks_of_the_reference_are_those_of_the_vectors(rows: str) -> None:
    streams = AddressedWords(KEY, *FIELDS[rows])
    for row in VECTORS[rows]:
        item = bytes.fromhex(row["item_hex"])
        for side, name in enumerate(("plus", "minus")):
            assert list(islice(streams.words(item, side), 6)) == row[f"words_{name}"]
            assert list(clocks(streams.words(item, side), LADDER)) == row[f"clock_{name}"]
            assert list(clocks(streams.words(item, side), row["edge_levels"])) == row[f"edge_clock_{name}"]


@pytest.mark.parametrize("rows", ["rows", "step_rows"])
def test_addresses_words_and_clocks_in_bulk_are_those_of_the_vectors(rows: str) -> None:
    streams = AddressedWords(KEY, *FIELDS[rows])
    table = VECTORS[rows]
    addresses = streams.addresses([bytes.fromhex(row["item_hex"]) for row in table])

    assert [address.hex() for address in address_bytes(addresses)] == [row["address_hex"] for row in table]
    for j in range(6):
        leads = streams.leads(addresses, j // 4)[:, [j % 4, 4 + j % 4]].astype(np.uint64)
        words = leads << np.uint64(48) | streams.rests(addresses, np.full(len(table), j, np.uint64))
        assert words.tolist() == [[row["words_plus"][j], row["words_minus"][j]] for row in table]
    for at, level in enumerate(LADDER):
        expected = [[row["clock_plus"][at], row["clock_minus"][at]] for row in table]
        assert bulk_clocks(streams, addresses, level).T.tolist() == expected


def test_a_level_that_equals_a_word_stops_at_it_and_the_next_level_does_not() -> None:
    streams = AddressedWords(KEY, *TABLE)
    for row in VECTORS["rows"]:
        addresses = streams.addresses([bytes.fromhex(row["item_hex"])])
        assert row["edge_clock_plus"][0] < row["edge_clock_plus"][1]
        for at, level in enumerate(row["edge_levels"]):
            found = bulk_clocks(streams, addresses, level).T.tolist()
            assert found == [[row["edge_clock_plus"][at], row["edge_clock_minus"][at]]]


def test_what_coarser_levels_add_is_that_of_the_vectors() -> None:
    rows, (window, digest) = VECTORS["rows"], TABLE
    sealed = dict.fromkeys((bytes.fromhex(row["item_hex"]) for row in rows), 0)

    found = read_levels(sealed, WindowNoise(window, KEY), digest, thresholds=LADDER, finest=LADDER[-1])

    assert [list(column) for column in zip(*found, strict=True)] == [row["excess_over_finest"] for row in rows]


@given(items=ITEMS)
@settings(derandomize=True, max_examples=100, deadline=None)
def test_addresses_in_bulk_are_those_of_the_reference(items: list[bytes]) -> None:
    streams = AddressedWords(KEY, *TABLE)

    found = address_bytes(streams.addresses(items))

    assert found == [streams._address_of(item).to_bytes(16, "little") for item in items]


def test_addresses_do_not_depend_on_how_many_are_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = AddressedWords(KEY, *TABLE)
    items = [bytes(i % 30) + b"%d" % i for i in range(1000)]
    at_once = streams.addresses(items)

    monkeypatch.setattr(addressed_words, "_ITEMS_AT_ONCE", 7)

    assert (streams.addresses(items) == at_once).all()


def test_keys_that_differ_in_trailing_zeros_or_length_only_have_addresses_of_their_own() -> None:
    items = [bytes(size) for size in range(70)] + [b"a" + bytes(size) for size in range(70)]

    assert len(set(address_bytes(AddressedWords(KEY, *TABLE).addresses(items)))) == len(items)


def test_the_same_chunks_in_another_order_have_another_address() -> None:
    """A mutant without the position in the tag would confuse them: the address is a sum."""
    a, b, c = b"aaaaaaaa", b"bbbbbbbb", b"cccccccc"
    items = [a + b + c, b + a + c, a + c + b, c + a + b, a + a + b + b, b + b + a + a, c, a + a + c, b + b + c]

    assert len(set(address_bytes(AddressedWords(KEY, *TABLE).addresses(items)))) == len(items)


def test_no_keys_have_no_addresses() -> None:
    assert AddressedWords(KEY, *TABLE).addresses([]).shape == (0, 2)


def test_blocks_of_leads_and_rests_never_meet() -> None:
    """The inputs of one key under K_words: numbers of leads are below 2^63, those of rests are not."""
    seen: list[bytes] = []

    class Recorder:
        def blocks(self, blocks: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
            seen.extend(address_bytes(blocks))
            return blocks

    streams = AddressedWords(KEY, *TABLE)
    address = streams.addresses([b"key"])
    streams._words = Recorder()  # type: ignore[assignment]
    for block in range(50):
        streams.leads(address, block)
    for word in range(200):
        streams.rests(address, np.array([word], np.uint64))

    assert len(set(seen)) == 250


@given(
    items=ITEMS,
    levels=st.lists(st.integers(1, LADDER[1]) | st.sampled_from(LADDER), min_size=1, max_size=3),
    fields=st.lists(st.binary(max_size=5), max_size=3),
)
@settings(derandomize=True, max_examples=60, deadline=None)
def test_clocks_in_bulk_are_those_of_the_reference(items: list[bytes], levels: list[int], fields: list[bytes]) -> None:
    streams = AddressedWords(KEY, *fields)
    addresses = streams.addresses(items)

    for level in levels:
        assert bulk_clocks(streams, addresses, level).T.tolist() == one_by_one(streams, items, level)


@pytest.mark.parametrize(
    "fields", [(b"ab", b"c"), (b"a", b"bc"), (b"abc",), (b"abc", b""), (b"", b"abc"), (), (b"abc", b"words")]
)
def test_tables_of_different_fields_have_unrelated_streams(fields: tuple[bytes, ...]) -> None:
    others = {(b"ab", b"c"), (b"a", b"bc"), (b"abc",), (b"abc", b""), (b"", b"abc"), (), (b"abc", b"words")} - {fields}
    first = set(islice(AddressedWords(KEY, *fields).words(b"key", 0), 40))

    assert len(first) == 40
    assert first.isdisjoint(islice(AddressedWords(KEY, *fields).words(b"key", 1), 40))
    for other in others:
        assert first.isdisjoint(islice(AddressedWords(KEY, *other).words(b"key", 0), 40))
