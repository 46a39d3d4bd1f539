"""What of a window takes several rows: merged buckets, the sealed table, the records that leave."""

from __future__ import annotations

import random

import pytest
from msgspec import structs

from stream_dp.errors import StateError
from stream_dp.kinds.sealing import SealedTable
from stream_dp.releases import outboxes
from stream_dp.releases.partition_state import Arrivals
from stream_dp.releases.pieces import (
    RECORD_BYTES,
    leftovers,
    record_rows,
    stored_table,
    table_key,
    table_rows,
    waiting_records,
)
from stream_dp.releases.rows import BUCKET, OUTBOX, PUBLISHED, TABLE, TOTALS, WINDOW, Departure, WindowRow
from stream_dp.windows.effects import Commit, Leave, Message, Publish
from stream_dp.windows.encoding import MESSAGE_BYTES, bucket_of, encode, window_key
from stream_dp.windows.merging import MergedBucket
from tests.support.machine import Machine
from tests.support.releasing import FINE, MERGED, ONLY_PAGES, Desk, keyed, merged_message, plan

PAGES = plan(ONLY_PAGES)
COUNTS = {f"page {number}": 40 + number for number in range(30)}


# -- merged buckets in parts ----------------------------------------------------------------------------------------


def in_parts(size: int, start: int = 0) -> list[Message]:
    """The buckets of a window, some keys in each part; the last part may be empty."""
    view, found = PAGES.views["pages"], []
    for bucket in range(view.buckets):
        counts = [entry for entry in COUNTS.items() if bucket_of(entry[0], view.buckets) == bucket]
        cuts = [dict(counts[at : at + size]) for at in range(0, len(counts) + 1, size)]
        found += [
            merged_message(MergedBucket("pages", start, bucket, 0, part, len(cuts), some))
            for part, some in enumerate(cuts)
        ]
    return found


def test_a_window_is_released_when_every_part_of_every_bucket_is_there_whatever_the_order() -> None:
    whole = Desk(PAGES)
    whole.give("pages", 0, COUNTS)
    for seed in range(10):
        chance, parts = random.Random(seed), in_parts(4)
        chance.shuffle(parts)
        desk = Desk(PAGES, at_once=chance.randrange(1, 9))
        for message in [*parts[:-1], *chance.choices(parts[:-1], k=6)]:
            desk.reader.write([message])
            if chance.random() < 0.2:
                desk.reader.restart()
        assert desk.published() == []
        desk.reader.write(parts[-1:])
        assert desk.published() == whole.published()
        assert desk.machine.rows == whole.machine.rows
        assert desk.reader.standing() == set(), "every part was withdrawn"
        assert desk.machine.unerased(BUCKET) == []


def test_parts_of_another_cut_take_the_place_of_the_former_ones() -> None:
    """As after an upgrade between two attempts to hand a bucket on: a key is in one part of each of them."""
    whole = Desk(PAGES)
    whole.give("pages", 0, COUNTS)
    for restarted in (False, True):
        desk = Desk(PAGES)
        desk.reader.write(in_parts(3)[1:])
        if restarted:
            desk.reader.restart()
        desk.reader.write(in_parts(5)[::-1])
        assert desk.published() == whole.published()
        assert desk.table("pages", 0) == whole.table("pages", 0)


def test_what_waits_in_memory_is_numbers() -> None:
    arrivals = Arrivals()
    arrivals.take(MergedBucket("pages", 0, 1, 0, 2, 3, {"secret page": 5}), 9)
    assert "secret" not in repr(vars(arrivals))


# -- sealed tables --------------------------------------------------------------------------------------------------


def table_of(keys: int, length: int = 1000, beside: int = 0) -> SealedTable:
    items, excess = [f"{number:0{length}}" for number in range(keys)], random.Random(keys).randbytes(keys * beside)
    return SealedTable(b"digest", items, [number - 2**40 for number in range(keys)], b"payload", excess)


