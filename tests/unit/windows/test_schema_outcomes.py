"""Records whose schema the registry does not have: refused one by one, and again when they are read again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count

import pytest

from stream_dp.windows.avro import AvroEventDecoder, AvroValues, unknown_schema
from stream_dp.windows.counting import CountedPartition, PartitionCounter
from stream_dp.windows.effects import Message, Step
from stream_dp.windows.encoding import encode
from stream_dp.windows.events import KeyReader, Schemas
from stream_dp.windows.open_windows import WindowMemory
from stream_dp.windows.rekeying import Rekeyer, UserPartitions
from stream_dp.windows.schema_outcomes import MAX_SCHEMAS_OF_USER, SchemaOutcomes
from tests.support.avro import bare, header, reading, written
from tests.support.counting import FORM, LETTERS, PARTIALS, Cabinet, Entry, view
from tests.support.machine import CutError, Machine

VISIT = {
    "type": "record",
    "name": "Visit",
    "fields": [{"name": "page", "type": "string"}, {"name": "at", "type": "long"}],
}
READ = reading(VISIT, FORM)
BEFORE: Schemas = {header(1): READ, header(2): unknown_schema}
AFTER: Schemas = {header(1): READ, header(2): READ}
RECORDS = [
    Entry(at, b"u%d" % at, written(bare(VISIT), {"page": "a", "at": 5}, number)) for at, number in enumerate((1, 2, 1))
]


def letter(at: int, offset: int, reason: str, _views: object) -> Message:
    return Message(LETTERS, None, f"{at}/{offset}/{reason}".encode())


def counter() -> PartitionCounter:
    return PartitionCounter(
        CountedPartition("visits", 0),
        [view()],
        lambda names: AvroEventDecoder(replace(FORM, items=("page",) * len(names))),
        outlet=lambda partial: Message(PARTIALS, partial.key, encode(partial)),
        dead_letters=letter,
        configured=["pages"],
        memory=WindowMemory(1 << 30, Cabinet()),
    )


def rekeyer() -> Rekeyer:
    return Rekeyer(
        "visits",
        0,
        [view()],
        KeyReader("page", AvroValues),
        users=UserPartitions(1, lambda users: [0] * len(users)),
        outlet=lambda to, batch: Message(PARTIALS, None, encode(batch), to),
        dead_letters=letter,
    )


def chunk(one: PartitionCounter | Rekeyer, schemas: Schemas) -> Step:
    one.learn(schemas)
    yield from one.chunk(RECORDS, 1)


@pytest.mark.parametrize("make", [counter, rekeyer])
def test_refused_record_stays_refused_when_read_again(make: Callable[[], PartitionCounter | Rekeyer]) -> None:
    """The schema is registered between a crash and the second reading, wherever the crash happens."""
    refused_twice = 0
    for cut in count():
        machine = Machine()
        one = make()
        machine.carry_out(one.load(machine))
        machine.cut_after = cut
        try:
            machine.carry_out(chunk(one, BEFORE))
        except CutError:
            noted = bool(machine.sent)
            again = make()
            machine.carry_out(again.load(machine))
            machine.carry_out(chunk(again, AFTER))
            letters = {message.value for message in machine.sent if message.topic == LETTERS}
            refusals = machine.counts["events_refused", (("reason", "unknown_schema"), ("view", ""))]
            assert bool(letters) == bool(refusals), f"cut {cut}: noted as refused and counted, or the reverse"
            refused_twice += noted
        else:
            break
    assert refused_twice


@pytest.mark.parametrize("make", [counter, rekeyer])
def test_chunk_of_refused_records_alone_is_read_again(make: Callable[[], PartitionCounter | Rekeyer]) -> None:
    """No schema has to be asked for then, wherever the crash happened."""
    some = RECORDS[1:2]
    for cut in count():
        machine = Machine()
        one = make()
        machine.carry_out(one.load(machine))
        machine.cut_after = cut
        one.learn({header(2): unknown_schema})
        try:
            machine.carry_out(one.chunk(some, 1))
        except CutError:
            again = make()
            machine.carry_out(again.load(machine))
            wanted = again.schema_outcomes.headers(some)
            again.learn(dict.fromkeys(wanted, unknown_schema))
            machine.carry_out(again.chunk(some, 1))
        else:
            break
        letters = {message.value for message in machine.sent if message.topic == LETTERS}
        assert letters == {b"0/1/unknown_schema"}
    assert cut > 1


def test_other_chunks_do_not_change_a_stored_outcome() -> None:
    """After a crash the records come in other chunks; those after the stored outcome are asked about."""
    outcomes = SchemaOutcomes("visits", is_keyed=True)
    outcomes.learn(BEFORE)
    _, rows = outcomes.settle(RECORDS)
    machine = Machine(rows=dict(rows))
    again = SchemaOutcomes("visits", is_keyed=True)
    again.load(machine)
    behind = [replace(record, offset=record.offset + 3) for record in RECORDS]
    assert again.headers(RECORDS) == {header(1)}
    assert again.headers([*RECORDS[1:], *behind]) == {header(1), header(2)}
    again.learn(AFTER)
    for some, refused in ((RECORDS[:2], [1]), ([*RECORDS[1:], *behind], [1])):
        settled, stored = again.settle(some)
        assert [record.offset for record in settled if record.value is None] == refused
        assert not stored


def test_many_schemas_of_one_user_refuse_no_other_user() -> None:
    """Records of a user with thousands of numbers are refused unasked; those of others are asked about."""
    flood = [Entry(at, b"X", header(1000 + at)) for at in range(3000)]
    others = [Entry(3000 + at, b"u%d" % at, header(2000 + at)) for at in range(300)]
    outcomes = SchemaOutcomes("visits", is_keyed=True)
    wanted = outcomes.headers([*flood, *others])
    assert wanted == {header(1000 + at) for at in range(MAX_SCHEMAS_OF_USER)} | {header(2000 + at) for at in range(300)}
    outcomes.learn(dict.fromkeys(wanted, READ))
    settled, rows = outcomes.settle([*flood, *others])
    kept = [record.offset for record in settled if record.value is not None]
    assert kept == [*range(MAX_SCHEMAS_OF_USER), *range(3000, 3300)]
    again = SchemaOutcomes("visits", is_keyed=True)
    again.load(Machine(rows=dict(rows)))
    assert len(again.headers(flood[MAX_SCHEMAS_OF_USER - 1 :])) == 1, "stored, whatever is in the chunk"
