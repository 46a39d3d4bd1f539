"""The marker of a source with many views and source partitions: no row is too large, and a crash leaves a whole one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stream_dp.windows.count_rows import Marker, SourcePartitionClock, ViewMark
from stream_dp.windows.counting import CountedPartition
from stream_dp.windows.effects import Commit, Message
from stream_dp.windows.encoding import MESSAGE_BYTES, encode
from stream_dp.windows.events import EventDecoder
from stream_dp.windows.marker_rows import MarkerRows, read_marker, read_other_markers
from stream_dp.windows.open_windows import WindowMemory
from stream_dp.windows.rekeying import RekeyedBatch, RekeyedCounter
from tests.support.counting import FORM, LETTERS, PARTIALS, Cabinet, Entry, view
from tests.support.machine import CutError, Machine

VIEWS = [view(f"view{number}", clock="event") for number in range(100)]
SOURCE_PARTITIONS = 256
NOW = 1_790_000_000_000


def counter() -> RekeyedCounter:
    return RekeyedCounter(
        CountedPartition("visits", 0),
        VIEWS,
        lambda names: EventDecoder(replace(FORM, items=("page",) * len(names))),
        outlet=lambda partial: Message(PARTIALS, partial.key, encode(partial)),
        dead_letters=lambda *_: Message(LETTERS, None, b""),
        configured=[one.name for one in VIEWS],
        memory=WindowMemory(1 << 30, Cabinet()),
        source_partitions=SOURCE_PARTITIONS,
        life=1,
    )


def test_hundred_views_of_many_source_partitions_are_stored() -> None:
    machine = Machine()
    one = counter()
    machine.carry_out(one.load(machine))
    batches = [RekeyedBatch(number, NOW, [], [(0, NOW)], [NOW]) for number in range(SOURCE_PARTITIONS - 1)]
    records = [Entry(number, None, encode(batch)) for number, batch in enumerate(batches)]
    machine.carry_out(one.chunk(records, 0))
    assert max(len(key) + len(value or b"") for key, value in machine.changelog) <= MESSAGE_BYTES
    stored = read_marker(machine, "visits")
    assert stored is not None
    assert {len(mark.source_partitions) for mark in stored.views.values()} == {SOURCE_PARTITIONS - 1}
    again = counter()
    machine.carry_out(again.load(machine))
    assert again.next_offset == len(records)


def large(offset: int) -> Marker:
    clocks = {number: SourcePartitionClock(NOW + offset, NOW) for number in range(30_000)}
    mark = ViewMark(b"pages001", NOW, None, 0, 0, NOW, [], source_partitions=clocks)
    return Marker(offset, views={"pages": mark})


@pytest.mark.parametrize("sizes", [("large", "large", "large"), ("small", "large", "small", "large")])
def test_crash_leaves_a_whole_marker(sizes: tuple[str, ...]) -> None:
    """The former one or the new one, whichever row is the last to reach the changelog."""
    machine = Machine()
    for offset, size in enumerate(sizes):
        new = large(offset) if size == "large" else Marker(offset, views={})
        before = read_marker(machine, "visits")
        rows = dict(machine.rows)
        for cut in range(10):
            machine.rows = dict(rows)
            stored = MarkerRows("visits")
            stored.read(machine)
            machine.cut_after = cut
            try:
                machine.carry_out(iter([Commit(stored.encode(new))]))
            except CutError:
                assert read_marker(machine, "visits") in (before, new)
            else:
                machine.cut_after = None
                break
        assert read_marker(machine, "visits") == new
        assert [*read_other_markers(machine, "visits")] == []
        assert [*read_other_markers(machine, "other")] == [new]
