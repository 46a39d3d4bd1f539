"""Sealed tables are made and read in bulk, and say what they say number by number."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import count

import pytest

from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.exact.bits import KeyedBits
from stream_dp.kinds.histogram import HistogramPlan
from stream_dp.kinds.sealing import SealedTable
from stream_dp.lossless.bulk import Uniforms
from stream_dp.lossless.discrete_laplace import bridge_atom
from stream_dp.lossless.levels import noise_parameter
from stream_dp.windows.encoding import decode, encode
from tests.support.sealing import minimum_counts, read_window, seal_window
from tests.unit.lossless.test_bulk_noise import noise_at

Planner = Callable[..., Plan]

KEY = bytes(range(32))
START_MS = 1_356_998_400_000
COUNTS = {f"item {i}": 40 * i for i in range(60, 0, -1)}


@pytest.fixture(params=["destinations", "busiest"])
def view(request: pytest.FixtureRequest, planned: Planner) -> ViewPlan:
    """A histogram, then a top-k."""
    return planned().views[request.param]


def sealed(view: ViewPlan, counts: Mapping[str, int] = COUNTS) -> SealedTable:
    return seal_window(view, START_MS, counts, prf_key=KEY, entropy=lambda context: KeyedBits(KEY, context))


def by_definition(
    view: ViewPlan, table: SealedTable, counts: Mapping[str, int] = COUNTS
) -> list[list[tuple[str, int]]]:
    """What the levels show, every key by itself and a number at a time."""
    thresholds = [level.threshold for level in view.levels]
    is_histogram = isinstance(view.kind, HistogramPlan)
    bits = KeyedBits(KEY, b"noise" + view.noise_name(START_MS))
    numbers = [Uniforms(bits.bits(256).to_bytes(32)) for _ in range(5)]  # the finest noise, then two for each step
    keys = sorted(counts) if is_histogram else table.items
    rows = {key: [counts[key] + noise_at(thresholds[2], at, numbers[0])] for at, key in enumerate(sorted(keys))}
    for fine, coarse, whether, what in ((2, 1, numbers[1], numbers[2]), (1, 0, numbers[3], numbers[4])):
        stays = bridge_atom(*(noise_parameter(thresholds[level]) for level in (fine, coarse)))
        moved = count()
        for at, key in enumerate(keys):
            is_moved = Fraction(whether.prefix(at, 640), 1 << 640) >= stays
            step = noise_at(thresholds[coarse], next(moved), what) if is_moved else 0
            rows[key].insert(0, rows[key][0] + step)
    leasts = minimum_counts(view) if is_histogram else (-(10**9),) * 3
    return [
        sorted((item, values[index]) for item, values in rows.items() if values[index] >= least)
        for index, least in enumerate(leasts)
    ]


def read(view: ViewPlan, table: SealedTable) -> list[list[tuple[str, int]]]:
    return [sorted(reading.items) for reading in read_window(view, START_MS, table, [0, 1, 2], KEY)]


def test_a_stored_table_shows_what_the_numbers_of_its_keys_give_one_by_one(view: ViewPlan) -> None:
    table = sealed(view)
    stored = decode(SealedTable, encode(table))

    assert stored == table
    assert table.items
    assert read(view, stored) == by_definition(view, table)


def test_a_key_that_stays_keeps_its_own_numbers_where_others_are_pruned(planned: Planner) -> None:
    view, counts = planned().views["destinations"], {f"item {i}": i for i in range(200)}
    table = sealed(view, counts)

    assert 10 < len(table.items) < 190
    assert read(view, table) == by_definition(view, table, counts)


def test_a_level_is_read_the_same_alone_and_with_others(view: ViewPlan) -> None:
    table = sealed(view)

    alone = [sorted(read_window(view, START_MS, table, [level], KEY)[0].items) for level in range(3)]

    assert alone == read(view, table)


def test_an_empty_window_is_sealed_and_read(planned: Planner) -> None:
    for view in planned().views.values():
        table = seal_window(view, START_MS, {}, prf_key=KEY, entropy=lambda context: KeyedBits(KEY, context))

        assert table.items == []
        assert read(view, table) == [[], [], []]
