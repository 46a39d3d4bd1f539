"""The factory: parts look after what is theirs, and hand on to one another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiokafka.partitioner
import pytest
import rocksdict
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.config.plan import Plan
from stream_dp.records.codec import decode_entry, encode
from stream_dp.releases.announcements import ANNOUNCEMENT_MS, NEXT_SLOT_MS
from stream_dp.releases.keyring import KeyRing
from stream_dp.releases.outboxes import Outboxes
from stream_dp.releases.rows import VIEW
from stream_dp.runtime.embedded import LogRecord
from stream_dp.runtime.factory import Factory, Settled, partitioner, unknown_before
from stream_dp.runtime.kafka.partitioners import murmur2
from stream_dp.runtime.kafka.topics import Topics, sources_of
from stream_dp.testing import Event, Script, SourceWriter, Watermark, keyed_entropy, plan_from
from stream_dp.windows.count_rows import MARKER, Marker
from stream_dp.windows.effects import Message
from stream_dp.windows.encoding import after, decode, text
from tests.support.chosen import examples
from tests.support.machine import Machine
from tests.support.oracle import expected_records
from tests.support.phases import PHASES
from tests.support.releasing import is_about_view
from tests.support.releasing import plan as plan_of_the_shop
from tests.support.running import running

CACHE = rocksdict.Cache(0)

PRF_KEY, ENTROPY = bytes(range(32)), keyed_entropy(b"factory")
START = 1_704_067_200_000
MINUTE = 60_000
TWO_SOURCES = (
    (
        "sources:\n",
        "sources:\n  clicks: {topic: NAME.clicks, partitions: 3, user: user, time: {field: at}}\n",
    ),
    ("ledgers:\n", 'ledgers:\n  clickers: {population: clickers, epsilon: "9", delta: "1/100", period: 366d}\n'),
    (
        "views:\n",
        "views:\n  NAME-clicks: {kind: histogram, source: clicks, item: page, items_per_user: 1, window: {size: 1m, "
        'start: 2024-01-01T00:00:00Z}, delta: "1e-4", ledger: clickers, ladder: standard}\n'
        "  NAME-more: {kind: histogram, source: visits, item: page, items_per_user: 1, window: {size: 1m, "
        'start: 2024-01-01T00:00:00Z}, delta: "1e-4", ledger: clickers, ladder: standard}\n',
    ),
)


@pytest.fixture
def plan(visits: Callable[..., str], tmp_path: Path) -> Plan:
    """Two views on one source, a third on another; a ledger of its own for one of them."""
    return plan_from(visits(*TWO_SOURCES), tmp_path)


def factory(plan: Plan) -> Factory:
    return Factory(
        Settled(plan.begun(dict.fromkeys(plan.views, START))),
        keys=KeyRing.of(PRF_KEY),
        entropy=ENTROPY,
        cache=rocksdict.Cache(0),
    )


def test_counter_counts_for_the_views_of_its_source_alone(plan: Plan) -> None:
    found = {}
    for name, source in ((source.name, source) for source in sources_of(plan).values()):
        machine = Machine()
        counter = factory(plan).counter(source.topic, 1)
        machine.carry_out(counter.load(machine))
        machine.carry_out(counter.ticks([START + MINUTE]))
        ((_, marker),) = machine.scan(MARKER, after(MARKER))
        found[name] = {view.removeprefix(f"{plan.name}-") for view in decode(Marker, marker).views}

    assert found == {"clicks": {"clicks"}, "visits": {"pages", "more"}}


def test_engine_looks_after_the_views_whose_ledger_lives_in_its_partition(plan: Plan) -> None:
    topics = Topics.of(plan)
    places = {}
    for partition in range(plan.partitions):
        machine = Machine()
        machine.carry_out(factory(plan).engine(partition).load(machine, now_ms=0))
        for key, _ in machine.scan(VIEW, after(VIEW)):
            places[key] = partition

    assert places == {VIEW + text(view.name): topics.ledger_partition(view.ledger) for view in plan.views.values()}


def test_parts_hand_on_from_an_event_to_a_release(visits: Callable[..., str], tmp_path: Path) -> None:
    """Each part on a machine of its own reads what the others sent to its topic and partition."""
    plan = plan_from(visits(), tmp_path)
    parts, topics = factory(plan), Topics.of(plan)
    (view,) = plan.views.values()

    partials: list[Message] = []
    script: Script = [*(Event(f"u{number}", "/", START) for number in range(40)), Watermark(START + 2 * MINUTE)]
    written = list(SourceWriter(plan).records(script))
    for partition in range(plan.partitions):
        machine, counter = Machine(), parts.counter(view.source.topic, partition)
        machine.carry_out(counter.load(machine))
        own = [record for record in written if record.partition == partition]
        chunk: list[Any] = [
            LogRecord(r.topic, partition, at, r.key, r.value, 0, [*r.headers.items()]) for at, r in enumerate(own)
        ]
        machine.carry_out(counter.chunk(chunk, START + 3 * MINUTE))
        partials += machine.sent
    assert {message.topic for message in partials} == {topics.partials}

    merged: list[Message] = []
    merger = parts.merger()
    for partition in range(plan.partitions):
        machine = Machine()
        values = [message.value for message in partials if message.partition == partition]
        machine.carry_out(merger.load(machine))
        machine.carry_out(merger.partials(values, machine))
        withdrawn = [message for message in machine.sent if message.topic == topics.partials]
        assert {(m.key, m.partition) for m in withdrawn} == {
            (m.key, m.partition) for m in partials if m.partition == partition
        }
        merged += [message for message in machine.sent if message.topic == topics.merged and message.value is not None]
    assert {message.partition for message in merged} == {topics.ledger_partition(view.ledger)}
    assert len(merged) == view.buckets

    machine, engine = Machine(), parts.engine(merged[0].partition)
    machine.carry_out(engine.load(machine, now_ms=0))
    machine.carry_out(engine.buckets([message.value for message in merged]))
    assert engine.waits
    machine.carry_out(engine.due())
    outboxes = Outboxes()
    for leave in machine.leaving:
        slot_ms = NEXT_SLOT_MS if leave.start_ms == ANNOUNCEMENT_MS else plan.slots.after(START + 3 * MINUTE)
        assert leave.slot_ms == slot_ms
        outboxes.add(leave)
        machine.carry_out(outboxes.publish(leave.slot_ms, machine))
    expected = expected_records(view, {START: {"/": 40}}, prf_key=PRF_KEY, entropy=ENTROPY)
    sent = {
        message.topic: [message.value]
        for message in machine.sent
        if message.value is not None and not is_about_view(message)
    }
    (entry,) = sent.pop(topics.accounts)
    assert {reader.audience for reader in decode_entry(entry or b"").audiences} == set(view.audiences)
    assert sent == {
        topics.release(view.name, audience): [encode(record) for record in records]
        for audience, records in expected.items()
    }
    assert {(m.topic, m.key, m.partition) for m in machine.sent if m.value is None} == {
        (m.topic, m.key, m.partition) for m in merged
    }


def test_partitioner_places_users_as_producers_do(plan: Plan) -> None:
    """Recorded: the murmur2 hashes of Kafka's own tests (`UtilsTest.testMurmur2`), and zlib's CRC-32."""
    source = replace(next(iter(sources_of(plan).values())), partitions=1_000_003)
    recorded = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}

    java = partitioner(replace(source, partitioner="murmur2"))
    librdkafka = partitioner(replace(source, partitioner="crc32"))

    assert java is not None
    assert librdkafka is not None
    expected = [(value & 0x7FFFFFFF) % 1_000_003 for value in recorded.values()]
    assert java(list(recorded)) == expected
    assert java(list(recorded) * 5) == expected * 5
    assert librdkafka([b"123456789"]) == [0xCBF43926 % 1_000_003]
    assert partitioner(replace(source, partitioner="unchecked")) is None


@examples(60, 300, given(st.lists(st.binary(max_size=40), min_size=1, max_size=30)), derandomize=True, phases=PHASES)
def test_many_keys_are_hashed_as_the_client_hashes_one(keys: list[bytes]) -> None:
    assert murmur2(keys).tolist() == list(map(aiokafka.partitioner.murmur2, keys))


def test_of_a_window_that_is_told_of_at_every_pane_none_goes_on_behind_lost_counts() -> None:
    """Who has counted in its first panes was lost with them, and could count a second time."""
    for plan, known in ((running(), 12_000), (plan_of_the_shop(), 8_000)):
        held = plan.begun(dict.fromkeys(plan.views, 0))
        settled = Settled(held, uncounted={"pages": 7500})
        assert unknown_before(held.views["pages"], settled) == known
        assert unknown_before(held.views["pages"], Settled(held)) == 0