@pytest.mark.parametrize("beside", [0, 3, 72])
@pytest.mark.parametrize("keys", [0, 1, 511, 3000])
def test_a_table_is_stored_in_rows_of_bounded_size_and_read_back(keys: int, beside: int) -> None:
    """What coarser levels have beyond the finest is cut between keys, and joined again."""
    table, machine = table_of(keys, beside=beside), Machine()
    rows = table_rows("pages", 7000, table)
    machine.rows = {key: value or b"" for key, value in rows}
    assert all(len(key) + len(value or b"") <= MESSAGE_BYTES for key, value in rows)
    entry = 1016 + beside
    assert len(rows) == max(1, -(-keys * entry // (RECORD_BYTES - RECORD_BYTES % entry)))
    assert stored_table("pages", 7000, machine) == table


def test_what_a_kind_remembers_beside_the_keys_stands_in_every_row_and_within_its_bound() -> None:
    table = structs.replace(table_of(3000), payload=bytes(60_000))
    rows = {key: value or b"" for key, value in table_rows("pages", 7000, table)}
    assert all(60_000 < len(value) <= MESSAGE_BYTES for value in rows.values())
    assert stored_table("pages", 7000, Machine(rows)) == table


def test_a_table_with_a_missing_part_a_part_too_many_or_one_of_another_draw_is_not_read() -> None:
    table = table_of(1200)
    rows = {key: value or b"" for key, value in table_rows("pages", 0, table)}
    other = {key: value or b"" for key, value in table_rows("pages", 0, structs.replace(table, digest=b"other"))}
    first, second, last = sorted(rows)
    for broken in (
        {},
        {first: rows[first], second: rows[second]},
        {second: rows[second], last: rows[last]},
        {**rows, table_key("pages", 0, 3): rows[last]},
        {**rows, second: other[second]},
    ):
        with pytest.raises(StateError, match="the stored table of a window of view pages is damaged"):
            stored_table("pages", 0, Machine(broken))


def test_what_a_crash_left_is_found_and_nothing_else() -> None:
    machine, table = Machine(), table_of(2)
    kept, settled = Departure(2, 0, 2), Departure(1, 0, 2)
    records = [("topic", b"key", b"1"), ("topic", b"key", b"2")]
    whole = [*table_rows("pages", 0, table), *record_rows("pages", 0, kept, records)]
    left = [*table_rows("pages", 1000, table), *record_rows("pages", 0, settled, records)]
    others = table_rows("pager", 5000, table)
    machine.rows = {key: value or b"" for key, value in (*whole, *left, *others)}
    assert sorted(leftovers("pages", 1000, [(0, kept)], machine)) == sorted((key, None) for key, _ in left)


# -- records that leave ---------------------------------------------------------------------------------------------


def test_a_departure_of_many_records_is_published_in_several_goes_and_whole_again_after_a_crash(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outboxes, "BYTES_AT_ONCE", 2000)
    machine, row = Machine(), WindowRow(refused=False, slot_ms=0)
    records = [("topic", b"window/%d" % part, bytes(900)) for part in range(10)]
    rows = record_rows("pages", 0, row.add(0, len(records)), records)
    machine.rows = {key: value or b"" for key, value in rows}
    machine.rows[window_key(WINDOW, "pages", 0)] = encode(row)
    assert [message.value for message in waiting_records("pages", 0, row.outbox[0], machine)] == [bytes(900)] * 10

    def leaving() -> outboxes.Outboxes:
        found = outboxes.Outboxes()
        found.add(Leave("pages", 0, 0))
        return found

    cut = leaving().publish(0, machine)
    assert [len(effect.messages) for _, effect in zip(range(2), cut, strict=False) if isinstance(effect, Publish)] == [
        3,
        3,
    ]
    again = leaving()
    step = again.publish(0, machine)
    begun = [next(step) for _ in range(3)]
    assert not again.published, "the departure is not whole yet"
    effects = [*begun, *step]
    sent = [message for effect in effects if isinstance(effect, Publish) for message in effect.messages]
    assert [(m.topic, m.key, m.value) for m in sent] == records
    assert again.published
    (commit,) = again.settle(machine)
    assert isinstance(commit, Commit)
    kinds = [key[:1] for key, _ in commit.rows]
    assert kinds == [TOTALS, *[PUBLISHED] * 10, WINDOW, *[OUTBOX] * 10], "no outbox stands without its records"


def test_no_record_stands_in_the_row_of_a_window_and_none_is_left_when_it_has_left() -> None:
    desk = Desk(PAGES, until_ms=0)
    desk.give("pages", 0, COUNTS, 10_000)
    assert b"page 7" not in encode(desk.row("pages", 0))
    assert [departure.records for departure in desk.row("pages", 0).outbox] == [4]
    assert len([key for key in desk.machine.rows if key.startswith(OUTBOX)]) == 4
    desk.slot(12_000)
    assert len(desk.published()) == 3
    assert not [key for key in desk.machine.rows if key.startswith(OUTBOX)]


def test_a_large_release_is_published_in_parts_and_sharpened_in_parts() -> None:
    """Megabytes of keys: no row, no record and no message is large, and what is read is what is stored."""
    counts = {f"{number:01000}": 10**6 + number for number in range(1500)}
    desk = Desk(plan(ONLY_PAGES, ("partner: coarse, ", "")), keyed)
    desk.give("pages", 0, counts)
    desk.grant(1, "public", "fine")
    assert (
        max(len(key) + len(value or b"") for key, value in desk.machine.changelog if key[:1] != BUCKET) < MESSAGE_BYTES
    )
    assert max(len(message.value or b"") for message in desk.machine.sent if message.topic != MERGED) < MESSAGE_BYTES
    keys = [message.key for message in desk.published()]
    assert keys.count(b"pages/public/0") == keys.count(b"pages/public/0/3") == 2
    record, table = desk.record("pages", "public", 0), desk.table("pages", 0)
    assert (record.revision, record.level.name) == (2, desk.plan.views["pages"].levels[FINE].name)
    assert {item.item: item.count for item in record.items} == dict(zip(table.items, table.values, strict=True))
    assert len([key for key in desk.machine.rows if key.startswith(TABLE)]) == 3
    desk.auditor.settled()
